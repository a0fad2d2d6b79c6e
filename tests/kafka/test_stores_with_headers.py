"""Stores with headers in a deployed instance on a broker: restored with their headers, and begun and ended by `dsl.store.format`."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.initialization.task_initialization import open_instance
from kstreams_repl.host.instance.polling.poll_loop import PollLoop
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, make_producer
from kstreams_repl.host.kafka.reading import ranges_of, read_ranges
from kstreams_repl.host.spark.planning.plan_builder import make_plan
from kstreams_repl.serving.local.local_stores import LocalStores
from kstreams_repl.serving.local.queryable_state import QueryableState

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]
Row = tuple[str, str, list[tuple[str, bytes | None]]]


class KeepTrace:
    """Puts each record with its headers, and forwards what was there before."""

    def init(self, context: Any) -> None:
        self.context, self.store = context, context.get_state_store("traced")

    def process(self, record: Any) -> None:
        before = self.store.get(record.key)
        self.context.forward(record.with_value(str(None if before is None else (before.value, before.headers))))
        row = ks.types.ValueTimestampHeaders(record.value, record.timestamp, record.headers)
        self.store.put(record.key, None if record.value == "delete" else row)

    def close(self) -> None: ...


class Deployment:
    """One application on the broker; each `run` is a new generation of its instance."""

    def __init__(self, build: Callable[[str], Any], admin: Admin, settings: ClientSettings, name: str, directory: Path) -> None:
        self.admin, self.settings, self.directory = admin, settings, directory
        self.topic, self.build, self.application = f"{name}-in", build, f"{name}-app"
        self.generation = self.fed = 0
        admin.create_topic(self.topic, 1)

    def config(self, **more: Any) -> StreamsConfig:
        return StreamsConfig({
            "application.id": self.application, "bootstrap.servers": self.settings.bootstrap_servers, "state.dir": str(self.directory),
            "default.key.serde": "string", "default.value.serde": "string", "processing.guarantee": "exactly_once_v2", **more,
        })  # fmt: skip

    def run(self, *rows: Row, **more: Any) -> dict[str, list[Any]]:
        """Process records, and return what the application's topics have."""
        self.generation += 1
        config = self.config(**more)
        plan = make_plan(
            self.build(self.topic), config, self.settings, admin=self.admin, generation=self.generation, state_root=self.directory
        )
        instance = open_instance(plan, 0, in_force=lambda: True)
        producer = make_producer(self.settings)
        try:
            for key, value, headers in rows:
                producer.produce(self.topic, value.encode(), key.encode(), 0, None, None, 1_000 + self.fed, headers)
                self.fed += 1
            assert producer.flush(20) == 0
            deadline = time.monotonic() + 30

            def signal(now: float) -> Signal:
                committed = {at.topic: task.committed[at] for at, task in instance.input.by_partition.items()}
                done = committed[self.topic] >= self.fed and instance.committer.settled and not instance.committer.touched
                return Signal.PAUSE if done else Signal.RUN

            PollLoop(instance, signal=signal, report=lambda instance: None).run(deadline)
            assert time.monotonic() < deadline
        finally:
            producer.close()
            instance.close()
        return {topic: self.read(topic) for topic in self.admin.topics() if topic.startswith(self.application)}

    def read(self, topic: str) -> list[Any]:
        found: list[Any] = []
        for _, batch in read_ranges(self.settings, ranges_of(self.admin, topic, settled=True)):
            headers = batch.headers or [None] * len(batch.keys)
            found += zip(batch.keys, batch.values, (list(own or ()) for own in headers), strict=True)
        return found

    def store(self, name: str, kind: Any, **more: Any) -> Any:
        self.local = LocalStores(self.build(self.topic), self.config(**more))  # kept: its files are closed with it
        return QueryableState(self.local).store(ks.queries.StoreQueryParameters(name, kind))


@pytest.mark.parametrize("caching", [False, True])
def test_rows_are_restored_with_their_headers(admin: Admin, settings: ClientSettings, name: str, tmp_path: Path, caching: bool) -> None:
    def build(topic: str) -> Any:
        builder = ks.StoreBuilder("traced", ks.StoreKind.TIMESTAMPED_KEY_VALUE, headers=True, caching=caching)
        topology = ks.StreamsBuilder()
        topology.add_state_store(builder).stream(topic).process(KeepTrace, stores=["traced"])
        return topology.build()

    deployment = Deployment(build, admin, settings, name, tmp_path)
    log = f"{deployment.application}-traced-changelog"
    wrote = deployment.run(("a", "1", [("trace", b"x"), ("none", None)]), ("b", "2", []), ("c", "3", [("y", b"z")]))
    assert sorted(wrote[log]) == [(b"a", b"1", [("trace", b"x"), ("none", None)]), (b"b", b"2", []), (b"c", b"3", [("y", b"z")])]
    wrote = deployment.run(("c", "delete", [("why", b"gone")]))
    assert wrote[log][-1] == (b"c", None, [("why", b"gone")])
    for child in tmp_path.iterdir():
        shutil.rmtree(child)
    deployment.run(("d", "4", []))
    rows = dict(deployment.store("traced", ks.queries.QueryableStoreTypes.timestamped_key_value_store_with_headers()).all())
    assert {key: (row.value, row.headers) for key, row in rows.items()} == {
        "a": ("1", [("trace", b"x"), ("none", None)]), "b": ("2", []), "d": ("4", []),
    }  # fmt: skip
    assert dict(deployment.store("traced", ks.queries.QueryableStoreTypes.key_value_store()).all()) == {"a": "1", "b": "2", "d": "4"}


@pytest.mark.slow
@pytest.mark.parametrize("logging", [True, False])
def test_a_count_goes_on_when_its_store_begins_and_ends_to_keep_headers(
    admin: Admin, settings: ClientSettings, name: str, tmp_path: Path, logging: bool
) -> None:
    def build(topic: str) -> Any:
        topology = ks.StreamsBuilder()
        grouped = topology.stream(topic).group_by_key()
        grouped.count(store="counts", logging=logging)
        grouped.windowed_by(ks.SessionWindows.of_inactivity_gap_with_no_grace(10_000)).count(store="sessions", logging=logging)
        return topology.build()

    deployment = Deployment(build, admin, settings, name, tmp_path)
    rows: list[Row] = [(f"k{number % 7}", "x", [("n", b"1")]) for number in range(21)]
    types = ks.queries.QueryableStoreTypes
    for generation, store_format in enumerate(("DEFAULT", "HEADERS", "HEADERS", "DEFAULT"), start=1):
        deployment.run(*rows, **{"dsl.store.format": store_format})
        expected = {f"k{number}": 3 * generation for number in range(7)}
        assert dict(deployment.store("counts", types.key_value_store(), **{"dsl.store.format": store_format}).all()) == expected
        sessions = deployment.store("sessions", types.session_store(), **{"dsl.store.format": store_format})
        assert {key: [count for _, count in sessions.fetch(key)] for key in expected} == {key: [n] for key, n in expected.items()}
        if store_format == "HEADERS":
            kept = deployment.store("counts", types.timestamped_key_value_store_with_headers(), **{"dsl.store.format": store_format})
            assert {key: (row.value, row.headers) for key, row in kept.all()} == {key: (n, []) for key, n in expected.items()}
