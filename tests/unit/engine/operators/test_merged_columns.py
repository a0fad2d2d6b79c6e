"""Partials merged by the column write what partials merged one by one write."""

from __future__ import annotations

import random
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.engine.operators.batches import merged_columns
from kstreams_repl.engine.operators.batches.stream_sql_aggregate import MergePartials
from kstreams_repl.engine.runtime.compiler.compile import TaskNode
from kstreams_repl.system.errors import StreamsProcessingError
from tests.unit.engine.operators.test_stream_sql_partials import AGGREGATES, COLUMNS, Row, orders
from tests.unit.engine.runtime.rig import Rig

CACHE = {"statestore.cache.max.bytes": 10_000_000}
COUNTED = "SELECT count(*) AS n, sum(amount) AS total, max(amount) AS high FROM this GROUP BY key"


def rig_of(query: str, *, environment: Any = None, behind: bool = False, cache: int = 10_000_000, **options: Any) -> Rig:
    builder = ks.StreamsBuilder()
    stream = builder.stream("in", key_serde="string", value_serde="json")
    stream = stream.filter(lambda key, value: True) if behind else stream
    table: Any = stream.sql(query, columns=COLUMNS, **({"store": "totals"} | options))
    table.to_stream().to("out", key_serde="string", value_serde=options.get("value_serde", "json"))
    return Rig(builder.build(), CACHE | {"statestore.cache.max.bytes": cache}, environment=environment, loop_threshold=1)


def one_by_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TaskNode, "owns", lambda node, store: False)


def by_column_only(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MergePartials, "__call__", lambda merge, key, partial, row: pytest.fail("a partial was merged alone"))


def shown(sent: list[Any]) -> list[Any]:
    """Keys, values, times and headers; sums of DOUBLE in tests are exact, so texts are equal."""
    return [(topic, key, value, at, headers) for topic, key, value, at, headers, _ in sent]


def written(rows: list[Row], patch: pytest.MonkeyPatch, columns: bool, query: str, **options: Any) -> list[Any]:
    """What commits send for these rows, with a restart in the middle."""
    with patch.context() as patched:
        (by_column_only if columns else one_by_one)(patched)
        sent, environment = [], None
        for start in range(0, len(rows), 200):
            rig = rig_of(query, environment=environment, **options)
            environment = rig.environment
            for first in range(start, start + 200, 40):
                rig.pipe("in", *rows[first : first + 40]).run()
                if first % 80 == 0:
                    rig.commit()
            rig.commit()
            sent += shown(rig.outbox.sent)
        return sent


@pytest.mark.slow
@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize(
    "query",
    [
        f"SELECT key AS k, {AGGREGATES} FROM this GROUP BY key",
        COUNTED,
        "SELECT min(item) AS first, bool_or(paid) AS some FROM this GROUP BY key",
        "SELECT count(*) AS value FROM this GROUP BY key",
        "SELECT avg(amount) AS value FROM this GROUP BY key",
        'SELECT sum(amount) AS "a ""%d"" é" FROM this WHERE amount IS NOT NULL GROUP BY key',
    ],
)
def test_commits_write_what_partials_merged_one_by_one_write(query: str, behind: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = orders(600, 5)
    sent = written(rows, monkeypatch, True, query, behind=behind)
    assert len(sent) > 20
    assert sent == written(rows, monkeypatch, False, query, behind=behind)


def test_a_count_in_a_serde_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    query, rows = "SELECT count(*) AS value FROM this GROUP BY key", orders(600, 6)
    sent = written(rows, monkeypatch, True, query, value_serde="long")
    assert sent == written(rows, monkeypatch, False, query, value_serde="long")


@pytest.mark.parametrize(("old", "new"), [("sum(price)", "sum(amount)"), ("sum(amount)", "sum(price)"), ("max(item)", "max(price::TEXT)")])
def test_rows_of_an_earlier_query_are_continued(old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column may have had another type, and there may be another one."""
    seen = []
    for columns in (True, False):
        with monkeypatch.context() as patched:
            (by_column_only if columns else one_by_one)(patched)
            first = rig_of(f"SELECT {old} AS x FROM this GROUP BY key").pipe("in", *orders(100, 7))
            first.run()
            first.commit()
            rig = rig_of(f"SELECT count(*) AS n, {new} AS x, avg(amount) AS mean FROM this GROUP BY key", environment=first.environment)
            rig.pipe("in", *orders(100, 8)).run()
            rig.commit()
            seen.append(shown(rig.outbox.sent))
    assert seen[0] == seen[1] and seen[0]


def test_a_full_budget_flushes_and_rows_beyond_the_capacity_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merged_columns, "_CAPACITY", 6)
    chance, totals = random.Random(1), dict[str, int]()
    rig = rig_of(COUNTED, cache=3_000)
    for start in range(0, 900, 30):
        rows = [(f"k{chance.randrange(20)}", {"amount": chance.randrange(9)}, at) for at in range(start, start + 30)]
        for key, value, _ in rows:
            totals[key] = totals.get(key, 0) + value["amount"]
        rig.pipe("in", *rows).run()
        if start == 300:
            assert rig.outbox.to("out"), "the budget is full before the commit"
        if start % 90 == 0:
            rig.commit()
    rig.commit()
    store = rig.task.stores["totals"]
    assert {key: item.value["total"] for key, item in store.all()} == totals


def test_a_read_or_a_write_from_outside_meets_the_newest_row() -> None:
    rig = rig_of(COUNTED)
    store = rig.task.stores["totals"]
    for amount, total in ((1, 1), (2, 3), (4, 7)):
        rig.pipe("in", ("a", {"amount": amount}, amount)).run()
        assert (store.get("a").value["total"], store.get("b")) == (total, None)
    store.put("a", ({"n": 0, "total": 100, "high": 0}, 3))
    rig.pipe("in", ("a", {"amount": 1}, 5)).run()
    assert list(store.all()) == [("a", ({"n": 1, "total": 101, "high": 1}, 5))]


def test_a_rollback_forgets_what_was_merged() -> None:
    rig = rig_of(COUNTED)
    rig.pipe("in", ("a", {"amount": 1}, 1)).run()
    rig.commit()
    rig.pipe("in", ("a", {"amount": 2}, 2)).run()
    rig.environment.rollback()
    assert rig.task.stores["totals"].get("a").value["total"] == 1


def test_headers_are_those_of_the_last_record_of_a_key() -> None:
    builder = ks.StreamsBuilder()
    table = builder.stream("in", key_serde="string", value_serde="json").sql(COUNTED, columns=COLUMNS, store="totals")
    table.to_stream().filter(lambda key, value: True).to("out", key_serde="string", value_serde="json")
    driver = ks.testing.TopologyTestDriver(builder.build(), CACHE, mode="deployed")
    topic = driver.create_input_topic("in", "string", "json")
    changing: list[list[tuple[str, bytes | None]]] = [[("h", b"1")], [], [("h", b"2")]]
    for headers in changing:
        topic.pipe_input("a", {"amount": 1}, timestamp=1, headers=headers)
    found = driver.create_output_topic("out", "string", "json").read_records()
    assert [list(record.headers) for record in found] == changing


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize(("expression", "amount"), [("sum(amount)", 2**62), ("sum(amount::DOUBLE * 1e290)", 10**18)])
def test_a_sum_that_leaves_its_type_names_the_record(expression: str, amount: int, behind: bool) -> None:
    rig = rig_of(f"SELECT {expression} AS x FROM this GROUP BY key", behind=behind)
    rig.pipe("in", ("a", {"amount": amount}, 1), ("b", {"amount": 1}, 2)).run()
    rig.pipe("in", ("b", {"amount": 1}, 3), ("a", {"amount": amount}, 4))
    with pytest.raises(StreamsProcessingError, match="out of range") as caught:
        rig.run()
    assert (caught.value.fields["offset"], caught.value.fields["node"][:17]) == (3, "KSTREAM-AGGREGATE")


def test_a_handler_that_continues_skips_a_partial_that_cannot_be_merged() -> None:
    builder = ks.StreamsBuilder()
    stream = builder.stream("in", key_serde="string", value_serde="json")
    stream.sql("SELECT sum(amount) AS x FROM this GROUP BY key", columns=COLUMNS, store="totals").to_stream().to("out")
    rig = Rig(builder.build(), CACHE | {"processing.exception.handler": "continue"}, loop_threshold=1)
    for amount in (2**62, 2**62, -5):
        rig.pipe("in", ("a", {"amount": amount}, 1)).run()
    assert rig.task.stores["totals"].get("a").value == {"x": 2**62 - 5}


@pytest.mark.parametrize("mode", ["exact", "deployed"])
def test_partials_of_another_key_come_one_by_one_and_are_merged_by_the_column(mode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if mode == "deployed":
        by_column_only(monkeypatch)
    builder = ks.StreamsBuilder()
    query = f"SELECT user, {AGGREGATES} FROM this GROUP BY user"
    builder.stream("in", key_serde="string", value_serde="json").sql(query, columns=COLUMNS, store="totals").to_stream().to("out")
    driver = ks.testing.TopologyTestDriver(builder.build(), CACHE, mode=mode)
    topic = driver.create_input_topic("in", "string", "json")
    for start in range(0, 200, 20):
        topic.pipe_records(orders(200, 9)[start : start + 20])
    found = dict(driver.create_output_topic("out", "long", "json").read_key_values())
    assert set(found) == {1, 2, 3}
    known = [value for key, value, _ in orders(200, 9) if value is not None and value.get("user") == 1]
    assert found[1]["n"] == len(known)
    assert found[1]["total"] == sum(value.get("amount") or 0 for value in known)


def test_a_store_with_another_reader_is_merged_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merged_columns.MergedColumns, "merge", lambda *_: pytest.fail("merged by the column"))
    builder = ks.StreamsBuilder()
    stream = builder.stream("in", key_serde="string", value_serde="json")
    table = stream.sql(COUNTED, columns=COLUMNS, store="totals")
    other = builder.stream("other", key_serde="string", value_serde="json")
    other.join(table, lambda value, row: row["total"]).to("out", key_serde="string", value_serde="json")
    rig = Rig(builder.build(), CACHE, loop_threshold=1)
    rig.pipe("in", ("a", {"amount": 3}, 1), ("a", {"amount": 4}, 2)).run()
    rig.pipe("other", ("a", {}, 3)).run()
    assert rig.outbox.to("out") == [(b"a", b"7", 3)]
