"""Causes of output records and rows, for each operator, against runs of the test driver without one of the input records."""

from __future__ import annotations

import random
from typing import Any

import pytest

import kstreams_repl as ks
from tests.unit.repl.session.past.recorded_run import RecordedRun, driven, needed
from tests.unit.repl.session.past.workloads import Piped

LONG, TEXT = ks.serdes.long.serialize, str.encode
NUMBERS: dict[str, Any] = {"key_serde": "string", "value_serde": "long"}
TEXTS: dict[str, Any] = {"key_serde": "string", "value_serde": "string"}


def rows(
    seed: int, count: int, topics: str, *, keys: int = 3, deleted: float = 0.0, late_ms: int = 0, step_ms: int = 20
) -> list[Piped]:
    """Records with timestamps and values of their own: texts of tables, numbers elsewhere. Only a row that is there is deleted."""
    chance, at, taken = random.Random(seed), 1_000, set[int]()
    made: list[Piped] = []
    there: dict[tuple[str, bytes], bool] = {}
    for number in range(1, count + 1):
        at += chance.randrange(1, step_ms)
        topic, key = chance.choice(topics.split()), TEXT(f"k{chance.randrange(keys)}")
        time = at - chance.randrange(late_ms + 1) * (topic == "orders" or not deleted)
        while time in taken:
            time += 1
        taken.add(time)
        gone = topic in ("names", "left", "right") and there.get((topic, key), False) and chance.random() < deleted
        there[topic, key] = not gone
        text = f"{chance.choice('ab')}#{number}"
        made.append((topic, key, None if gone else TEXT(text) if topic in ("names", "left", "right") else LONG(number), time))
    return made


def check_records(
    topology: Any, piped: list[Piped], outputs: tuple[str, ...], *, all: bool = False, least: int = 5, when: bool = True
) -> set[str]:
    """Compare the causes of each output record with those that the oracle finds; return all roles.

    Args:
        when: whether a record without which the output would be sent later is a cause; False: only the one in whose processing it is sent.
    """
    wanted, _ = needed(topology, piped, outputs, when=when)
    run, roles = RecordedRun(topology).run(piped), set()
    seen = 0
    for output in outputs:
        for record, during in run.sent_during(output):
            causes = run.why_record(record.position, all=all)
            got, expected = (
                {cause.timestamp for cause in causes},
                wanted[output, record.key, record.value, record.timestamp, during],
            )
            if record.value is None:  # that there was something to delete is not named
                assert during in got <= expected, (record, during, expected, causes)
            else:
                assert got == expected, (record, during, expected, causes)
            assert {cause.path[-1] for cause in causes} == {"to-out"}, causes
            roles |= {cause.role for cause in causes}
            seen += 1
    assert seen == len(wanted) >= least, (seen, len(wanted))
    return roles


def check_rows(topology: Any, piped: list[Piped], stores: tuple[str, ...], *, all: bool, least: int = 3) -> None:
    """Compare the causes of each row at the end with those that the oracle finds."""
    _, wanted = needed(topology, piped, (), stores)
    run = RecordedRun(topology).run(piped)
    for (store, key), times in wanted.items():
        causes = run.why_row(store, key, all=all)
        assert {cause.timestamp for cause in causes} == times, (store, key, times, causes)
    assert len(wanted) >= least, wanted


def newest(old: int, new: int) -> int:
    return new


def grouped(builder: Any) -> Any:
    return builder.stream("orders", **NUMBERS, name="orders").group_by_key()


def plain(table: Any) -> None:
    table.to_stream(name="out").map(lambda window, n: (f"{window.key}@{window.start}-{window.end}", n), name="plain").to(
        "out", **NUMBERS, name="to-out"
    )


def test_a_suppressed_window_has_its_last_update_and_the_record_that_closed_it() -> None:
    builder = ks.StreamsBuilder()
    windows = grouped(builder).windowed_by(ks.TimeWindows.of_size(100, grace=0)).reduce(newest, store="windows", name="windows")
    plain(windows.suppress(ks.Suppressed.until_window_closes()))
    assert check_records(builder.build(), rows(1, 30, "orders"), ("out",)) == {"record", "tick"}


def test_a_suppressed_window_has_all_its_records_and_the_record_that_closed_it() -> None:
    builder = ks.StreamsBuilder()
    windows = grouped(builder).windowed_by(ks.TimeWindows.of_size(100, grace=0)).count(store="windows", name="windows")
    plain(windows.suppress(ks.Suppressed.until_window_closes()))
    assert check_records(builder.build(), rows(2, 30, "orders"), ("out",), all=True) == {"record", "tick", "contribution"}


@pytest.mark.parametrize("kind", ["time", "sliding"])
def test_a_window_that_is_emitted_when_it_closes(kind: str) -> None:
    builder = ks.StreamsBuilder()
    windows = ks.TimeWindows.of_size(100, grace=0) if kind == "time" else ks.SlidingWindows.of_time_difference_and_grace(40, 0)
    closing = grouped(builder).windowed_by(windows).emit_strategy(ks.EmitStrategy.ON_WINDOW_CLOSE)
    plain(closing.count(store="windows", name="windows"))
    roles = check_records(builder.build(), rows(3, 30, "orders"), ("out",), all=True)
    assert {"record", "tick"} <= roles <= {"record", "tick", "contribution"}


def test_a_change_that_suppress_held_back_for_a_time() -> None:
    builder = ks.StreamsBuilder()
    table = grouped(builder).reduce(newest, store="newest", name="newest")
    table.suppress(ks.Suppressed.until_time_limit(60)).to_stream(name="out").to("out", **NUMBERS, name="to-out")
    run = RecordedRun(topology := builder.build()).run(piped := rows(4, 30, "orders"))
    for record, during in run.sent_during("out"):
        [value, *_] = [row for row in piped if row[2] == record.value]
        assert {cause.timestamp for cause in run.why_record(record.position, all=False)} == {value[3], during}
    assert len(driven(topology, piped, ("out",))[0]) == len(run.topics["out"]) > 5


@pytest.mark.parametrize("late_ms", [0, 60])
def test_all_records_of_a_sliding_window(late_ms: int) -> None:
    builder = ks.StreamsBuilder()
    grouped(builder).windowed_by(ks.SlidingWindows.of_time_difference_and_grace(40, 10_000)).count(
        store="sliding", name="sliding"
    )
    check_rows(builder.build(), rows(5, 25, "orders", late_ms=late_ms), ("sliding",), all=True, least=12)


@pytest.mark.parametrize("late_ms", [0, 60])
def test_all_records_of_a_session(late_ms: int) -> None:
    builder = ks.StreamsBuilder()
    sessions = ks.SessionWindows.of_inactivity_gap_and_grace(25, 10_000)
    grouped(builder).windowed_by(sessions).count(store="sessions", name="sessions")
    check_rows(builder.build(), rows(6, 30, "orders", late_ms=late_ms), ("sessions",), all=True, least=6)


@pytest.mark.parametrize("join", ["join", "left_join", "outer_join"])
def test_both_sides_of_a_join_of_streams(join: str) -> None:
    """Also records without a match: one that waited has the record that closed its window."""
    builder = ks.StreamsBuilder()
    orders, clicks = (builder.stream(topic, **NUMBERS, name=topic) for topic in ("orders", "clicks"))
    window = ks.JoinWindows.of_time_difference_and_grace(30 if join == "outer_join" else 50, 0)
    getattr(orders, join)(clicks, lambda a, b: f"{a}/{b}", window, name="pair", **NUMBERS, other_value_serde="long").to(
        "out", **TEXTS, name="to-out"
    )
    roles = check_records(builder.build(), rows(7, 30, "orders clicks"), ("out",), when=False)
    assert "tick" in roles or join != "outer_join"


@pytest.mark.parametrize("join", ["join", "left_join"])
def test_a_join_with_the_row_of_a_table_or_with_its_deletion(join: str) -> None:
    builder = ks.StreamsBuilder()
    orders, names = (
        builder.stream("orders", **NUMBERS, name="orders"),
        builder.table("names", **TEXTS, store="names", name="names"),
    )
    getattr(orders, join)(names, lambda value, name: f"{value}|{name}", name="named").to("out", **TEXTS, name="to-out")
    check_records(builder.build(), rows(8, 25, "orders names", deleted=0.3), ("out",))


@pytest.mark.parametrize(("join", "grace"), [("join", None), ("left_join", None), ("left_join", 50)])
def test_a_join_with_an_earlier_version_of_a_row(join: str, grace: int | None) -> None:
    """With a grace period the record waits in a buffer: its causes are itself, the version of its time, and the record that let it go."""
    builder = ks.StreamsBuilder()
    orders = builder.stream("orders", **NUMBERS, name="orders")
    names = builder.table("names", **TEXTS, store="names", name="names", history=100_000)
    more: dict[str, Any] = {} if grace is None else {"grace": grace, **NUMBERS}
    getattr(orders, join)(names, lambda value, name: f"{value}|{name}", name="named", **more).to("out", **TEXTS, name="to-out")
    roles = check_records(builder.build(), rows(9, 30, "orders names", deleted=0.2, late_ms=50), ("out",))
    assert ("tick" in roles) == (grace is not None)


def test_the_newest_version_of_a_row() -> None:
    builder = ks.StreamsBuilder()
    builder.table("names", **TEXTS, store="names", name="names", history=100_000)
    run = RecordedRun(builder.build()).run(piped := rows(10, 40, "names", late_ms=80))
    for key in {row[1] for row in piped}:
        newest = max(row[3] for row in piped if row[1] == key)
        assert [cause.timestamp for cause in run.why_row("names", key.decode(), all=False)] == [newest]  # type: ignore[union-attr]


@pytest.mark.parametrize("join", ["join", "left_join", "outer_join"])
def test_both_sides_of_a_join_of_tables(join: str) -> None:
    builder = ks.StreamsBuilder()
    left, right = (builder.table(topic, **TEXTS, store=topic, name=topic) for topic in ("left", "right"))
    getattr(left, join)(right, lambda a, b: f"{a}|{b}", name="both", store="both", value_serde="string").to_stream(
        name="changes"
    ).to("out", **TEXTS, name="to-out")
    check_records(builder.build(), rows(11, 28, "left right", deleted=0.2), ("out",))


@pytest.mark.parametrize("join", ["join", "left_join"])
def test_both_sides_of_a_join_by_a_foreign_key(join: str) -> None:
    builder = ks.StreamsBuilder()
    left, right = (builder.table(topic, **TEXTS, store=topic, name=topic) for topic in ("left", "names"))
    getattr(left, join)(
        right, lambda a, b: f"{a}|{b}", foreign_key=lambda value: f"k{'ab'.index(value[0])}", name="both", store="both", **TEXTS
    ).to_stream(name="changes").to("out", **TEXTS, name="to-out")
    check_records(builder.build(), rows(12, 26, "left names", keys=2, deleted=0.2), ("out",))


def test_a_join_with_a_row_of_a_global_table() -> None:
    builder = ks.StreamsBuilder()
    orders, names = builder.stream("orders", **NUMBERS, name="orders"), builder.global_table("names", **TEXTS, store="names")
    orders.left_join(names, lambda value, name: f"{value}|{name}", key=lambda key, value: key, name="named").to(
        "out", **TEXTS, name="to-out"
    )
    piped = sorted(rows(13, 25, "orders names", keys=6), key=lambda row: row[0] == "orders")
    check_records(builder.build(), piped, ("out",))


class Ticking(ks.Processor):
    """Keeps the newest value of each key; each 50 ms of stream time it forwards that of one key."""

    def init(self, context: Any) -> None:
        self.context, self.store = context, context.get_state_store("newest")
        context.schedule(50, ks.PunctuationType.STREAM_TIME, self.tick)

    def process(self, record: Any) -> None:
        self.store.put(record.key, record.value)

    def tick(self, now: int) -> None:
        value = self.store.get("k1")
        if value is not None:
            self.context.forward(ks.Record("k1", value, now))


def test_a_punctuation_has_the_record_that_moved_stream_time_and_what_it_read() -> None:
    builder = ks.StreamsBuilder()
    builder.add_state_store(ks.Stores.key_value_store_builder(ks.Stores.persistent_key_value_store("newest"), "string", "long"))
    builder.stream("orders", **NUMBERS, name="orders").process(Ticking, stores=["newest"], name="ticking").to(
        "out", **NUMBERS, name="to-out"
    )
    assert check_records(builder.build(), rows(14, 25, "orders"), ("out",)) == {"tick", "read by ticking"}


def test_all_records_of_aggregates_of_streams_and_of_tables() -> None:
    builder = ks.StreamsBuilder()
    stream = grouped(builder)
    stream.count(store="counts", name="count")
    stream.windowed_by(ks.TimeWindows.of_size(100, grace=10_000)).count(store="windows", name="windows")
    check_rows(builder.build(), rows(15, 30, "orders", late_ms=60), ("counts", "windows"), all=True)
