"""Orders about records that wait off the main path of an asynchronous node: try them now, or drop them.

Actors: the client writes one `RetryOrder` (``retries/<id>.json`` of the control directory) and removes it when the committed rows show its
effect; each instance's `RetryBoard` looks a few times a second and hands every new order to its tasks, which follow it between records. An
order names rows, so doing it twice, after a crash, does no more than doing it once. Without an order the cost is one `stat` per report.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kstreams_repl.instance.control.control_files import read_whole, write_whole
from kstreams_repl.runtime.async_calls import ACTIONS

_ID = re.compile(r"[0-9a-f]{8,32}")
_FOLDER = "retries"


@dataclass(frozen=True, slots=True)
class RetryOrder:
    """What to do with some waiting records of a node.

    Attributes:
        action: "retry" or "drop".
        rows: numbers of the records in the node, by partition of the task, as text.
        until_ms: when the order expires.
    """

    id: str
    node: str
    action: str
    rows: Mapping[str, list[int]]
    until_ms: int

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> RetryOrder | None:
        """Parse an order; return None when it is invalid."""
        try:
            order = cls(**{name: content[name] for name in cls.__dataclass_fields__})
            sound = (
                isinstance(order.node, str)
                and order.action in ACTIONS
                and _ID.fullmatch(order.id) is not None
                and isinstance(order.until_ms, int)
                and all(isinstance(number, int) for numbers in order.rows.values() for number in numbers)
            )
        except (KeyError, TypeError, AttributeError):
            return None
        return order if sound else None


class RetryFiles:
    """The orders of an application.

    Args:
        directory: the application's control directory.
    """

    def __init__(self, directory: Path) -> None:
        self._folder = directory / _FOLDER

    def put(self, order: RetryOrder) -> None:
        """Write an order."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        write_whole(self._folder / f"{order.id}.json", asdict(order))

    def remove(self, order: str) -> None:
        """Remove an order."""
        with suppress(FileNotFoundError):
            (self._folder / f"{order}.json").unlink()

    @property
    def exist(self) -> bool:
        """Whether there may be an order; costs one `stat`."""
        return os.path.isdir(self._folder)

    def orders(self, now_ms: int) -> list[RetryOrder]:
        """Return the orders in force; remove the others."""
        found = []
        for path in sorted(self._folder.glob("*.json")):
            content = read_whole(path)
            order = None if content is None else RetryOrder.read(content)
            if order is not None and now_ms < order.until_ms:
                found.append(order)
            else:
                self.remove(path.stem)
        return found


class RetryBoard:
    """The instance's side."""

    def __init__(self, files: RetryFiles) -> None:
        self._files = files
        self._followed: set[tuple[str, Any]] = set()

    def serve(self, tasks: Iterable[Any], now_ms: int) -> None:
        """Hand new orders to the tasks.

        Args:
            tasks: the instance's `StreamTask`s.
        """
        if not self._files.exist:
            return
        orders = self._files.orders(now_ms)
        if not orders:
            self._followed.clear()
        for order in orders:
            for task in tasks:
                numbers = order.rows.get(str(task.id.partition))
                if numbers and task.calls is not None and (order.id, task.id) not in self._followed:
                    self._followed.add((order.id, task.id))
                    task.calls.order(order.node, order.action, numbers)
