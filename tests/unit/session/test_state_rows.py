"""Rows of stores as another process reads them."""

from __future__ import annotations

import multiprocessing
import struct
from pathlib import Path

import pytest

import kstreams_repl as ks
from kstreams_repl.session.state_rows import count_rows, get_row, read_store


def write(path: str, rows: list[tuple[bytes, bytes]]) -> None:
    from kstreams_repl.stores.engine.lmdb import LmdbEnvironment

    environment = LmdbEnvironment(path)
    engine = environment.engine("counts")
    for key, value in rows:
        engine.put(key, value)
    environment.commit({}, 7)
    environment.close()


@pytest.fixture
def topology() -> ks.Topology:
    builder = ks.StreamsBuilder()
    builder.stream("in", key_serde="string").group_by_key().count(store="counts")
    return builder.build()


@pytest.mark.parametrize(
    "keys",
    [[b"a", b"b"], [b"", b"a"], [b"x" * 600, b"x" * 600 + b"y", b"a"], []],
    ids=["plain", "with an empty key", "long keys", "none"],
)
def test_all_rows_come_out_in_order_whatever_the_keys(keys: list[bytes], topology: ks.Topology, tmp_path: Path) -> None:
    task = tmp_path / "app" / "tasks" / "0_3"
    task.mkdir(parents=True)
    rows = [(key, struct.pack(">qq", 1000, number)) for number, key in enumerate(keys)]
    writer = multiprocessing.get_context("spawn").Process(target=write, args=(str(task), rows))
    writer.start()
    writer.join()
    config = ks.StreamsConfig({"application.id": "app", "state.dir": str(tmp_path)})
    builder = topology.store("counts")
    if not keys:
        assert count_rows(config, topology, builder) in (0, None)
        return
    found = read_store(None, config, topology, builder, limit=None)  # type: ignore[arg-type]
    assert [(part.partition, list(zip(part.keys, part.values, strict=True))) for part in found.parts] == [(3, sorted(rows))]
    assert found.as_of == "as of commits 0_3: 7"
    cut = read_store(None, config, topology, builder, limit=1)  # type: ignore[arg-type]
    assert len(cut.parts[0].keys) == 1 and not cut.parts[0].complete
    assert get_row(config, topology, builder, keys[-1]) == rows[-1][1]
    assert get_row(config, topology, builder, b"nobody") is None
