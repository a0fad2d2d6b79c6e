"""Orders about waiting records: read once per task, ended by time, and harmless when damaged."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kstreams_repl.instance.control.retry_orders import RetryBoard, RetryFiles, RetryOrder
from kstreams_repl.types import TaskId


class Task:
    """A task that notes its orders."""

    def __init__(self, partition: int) -> None:
        self.id, self.orders = TaskId(0, partition), []  # type: ignore[var-annotated]
        self.calls = SimpleNamespace(order=lambda *order: self.orders.append(order))


def order(**fields: Any) -> RetryOrder:
    return RetryOrder(**{"id": "0123456789abcdef", "node": "pay", "action": "retry", "rows": {"0": [3, 5]}, "until_ms": 100} | fields)


def test_an_order_reaches_each_task_that_has_rows_once(tmp_path: Path) -> None:
    files, tasks = RetryFiles(tmp_path), [Task(0), Task(1)]
    board = RetryBoard(files)
    board.serve(tasks, 0)
    files.put(order())
    board.serve(tasks, 1)
    board.serve(tasks, 2)
    assert [task.orders for task in tasks] == [[("pay", "retry", [3, 5])], []]
    files.remove("0123456789abcdef")
    files.remove("0123456789abcdef")
    board.serve(tasks, 3)
    files.put(order(action="drop"))
    board.serve(tasks, 4)
    assert tasks[0].orders[1:] == [("pay", "drop", [3, 5])]


def test_a_successor_follows_an_order_again(tmp_path: Path) -> None:
    files, task = RetryFiles(tmp_path), Task(0)
    files.put(order())
    for _ in range(2):
        RetryBoard(files).serve([task], 1)
    assert len(task.orders) == 2


def test_expired_and_damaged_orders_are_removed(tmp_path: Path) -> None:
    files, task = RetryFiles(tmp_path), Task(0)
    files.put(order())
    files.put(order(id="aaaaaaaa", action="delete everything", until_ms=1000))
    files.put(order(id="bbbbbbbb", rows={"0": ["three"]}, until_ms=1000))
    (tmp_path / "retries" / "cccccccc.json").write_text("{")
    RetryBoard(files).serve([task], 100)
    assert task.orders == []
    assert list((tmp_path / "retries").glob("*.json")) == []
