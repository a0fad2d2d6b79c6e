"""The options of an asynchronous node: how many calls are in flight, in which order results leave, and what follows a failure."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, TypedDict, get_args

from kstreams_repl.system.durations import Seconds, as_seconds
from kstreams_repl.system.errors import TopologyError, did_you_mean

Order = Literal["key", "partition", "none"]
OnError = Literal["fail", "retry"]
_TIMES = ("timeout", "backoff", "max_backoff", "breaker_rest", "within", "retry_backoff", "max_retry_backoff")
_COUNTS = {"in_flight": 1, "in_flight_bytes": 1, "retries": 0, "breaker": 1, "batch": 1, "attempts": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncOptions:
    """How an asynchronous node calls its function. Durations are seconds, a timedelta, or text such as "20 ms", "1.5 s".

    Attributes:
        in_flight: most records whose calls run at the same time, per node and instance.
        in_flight_bytes: the task reads no further record while the source records of those that wait exceed this size.
        order: "key": one call per key at a time, so results of a key keep their order; "partition": calls overlap, results leave in
            input order; "none": results leave as they come.
        timeout: of one attempt; None = none. A function that runs in a thread cannot be cancelled: its late result is ignored.
        retries: how often a failed call is repeated at once, while its key (or the partition) waits.
        backoff, max_backoff: pause before the first repetition, doubled each time up to the maximum, plus a random part of `backoff`.
        rate: most calls per second, per node and instance; None = no limit.
        breaker: after so many failures in a row no call is made for `breaker_rest`; then one call decides. None = no breaker.
        breaker_rest: how long an open breaker rests.
        batch: the function takes a list of up to so many values and returns a list of as many results; None = one value.
        within: how long the first record of a batch waits for others.
        on_error: "fail": as an error in any processor. "retry": the record waits off the main path and is tried again later.
        attempts: how often a record is tried in all with `on_error="retry"`, before it becomes a dead letter.
        retry_backoff, max_retry_backoff: pause before a record is tried again off the main path, doubled each time.
        durable: results are written ahead to a topic of the application, and taken from there after a crash. Not for processors.
        key_serde, value_serde: how waiting records are stored; None: those of the stream, or the application's default.
        result_serde: how durable results are written; None: JSON. What is forwarded is what it reads back.

    Raises:
        TopologyError: an option is invalid.

    Example:
        >>> AsyncOptions(in_flight=64, timeout="2s", batch=16).timeout
        2.0
    """

    in_flight: int = 100
    in_flight_bytes: int = 64 * 1024 * 1024
    order: Order = "key"
    timeout: Any = 30.0
    retries: int = 0
    backoff: Any = 0.1
    max_backoff: Any = 10.0
    rate: float | None = None
    breaker: int | None = None
    breaker_rest: Any = 30.0
    batch: int | None = None
    within: Any = 0.02
    on_error: OnError = "fail"
    attempts: int = 5
    retry_backoff: Any = 1.0
    max_retry_backoff: Any = 300.0
    durable: bool = False
    key_serde: Any = None
    value_serde: Any = None
    result_serde: Any = None

    def __post_init__(self) -> None:
        for name in _TIMES:
            if name != "timeout" or self.timeout is not None:
                seconds = as_seconds(getattr(self, name), name, above=name == "timeout", error=TopologyError)
                object.__setattr__(self, name, seconds)
        for name, low in _COUNTS.items():
            number = getattr(self, name)
            if number is None and name in ("breaker", "batch"):
                continue
            if isinstance(number, bool) or not isinstance(number, int) or number < low:
                raise TopologyError(f"{name} must be a whole number >= {low}, got {number!r}", hint=f"give {name}={low} or more")
        if not isinstance(self.durable, bool):
            raise TopologyError(f"durable must be True or False, got {self.durable!r}", hint="give durable=True")
        for name, kind in (("order", Order), ("on_error", OnError)):
            if getattr(self, name) not in get_args(kind):
                allowed = " or ".join(map(repr, get_args(kind)))
                raise TopologyError(f"{name} must be {allowed}, got {getattr(self, name)!r}", hint=f"give {name}={get_args(kind)[0]!r}")
        if self.rate is not None and not (isinstance(self.rate, int | float) and self.rate > 0):
            raise TopologyError(f"rate must be a number of calls per second above 0, got {self.rate!r}", hint="leave it out for no limit")


class AsyncArguments(TypedDict, total=False):
    """The fields of `AsyncOptions` as keyword arguments of an operator."""

    in_flight: int
    in_flight_bytes: int
    order: Order
    timeout: Seconds | None
    retries: int
    backoff: Seconds
    max_backoff: Seconds
    rate: float | None
    breaker: int | None
    breaker_rest: Seconds
    batch: int | None
    within: Seconds
    on_error: OnError
    attempts: int
    retry_backoff: Seconds
    max_retry_backoff: Seconds
    durable: bool
    key_serde: object
    value_serde: object
    result_serde: object


def async_options(operator: str, options: AsyncArguments) -> AsyncOptions:
    """Return the options of an operator's call.

    Raises:
        TopologyError: an option is unknown or invalid.
    """
    names = [field.name for field in fields(AsyncOptions)]
    for name in options:
        if name not in names:
            raise TopologyError(f"{operator}() has no option {name!r}", hint=did_you_mean(name, names) or f"options: {', '.join(names)}")
    return AsyncOptions(**options)
