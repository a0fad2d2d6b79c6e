"""Operators on the real engine: nodes made by hand, driven by the test driver, seen by a probe behind the last node."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kstreams_repl import serdes
from kstreams_repl.engine.operators.operator import NodeContext, Operator, Process
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.test_driver.driver import TopologyTestDriver

Seen = tuple[Any, Any, int]


class Probe(Operator):
    """Keeps (key, value, timestamp) of what it is given, changes as they are."""

    def __init__(self, seen: list[Seen]) -> None:
        self.seen = seen

    def build(self, node: NodeContext, forward: Process) -> Process:
        def probe(key: Any, value: Any, timestamp: int, headers: Any) -> None:
            self.seen.append((key, value, timestamp))

        return probe


class Bench:
    """Build with `source`, `node`, `store`; `probe` one node; then `pipe`."""

    def __init__(self, *, cache: int = 0) -> None:
        self.topology = Topology()
        self.seen: list[Seen] = []
        self._cache = cache
        self._driver: TopologyTestDriver | None = None

    def source(self, topic: str, *, value: Any = serdes.json) -> str:
        self.topology.add_source(f"from-{topic}", topic, key_serde=serdes.string, value_serde=value)
        return f"from-{topic}"

    def store(self, name: str, kind: StoreKind = StoreKind.TIMESTAMPED_KEY_VALUE, *, value: Any = serdes.json, **more: Any) -> str:
        self.topology.add_state_store(StoreBuilder(name, kind, key_serde=serdes.string, value_serde=value, **more))
        return name

    def node(self, name: str, operator: Operator, *parents: str, stores: Iterable[str] = ()) -> str:
        self.topology.add_processor(name, operator, *parents)
        for store in stores:
            self.topology.connect_processor_and_state_stores(name, store)
        return name

    def probe(self, parent: str) -> Bench:
        return self.probe_named("probe", parent, self.seen)

    def probe_named(self, name: str, parent: str, seen: list[Seen]) -> Bench:
        self.topology.add_processor(name, Probe(seen), parent)
        return self

    @property
    def driver(self) -> TopologyTestDriver:
        if self._driver is None:
            self._driver = TopologyTestDriver(
                self.topology,
                {"statestore.cache.max.bytes": self._cache, "default.key.serde": serdes.string, "default.value.serde": serdes.json},
                start_ms=0,
            )
        return self._driver

    def pipe(self, topic: str, key: Any, value: Any, timestamp: int = 0, headers: Any = None) -> list[Seen]:
        """What the probe has seen because of this record."""
        before = len(self.seen)
        self.driver.create_input_topic(topic, serdes.string, serdes.json).pipe_input(key, value, timestamp, headers)
        return self.seen[before:]

    def dropped(self) -> int:
        return self.driver.dropped
