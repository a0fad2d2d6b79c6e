"""What window operators keep over a restart, and that batches and deferred writes change no result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstreams_repl import (
    EmitStrategy,
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    serdes,
)
from kstreams_repl.engine.stores.cache import write_back_cache
from kstreams_repl.test_driver.driver import TopologyTestDriver
from tests.unit.engine.operators.direct_task import DirectTask

Record = tuple[str | None, Any, int]


def _emit(grouped: Any, final: bool) -> Any:
    return grouped.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE) if final else grouped


def _windowed(windows: Any, *, final: bool = False, suppressed: bool = False) -> Any:
    builder = StreamsBuilder()
    grouped = _emit(builder.stream("in").group_by_key().windowed_by(windows), final)
    table = grouped.reduce(lambda one, other: f"{one}|{other}", store="w")
    if suppressed:
        table = table.suppress(Suppressed.until_window_closes())
    table.to_stream().map(lambda key, value: (str(key), value)).to("out", key_serde=serdes.string)
    return builder.build()


def _joined(how: str) -> Any:
    builder = StreamsBuilder()
    left, right = builder.stream("in"), builder.stream("other")
    windows = JoinWindows.of_time_difference(10, grace=5)
    joined = getattr(left, f"{how}join" if not how else f"{how}_join")(right, lambda one, other: [one, other], windows)
    joined.to("out")
    return builder.build()


WINDOWS: dict[str, Callable[[], Any]] = {
    "tumbling": lambda: _windowed(TimeWindows.of_size(10, grace=5)),
    "hopping": lambda: _windowed(TimeWindows.of_size(10, grace=5, advance=4)),
    "sliding": lambda: _windowed(SlidingWindows.of_time_difference(10, grace=5)),
    "session": lambda: _windowed(SessionWindows.of_inactivity_gap(5, grace=5)),
    "tumbling, on close": lambda: _windowed(TimeWindows.of_size(10, grace=5), final=True),
    "hopping, on close": lambda: _windowed(TimeWindows.of_size(10, grace=5, advance=4), final=True),
    "sliding, on close": lambda: _windowed(SlidingWindows.of_time_difference(10, grace=5), final=True),
    "session, on close": lambda: _windowed(SessionWindows.of_inactivity_gap(5, grace=5), final=True),
    "suppressed": lambda: _windowed(TimeWindows.of_size(10, grace=5), suppressed=True),
}

records = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", None]),
        st.one_of(st.none(), st.integers(0, 9)),
        st.one_of(st.integers(0, 80), st.just(200_000)),
    ),
    max_size=25,
)


def _counted(windows: Any) -> Any:
    builder = StreamsBuilder()
    counts = builder.stream("in").group_by_key().windowed_by(windows).count(store="w")
    counts.to_stream().map(lambda key, value: (str(key), value)).to("out", key_serde=serdes.string)
    return builder.build()


def _cogrouped() -> Any:
    builder = StreamsBuilder()
    first, second = builder.stream("in").group_by_key(), builder.stream("other").group_by_key()
    cogrouped = first.cogroup(lambda key, value, total: [*total, value]).cogroup(second, lambda key, value, total: [*total, [value]])
    table = cogrouped.windowed_by(TimeWindows.of_size(10, grace=5)).aggregate(list, store="w", value_serde=serdes.json)
    table.to_stream().map(lambda key, value: (str(key), value)).to("out", key_serde=serdes.string)
    return builder.build()


def _self_joined() -> Any:
    builder = StreamsBuilder()
    stream = builder.stream("in")
    stream.join(stream, lambda one, other: [one, other], JoinWindows.of_time_difference(10, grace=5)).to("out")
    return builder.build()


def _held(grace: int) -> Any:
    """A stream-table join that waits for its table."""
    builder = StreamsBuilder()
    table = builder.table("other", history=1000, store="t")
    builder.stream("in").join(table, lambda one, row: [one, row], grace=grace).to("out")
    return builder.build()


def _suppressed_for(wait: int) -> Any:
    builder = StreamsBuilder()
    counts = builder.stream("in").group_by_key().count(store="c").suppress(Suppressed.until_time_limit(wait))
    counts.to_stream().to("out", value_serde=serdes.json)
    return builder.build()


TIMED: dict[str, Callable[[], Any]] = WINDOWS | {
    "tumbling count": lambda: _counted(TimeWindows.of_size(10, grace=5)),
    "hopping count": lambda: _counted(TimeWindows.of_size(10, grace=5, advance=4)),
    "cogrouped": _cogrouped,
    "joined": lambda: _joined(""),
    "left joined": lambda: _joined("left"),
    "outer joined": lambda: _joined("outer"),
    "joined with itself": _self_joined,
    "joined with a table, later": lambda: _held(5),
    "suppressed until a time limit": lambda: _suppressed_for(5),
}


def _through_the_driver(topology: Any, rows: list[Record]) -> list[tuple[str, bytes | None, bytes | None, int]]:
    config = {"default.key.serde": serdes.string, "default.value.serde": serdes.json, "statestore.cache.max.bytes": 0}
    with TopologyTestDriver(topology, config, start_ms=0) as driver:
        topic = driver.create_input_topic("in", serdes.string, serdes.json)
        for key, value, at in rows:
            topic.pipe_input(key, value, at)
        return [("out", record.key, record.value, record.timestamp) for record in driver.output("out")]


@pytest.mark.parametrize("kind", WINDOWS)
@given(rows=records)
def test_batches_and_deferred_writes_give_what_one_record_at_a_time_gives(kind: str, rows: list[Record]) -> None:
    task = DirectTask(WINDOWS[kind]())
    task.pipe("in", rows)
    assert task.take() == _through_the_driver(WINDOWS[kind](), rows)


@pytest.mark.parametrize("kind", [name for name in WINDOWS if name.endswith("on close")])
@given(before=records, after=records)
def test_no_window_is_emitted_twice_over_a_restart(kind: str, before: list[Record], after: list[Record]) -> None:
    task = DirectTask(WINDOWS[kind]())
    task.pipe("in", before)
    task.commit()
    first = task.take()
    task.restart()
    latest = max((at for key, value, at in before if key is not None), default=0)
    task.pipe("in", [(key, value, at + latest) for key, value, at in after] + [("z", 0, 10_000_000)])
    second = task.take()
    shown = [key for _, key, _, _ in first + second]
    assert len(shown) == len(set(shown))


@pytest.mark.parametrize(
    ("kind", "cache"),
    [(kind, cache) for kind in TIMED for cache in (0, 10_000_000)],
)
@given(rows=st.lists(st.tuples(st.sampled_from(["in", "in", "other"]), records), min_size=2, max_size=5))
def test_the_same_records_are_late_after_a_restart(kind: str, cache: int, rows: list[tuple[str, list[Record]]]) -> None:
    settings: dict[str, Any] = {"statestore.cache.max.bytes": cache, "repl.outer.join.emit.interval.ms": 0}
    undisturbed, restarted = DirectTask(TIMED[kind](), **settings), DirectTask(TIMED[kind](), **settings)
    topics = {topic for topic, _ in restarted.task.group.queues}
    for topic, batch in rows:
        batch = [(key or "c", 0 if value is None else value, at) for key, value, at in batch]
        for task in (undisturbed, restarted):
            task.pipe(topic if topic in topics else "in", batch)
            task.commit()
        restarted.restart()
    assert restarted.take() == undisturbed.take()


def _last_values(kind: str, rows: list[tuple[str, list[Record]]], *, cache: int, commits: bool) -> dict[bytes | None, bytes]:
    """What a table made of the output has, with a commit and a restart after each batch or only one commit at the end."""
    task = DirectTask(TIMED[kind](), **{"statestore.cache.max.bytes": cache})
    topics = {topic for topic, _ in task.task.group.queues}
    for topic, batch in rows:
        task.pipe(topic if topic in topics else "in", [(key or "c", 0 if value is None else value, at) for key, value, at in batch])
        if commits:
            task.commit()
            task.restart()
    task.commit()
    last = {key: value for _, key, value, _ in task.take()}
    return {key: value for key, value in last.items() if value is not None}


def test_a_cache_hides_a_session_as_soon_as_its_store_would() -> None:
    rows: list[tuple[str, list[Record]]] = [("in", [("a", 1, 0), ("b", 2, 11)]), ("in", [("a", 3, 5)])]
    wanted = {b"[a@0/0]": b"1", b"[a@5/5]": b"3", b"[b@11/11]": b"2"}
    for cache in (0, 10_000_000):
        assert _last_values("session", rows, cache=cache, commits=True) == wanted
        assert _last_values("session", rows, cache=cache, commits=False) == wanted, "no commit has moved the store's time yet"


close_by = st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 9), st.integers(0, 40)), max_size=12)


@pytest.mark.parametrize("kind", [*(kind for kind in WINDOWS if "close" not in kind), "tumbling count", "hopping count", "cogrouped"])
@given(rows=st.lists(st.tuples(st.sampled_from(["in", "other"]), close_by), min_size=2, max_size=6))
def test_with_a_cache_the_last_values_are_those_without_wherever_commits_and_restarts_fall(
    kind: str, rows: list[tuple[str, list[Record]]]
) -> None:
    wanted = _last_values(kind, rows, cache=0, commits=False)
    assert _last_values(kind, rows, cache=10_000_000, commits=False) == wanted
    assert _last_values(kind, rows, cache=10_000_000, commits=True) == wanted


@given(rows=records)
@pytest.mark.parametrize("advance", [None, 4, 10])
def test_emit_on_close_gives_what_suppress_until_window_closes_gives(advance: int | None, rows: list[Record]) -> None:
    windows = TimeWindows.of_size(10, grace=5, advance=advance)
    rows = [(key, 0 if value is None else value, at) for key, value, at in rows]
    final, suppressed = _windowed(windows, final=True), _windowed(windows, suppressed=True)
    assert _through_the_driver(final, rows) == _through_the_driver(suppressed, rows)


@pytest.mark.parametrize("how", ["left", "outer"])
def test_parked_records_of_a_join_are_emitted_after_a_restart(how: str) -> None:
    task = DirectTask(_joined(how))
    task.pipe("in", [("a", 1, 0)])
    task.commit()
    task.restart()
    task.pipe("other", [("b", 2, 100)])
    assert task.take() == [("out", b"a", b"[1,null]", 0)]


def test_records_that_kafka_streams_parked_meanwhile_are_emitted_when_their_window_has_closed() -> None:
    """It repeats beside its offsets what it found there: that nothing is parked."""
    task = DirectTask(_joined("left"), **{"repl.outer.join.emit.interval.ms": 0})
    task.pipe("other", [("b", 2, 0)])
    ours = task.commit()
    task.pipe("in", [("a", 1, 5)])
    task.commit()
    task.restart(ours)
    task.pipe("other", [("b", 2, 100)])
    assert task.take() == [("out", b"a", b"[1,null]", 5)]


def test_suppressed_rows_are_emitted_after_a_restart() -> None:
    task = DirectTask(WINDOWS["suppressed"]())
    task.pipe("in", [("a", 1, 3)])
    task.commit()
    task.restart()
    task.pipe("in", [("a", 2, 15)])
    assert task.take() == [("out", b"[a@0/10]", b"1", 3)]


def test_what_was_not_committed_is_forgotten() -> None:
    task = DirectTask(WINDOWS["tumbling, on close"]())
    task.pipe("in", [("a", 1, 3)])
    task.commit()
    task.pipe("in", [("a", 2, 4), ("a", 3, 15)])
    task.take()
    task.restart()
    task.pipe("in", [("a", 4, 15)])
    assert task.take() == [("out", b"[a@0/10]", b"1", 3)]


@pytest.mark.parametrize("capacity", [3, 100_000])
@pytest.mark.parametrize("advance", [4, 10])
@given(batches=st.lists(st.tuples(records, st.sampled_from(["go on", "commit", "restart"])), max_size=6))
def test_a_count_behind_a_cache_ends_as_one_without_whatever_the_cache_has_dropped(
    capacity: int, advance: int, batches: list[tuple[list[Record], str]]
) -> None:
    topology, last = _counted(TimeWindows.of_size(10, grace=5, advance=advance)), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write_back_cache.WriteBackCache.__init__, "__kwdefaults__", {"visible": None, "capacity": capacity})
        for cache_bytes in (0, 10_000_000):
            task = DirectTask(topology, **{"statestore.cache.max.bytes": cache_bytes})
            for batch, then in batches:
                task.pipe("in", batch)
                if then != "go on":
                    task.commit()
                if then == "restart":
                    task.restart()
            task.commit()
            last.append({key: value for _, key, value, _ in task.sent})
    assert last[0] == last[1]
