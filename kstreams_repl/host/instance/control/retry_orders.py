"""Orders about records that wait off the main path of an asynchronous node: try them now, or drop them.

Actors: the client writes one `RetryOrder` through an `OrderBox` and removes it when the committed rows show its effect; each instance's
`RetryBoard` reads the orders a few times a second and hands every new one to its tasks, which follow it between records. On the
driver's host an order is a file (``retries/<id>.json`` of the control directory), on a cluster a record of the journal. An order names
rows, so following it twice, after a crash, does no more than following it once. Without an order the cost is one `stat` per report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Protocol

from kstreams_repl.host.instance.control.request_files import RequestFiles
from kstreams_repl.host.journal.journal import JournalReports
from kstreams_repl.host.journal.journal_records import RetryOrder
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.system.types import TaskId

if TYPE_CHECKING:
    from kstreams_repl.engine.runtime.task import StreamTask

_FOLDER = "retries"
_MOST_NUMBERS = 40_000
"""Of rows in one order: a record of the journal holds a megabyte, and a number has up to 17 characters."""
_SECONDS = 10.0
Wanted = Callable[[int], Iterable[RetryOrder]]
"""Returns the orders in force, given the time (ms)."""


class OrderBox(Protocol):
    """The client's end."""

    def put(self, order: RetryOrder) -> None:
        """Give an order.

        Raises:
            BrokerUnavailableError: the journal cannot be written now.
            AuthorizationError: the client has no right to write to it.
        """

    def close(self) -> None:
        """Remove the orders that were given."""


class RetryFiles(RequestFiles[RetryOrder]):
    """The orders as files.

    Args:
        directory: the application's control directory.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, _FOLDER, RetryOrder.read)

    def orders(self, now_ms: int) -> list[RetryOrder]:
        """Return the orders in force; remove the others."""
        return list(self.wanted(now_ms).values()) if self.requested else []


class FileOrders:
    """`OrderBox` on the driver's own host."""

    def __init__(self, directory: Path) -> None:
        self._files = RetryFiles(directory)
        self._given: list[str] = []

    def put(self, order: RetryOrder) -> None:
        self._files.put(order)
        self._given.append(order.id)

    def close(self) -> None:
        for order_id in self._given:
            self._files.drop(order_id)


class JournalOrders:
    """`OrderBox` for instances on other hosts. Orders are not control keys, so it fences no driver."""

    def __init__(self, settings: ClientSettings, application_id: str) -> None:
        self._application_id = application_id
        self._writer = JournalReports(settings, application_id)
        self._given: list[str] = []

    def put(self, order: RetryOrder) -> None:
        for part in divided(order, _MOST_NUMBERS):
            self._given.append(part.key)
            self._writer.send(part)
        doing = f"writing the order about records at {order.node} of {self._application_id} to the journal"
        self._writer.confirm(doing, hint="check that the broker runs, then again; an order that arrives late does no harm")

    def close(self) -> None:
        for key in self._given:
            self._writer.remove(key)
        self._writer.flush(_SECONDS)
        self._writer.close()


def divided(order: RetryOrder, most: int) -> list[RetryOrder]:
    """Return orders of at most so many rows each that together say the same."""
    rows = [(task, number) for task, numbers in order.rows.items() for number in numbers]
    if len(rows) <= most:
        return [order]
    parts = []
    for begin in range(0, len(rows), most):
        by_task: dict[str, list[int]] = {}
        for task, number in rows[begin : begin + most]:
            by_task.setdefault(task, []).append(number)
        numbers = {task: tuple(each) for task, each in by_task.items()}
        parts.append(RetryOrder(order.generation, token_hex(8), order.node, order.action, numbers, order.until_ms))
    return parts


class RetryBoard:
    """The instance's side.

    Args:
        wanted: of the instance's `control.channel.InstanceControl`.
    """

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._followed: set[tuple[str, TaskId]] = set()

    def serve(self, tasks: Iterable[StreamTask], now_ms: int) -> None:
        """Hand new orders to the tasks.

        Args:
            tasks: the instance's `StreamTask`s.
        """
        orders = list(self._wanted(now_ms))
        if not orders:
            self._followed.clear()
        for order in orders:
            for task in tasks:
                numbers = order.rows.get(str(task.id.partition))
                if numbers and task.calls is not None and (order.id, task.id) not in self._followed:
                    self._followed.add((order.id, task.id))
                    task.calls.order(order.node, order.action, numbers)
