"""`Retries`: the records of an asynchronous node that failed and wait for their next try, as a table with two orders: now, and never.

The rows are those of the last commit. What changes them stands behind `RetrySource`: a deployed application or the test driver.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from kstreams_repl.engine.operators.streams.stream_async import StreamAsync
from kstreams_repl.engine.runtime.calls.async_calls import RetryAction
from kstreams_repl.engine.runtime.calls.pending_rows import PendingRow
from kstreams_repl.engine.serdes import resolve
from kstreams_repl.pictures.frames import Frames
from kstreams_repl.pictures.table import Table
from kstreams_repl.pictures.wording import counted
from kstreams_repl.system.durations import Seconds, as_seconds
from kstreams_repl.system.errors import TopologyError, did_you_mean
from kstreams_repl.system.types import Headers

if TYPE_CHECKING:
    from kstreams_repl.engine.serdes.serde import Serde

_COLUMNS = ("key", "value", "tries", "next try", "cause", "record")


@dataclass(frozen=True, slots=True)
class WaitingRecord:
    """One record that failed and waits off the main path of an asynchronous node.

    Attributes:
        key, value: what the node's function gets; the bytes if the node's serde cannot read them.
        tries: how often it has been tried.
        next_try: when it is tried again (ms since 1970).
        cause, trace: the error of the last try, and where it was raised.
        topic, partition, offset: coordinates of its source record.
        timestamp, headers: of the record at the node.
        task, number: the partition of the task that has it, and its number there.
    """

    key: Any
    value: Any
    tries: int
    next_try: int
    cause: str
    trace: str
    topic: str | None
    partition: int
    offset: int
    timestamp: int
    headers: Headers
    task: int
    number: int


@dataclass(frozen=True, slots=True)
class RetryReport:
    """What became of an order.

    Attributes:
        before, after: records that waited off the main path before the order and after it, in all.
        gone: records of the order that no longer wait: they have left the node, were dropped, or became dead letters.
        failed: records of the order that were tried and failed again.
        pending: records of the order whose try had not ended in time.
    """

    before: int
    after: int
    gone: int
    failed: int
    pending: int


class RetrySource(Protocol):
    """Where the rows are."""

    def read(self) -> list[WaitingRecord]:
        """Return the records that wait as of the last commit."""

    def order(self, action: RetryAction, rows: Mapping[int, list[int]], done: Callable[[], bool], timeout: float) -> None:
        """Have the tasks do something with records, and wait until `done` or the timeout (seconds).

        Args:
            action: what to do.
            rows: the records' numbers, by task.
        """


def async_operator(nodes: Mapping[str, object], name: str) -> StreamAsync:
    """Return the operator of an asynchronous node.

    Raises:
        TopologyError: there is no asynchronous node of that name.
    """
    operators = {each: getattr(node, "operator", None) for each, node in nodes.items()}
    known = {each: operator for each, operator in operators.items() if isinstance(operator, StreamAsync)}
    if name not in known:
        what = f"{name!r} is not an asynchronous node" if name in nodes else f"there is no node {name!r}"
        hint = did_you_mean(name, known) or f"asynchronous nodes: {', '.join(sorted(known)) or 'none'}"
        raise TopologyError(f"{what}: only records of *_async operators wait for another try", hint=hint, node=name)
    return known[name]


def waiting_record(task: int, number: int, row: PendingRow, operator: StreamAsync, config: Mapping[str, object]) -> WaitingRecord | None:
    """Return a row of an asynchronous node's store as a record; None if it does not wait off the main path."""
    if not row.due:
        return None
    key = _read(resolve(operator.options.key_serde, config["default.key.serde"]), row.key)
    value = _read(resolve(operator.options.value_serde, config["default.value.serde"]), row.value)
    return WaitingRecord(
        key, value, row.attempt - 1, row.due, row.cause, row.trace, row.at.topic, row.at.partition, row.at.offset, row.timestamp,
        row.headers, task, number,
    )  # fmt: skip


def _read(serde: Serde, data: bytes | None) -> object:
    try:
        return serde.deserialize(data)
    except Exception:  # another version of the node wrote it: the bytes say more than an error
        return data


class Retries(Frames):
    """The records of an asynchronous node that failed and wait for their next try (`on_error="retry"`). It shows itself as a table.

    Example:
        >>> app.retries("price").where(lambda record: "Timeout" in record.cause).retry_now()  # doctest: +SKIP
        RetryReport(before=12, after=5, gone=7, failed=0, pending=0)
    """

    def __init__(self, node: str, source: RetrySource, records: Sequence[WaitingRecord]) -> None:
        self.node = node
        self.records = tuple(records)
        self._source = source

    def __len__(self) -> int:
        return len(self.records)

    def where(self, condition: Callable[[WaitingRecord], object]) -> Retries:
        """Return the records for which a function returns a true value.

        Args:
            condition: (record) -> truth value.

        Example:
            >>> len(app.retries("price").where(lambda record: record.tries > 2))  # doctest: +SKIP
            3
        """
        return Retries(self.node, self._source, [record for record in self.records if condition(record)])

    def retry_now(self, *, timeout: Seconds = 10.0) -> RetryReport:
        """Try these records now instead of at their time, with the node's present function; wait for the results to be committed.

        Args:
            timeout: seconds to wait; tries that take longer go on.

        Raises:
            KStreamsError: the application does not run, or its instances cannot be reached.

        Example:
            >>> app.retries("price").retry_now()  # doctest: +SKIP
            RetryReport(before=12, after=0, gone=12, failed=0, pending=0)
        """
        return self._order("retry", as_seconds(timeout, "timeout"))

    def drop(self, *, timeout: Seconds = 10.0) -> RetryReport:
        """Drop these records for good; they are counted as dropped by the node. One that is being tried at the moment stays.

        Args:
            timeout: seconds to wait for the commit.

        Raises:
            KStreamsError: the application does not run, or its instances cannot be reached.

        Example:
            >>> app.retries("price").where(lambda record: record.offset == 17).drop()  # doctest: +SKIP
            RetryReport(before=12, after=11, gone=1, failed=0, pending=0)
        """
        return self._order("drop", as_seconds(timeout, "timeout"))

    def _order(self, action: RetryAction, timeout: float) -> RetryReport:
        tries = {(record.task, record.number): record.tries for record in self.records}
        before = len(self._source.read())
        rows: dict[int, list[int]] = {}
        for task, number in tries:
            rows.setdefault(task, []).append(number)
        now: dict[tuple[int, int], int] = {}

        def pending() -> Collection[tuple[int, int]]:
            now.clear()
            now.update({(record.task, record.number): record.tries for record in self._source.read()})
            return [at for at, count in tries.items() if now.get(at) == count]

        if rows:
            self._source.order(action, rows, lambda: not pending(), timeout)
        left = pending()
        failed = sum(at in now and now[at] > count for at, count in tries.items())
        return RetryReport(before, len(now), len(tries) - failed - len(left), failed, len(left))

    def table(self) -> Table:
        """Return the records as a table.

        Example:
            >>> app.retries("price").table().columns  # doctest: +SKIP
            ('key', 'value', 'tries', 'next try', 'cause', 'record')
        """
        rows = [
            (
                record.key, record.value, record.tries, datetime.fromtimestamp(record.next_try / 1000, UTC).replace(tzinfo=None),
                record.cause, f"{record.topic}-{record.partition}@{record.offset}",
            )
            for record in self.records
        ]  # fmt: skip
        return Table.of(_COLUMNS, rows, title=self.node, note=f"{counted(len(rows), 'record')} waiting for another try")

    def __repr__(self) -> str:
        return f"Retries({self.node!r}, {counted(len(self), 'record')})"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return self.table()._repr_mimebundle_(include, exclude)
