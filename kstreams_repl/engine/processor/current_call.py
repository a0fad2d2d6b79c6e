"""What the function of an asynchronous node can ask about its call: the record's coordinates and an idempotency key."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from kstreams_repl.system.errors import IllegalStateTransitionError
from kstreams_repl.system.types import Headers


@dataclass(frozen=True, slots=True)
class CallContext:
    """One call of an asynchronous node's function.

    Attributes:
        application_id, node: which node calls.
        topic, partition, offset: coordinates of the source record; None, -1, -1 if there is none.
        index: number of the record among those that this source record brought to the node, from 0.
        attempt: 1 for the first try; counts tries off the main path, not repetitions at once.
        timestamp, headers: of the record that entered the node.
    """

    application_id: str
    node: str
    topic: str | None
    partition: int
    offset: int
    index: int
    attempt: int
    timestamp: int
    headers: Headers

    @property
    def idempotency_key(self) -> str:
        """The same text each time that this record is tried, also after a crash: services that know it can refuse to do work twice.

        Example:
            >>> CallContext("app", "pay", "orders", 0, 17, 0, 1, 0, []).idempotency_key
            'app/pay/orders-0@17.0'
        """
        return f"{self.application_id}/{self.node}/{self.topic}-{self.partition}@{self.offset}.{self.index}"


CALLS: ContextVar[Any] = ContextVar("kstreams_repl.calls")
"""The call that runs, or a tuple of calls in a batch; anything with a `context` attribute."""


def current_call() -> CallContext:
    """Return the call in which this code runs.

    Raises:
        IllegalStateTransitionError: it does not run in an asynchronous node's call of one record.

    Example:
        >>> import kstreams_repl as ks
        >>> ks.current_call()
        Traceback (most recent call last):
        ...
        kstreams_repl.system.errors.IllegalStateTransitionError: current_call() was called outside an asynchronous node's function...
    """
    return current_calls()[0]


def current_calls() -> tuple[CallContext, ...]:
    """Return the calls in which this code runs: with `batch=`, one per record of the batch, in order.

    Raises:
        IllegalStateTransitionError: it does not run in an asynchronous node.

    Example:
        >>> import kstreams_repl as ks
        >>> async def pay(orders):
        ...     keys = [call.idempotency_key for call in ks.current_calls()]
        ...     return keys
    """
    calls = CALLS.get(None)
    if calls is None:
        raise IllegalStateTransitionError(
            "current_call() was called outside an asynchronous node's function", hint="call it in the function of a *_async operator"
        )
    return tuple(call.context for call in calls)
