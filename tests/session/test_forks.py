"""Forks on a real broker and real Spark: a change beside the application, which is dropped without a trace."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import kstreams_repl as ks
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.spark.slots.worker_pools import BACKGROUND_NICE
from kstreams_repl.repl.session.session_directory import SessionDirectory
from tests.faults.paid_service import PaidService
from tests.faults.paid_service import paying as ask
from tests.spark.hosting import settle, spark

__all__ = ["spark"]
pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]
CONFIG = {
    "processing.guarantee": "exactly_once_v2", "commit.interval.ms": 50, "auto.offset.reset": "earliest", "num.stream.threads": 2,
}  # fmt: skip


@pytest.fixture
def session(broker: Any, spark: Any, tmp_path: Path) -> Iterator[ks.Session]:
    with ks.Session(ClientSettings(broker.bootstrap_servers), spark=spark, directory=SessionDirectory(tmp_path)) as session:
        session.topic_configs["retention.ms"] = "-1"
        yield session


def counting(topic: str, out: str, *, step: int = 1) -> ks.StreamsBuilder:
    builder = ks.StreamsBuilder()
    words = builder.stream(topic, key_serde="string", value_serde="string")
    words.foreach(lambda key, value: Path(f"/nowhere/{key}").unlink(missing_ok=True), name="effect")
    counts = words.group_by_key().aggregate(
        lambda: 0, lambda key, value, so_far: so_far + step, store="counts", value_serde="long"
    )
    counts.to_stream().to(out, key_serde="string", value_serde="long", name="sink")
    return builder


def words(first: int, last: int) -> list[tuple[str, str, int]]:
    return [(f"k{n % 50}", f"w{n}", 1_000 + n) for n in range(first, last)]


def table(session: ks.Session, topic: str) -> dict[str, int]:
    return {record.key: record.value for record in session.read(topic, None, key_serde="string", value_serde="long")}


def traces(session: ks.Session) -> tuple[list[str], list[str], list[str]]:
    """What a fork might leave: topics, groups and files."""
    root = session.directory.path
    files = sorted(
        str(path.relative_to(root)) for path in root.rglob("*") if "/tasks/" not in str(path) and "/control/" not in str(path)
    )
    return sorted(session.admin.topics()), sorted(session.admin.groups()), files


def test_a_fork_begins_at_a_commit_and_leaves_no_trace(session: ks.Session) -> None:
    name = f"app-{uuid.uuid4().hex[:8]}"
    topic, out = f"{name}-in", f"{name}-out"
    session.create_topic(out, partitions=3)
    session.produce(topic, words(0, 500), partitions=2)
    app = session.deploy(counting(topic, out), name, config=CONFIG)
    assert app.wait(120)
    before = traces(session)
    plan = app.fork("twice", counting(topic, out, step=2), dry_run=True)
    assert traces(session) == before and "effect" in repr(plan) and f"{name}.twice-{out}" in repr(plan)
    fork = app.fork("twice", counting(topic, out, step=2))
    assert app.status == "running" and fork.id == f"{name}.twice" and list(session.forks) == [fork.id]
    session.produce(topic, words(500, 700))
    assert app.wait(120)
    expected = dict(Counter(key for key, _, _ in words(0, 700)))
    later = dict(Counter(key for key, _, _ in words(500, 700)))
    settle(lambda: table(session, fork.outputs[out]) == {key: expected[key] + later[key] for key in later}, "the fork's output")
    assert {psutil.Process(each.pid).nice() for each in fork.application.reports.instances.values()} == {BACKGROUND_NICE}
    assert {psutil.Process(each.pid).nice() for each in app.reports.instances.values()} == {0}
    assert table(session, out) == expected
    assert {key: fork.application.store("counts").get(key) for key in expected} == {
        k: n + later.get(k, 0) for k, n in expected.items()
    }
    assert session.admin.partitions(fork.outputs[out]) == 3
    assert {row[1]: row[2:6] for row in fork.live().rows} == {"counts": (0, len(later), 0, 0), out: (0, len(later), 0, 0)}
    fork.drop()
    fork.drop()
    assert traces(session) == before and not session.forks
    session.produce(topic, words(700, 750))
    assert app.wait(120) and table(session, out) == dict(Counter(key for key, _, _ in words(0, 750)))


def windowed(topic: str, out: str, *, limit: int) -> ks.StreamsBuilder:
    """A filter, a count by another key behind a repartition topic, and counts by window."""
    builder = ks.StreamsBuilder()
    words = builder.stream(topic, key_serde="string", value_serde="string", name="words")
    kept = words.filter(lambda key, value: int(value[1:]) % 10 < limit, name="kept")
    by_end = kept.group_by(lambda key, value: value[-1], key_serde="string", value_serde="string", name="by-end")
    by_end.count(store="ends").to_stream().to(out, key_serde="string", value_serde="long", name="sink")
    windows = kept.group_by_key().windowed_by(ks.TimeWindows.of_size(60_000))
    windows.count(store="minutes", name="minutes")
    return builder


def ends(first: int, last: int, limit: int) -> Counter[str]:
    return Counter(value[-1] for _, value, _ in words(first, last) if int(value[1:]) % 10 < limit)


def test_a_promoted_fork_is_the_application_with_its_rows(session: ks.Session) -> None:
    name = f"app-{uuid.uuid4().hex[:8]}"
    topic, out = f"{name}-in", f"{name}-out"
    session.create_topic(out, partitions=3)
    session.produce(topic, words(0, 300), partitions=2)
    app = session.deploy(windowed(topic, out, limit=8), name, config=CONFIG)
    assert app.wait(120)
    before = traces(session)
    fork = app.fork("less", windowed(topic, out, limit=5))
    session.produce(topic, words(300, 500))
    assert app.wait(120)
    keys, fewer = (len({key for key, value, _ in words(300, 500) if int(value[1:]) % 10 < limit}) for limit in (8, 5))
    at_rest = {"ends": (5, 0, 3, 0), "minutes": (fewer, 0, keys - fewer, 0), out: (5, 0, 3, 0)}  # equal, changed, only there, only here
    live: list[Any] = []
    try:
        settle(lambda: live.append(fork.live()) or {row[1]: row[2:6] for row in live[-1].rows} == at_rest, "the running difference")
    finally:
        print(live[-1])
    assert "same offsets" in fork.live().note
    began = time.monotonic()
    applied = fork.promote(emit="diff")
    print(f"promoted in {time.monotonic() - began:.2f} s")
    assert applied.version == 2 and app.status == "running" and not session.forks
    assert "promoted from fork 'less'" in repr(app.versions[-1])
    session.produce(topic, words(500, 600))
    assert app.wait(120)
    expected = ends(0, 300, 8) + ends(300, 600, 5)
    assert {key: app.store("ends").get(key) for key in expected} == expected
    assert sum(row[0] for row in app.sql("SELECT value FROM minutes").fetchall()) == sum(expected.values())
    # readers of the output see the corrections: the ends that the fork has left out are those of before
    assert table(session, out) == expected
    after = traces(session)
    assert after[:2] == before[:2]
    app.rollback()
    session.produce(topic, words(600, 700))
    assert app.wait(120)
    expected += ends(600, 700, 8)
    assert {key: app.store("ends").get(key) for key in expected} == expected


def test_two_forks_at_once_know_nothing_of_each_other_and_an_edit_ends_their_promotion(session: ks.Session) -> None:
    name = f"app-{uuid.uuid4().hex[:8]}"
    topic, out = f"{name}-in", f"{name}-out"
    session.create_topic(out, partitions=3)
    session.produce(topic, words(0, 300), partitions=2)
    app = session.deploy(windowed(topic, out, limit=8), name, config={**CONFIG, "num.stream.threads": 1})
    assert app.wait(120)
    before = traces(session)
    five, three = (app.fork(f"below-{limit}", windowed(topic, out, limit=limit)) for limit in (5, 3))
    with pytest.raises(ks.errors.DeployError, match="has a fork 'below-5' already"):
        app.fork("below-5", windowed(topic, out, limit=4))
    session.produce(topic, words(300, 500))
    assert app.wait(120)
    whole = ends(0, 300, 8)
    for fork, limit in ((five, 5), (three, 3)):
        expected = {key: (whole + ends(300, 500, limit))[key] for key in ends(300, 500, limit)}
        settle(lambda fork=fork, expected=expected: table(session, fork.outputs[out]) == expected, f"the output of {fork.id}")  # type: ignore[misc]
    assert table(session, out) == ends(0, 500, 8)
    with pytest.raises(ks.errors.CallError, match="'from-now' or 'diff'"):
        five.promote(emit="all")
    three.drop()
    assert list(session.forks) == [five.id] and five.status == "running"
    app.edit(windowed(topic, out, limit=7))
    for refused in (five.promote, five.compare):
        with pytest.raises(ks.errors.IllegalStateError, match="version|edited"):
            refused()
    assert five.status == "running" and app.status == "running"
    five.drop()
    assert app.wait(120)
    after = traces(session)
    assert after[:2] == before[:2]
    session.produce(topic, words(500, 600))
    assert app.wait(120)
    expected = ends(0, 500, 8) + ends(500, 600, 7)
    assert {key: app.store("ends").get(key) for key in expected} == expected


def paying(topic: str, out: str, port: int, *, suffix: str = "") -> ks.StreamsBuilder:
    builder = ks.StreamsBuilder()
    stream = builder.stream(topic, key_serde="bytes", value_serde="bytes")
    paid = stream.map_values_async(ask(port), name="pay", durable=True, value_serde="bytes", result_serde="bytes")
    paid.map_values(lambda value: value + suffix.encode(), name="suffix").to(out, key_serde="bytes", value_serde="bytes")
    return builder


def test_a_fork_calls_out_only_for_what_its_parent_has_no_answer_of(session: ks.Session) -> None:
    name, service = f"app-{uuid.uuid4().hex[:8]}", PaidService(5)
    topic, out = f"{name}-in", f"{name}-out"
    session.create_topic(out, partitions=2)
    try:
        session.produce(
            topic, [(b"k%d" % (n % 9), b"%d" % n) for n in range(60)], partitions=2, key_serde="bytes", value_serde="bytes"
        )
        app = session.deploy(paying(topic, out, service.port), name, config=CONFIG)
        assert app.wait(120) and service.asked.total() == 60
        fork = app.fork("louder", paying(topic, out, service.port, suffix="!"))
        session.produce(topic, [(b"k%d" % (n % 9), b"%d" % n) for n in range(60, 160)], key_serde="bytes", value_serde="bytes")
        assert app.wait(120)
        written = lambda: sorted(record.value for record in session.read(fork.outputs[out], None, value_serde="bytes"))  # noqa: E731
        settle(lambda: written() == sorted(b"%d!" % n for n in range(60, 160)), "the fork's output", story=written)
        assert service.asked.total() == 160
    finally:
        service.close()


def two_counts(topics: tuple[str, str], out: str, *, joined: bool) -> ks.StreamsBuilder:
    """Two tables; each in a task of its own, or both in one."""
    builder = ks.StreamsBuilder()
    left, right = (
        builder.stream(topic, key_serde="string", value_serde="string").group_by_key().count(store=f"of-{number}")
        for number, topic in enumerate(topics)
    )
    left.to_stream().to(out, key_serde="string", value_serde="long", name="sink")
    if joined:
        both = left.join(right, lambda a, b: a + b, store="both", value_serde="long")
        both.to_stream().to(f"{out}-both", key_serde="string", value_serde="long", name="both-sink")
    return builder


def slowly(topic: str, out: str, *, every: float) -> ks.StreamsBuilder:
    """Keep the last value of a key, and take that many seconds for a record."""
    builder = ks.StreamsBuilder()
    values = builder.stream(topic, key_serde="string", value_serde="string")
    values.map_values(lambda value: time.sleep(every) or value, name="slow").to(
        out, key_serde="string", value_serde="string", name="sink"
    )
    return builder


def test_a_fork_that_does_not_catch_up_is_promoted_while_its_parent_is_paused(session: ks.Session) -> None:
    name = f"app-{uuid.uuid4().hex[:8]}"
    topic, out = f"{name}-in", f"{name}-out"
    session.create_topic(out, partitions=1)
    session.produce(topic, words(0, 10), partitions=1)
    app = session.deploy(slowly(topic, out, every=0), name, config=CONFIG)
    assert app.wait(120)
    fork = app.fork("slower", slowly(topic, out, every=0.002))
    session.produce(topic, words(10, 4_010))
    assert app.wait(120)
    with pytest.raises(ks.errors.IllegalStateError, match=r"is [\d,]+ records behind .* nothing was changed") as refused:
        fork.promote(timeout=1)
    assert "pause" in refused.value.hint and app.status == "running" and fork.status == "running"
    app.pause()
    assert fork.promote().version == 2
    app.resume()
    session.produce(topic, words(4_010, 4_020))
    assert app.wait(120)
    written = [record.value for record in session.read(out, None, value_serde="string")]
    assert written == [value for _, value, _ in words(0, 4_020)]


@pytest.mark.slow
@pytest.mark.parametrize("joined", [True, False], ids=["into one task", "into two tasks"])
def test_stores_move_to_the_tasks_that_use_them_now_and_a_new_store_is_promoted(session: ks.Session, joined: bool) -> None:
    name = f"app-{uuid.uuid4().hex[:8]}"
    topics, out = (f"{name}-a", f"{name}-b"), f"{name}-out"
    for topic in (out, f"{out}-both"):
        session.create_topic(topic, partitions=2)
    for topic in topics:
        session.produce(topic, words(0, 200), partitions=2)
    app = session.deploy(two_counts(topics, out, joined=not joined), name, config=CONFIG)
    assert app.wait(120)
    fork = app.fork("moved", two_counts(topics, out, joined=joined))
    for topic in topics:
        session.produce(topic, words(200, 300))
    assert app.wait(120)
    assert fork.promote().version == 2
    for topic in topics:
        session.produce(topic, words(300, 350))
    assert app.wait(120)
    expected = dict(Counter(key for key, _, _ in words(0, 350)))
    for store in ("of-0", "of-1"):
        assert {key: app.store(store).get(key) for key in expected} == expected
    assert table(session, out) == expected
    if joined:
        assert {key: app.store("both").get(key) for key in expected} == {key: 2 * count for key, count in expected.items()}
