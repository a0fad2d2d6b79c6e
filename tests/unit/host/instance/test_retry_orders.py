"""Orders about waiting records: read once per task, ended by time, and harmless when damaged."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kstreams_repl.host.instance.control.journal_channel import JournalInstanceControl
from kstreams_repl.host.instance.control.retry_orders import RetryBoard, RetryFiles, divided
from kstreams_repl.host.journal.journal_records import DesiredState, RetryOrder, encode
from kstreams_repl.host.journal.journal_state import JournalState
from kstreams_repl.system.types import TaskId


class Task:
    """A task that notes its orders."""

    def __init__(self, partition: int) -> None:
        self.id, self.orders = TaskId(0, partition), []  # type: ignore[var-annotated]
        self.calls = SimpleNamespace(order=lambda *order: self.orders.append(order))


def order(**fields: Any) -> RetryOrder:
    given = {"generation": 2, "id": "0123456789abcdef", "node": "pay", "action": "retry", "rows": {"0": (3, 5)}, "until_ms": 100}
    return RetryOrder(**given | fields)


def test_an_order_reaches_each_task_that_has_rows_once(tmp_path: Path) -> None:
    files, tasks = RetryFiles(tmp_path), [Task(0), Task(1)]
    board = RetryBoard(files.orders)
    board.serve(tasks, 0)
    files.put(order())
    board.serve(tasks, 1)
    board.serve(tasks, 2)
    assert [task.orders for task in tasks] == [[("pay", "retry", (3, 5))], []]
    files.drop("0123456789abcdef")
    files.drop("0123456789abcdef")
    board.serve(tasks, 3)
    files.put(order(action="drop"))
    board.serve(tasks, 4)
    assert tasks[0].orders[1:] == [("pay", "drop", (3, 5))]


def test_a_successor_follows_an_order_again(tmp_path: Path) -> None:
    files, task = RetryFiles(tmp_path), Task(0)
    files.put(order())
    for _ in range(2):
        RetryBoard(files.orders).serve([task], 1)
    assert len(task.orders) == 2


def test_expired_and_damaged_orders_are_removed(tmp_path: Path) -> None:
    files, task = RetryFiles(tmp_path), Task(0)
    files.put(order())
    files.put(order(id="aaaaaaaa", action="delete everything", until_ms=1000))
    files.put(order(id="bbbbbbbb", rows={"0": ("three",)}, until_ms=1000))
    (tmp_path / "retries" / "cccccccc.json").write_text("{")
    RetryBoard(files.orders).serve([task], 100)
    assert task.orders == []
    assert list((tmp_path / "retries").glob("*.json")) == []


def in_the_journal(tmp_path: Path, state: JournalState, generation: int) -> RetryBoard:
    """The board of an instance on another host, which has read this much of the journal."""
    follower: Any = SimpleNamespace(state=state)
    return RetryBoard(JournalInstanceControl(follower, generation, 0, executor="host-a").orders)


def test_an_order_in_the_journal_reaches_the_instances_of_its_generation_until_its_time(tmp_path: Path) -> None:
    state, task = JournalState(), Task(0)
    state.apply(*encode(DesiredState(2, "running", 1, 1)), 0)
    state.apply(*encode(order()), 1)
    for generation, now in ((1, 1), (2, 100), (2, 1)):
        in_the_journal(tmp_path, state, generation).serve([task], now)
    assert task.orders == [("pay", "retry", (3, 5))]
    state.apply(b"order/0123456789abcdef", None, 2)
    assert not state.orders, "its client has removed it"
    state.apply(*encode(order(id="aaaaaaaa")), 3)
    state.apply(*encode(DesiredState(3, "running", 2, 1)), 4)
    state.apply(*encode(order(id="bbbbbbbb")), 5)
    assert not state.orders, "an edit ends the orders of the generation before"


def test_an_order_of_another_shape_is_ignored_in_the_journal() -> None:
    state = JournalState()
    key, value = encode(order(action="delete everything"))
    state.apply(key, value, 0)
    state.apply(b"order/ffffffff", encode(order())[1], 1)
    assert not state.orders and state.ignored == 2


def test_an_order_about_many_rows_becomes_several_that_say_the_same() -> None:
    rows = {"0": tuple(range(5)), "1": tuple(range(10, 13))}
    parts = divided(order(rows=rows), 4)
    assert [part.rows for part in parts] == [{"0": (0, 1, 2, 3)}, {"0": (4,), "1": (10, 11, 12)}]
    assert len({part.id for part in parts}) == 2 and {(part.action, part.until_ms) for part in parts} == {("retry", 100)}
    assert divided(order(rows=rows), 8) == [order(rows=rows)]
