"""Which moment is meant, which commits it is, and whether a changelog still has what it had."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from kstreams_repl.engine.commit.offset_metadata import COMMIT_ID, STREAM_TIME, UNKNOWN, changelog_key, encode
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.host.instance.state.changelogs import ChangelogPartition
from kstreams_repl.host.kafka.offset_history import FORGOTTEN, OffsetCommit
from kstreams_repl.repl.session.views.past.moments import Moment, moment_of
from kstreams_repl.repl.session.views.past.state import compaction
from kstreams_repl.repl.session.views.past.state.commit_history import CommitHistory, TaskCommit
from kstreams_repl.repl.session.views.past.state.compaction import CompactionCheck, refuse_compacted
from kstreams_repl.system.errors import CallError, InvalidStateStoreError
from kstreams_repl.system.types import RecordBatch, RecordPosition, TaskId, TopicPartition

ONE, TWO = TaskId(0, 0), TaskId(0, 1)
IN, SIDE, OTHER = TopicPartition("in", 0), TopicPartition("side", 0), TopicPartition("in", 1)
LOG = "app-counts-changelog"


class Spec:
    def __init__(self, *partitions: TopicPartition) -> None:
        self.partitions = dict.fromkeys(partitions, "source")


def commit(
    partition: TopicPartition, offset: int, number: int, at_ms: int, end: int | None = None, topic_id: str = ""
) -> OffsetCommit:
    ends = None if end is None else {changelog_key(LOG, topic_id): end}
    return OffsetCommit(partition, offset, encode(-1, {COMMIT_ID: number, STREAM_TIME: number * 10}, b"", ends), at_ms)


def history(*commits: OffsetCommit) -> CommitHistory:
    specs: Any = {ONE: Spec(IN, SIDE), TWO: Spec(OTHER)}
    made = CommitHistory.__new__(CommitHistory)
    admin: Any = None
    made.__init__(admin, "app", specs)  # type: ignore[misc]
    made._offsets = type("Offsets", (), {"read": lambda self: iter(commits)})()  # type: ignore[assignment]
    made.update()
    return made


KNOWN = [
    commit(IN, 0, 1, 100), commit(SIDE, 0, 1, 100), commit(OTHER, 5, 1, 100),
    commit(SIDE, 4, 2, 200, 3), commit(IN, 7, 2, 200),
    commit(OTHER, 9, 3, 300),
    commit(IN, 12, 4, 400), commit(SIDE, 4, 4, 400),
]  # fmt: skip


@pytest.mark.parametrize(
    ("as_of", "moment"),
    [
        ("commit 12", Moment("commit", 12)),
        ("orders-0@17", Moment("record", record=RecordPosition("orders", 0, 17))),
        (RecordPosition("orders", 0, 17), Moment("record", record=RecordPosition("orders", 0, 17))),
        (1_700_000_000_000, Moment("time", 1_700_000_000_000)),
        (datetime(2026, 1, 31, 12, tzinfo=UTC), Moment("time", 1_769_860_800_000)),
        ("2026-01-31T12:00", Moment("time", 1_769_860_800_000)),
        ("stream time 2026-01-31T12:00", Moment("stream time", 1_769_860_800_000)),
    ],
)
def test_a_moment_is_read(as_of: object, moment: Moment) -> None:
    assert moment_of(as_of) == moment
    assert moment_of(moment) is moment


def test_a_duration_ago_is_a_time() -> None:
    ago, now = moment_of("10 minutes ago"), moment_of(datetime.now(UTC))
    assert ago.kind == "time" and 599_000 < now.number - ago.number < 601_000


@pytest.mark.parametrize("wrong", ["yesterday", "commit", "commit -1", "in@3", "a fortnight ago", "", None, object(), True])
def test_what_is_no_moment_is_an_error(wrong: object) -> None:
    with pytest.raises(CallError, match="expected a moment") as error:
        moment_of(wrong)
    assert "orders-0@17" in str(error.value.hint)


@pytest.mark.parametrize(
    ("moment", "offsets"),
    [
        (Moment("commit", 1), {IN: 0, SIDE: 0, OTHER: 5}),
        (Moment("commit", 3), {IN: 7, SIDE: 4, OTHER: 9}),
        (Moment("commit", 99), {IN: 12, SIDE: 4, OTHER: 9}),
        (Moment("time", 299), {IN: 7, SIDE: 4, OTHER: 5}),
        (Moment("stream time", 25), {IN: 7, SIDE: 4, OTHER: 5}),
        (Moment("record", record=RecordPosition("in", 0, 7)), {IN: 7, SIDE: 4, OTHER: 9}),
        (Moment("record", record=RecordPosition("in", 0, 6)), {IN: 0, SIDE: 0, OTHER: 5}),
        (Moment("record", record=RecordPosition("in", 1, 8)), {IN: 7, SIDE: 4, OTHER: 5}),
    ],
)
def test_each_task_is_at_its_last_commit_of_the_moment(moment: Moment, offsets: dict[TopicPartition, int]) -> None:
    found: dict[TopicPartition, int] = {}
    for each in history(*KNOWN).at(moment).values():
        found |= each.offsets
    assert found == offsets


def test_a_task_without_a_commit_as_early_is_left_out_if_it_began_later() -> None:
    assert set(history(*KNOWN, commit(IN, 20, 5, 500), commit(SIDE, 4, 5, 500)).at(Moment("time", 100))) == {ONE, TWO}
    assert set(history(*KNOWN[3:5], KNOWN[2]).at(Moment("time", 250))) == {ONE, TWO}


@pytest.mark.parametrize(("moment", "known"), [(Moment("time", 150), KNOWN[3:]), (Moment("commit", 1), KNOWN[3:]), (Moment("time", 9), [])])
def test_what_the_broker_has_forgotten_is_said(moment: Moment, known: list[OffsetCommit]) -> None:
    with pytest.raises(InvalidStateStoreError) as error:
        history(*known).at(moment)
    assert ("the earliest is commit 2 of task 0_0" if known else "first commit") in str(error.value.hint)


def test_a_record_of_the_first_commit_has_no_commit_before() -> None:
    assert history(commit(IN, 4, 1, 100), commit(SIDE, 2, 1, 100)).at(Moment("record", record=RecordPosition("in", 0, 3))) == {}


def test_a_record_that_is_not_committed_or_not_read_is_an_error() -> None:
    known = history(*KNOWN)
    for record, text in ((RecordPosition("in", 0, 12), "not committed"), (RecordPosition("out", 0, 1), "no task")):
        with pytest.raises(InvalidStateStoreError, match=text):
            known.at(Moment("record", record=record))


def test_a_reset_begins_a_new_past() -> None:
    known = history(*KNOWN, OffsetCommit(IN, FORGOTTEN, "", 500), OffsetCommit(SIDE, FORGOTTEN, "", 500), commit(IN, 3, 1, 600))
    assert [each.offsets for each in known.of(ONE)] == [{IN: 3}]


@pytest.mark.parametrize("reset", [OffsetCommit(OTHER, 9, "", 500), commit(OTHER, 2, 4, 500)])
def test_offsets_that_were_set_begin_a_new_past(reset: OffsetCommit) -> None:
    known = history(*KNOWN, reset, commit(OTHER, 9, 5, 600))
    assert [each.offsets[OTHER] for each in known.of(TWO)] == ([2] if reset.metadata else []) + [9]


def test_a_changelog_that_was_deleted_since_is_not_read_for_the_old_one() -> None:
    known = history(*(commit(OTHER, number, number, number, end) for number, end in ((1, 4), (2, 9), (3, 2), (4, 12))))
    first, second, third, fourth = known.of(TWO)
    assert (known.begin_of(TWO, LOG), known.end_of(third, LOG), known.end_of(fourth, LOG)) == (2, 2, 12)
    for gone in (first, second):
        with pytest.raises(InvalidStateStoreError, match="was reset") as error:
            known.end_of(gone, LOG)
        assert "the earliest is commit 3" in str(error.value.hint)


@pytest.mark.parametrize("first_id", ["one", ""])
def test_a_new_changelog_that_has_outgrown_the_old_one_is_not_taken_for_it(first_id: str) -> None:
    """Commits of an earlier release do not name the id: there the new one is seen by its end, or else by nothing."""
    rows = ((1, 4, first_id), (2, 9, "one"), (3, 12, "two"), (4, 15, "two"), (5, UNKNOWN, "two"))
    known = history(*(commit(OTHER, number, number, number, end, topic_id) for number, end, topic_id in rows))
    first, second, third, fourth, fifth = known.of(TWO)
    assert known.since_reset(TWO, LOG) == [third, fourth, fifth]
    assert [known.end_of(each, LOG) for each in (third, fourth, fifth)] == [12, 15, UNKNOWN]
    for gone in (first, second):
        with pytest.raises(InvalidStateStoreError, match="was reset"):
            known.end_of(gone, LOG)


def test_the_end_of_a_changelog_is_the_last_one_that_a_commit_names() -> None:
    known = history(*KNOWN)
    first, second, third = known.of(ONE)
    assert [known.end_of(each, LOG) for each in (first, second, third)] == [0, 3, 3]
    later = history(*KNOWN[6:])
    assert later.end_of(later.of(ONE)[0], LOG) is None


# ---- compaction


def log_of(records: list[tuple[int, bytes]]) -> RecordBatch:
    offsets, keys = [offset for offset, _ in records], [key for _, key in records]
    return RecordBatch(keys, [b"v"] * len(keys), [0] * len(keys), offsets, None, "")


@dataclass
class Log:
    """A changelog: its records and its markers (each with its time), and which records were aborted."""

    rows: list[tuple[int, bytes]] = field(default_factory=list)
    times: dict[int, int] = field(default_factory=dict)
    markers: list[int] = field(default_factory=list)
    aborted: set[int] = field(default_factory=set)
    settings: Any = None
    asked: int = 0

    def topic_configs(self, topics: list[str]) -> dict[str, dict[str, str]]:
        return {topic: {"cleanup.policy": "compact"} for topic in topics}

    def offsets_for_time(self, times: dict[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """As the broker: the first record or marker that is not earlier."""
        ((at, since),) = times.items()
        self.asked += 1
        there = sorted([offset for offset, _ in self.rows] + self.markers)
        return {at: next((offset for offset in there if self.times[offset] >= since), None)}

    def state(self, end: int) -> dict[bytes, int]:
        return {key: offset for offset, key in self.rows if offset < end and offset not in self.aborted}

    def cleaned(self, before: int, chance: random.Random) -> Log:
        """As the broker cleans: of each key the last record, none that was aborted; markers go at some time, after their records."""
        last = {key: offset for offset, key in self.rows if offset < before and offset not in self.aborted}
        rows = [(o, key) for o, key in self.rows if o >= before or (o not in self.aborted and last[key] == o)]
        old = chance.random() < 0.5
        return Log(rows, self.times, [marker for marker in self.markers if not (old and marker < before)], self.aborted)


def refused(monkeypatch: pytest.MonkeyPatch, log: Log, end: int, ends: list[int]) -> str | None:
    """What is said of a log as of one of the ends of the commits; the hint, or None."""
    store = ChangelogPartition(ONE, StoreBuilder("counts", StoreKind.KEY_VALUE), TopicPartition(LOG, 0))

    def read(settings: object, ranges: Any, *, isolation: str = "read_committed", batch_size: int = 0) -> Any:
        low, high = ranges[0].start, ranges[0].end
        seen = [row for row in log.rows if low <= row[0] < high and (isolation != "read_committed" or row[0] not in log.aborted)]
        yield ranges[0].partition, log_of(seen)

    monkeypatch.setattr(compaction, "read_ranges", read)
    check = CompactionCheck(store, 0, end)
    seen = [row for row in log.rows if row[0] < end and row[0] not in log.aborted]
    if seen:
        check.add(log_of(seen))
    commits = [TaskCommit(ONE, number, {IN: commit(IN, number, number + 1, number, end)}) for number, end in enumerate(ends)]
    admin: Any = log
    try:
        refuse_compacted(admin, check, commits)
    except InvalidStateStoreError as error:
        return str(error.hint)
    return None


@pytest.mark.parametrize("seed", range(400))
def test_a_compacted_log_is_never_taken_for_whole(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """A random log of transactions, cleaned up to a random offset as the broker cleans: each moment that is not refused has what it had,
    and each moment of a log that was not cleaned is not refused.

    Some transactions are aborted, some of these before they had a record, or so late that others committed meanwhile; some commits have no
    record here, and name where the log ended when the store was restored.
    """
    chance = random.Random(seed)
    log, ends, offset, now_ms = Log(), [], 0, 1000
    zombies = 0
    keys = chance.choice([8, 1000])

    def add(*, key: bytes | None = None, aborted: bool = False) -> None:
        nonlocal offset, now_ms
        now_ms += chance.randrange(1, 400)
        log.times[offset] = now_ms
        if key is None:
            log.markers.append(offset)
        else:
            log.rows.append((offset, key))
            log.times[offset] -= chance.randrange(300)
            log.aborted |= {offset} if aborted else set()
        offset += 1

    for _ in range(chance.randrange(2, 16)):
        kind = chance.choice(["commit", "commit", "commit", "abort", "lone abort", "zombie", "idle"])
        if kind == "zombie":
            zombies += 1
        if kind == "idle":
            ends.append(offset)  # after a restoration
            continue
        for _ in range(0 if kind == "lone abort" else chance.randrange(1, 5)):
            if zombies and chance.random() < 0.3:
                add(key=b"z", aborted=True)
            add(key=b"k%d" % chance.randrange(keys), aborted=kind == "abort")
        if kind in ("commit", "zombie"):
            last = max(row for row, key in log.rows if row not in log.aborted)
            if last != offset - 1 and zombies:
                add(key=b"k%d" % chance.randrange(keys))
            ends.append(offset)
        add()
        if zombies and chance.random() < 0.3:
            zombies -= 1
            add()
    if not ends:
        ends.append(0)
    before = chance.choice([0, 0, chance.randrange(offset)])
    left = log.cleaned(before, chance) if before else log
    for end in ends:
        hint = refused(monkeypatch, left, end, ends)
        if hint is None:
            assert left.state(end) == log.state(end)
        else:
            assert before > 0, (log, end, ends)
            assert "the earliest is commit" in hint or "ask for now" in hint


def test_the_end_that_a_restored_store_begins_with_is_no_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit after a restoration names the end of the log although it has no record in it: the next record is there, not a marker."""
    log = Log([(0, b"a"), (2, b"b"), (4, b"c"), (6, b"b")], {number: number for number in range(8)}, [1, 3, 5, 7])
    ends = [1, 2, 3, 5, 7]
    assert refused(monkeypatch, log, 5, ends) is None
    assert refused(monkeypatch, log.cleaned(7, random.Random(0)), 5, ends) is not None


def test_markers_of_commits_are_not_asked_for_and_only_so_many_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "MOST_ASKED", 50)
    records, markers = range(0, 400, 2), list(range(1, 400, 2))
    log = Log([(offset, b"%d" % offset) for offset in records], {n: n for n in range(400)}, markers)
    assert refused(monkeypatch, log, 399, markers) is None
    assert log.asked < 20
    log.asked = 0
    assert refused(monkeypatch, log, 399, []) is not None
    assert 50 < log.asked < 50 * 20
    assert refused(monkeypatch, log, 99, []) is None
