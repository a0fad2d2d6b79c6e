"""Batch nodes on Spark and a real broker: exactly once over kills of workers, tapped and edited as every node."""

from __future__ import annotations

import json
from typing import Any

import pyarrow.compute as pc
import pytest

from kstreams_repl import StreamsBuilder
from tests.spark.hosting import Host, kill_worker, processed, running, settle

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

RECORDS = 30_000


def large(batch: Any) -> Any:
    return batch.filter(pc.less(batch["total"], RECORDS))


def queries(source: str, sink: str, counted: str, factor: int = 1) -> Any:
    builder = StreamsBuilder()
    stream = builder.stream(source, key_serde="string", value_serde="json")
    totals = stream.sql(f"SELECT n, n * {factor} AS total FROM this WHERE n % 3 <> 0", columns={"n": int}, name="totals")
    kept = totals.map_batches(large, columns={"n": int, "total": int}, name="kept")
    kept.to(sink, key_serde="string", value_serde="json")
    counts = kept.group_by_key(key_serde="string", value_serde="json").count(store="counts")
    counts.to_stream().to(counted, key_serde="string", value_serde="long")
    return builder.build()


def test_every_record_is_in_the_result_once_and_in_order_over_kills_and_an_edit(host: Host) -> None:
    source, sink, counted = host.topic("in", 2), host.topic("out", 2), host.topic("counts", 2)
    rows = [(b"k%d" % (n % 20), json.dumps({"n": n, "more": "x" * (n % 50)}).encode()) for n in range(RECORDS)]
    app = host.deploy(queries(source, sink, counted))
    running(app)
    for part, start in enumerate(range(0, 20_000, 5_000)):
        host.produce(source, rows[start : start + 5_000])
        processed(app, start + 1_000)
        kill_worker(app, part % 2)
        settle(lambda: app.error is None, "the application to go on")
    processed(app, 20_000)
    app.pause()
    app.replace(queries(source, sink, counted, factor=-1))
    app.resume()
    host.produce(source, rows[20_000:])
    processed(app, RECORDS)
    app.stop()
    found = [(key, json.loads(value or b"null")) for key, value in host.read(sink)]
    expected = [n for n in range(RECORDS) if n % 3]
    assert sorted(value["n"] for _, value in found) == expected
    assert all(value["total"] == (value["n"] if value["n"] < 20_000 else -value["n"]) for _, value in found)
    by_key: dict[Any, list[int]] = {}
    for key, value in found:
        by_key.setdefault(key, []).append(value["n"])
    assert all(numbers == sorted(numbers) for numbers in by_key.values())
    counts = {key: int.from_bytes(value or b"", "big") for key, value in host.table(counted).items()}
    assert counts == {key: len(numbers) for key, numbers in by_key.items()}
