"""Taps through the journal, over the real task: requests, leases, bounds, and what is left behind."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kstreams_repl.host.instance.control.journal_taps import BYTES_PER_SECOND, JournalTapServer, _part_of
from kstreams_repl.host.instance.control.node_taps import LEASE_SECONDS, TapBoard
from kstreams_repl.host.journal.journal_records import DesiredState, TappedValues, TapRequest, encode
from kstreams_repl.host.journal.journal_state import JournalState
from tests.unit.host.instance.test_node_taps import driver, feed

ID = "ab" * 8


class Journal:
    """What a follower has read so far, and what it writes; both ends see a record as soon as it is written."""

    def __init__(self, generation: int = 3) -> None:
        self.state = JournalState()
        self.writer = self
        self.sent: list[tuple[bytes, bytes | None]] = []
        self.send(DesiredState(generation, "running", 1, 1))

    def send(self, record: Any) -> None:
        self._apply(*encode(record))

    def remove(self, key: str) -> None:
        self._apply(key.encode(), None)

    def _apply(self, key: bytes, value: bytes | None) -> None:
        self.sent.append((key, value))
        self.state.apply(key, value, len(self.sent))

    @property
    def shown(self) -> list[dict[str, Any]]:
        """Each part that shows the tap, in the order in which they were written."""
        parts = (_part_of(record, ID) for record in self.state.tapped)
        return [part for part in parts if part is not None]

    def left(self) -> set[str]:
        """The keys of taps that compaction would keep."""
        last = dict(self.sent)
        return {key.decode() for key, value in last.items() if value is not None and key.startswith(b"tap")}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def request(node: str = "wrapped", *, tap: str = ID, rows: int = 100, per_second: int = 10_000, until_ms: int = 0) -> TapRequest:
    """A request whose lease is over by the clock of its own host: that clock is not asked."""
    return TapRequest(3, tap, node, rows, per_second, until_ms, 0)


def serving(journal: Any, instances: int = 1) -> tuple[TapBoard, Clock]:
    clock = Clock()
    return TapBoard(JournalTapServer(journal, instances, clock=clock), 3, 0), clock


def test_values_arrive_in_parts_that_repeat_nothing() -> None:
    journal: Any = Journal()
    board, clock = serving(journal)
    with driver() as running:
        tasks: list[Any] = [running._task]
        journal.send(request())
        board.serve(tasks)
        for words in (["to", "be"], ["or"], []):
            feed(running, words)
            clock.now += 0.2
            board.serve(tasks)
    shown = journal.shown
    assert [(part["count"], [row[3]["text"] for row in part["rows"]]) for part in shown] == [(0, []), (2, ["to", "be"]), (3, ["or"])]
    assert {part["slot"] for part in shown} == {0} and len({part["began"] for part in shown}) == 1


def test_without_a_request_nothing_is_written_and_no_task_is_observed() -> None:
    journal: Any = Journal()
    board, _ = serving(journal)
    with driver() as running:
        board.serve([running._task])
        feed(running, ["to"])
        board.serve([running._task])
    assert len(journal.sent) == 1 and board.active == frozenset()


def test_a_lease_runs_from_its_arrival_and_leaves_nothing_behind() -> None:
    journal: Any = Journal()
    board, clock = serving(journal)
    with driver() as running:
        tasks: list[Any] = [running._task]
        journal.send(request())
        for _ in range(3):  # renewed before it is over, each time
            board.serve(tasks)
            clock.now += LEASE_SECONDS - 0.1
            assert board.active == {ID}
            journal.send(request())
        board.serve(tasks)
        assert board.active == {ID} and journal.left() == {f"tap/{ID}", "tapped/0"}
        clock.now += LEASE_SECONDS
        board.serve(tasks)
        assert board.active == frozenset() and journal.left() == set()
        points = running._task.services.points.of("wrapped")  # type: ignore[union-attr]
        assert [point._observers for point in points] == [()]


def test_an_instance_that_cannot_remove_an_expired_request_at_once_asks_only_once() -> None:
    journal: Any = Journal()
    board, clock = serving(journal)
    journal.send(request())
    board.serve([])
    journal._apply = lambda key, value: journal.sent.append((key, value))  # the broker is away: nothing comes back
    for _ in range(5):
        clock.now += LEASE_SECONDS
        board.serve([])
    assert [key for key, value in journal.sent if value is None] == [f"tap/{ID}".encode(), b"tapped/0"]


@pytest.mark.parametrize("instances", [1, 4, 1000])
def test_all_taps_of_all_instances_share_one_rate_and_everything_is_counted(instances: int) -> None:
    journal: Any = Journal()
    board, clock = serving(journal, instances)
    taps = [f"{number:08x}" for number in range(5)]
    with driver() as running:
        tasks: list[Any] = [running._task]
        for turn in range(70):
            for tap in (ID, *taps):
                journal.send(request(tap=tap, rows=1000))
            clock.now += 0.2
            board.serve(tasks)
            if turn < 40:
                feed(running, ["x" * 1500] * 50)
    shown = journal.shown
    written = sum(len(value) for key, value in journal.sent if key == b"tapped/0" and value is not None)
    share = max(BYTES_PER_SECOND / instances, 8 * 1024)
    assert written < share * (14 + 1) * 1.3, "fourteen seconds, a burst of one, quotation marks"
    assert max(len(value or b"") for _, value in journal.sent) < 1_000_000
    assert sum(len(part["rows"]) for part in shown) >= 4
    numbers = [row[0] for part in shown for row in part["rows"]]
    assert numbers == sorted(set(numbers))
    assert shown[-1]["count"] == 2000


def test_a_row_too_long_for_a_record_of_the_journal_is_shown_as_the_beginning_of_its_text() -> None:
    journal: Any = Journal()
    clock = Clock()
    server = JournalTapServer(journal, 1, clock=clock)
    value = {f"field {number}": ['"' * 2000] * 100 for number in range(100)}
    content = {"slot": 0, "began": 1, "taps": {ID: {"node": "n", "count": 1, "rows": [[1, "0_3", "k", value, 5, [["h", "v"]]]]}}}
    assert server.show(3, 0, content)
    (part,) = journal.shown
    (row,) = part["rows"]
    assert row[:2] == [1, "0_3"] and row[3].startswith('{"field 0": ["') and row[3].endswith("…") and len(row[3]) == 2001
    assert len(journal.sent[-1][1] or b"") < 20_000


def test_a_new_generation_forgets_the_requests_of_the_one_before() -> None:
    journal: Any = Journal()
    journal.send(request())
    journal.send(DesiredState(4, "running", 2, 1))
    assert not journal.state.taps
    journal.send(request())
    assert not journal.state.taps, "a client that has not heard of the edit yet"


@pytest.mark.parametrize(
    "change",
    [{"rows": 0}, {"rows": 1001}, {"id": "../../x"}, {"per_second": 10**9}, {"node": 7}, {"until_ms": "soon"}, {"rows": None}],
)
def test_a_request_that_is_none_is_ignored(change: dict[str, Any]) -> None:
    state = JournalState()
    _, value = encode(request())
    forged = json.loads(value) | change
    assert not state.apply(f"tap/{forged['id']}".encode(), json.dumps(forged).encode(), 0)
    assert not state.taps and state.ignored == 1


@pytest.mark.parametrize(
    "values",
    ["[", "[]", "{}", '{"began": 1, "taps": []}', '{"began": 1, "taps": {"%s": {"count": 1, "rows": [[1, 2]]}}}',
     '{"began": 1, "taps": {"%s": {"count": "many", "rows": []}}}', '{"began": 1, "taps": {"%s": 5}}',
     '{"taps": {"%s": {"count": 1, "rows": []}}}'],
)  # fmt: skip
def test_values_of_another_shape_show_nothing(values: str) -> None:
    assert _part_of(TappedValues(3, 0, values.replace("%s", ID)), ID) is None
