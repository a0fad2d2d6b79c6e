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


def totals(source: str, by_key: str, by_user: str, factor: int = 1) -> Any:
    """Two tables by SQL, one of the record's key and one of another, which is joined with the same count by the DSL."""
    builder = StreamsBuilder()
    stream = builder.stream(source, key_serde="string", value_serde="json")
    columns = {"n": int, "user": int}
    query = f"SELECT count(*) AS rows, sum(n * {factor}) AS total, min(n) AS low, max(n) AS high FROM this GROUP BY key"
    stream.sql(query, columns=columns, store="by-key").to_stream().to(by_key, key_serde="string", value_serde="json")
    query = "SELECT user, count(*) AS rows, avg(n) AS mean FROM this WHERE n % 2 = 0 GROUP BY user"
    users = stream.sql(query, columns=columns, store="by-user", name="users")
    even = stream.filter(lambda key, value: value["n"] % 2 == 0).group_by(lambda key, value: value["user"], key_serde="long")
    joined = users.join(even.count(store="counted"), lambda row, count: row | {"counted": count})
    joined.to_stream().to(by_user, key_serde="long", value_serde="json")
    return builder.build()


def test_aggregates_by_sql_are_exact_over_kills_and_an_edit(host: Host) -> None:
    source, by_key, by_user = host.topic("in", 2), host.topic("by-key", 2), host.topic("by-user", 3)
    rows = [(b"k%d" % (n % 20), json.dumps({"n": n, "user": n % 7}).encode()) for n in range(RECORDS)]
    app = host.deploy(totals(source, by_key, by_user))
    running(app)
    for part, start in enumerate(range(0, 20_000, 5_000)):
        host.produce(source, rows[start : start + 5_000])
        processed(app, start + 1_000)
        kill_worker(app, part % 2)
        settle(lambda: app.error is None, "the application to go on")
    processed(app, 20_000)
    app.pause()
    app.replace(totals(source, by_key, by_user, factor=-1))
    app.resume()
    host.produce(source, rows[20_000:])
    processed(app, RECORDS)

    def found(topic: str) -> dict[Any, Any]:
        return {key: json.loads(value or b"null") for key, value in host.table(topic).items()}

    settle(lambda: sum(row["rows"] + row["counted"] for row in found(by_user).values()) >= RECORDS, "the users")
    app.stop()
    mine = [[n for n in range(RECORDS) if n % 20 == key] for key in range(20)]
    assert found(by_key) == {
        b"k%d" % key: {
            "rows": len(of_key), "total": sum(n if n < 20_000 else -n for n in of_key), "low": of_key[0], "high": of_key[-1],
        }
        for key, of_key in enumerate(mine)
    }  # fmt: skip
    evens = {user: [n for n in range(0, RECORDS, 2) if n % 7 == user] for user in range(7)}
    assert found(by_user) == {
        user.to_bytes(8, "big"): {"user": user, "rows": len(of_user), "mean": sum(of_user) / len(of_user), "counted": len(of_user)}
        for user, of_user in evens.items()
    }
    counts = [json.loads(value or b"null")["rows"] for key, value in host.read(by_key) if key == b"k0"]
    assert counts == sorted(set(counts)), "one row per commit, and none twice"
