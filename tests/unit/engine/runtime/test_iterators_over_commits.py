"""A processor that keeps a store's iterator from one record to the next, over the commits between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kstreams_repl import Processor, StoreBuilder, StoreKind, Topology, serdes
from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment
from tests.unit.engine.runtime.rig import Rig


@pytest.mark.parametrize("caching", [False, True])
def test_it_goes_on_with_the_rows_there_were(tmp_path: Path, caching: bool) -> None:
    seen: list[Any] = []

    class Scan(Processor):
        rows: Any = None

        def init(self, context: Any) -> None:
            self.store = context.get_state_store("s")

        def process(self, record: Any) -> None:
            if record.value == "scan":
                self.rows = self.rows or self.store.all()
                seen.append(next(self.rows))
            else:
                self.store.put(record.key, record.value)

    topology = Topology().add_source("from", "in", key_serde="string", value_serde="json").add_processor("p", Scan, "from")
    topology.add_state_store(StoreBuilder("s", StoreKind.KEY_VALUE, serdes.string, serdes.json, caching=caching), "p")
    environment = LmdbEnvironment(tmp_path / "state", map_bytes=1 << 26)
    rig = Rig(topology, {"statestore.cache.max.bytes": 1_000_000}, environment=environment)
    steps: list[Any] = [[(f"k{number}", number, number) for number in range(5)]]
    steps += [row for number in range(3) for row in ([("z", "scan", 10)], [(f"k{number + 1}", "new", 11)])]
    for rows in steps:
        rig.pipe("in", *rows)
        rig.run()
        rig.commit()
    assert seen == [("k0", 0), ("k1", 1), ("k2", 2)]
    rig.task.close()
    environment.close()
