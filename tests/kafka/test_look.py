"""An application that runs elsewhere, looked at: this project's, and Kafka Streams' on the JVM, which answers for its own stores.

The oracles are the JVM's interactive queries, and a plain consumer that keeps the last record of each key.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, make_producer
from kstreams_repl.host.kafka.reading import ranges_of, read_ranges
from kstreams_repl.reports import Look
from kstreams_repl.system.errors import CallError, TopologyError, UnknownApplicationError, UnknownStateStoreError
from kstreams_repl.system.types import TopicPartition
from tests.kafka.handover.handing_over import INPUTS, SINKS, Case, Jvm, topology
from workshop.bench.peers.kafka_streams import find_jdk

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

KINDS = {
    "counts": "key-value", "windows": "window", "sessions": "session", "held": "window", "closed": "window", "rates": "versioned",
    "orders": "key-value", "people": "key-value", "owned": "key-value",
}  # fmt: skip
SIZES = {"windows": 10_000, "held": 7_000, "closed": 8_000}
RETENTION = {"windows": 15_000, "held": 9_000, "closed": 600_000}
"""That of `closed` is its supplier's, which Kafka Streams does not give to the changelog."""


class Unasked:
    """In place of the JVM of a `Case` that needs none."""


@pytest.fixture(scope="module")
def jvm(settings: ClientSettings) -> Iterator[Jvm]:
    jdk = find_jdk()
    if jdk is None:
        pytest.skip("no JDK (javac 17 or newer)")
    running = Jvm(jdk, settings.bootstrap_servers)
    yield running
    running.close()


def looked(their: Look, store: str) -> set[tuple[Any, ...]]:
    """The rows of a store as the JVM's queries name them."""
    frame = their.sql(f'SELECT * FROM "{store}"').arrow().to_pylist()
    return {
        (
            row["key"], moment(row.get("window_start")), moment(row.get("window_end")), str(row["value"]),
            moment(row.get("timestamp")),
        )
        for row in frame
    }  # fmt: skip


def moment(time: Any) -> str:
    return "-" if time is None else str(round(time.timestamp() * 1000))


def answered(jvm: Jvm, application: str, store: str, *, end: bool = True) -> set[tuple[str, ...]]:
    rows = (tuple(line.split("|")) for line in jvm.ask("rows", application, store, KINDS[store]).split("\n"))
    return {row if end or row[1] == "-" else (*row[:2], "-", *row[3:]) for row in rows}


@pytest.mark.slow  # a JVM, twice
@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_stores_of_kafka_streams_have_the_rows_of_its_own_queries(
    admin: Admin, settings: ClientSettings, name: str, jvm: Jvm, tmp_path: Path, guarantee: str
) -> None:
    case, application = Case(admin, settings, name, jvm, tmp_path), f"{name}-theirs"
    case.create_sinks(application)
    text = jvm.ask("describe", application, name)
    case.write()
    jvm.ask("start", application, name, guarantee, jvm.state(application))
    case.settle(application, lambda: jvm.ask("state", application))
    groups, topics = admin.groups(), admin.topics()
    for _ in range(3):
        case.write()  # while it is looked at
        their = ks.look(application, settings.bootstrap_servers, describe=text)
        for store in KINDS:
            their.sql(f'SELECT count(*) FROM "{store}"')
        case.settle(application, lambda: jvm.ask("state", application))
        for store in KINDS:
            want, got = answered(jvm, application, store, end=store not in SIZES), looked(their, store)
            assert got and (got < want if store == "closed" else got == want), store
        assert their.lag == 0
    assert str(their.topology.describe()) == text
    kinds = {row[0]: row[1] for row in their.stores.rows}
    assert {kinds[store] for store in SIZES} == {"timestamped-window"} and kinds["sessions"] == "session"
    assert kinds["rates"] == "versioned"
    sized = {
        store: ks.StoreBuilder(
            store, ks.StoreKind.TIMESTAMPED_WINDOW, "string", "long", window_size_ms=size, retention_ms=RETENTION[store]
        )
        for store, size in SIZES.items()
    }
    exact = ks.look(application, settings.bootstrap_servers, describe=text, stores=sized)
    for store in SIZES:
        assert looked(exact, store) == answered(jvm, application, store), store
    assert any("older row" in note for note in their.sql("SELECT * FROM closed").notes)
    assert (admin.groups(), admin.topics()) == (groups, topics)
    assert jvm.ask("stop", application) == "stopped"


@pytest.fixture(scope="module")
def ours(admin: Admin, settings: ClientSettings, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An application of this project that has run, and the names of its input's topics begin with ``look``."""
    case: Any = Case(admin, settings, "look0", Unasked(), tmp_path_factory.mktemp("look"))  # type: ignore[arg-type]
    case.create_sinks("look-ours")
    for _ in range(2):  # a commit logs the last value of each key: one for each run at least
        case.write()
        case.here("look-ours", "at_least_once")
    return "look-ours"


def changelog(admin: Admin, settings: ClientSettings, topic: str) -> list[tuple[TopicPartition, int, bytes, bytes | None]]:
    return [
        (at, time, key, value)
        for at, batch in read_ranges(settings, ranges_of(admin, topic))
        for key, value, time in zip(batch.keys, batch.values, batch.timestamps, strict=True)
        if key is not None
    ]


def test_a_store_is_read_as_of_any_time(admin: Admin, settings: ClientSettings, ours: str) -> None:
    their = ks.look(ours, settings.bootstrap_servers)
    records = changelog(admin, settings, f"{ours}-counts-changelog")
    times = sorted({time for _, time, _, _ in records})
    assert len(times) > 5
    for until in [*random.Random(1).sample(times, min(10, len(times))), times[0] - 1, times[-1]]:
        rows: dict[bytes, bytes] = {}
        ended: set[TopicPartition] = set()
        for at, time, key, value in records:
            if time > until:
                ended.add(at)
            if at not in ended and value is not None:
                rows[key] = value
        want = {(key.decode(), int.from_bytes(value, "big")) for key, value in rows.items()}
        assert set(their.sql("SELECT key, value FROM counts", as_of=until).fetchall()) == want, until
    assert their.sql("SELECT count(*) FROM counts", as_of="365 days ago").fetchall() == [(0,)]
    assert set(their.sql("SELECT key, value FROM counts", as_of="1 second ago").fetchall()) == set(
        their.sql("SELECT key, value FROM counts").fetchall()
    )


def test_the_text_of_the_topology_makes_its_picture_and_says_what_it_writes(
    admin: Admin, settings: ClientSettings, ours: str
) -> None:
    text = str(topology(ours, "look0").describe())
    their = ks.look(ours, settings.bootstrap_servers, describe=text)
    assert str(their.topology.describe()) == text
    roles = {row[0]: row[1] for row in their.topics(watch=0.1).rows}
    assert {topic for topic, role in roles.items() if role == "input"} == {f"look0-{topic}" for topic in INPUTS}
    assert {topic for topic, role in roles.items() if role == "output"} == {f"{ours}-{topic}" for topic in SINKS}
    bundle = their._repr_mimebundle_()
    assert "<img" in bundle["text/html"] and f"Look({ours}: " in bundle["text/plain"]


def test_without_the_text_its_topics_and_stores_are_those_on_the_broker(admin: Admin, settings: ClientSettings, ours: str) -> None:
    before = admin.groups(), admin.topics()
    their = ks.look(ours, settings.bootstrap_servers)
    changelogs = {topic for topic in admin.topics() if topic.startswith(f"{ours}-") and topic.endswith("-changelog")}
    assert {row[5] for row in their.stores.rows} == changelogs
    assert their.lag == 0
    write = make_producer(settings)
    for number in range(3):
        write.produce("look0-in", b"%d" % number, b"k")
    assert write.flush(20) == 0
    write.close()
    rows = {row[0]: row[3] for row in their.topics(watch=0.1).rows}
    assert their.lag == 3 == rows["look0-in"] and rows["look0-rates"] == 0
    assert (admin.groups(), admin.topics()) == before


def test_what_is_wrong_is_said(settings: ClientSettings, ours: str) -> None:
    at = settings.bootstrap_servers
    with pytest.raises(UnknownApplicationError, match="look-ourz") as unknown:
        ks.look("look-ourz", at)
    assert "look-ours" in str(unknown.value.hint) or "kafka-consumer-groups" in str(unknown.value.hint)
    with pytest.raises(TopologyError, match="line 2"):
        ks.look(ours, at, describe="Topologies:\nSource: x")
    with pytest.raises(UnknownStateStoreError, match="cuonts") as misspelt:
        ks.look(ours, at, stores={"cuonts": ("string", "long")})
    assert misspelt.value.hint == "did you mean 'counts'?"
    with pytest.raises(CallError, match="pair of serdes"):
        ks.look(ours, at, stores={"counts": "string"})
    with pytest.raises(CallError, match="parse"):
        ks.look(ours, at).sql("SELECT 1 FROM counts", as_of="yesterdayish")
