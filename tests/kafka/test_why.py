"""The input records behind rows and output records, against plain Python and against runs without one of the records."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.control.file_channel import FileChannel, FileInstanceControl
from kstreams_repl.host.instance.epochs.instance_runner import run_instance
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, make_producer
from kstreams_repl.host.kafka.reading import ranges_of, read_ranges
from kstreams_repl.host.spark.planning.plan_builder import make_plan
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.repl.session.views.past.causes import writers
from kstreams_repl.repl.session.views.past.causes.result import Cause
from kstreams_repl.repl.session.views.past.causes.why import Explainer, why
from kstreams_repl.repl.session.views.past.state.state_builder import history_of
from kstreams_repl.system.errors import CallError, InvalidStateStoreError
from kstreams_repl.system.types import TaskId, TopicPartition

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

PARTITIONS, KEYS, GROUPS = 2, 6, 4
SIZE_MS, GAP_MS, AROUND_MS = 2_000, 300, 150
LONG = ks.serdes.long.serialize
Record = tuple[str, str, Any, int]
"""Input, key, value, timestamp; no two records have the same timestamp."""


def topology(name: str) -> Topology:
    texts: dict[str, Any] = {"key_serde": "string", "value_serde": "string"}
    numbers: dict[str, Any] = {"key_serde": "string", "value_serde": "long"}
    builder = ks.StreamsBuilder()
    orders = builder.stream(f"{name}-orders", **numbers, name="orders")
    clicks = builder.stream(f"{name}-clicks", **numbers, name="clicks")
    names = builder.table(f"{name}-names", **texts, store="names", name="names")
    grouped = orders.group_by_key()
    counts = grouped.count(store="counts", name="count")
    windows = grouped.windowed_by(ks.TimeWindows.of_size(SIZE_MS, grace=0)).count(store="windows", name="in-windows")
    grouped.windowed_by(ks.SessionWindows.of_inactivity_gap(GAP_MS, grace=0)).count(store="sessions", name="in-sessions")
    windows.suppress(ks.Suppressed.until_window_closes()).to_stream(name="final").map(
        lambda window, n: (f"{window.key}@{window.start}", n), name="plain"
    ).to(f"{name}-final", **numbers)
    orders.filter(lambda key, value: value % 3 != 0, name="some").map(lambda key, value: (f"{key}!", value), name="marked").to(
        f"{name}-kept", **numbers
    )
    orders.join(names, lambda value, other: f"{value}|{other}", name="named").to(f"{name}-joined", **texts)
    orders.join(
        clicks, lambda a, b: f"{a}/{b}", ks.JoinWindows.of_time_difference_and_grace(AROUND_MS, 0), name="paired", **numbers,
        other_value_serde="long",
    ).to(f"{name}-pairs", **texts)  # fmt: skip
    names.join(counts, lambda other, n: f"{other}={n}", name="both", store="both", value_serde="string")
    by_group = orders.group_by(lambda key, value: f"g{value % GROUPS}", name="by-group", **numbers)
    by_group.aggregate(lambda: 0, lambda key, value, total: total + value, store="sums", name="sum", value_serde="long").to_stream(
        name="sum-changes"
    ).to(f"{name}-totals", **numbers)
    names.group_by(lambda key, value: (value.split("#")[0], key), name="by-name", **texts).count(store="alike", name="count-alike")
    return builder.build()


OUTPUTS = ("final", "kept", "joined", "pairs", "totals")


@dataclass
class Application:
    """What `why` needs of an application."""

    name: str
    topology: Topology
    config: StreamsConfig
    client: ClusterClient
    registry: dict[str, Any] = field(default_factory=dict)
    versions: list[Any] = field(default_factory=list)


@dataclass
class Ran:
    """An application that has run, its input with positions, and what its topics have."""

    application: Any
    inputs: list[Record]
    position: dict[int, str]
    """By timestamp."""
    topics: dict[str, list[tuple[str, str, Any, int]]]
    """By topic: position, key, value, timestamp."""

    def timestamps(self, causes: Any) -> list[tuple[str, int]]:
        return sorted((cause.role, cause.timestamp) for cause in causes)


def make_input(seed: int, count: int) -> list[Record]:
    chance, at = random.Random(seed), 1_700_000_000_000
    rows: list[Record] = []
    for number in range(1, count + 1):
        at += chance.randrange(1, 120)
        key = f"k{chance.randrange(KEYS)}"
        topic = chance.choice(("orders", "orders", "clicks", "names"))
        value: Any = number if topic != "names" else None if chance.random() < 0.15 else f"name{chance.randrange(3)}#{number}"
        rows.append((topic, key, value, at))
    return rows


def as_bytes(topic: str, value: Any) -> bytes | None:
    return None if value is None else value.encode() if topic == "names" else LONG(value)


def run(admin: Admin, settings: ClientSettings, root: Path, name: str, rows: list[Record], rounds: int, **more: Any) -> Ran:
    for topic in ("orders", "clicks", "names", *OUTPUTS):
        admin.create_topic(f"{name}-{topic}", PARTITIONS)
    config = StreamsConfig({
        "application.id": name, "bootstrap.servers": settings.bootstrap_servers, "state.dir": str(root), "num.stream.threads": 1,
        "processing.guarantee": "exactly_once_v2", "commit.interval.ms": 50, "max.task.idle.ms": 500,
        "repartition.purge.interval.ms": 3_600_000, **more,
    })  # fmt: skip
    plan = make_plan(topology(name), config, settings, admin=admin, generation=1, state_root=root)
    lease = FileChannel(Path(plan.control_directory))
    lease.signal(plan.generation, Signal.RUN)
    control = FileInstanceControl(plan.control_directory, plan.generation, 0)
    running = threading.Thread(target=run_instance, args=(plan, 0), kwargs={"until": time.monotonic() + 120, "control": control})
    running.start()
    step = -(-len(rows) // rounds)
    for start in range(0, len(rows), step):
        producer = make_producer(settings)
        for topic, key, value, at in rows[start : start + step]:
            producer.produce(f"{name}-{topic}", as_bytes(topic, value), key.encode(), timestamp=at)
        assert producer.flush(20) == 0
        producer.close()
        wait(admin, name)
    lease.signal(plan.generation, Signal.STOP)
    running.join(30)
    app: Any = Application(name, plan.topology or topology(name), config, ClusterClient(settings))
    position: dict[int, str] = {}
    topics: dict[str, list[tuple[str, str, Any, int]]] = {}
    internal = [f"{name}-{topic}" for topic in app.topology.internal_topics]
    for topic in [*(f"{name}-{each}" for each in ("orders", "clicks", "names", *OUTPUTS)), *internal]:
        for partition, batch in read_ranges(settings, ranges_of(admin, topic)):
            for offset, key, value, at in zip(batch.offsets, batch.keys, batch.values, batch.timestamps, strict=True):
                assert key is not None
                topics.setdefault(topic.removeprefix(f"{name}-"), []).append((f"{partition}@{offset}", key.decode(), value, at))
                if topic.removeprefix(f"{name}-") in ("orders", "clicks", "names"):
                    position[at] = f"{partition}@{offset}"
    return Ran(app, rows, position, topics)


def wait(admin: Admin, name: str) -> None:
    internal = [topic for topic in admin.topics(internal=True) if topic.startswith(f"{name}-") and topic.endswith("-repartition")]
    wanted = [f"{name}-{topic}" for topic in ("orders", "clicks", "names")]
    deadline, quiet = time.monotonic() + 60, 0
    while quiet < 3:
        inputs = [TopicPartition(topic, number) for topic in (*wanted, *internal) for number in range(admin.partitions(topic))]
        ends, committed = admin.end_offsets(inputs), admin.committed_offsets(name, inputs, stable=False)
        # A repartition topic ends with the marker of a transaction.
        done = all(at in committed and committed[at].offset >= end - (at.topic in internal) for at, end in ends.items() if end)
        quiet = quiet + 1 if done else 0
        assert time.monotonic() < deadline, (committed, ends)
        time.sleep(0.05)


@pytest.fixture(scope="module")
def ran(admin: Admin, settings: ClientSettings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    found = run(
        admin, settings, tmp_path_factory.mktemp("why"), "why0", make_input(1, 90), 2, **{"statestore.cache.max.bytes": 0}
    )
    yield found
    found.application.client.close()


def last(rows: list[Record], topic: str, key: str, *, before: int = 2**62, since: int = 0) -> Record | None:
    return next((row for row in reversed(rows) if row[:2] == (topic, key) and since <= row[3] < before), None)


def expected_rows(ran: Ran) -> dict[tuple[str, str, int | tuple[int, int] | None], set[int]]:
    """The timestamps of the direct causes of each row."""
    rows = ran.inputs
    found: dict[tuple[str, str, int | tuple[int, int] | None], set[int]] = {}
    for key in {row[1] for row in rows}:
        order, named = last(rows, "orders", key), last(rows, "names", key)
        mine = [row for row in rows if row[:2] == ("orders", key)]
        if order is not None:
            found["counts", key, None] = {order[3]}
        if named is not None:
            found["names", key, None] = {named[3]}
        if order is not None and named is not None and named[2] is not None:
            found["both", key, None] = {order[3], named[3]}
        for start in {row[3] // SIZE_MS * SIZE_MS for row in mine}:
            found["windows", key, start] = {max(row[3] for row in mine if row[3] // SIZE_MS * SIZE_MS == start)}
        sessions: list[list[int]] = []
        for row in mine:
            if sessions and row[3] - sessions[-1][1] <= GAP_MS:
                sessions[-1][1] = row[3]
            else:
                sessions.append([row[3], row[3]])
        found |= {("sessions", key, (start, end)): {end} for start, end in sessions}
    for topic, records in ran.topics.items():
        if topic.endswith("-repartition"):
            for _, key, _, at in records:
                found["sums" if key[0] == "g" else "alike", key, None] = {at}
    return found


def expected_output(ran: Ran, topic: str, position: str, key: str, value: Any, at: int) -> set[int]:
    """The timestamps of the direct causes of an output record."""
    rows = ran.inputs
    by_number = {row[2]: row[3] for row in rows if row[0] != "names"}
    if topic == "kept":
        return {by_number[ks.serdes.long.deserialize(value)]}
    if topic == "joined":
        number, name = value.decode().split("|")
        return {by_number[int(number)], next(row[3] for row in rows if row[2] == name)}
    if topic == "pairs":
        return {by_number[int(part)] for part in value.split(b"/")}
    if topic == "final":
        plain, start = key.split("@")
        closed = last(rows, "orders", plain, before=int(start) + SIZE_MS)
        partition = ran.position[closed[3]].split("@")[0]  # type: ignore[index]
        ticks = [row[3] for row in rows if row[0] == "orders" and ran.position[row[3]].startswith(f"{partition}@")]
        assert closed is not None
        return {closed[3], next(each for each in ticks if each >= int(start) + SIZE_MS)}
    number = [each[0] for each in ran.topics[topic] if each[1] == key].index(position)
    return {[each[3] for each in ran.topics["by-group-repartition"] if each[1] == key][number]}


def of_row(explainer: Explainer, store: str, key: str, window: Any = None, **more: Any) -> tuple[Cause, ...]:
    return explainer.of_row(explainer.app.topology.store(store), key, window, **more).causes


def check(ran: Ran, causes: tuple[Cause, ...], wanted: set[int], what: object) -> None:
    assert {cause.timestamp for cause in causes} == wanted, (what, causes)
    assert all(str(cause.position) == ran.position[cause.timestamp] for cause in causes), (what, causes)
    assert all(len(cause.path) > 1 for cause in causes), (what, causes)


def check_rows(ran: Ran, count: int) -> int:
    explainer, wanted = Explainer(ran.application), expected_rows(ran)
    for store, key, window in random.Random(2).sample(sorted(wanted, key=str), min(count, len(wanted))):
        check(ran, of_row(explainer, store, key, window), wanted[store, key, window], (store, key, window))
    return min(count, len(wanted))


def check_outputs(ran: Ran, count: int) -> int:
    explainer = Explainer(ran.application)
    records = [(topic, *record) for topic in OUTPUTS for record in ran.topics[topic]]
    for topic, position, key, value, at in random.Random(3).sample(records, min(count, len(records))):
        causes = explainer.of_record(ks.types.RecordPosition.parse(position)).causes
        check(ran, causes, expected_output(ran, topic, position, key, value, at), (topic, position, key, value))
    return min(count, len(records))


@pytest.mark.parametrize("many", [0, 1_000])
def test_direct_causes_of_rows_and_output_records(ran: Ran, monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    """Of commits with so many records only those of one key are processed again, where that suffices."""
    monkeypatch.setattr(writers, "MANY", many)
    check_rows(ran, 12)
    check_outputs(ran, 12)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_direct_causes_of_a_thousand_rows_and_output_records(
    admin: Admin, settings: ClientSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = outputs = 0
    for seed in (11, 12, 13):
        monkeypatch.setattr(writers, "MANY", 0 if seed == 12 else 1_000)
        ran = run(admin, settings, tmp_path, f"why-{seed}", make_input(seed, 1000), 4, **{"statestore.cache.max.bytes": 0})
        rows += check_rows(ran, 1000)
        outputs += check_outputs(ran, 1000)
        ran.application.client.close()
    assert rows >= 1000 and outputs >= 1000, (rows, outputs)


@pytest.mark.slow
def test_rows_of_cached_stores_have_the_same_causes(admin: Admin, settings: ClientSettings, tmp_path: Path) -> None:
    ran = run(admin, settings, tmp_path, "why2", make_input(5, 100), 2)
    explainer = Explainer(ran.application)
    for (store, key, window), wanted in expected_rows(ran).items():
        if store != "alike":
            check(ran, of_row(explainer, store, key, window), wanted, (store, key, window))
    ran.application.client.close()


def test_a_row_at_an_earlier_commit(ran: Ran) -> None:
    explainer, app = Explainer(ran.application), ran.application
    commits = history_of(app).of(TaskId(0, 0))
    commit = commits[len(commits) // 2]
    orders = [row for row in ran.inputs if row[0] == "orders" and ran.position[row[3]].startswith(f"{app.name}-orders-0@")]
    done = [row for row in orders if int(ran.position[row[3]].split("@")[1]) < commit.offsets[TopicPartition(f"{app.name}-orders", 0)]]
    assert 0 < len(done) < len(orders)
    for key in {row[1] for row in done}:
        wanted = last(done, "orders", key)
        [cause] = of_row(explainer, "counts", key, as_of=f"commit {commit.commit_id}")
        assert wanted is not None and cause.timestamp == wanted[3]


def test_what_is_shown(ran: Ran) -> None:
    app, key = ran.application, ran.topics["joined"][-1][1]
    found = why(app, ran.topics["joined"][-1][0], all=False, as_of=None, calls=False)
    assert repr(found) == f"Causes({ran.topics['joined'][-1][0]}, 2 records)"
    assert [cause.role for cause in found.causes] == ["record", "other side of join named"]
    assert found.causes[0].path[0] == "orders" and "named" in found.causes[0].path
    assert found.df().shape == (2, 8) and list(found.df()["topic"]) == [f"{app.name}-orders", f"{app.name}-names"]
    bundle = found._repr_mimebundle_()
    assert "<img" in bundle["text/html"] and " → named → " in bundle["text/plain"]
    assert found._marks()["node:named"].lines == ("✓ 2 causes",)
    assert why(app, "counts", key, all=True, as_of=None, calls=False).causes[0].role == "record"


def test_what_is_not_there_is_an_error(ran: Ran) -> None:
    def ask(*what: Any, **more: Any) -> Any:
        return why(ran.application, *what, **{"all": False, "as_of": None, "calls": False} | more)

    with pytest.raises(InvalidStateStoreError, match="no row 'nobody'"):
        ask("counts", "nobody")
    with pytest.raises(InvalidStateStoreError, match="there is no record"):
        ask(f"{ran.application.name}-kept-0@99999")
    for wrong in (("counts",), ("elsewhere-0@1",), ("windows", "k1")):
        with pytest.raises(CallError):
            ask(*wrong)
    with pytest.raises(CallError, match="no windows"):
        ask("counts", "k1", window=0)


# ---- all causes


def stores_after(ran: Ran, rows: list[Record]) -> dict[tuple[str, str, Any], Any]:
    """All rows after some of the records, by the test driver."""
    name, found = ran.application.name, {}
    with ks.testing.TopologyTestDriver(topology(name)) as driver:
        for topic, key, value, at in rows:
            driver.pipe_bytes(f"{name}-{topic}", key.encode(), as_bytes(topic, value), at)
        for store in ("counts", "names", "both", "sums", "alike"):
            found |= {(store, key, None): value for key, value in driver.state_store(store).all()}
        for window, value in driver.state_store("windows").all():
            found["windows", window.key, window.start] = value
    return found


@pytest.mark.parametrize("many", [0, 1_000])
def test_all_causes_of_aggregates(ran: Ran, monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    monkeypatch.setattr(writers, "MANY", many)
    explainer = Explainer(ran.application)
    for key in ("k1", "k2"):
        [*causes] = of_row(explainer, "counts", key, all=True)
        assert {cause.timestamp for cause in causes} == {row[3] for row in ran.inputs if row[:2] == ("orders", key)}
        assert [cause.role for cause in causes] == ["record", *["contribution"] * (len(causes) - 1)]
    behind = {each[3] for each in ran.topics["by-group-repartition"] if each[1] == "g1"}
    assert {cause.timestamp for cause in of_row(explainer, "sums", "g1", all=True)} == behind


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("many", [0, 1_000])
def test_all_causes_are_the_records_without_which_a_row_differs(
    admin: Admin, settings: ClientSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    monkeypatch.setattr(writers, "MANY", many)
    ran = run(admin, settings, tmp_path, f"why-all-{many}", make_input(4, 200), 2, **{"statestore.cache.max.bytes": 0})
    explainer, rows = Explainer(ran.application), ran.inputs
    whole = stores_after(ran, rows)
    needed: dict[tuple[str, str, Any], set[int]] = {row: set() for row in whole}
    for index, left_out in enumerate(rows):
        without = stores_after(ran, rows[:index] + rows[index + 1 :])
        for row, value in whole.items():
            if without.get(row) != value:
                needed[row].add(left_out[3])
    assert len(whole) > 20
    for (store, key, window), wanted in needed.items():
        causes = of_row(explainer, store, key, window, all=True)
        got = {cause.timestamp for cause in causes}
        if store == "alike":  # a row that was added and taken back is named, too, though it changes nothing
            assert wanted <= got, (key, causes)
            assert got == {each[3] for each in ran.topics["by-name-repartition"] if each[1] == key}
            assert {cause.role for cause in causes} <= {"record", "contribution", "retraction"}
        else:
            assert got == wanted, (store, key, window, causes)
    alike = [cause for row in whole if row[0] == "alike" for cause in of_row(explainer, *row, all=True)]
    assert "retraction" in {cause.role for cause in alike}
    ran.application.client.close()
