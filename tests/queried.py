"""An application's state directory as its instances leave it: one environment for each task, committed with the offsets of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import kstreams_repl as ks
from kstreams_repl.engine.processor.record_context import RecordContext
from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment
from kstreams_repl.engine.stores.factory import open_store
from kstreams_repl.engine.stores.layers.row_format import keep_row_format
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.instance.state.environment_attributes import INPUT
from kstreams_repl.host.instance.state.state_directory import task_directory
from kstreams_repl.serving.local.local_stores import LocalStores
from kstreams_repl.serving.local.queryable_state import QueryableState
from kstreams_repl.system.types import TaskId

MAP_BYTES = 64 << 20
APPLICATION = "queried"
TOPIC = "in"


class Nothing(ks.Processor):
    def process(self, record: Any) -> None:
        pass


def topology_of(*builders: ks.StoreBuilder) -> Topology:
    topology = ks.Topology()
    topology.add_source("source", TOPIC, key_serde="string", value_serde="long")
    topology.add_processor("processor", Nothing, "source")
    for builder in builders:
        topology.add_state_store(builder, "processor")
    return topology


class State:
    """Writes tasks as instances do, and reads them as queries do."""

    def __init__(self, root: Path, *builders: ks.StoreBuilder) -> None:
        self.config = ks.StreamsConfig(
            {
                "application.id": APPLICATION,
                "bootstrap.servers": "localhost:1",
                "state.dir": str(root),
                "default.key.serde": "string",
                "default.value.serde": "long",
            }
        )
        self.root = root
        self.topology = topology_of(*builders)
        self.builders = {builder.name: self.topology.store(builder.name) for builder in builders}
        self.local = LocalStores(self.topology, self.config)
        self.queries = QueryableState(self.local)
        self._commits = 0

    def path(self, partition: int, executor: str = "driver") -> Path:
        return task_directory(self.root, APPLICATION, TaskId(0, partition), executor)

    def write(
        self,
        partition: int,
        fill: Callable[[Mapping[str, Any]], None],
        offset: int = 1,
        *,
        executor: str = "driver",
        token: str = "1/0/0/0/x",
        closes: bool = True,
    ) -> LmdbEnvironment:
        """Let a task write its stores and commit; close it, as an instance at rest."""
        environment = LmdbEnvironment(self.path(partition, executor), map_bytes=MAP_BYTES)
        environment.take_ownership(token)
        for builder in self.builders.values():
            keep_row_format(environment, builder)
        defaults = (ks.serdes.resolve("string"), ks.serdes.resolve("long"))
        stores = {
            name: open_store(builder, environment, record_context=RecordContext(), defaults=defaults)
            for name, builder in self.builders.items()
        }
        fill(stores)
        self._commits += 1
        environment.commit({f"{INPUT}{TOPIC}-{partition}": offset}, self._commits)
        if closes:
            environment.close()
        return environment
