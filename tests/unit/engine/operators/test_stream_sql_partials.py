"""`sql` with GROUP BY: any division into batches gives what the query gives over all records; rows, keys, errors."""

from __future__ import annotations

import random
from typing import Any

import duckdb
import orjson
import pyarrow as pa
import pytest

import kstreams_repl as ks
from kstreams_repl import serdes
from kstreams_repl.engine.operators.batches.record_columns import RecordColumns, declared
from kstreams_repl.engine.operators.batches.stream_sql_partials import StreamSqlPartials
from kstreams_repl.system.errors import KStreamsError, StreamsProcessingError, TopologyError
from kstreams_repl.test_driver.driver import Mode
from tests.unit.engine.runtime.rig import Rig

COLUMNS = {"user": int, "amount": int, "item": str, "price": float, "paid": bool}
MODES: tuple[Mode, ...] = ("exact", "deployed")
Row = tuple[str | None, dict[str, Any] | None, int]


def orders(count: int, seed: int) -> list[Row]:
    """Records with missing fields and nulls; prices are halves, whose sums are exact."""
    chance = random.Random(seed)
    rows: list[Row] = []
    for at in range(count):
        value = {
            "user": chance.choice((1, 2, 3, None)), "amount": chance.choice((None, *range(-5, 6))),
            "item": chance.choice((None, "a", "B", "ü", "")), "price": chance.choice((None, 0.5, -1.5, 2.0)),
            "paid": chance.choice((None, True, False)),
        }  # fmt: skip
        kept = {name: field for name, field in value.items() if chance.random() < 0.9}
        rows.append((chance.choice(("k1", "k2", "ü", None)), kept if chance.random() < 0.95 else None, 1_000_000 + at * 60_000))
    return rows


def partials_of(query: str, **columns: Any) -> StreamSqlPartials:
    return StreamSqlPartials(declared(columns or COLUMNS, "sql"), "string", "json", query)


def batch_of(rows: list[Row], start: int = 0) -> RecordColumns:
    texts = [None if value is None else orjson.dumps(value) for _, value, _ in rows]
    keys = [key for key, _, _ in rows]
    offsets = list(range(start, start + len(rows)))
    values, times = [value for _, value, _ in rows], [at for _, _, at in rows]
    return RecordColumns(len(rows), lambda: keys, lambda: values, times, 0, offsets, None, texts)


def merged(query: str, rows: list[Row], cuts: list[int]) -> dict[Any, Any]:
    """What the query makes of the rows in batches: row by key."""
    operator = partials_of(query)
    table, work = operator.table(), operator.work("q")
    found: dict[Any, Any] = {}
    for start, stop in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        part = rows[start:stop]
        result = work(batch_of(part, start))
        keys = [part[at][0] for at in result.rows] if result.keys is None else result.keys
        for key, partial in zip(keys, result.objects(), strict=True):
            as_json = serdes.json.deserialize(serdes.json.serialize(partial))  # as in a repartition topic
            text = orjson.dumps(key)
            found[text] = table.merge(key, as_json, found.get(text))
    work.close()
    selected = set(table.merge.names)
    return {key: {name: field for name, field in row.items() if name in selected} for key, row in found.items()}


def over_all(query: str, rows: list[Row]) -> list[dict[str, Any]]:
    """What DuckDB makes of all rows at once."""
    types = {"user": pa.int64(), "amount": pa.int64(), "item": pa.string(), "price": pa.float64(), "paid": pa.bool_()}
    kept = [(key, value, at) for key, value, at in rows if value is not None]
    this = pa.table(
        {name: pa.array([value.get(name) for _, value, _ in kept], kind) for name, kind in types.items()}
        | {"key": pa.array([key for key, _, _ in kept], pa.string())}
        | {"timestamp": pa.array([at for _, _, at in kept], pa.int64()).cast(pa.timestamp("ms"))}
    )
    with duckdb.connect() as database:
        database.register("this", this)
        found = database.sql(f"SELECT to_json(r)::VARCHAR FROM ({query}) r").fetchall()
    return [orjson.loads(text) for (text,) in found]


def text(row: Any) -> bytes:
    return orjson.dumps(row, option=orjson.OPT_SORT_KEYS)


AGGREGATES = """count(*) AS n, count(amount) AS known, count_if(amount > 0) AS gains, sum(amount) AS total, sum(price) AS money,
    min(amount) AS low, max(amount) AS high, min(item) AS first, max(item) AS last, min(price) AS cheap, max(paid) AS p,
    min(timestamp) AS began, max(timestamp::DATE) AS day, avg(amount) AS mean, avg(price) AS usual,
    bool_and(paid) AS every, bool_or(paid) AS some, sum(amount * 2) FILTER (WHERE paid) AS twice,
    sum(amount::DECIMAL(9, 2) * 0.25) AS quarter"""


RECORDS = 80


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT key AS k, {AGGREGATES} FROM this WHERE key IS NOT NULL GROUP BY key",
        f"SELECT {AGGREGATES}, user AS u FROM this t WHERE t.user IS NOT NULL AND coalesce(amount, 0) < 4 GROUP BY user",
        f"SELECT user, item, {AGGREGATES} FROM this GROUP BY ALL",
        f"SELECT user % 2 AS odd, key || coalesce(item, '') AS k, {AGGREGATES} FROM this GROUP BY 1, k",
        f"SELECT date_trunc('hour', timestamp) AS hour, {AGGREGATES} FROM this GROUP BY hour",
        f"SELECT lower(item) AS l, {AGGREGATES} FROM this WHERE item IS NOT NULL GROUP BY lower(item)",
        f"SELECT lower(item) AS small, item, {AGGREGATES} FROM this WHERE item IS NOT NULL GROUP BY item",
        f"SELECT paid, {AGGREGATES} FROM this WHERE paid IS NOT NULL GROUP BY paid",
        "SELECT count(*) AS n, price FROM this WHERE price IS NOT NULL GROUP BY price",
    ],
)
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_any_division_into_batches_gives_what_the_query_gives_over_all_records(query: str, seed: int) -> None:
    chance = random.Random(seed)
    rows = orders(RECORDS, seed)
    expected = sorted(map(text, over_all(query, rows)))
    assert len(expected) > 1
    for cuts in ([], list(range(1, RECORDS)), sorted(chance.sample(range(1, RECORDS), 9))):
        assert sorted(map(text, merged(query, rows, cuts).values())) == expected


def test_a_group_key_is_the_key_of_the_table() -> None:
    rows: list[Row] = [("a", {"user": 7, "item": "x", "price": 0.5, "paid": True}, 3_600_000)]
    kinds = {
        "user": (7, "long"), "user::INT": (7, "integer"), "user::TINYINT": (7, "short"), "item": ("x", "string"), "price": (0.5, "double"),
        "paid": (True, "boolean"), "timestamp": ("1970-01-01 01:00:00", "string"), "key || '!'": ("a!", "string"),
        "user, item": ({"user": 7, "item": "x"}, "json"), "key, user": ({"key": "a", "user": 7}, "json"),
    }  # fmt: skip
    for by, (key, serde) in kinds.items():
        operator = partials_of(f"SELECT count(*) AS n FROM this GROUP BY {by}")
        found = operator.table().key_serde
        assert (operator.work("q")(batch_of(rows)).keys, found and found.name) == ([key], serde), by


@pytest.mark.parametrize("query", ["SELECT count(*) AS n FROM this GROUP BY key", "SELECT key, max(user) AS m FROM this t GROUP BY t.key"])
def test_the_records_key_stays_and_nothing_is_repartitioned(query: str) -> None:
    assert partials_of(query).table().key_serde is None
    builder = ks.StreamsBuilder()
    builder.stream("in", key_serde="string", value_serde="json").sql(query, columns=COLUMNS, store="totals")
    assert len(builder.build().subtopologies()) == 1


def test_a_declared_field_key_is_another_key() -> None:
    operator = partials_of("SELECT count(*) AS n FROM this GROUP BY key", key=int)
    serde = operator.table().key_serde
    assert serde is not None
    assert serde.name == "long"


def test_a_partial_leaves_with_the_latest_record_of_its_group() -> None:
    rows: list[Row] = [("a", {}, 5), ("b", {}, 9), ("a", {}, 5), ("b", {}, 7)]
    result = partials_of("SELECT count(*) AS n FROM this GROUP BY key").work("q")(batch_of(rows))
    assert (list(result.rows), result.objects()) == ([1, 2], [(2,), (2,)])


# ---- as a table --------------------------------------------------------------------------------------------------------------------


def driver_of(
    query: str, *, serde: Any = "json", columns: Any = COLUMNS, mode: Mode = "exact", **options: Any
) -> ks.testing.TopologyTestDriver:
    builder = ks.StreamsBuilder()
    stream = builder.stream("in", key_serde="string", value_serde=serde)
    table = stream.sql(query, columns=columns, **({"store": "totals"} | options))
    assert table.queryable_store_name == "totals"
    table.to_stream().to("out")
    return ks.testing.TopologyTestDriver(builder.build(), {"statestore.cache.max.bytes": 0}, mode=mode)


@pytest.mark.parametrize("mode", MODES)
def test_another_key_is_repartitioned_and_counts_nulls_as_dropped(mode: Mode) -> None:
    driver = driver_of("SELECT count(*) AS n, avg(amount) AS mean FROM this GROUP BY user", mode=mode)
    values = [{"user": 1, "amount": 5}, {"user": 2}, {"amount": 3}, None, {"user": 1, "amount": 6}]
    driver.create_input_topic("in", "string", "json").pipe_records(zip(("a", "b", "c", "a", None), values, (1, 2, 3, 4, 2), strict=True))
    found = driver.create_output_topic("out", "long", "json").read_records()
    expected = [(1, {"n": 1, "mean": 5.0}, 1), (2, {"n": 1, "mean": None}, 2), (1, {"n": 2, "mean": 5.5}, 2)]
    assert [(record.key, record.value, record.timestamp) for record in found] == expected
    assert driver.state_store("totals").get(1).value == {"n": 2, "mean": 5.5, "mean_sum": 11, "mean_count": 2}
    assert driver.dropped == 2
    assert "app-totals-repartition" in {name.replace(driver.config["application.id"], "app") for name in driver.produced_topic_names()}


@pytest.mark.parametrize("mode", MODES)
def test_a_column_value_alone_is_the_value(mode: Mode) -> None:
    driver = driver_of("SELECT count(*) AS value FROM this GROUP BY key", mode=mode, value_serde="long")
    driver.create_input_topic("in", "string", "json").pipe_records([("a", {}, 1), ("a", {}, 2)])
    assert driver.create_output_topic("out", "string", "long").read_key_values() == [("a", 1), ("a", 2)]
    driver = driver_of("SELECT avg(amount) AS value FROM this GROUP BY key", mode=mode)
    driver.create_input_topic("in", "string", "json").pipe_records([("a", {"amount": 1}, 1), ("a", {"amount": 2}, 2)])
    assert driver.create_output_topic("out", "string", "json").read_key_values() == [("a", 1.0), ("a", 1.5)]


def test_values_that_are_no_objects_are_the_column_value() -> None:
    driver = driver_of("SELECT max(value) AS longest, sum(length(value)) AS letters FROM this GROUP BY key", serde="string", columns=None)
    driver.create_input_topic("in", "string", "string").pipe_records([("a", "xy", 1), ("a", "b", 2)])
    assert driver.create_output_topic("out", "string", "json").read_key_values()[-1] == ("a", {"longest": "xy", "letters": 3})


def test_default_serdes_will_do_for_the_records_key() -> None:
    builder = ks.StreamsBuilder()
    table = builder.stream("in").sql("SELECT key, count(*) AS n FROM this GROUP BY key", columns=COLUMNS, store="totals")
    table.to_stream().to("out")
    driver = ks.testing.TopologyTestDriver(builder.build(), {"default.key.serde": "string", "default.value.serde": "json"})
    driver.create_input_topic("in", "string", "json").pipe_input("a", {}, timestamp=1)
    assert driver.create_output_topic("out", "string", "json").read_key_values() == [("a", {"key": "a", "n": 1})]


@pytest.mark.parametrize("optimization", ["none", "all"])
def test_a_changed_key_is_repartitioned_and_joins_a_table_of_that_key(optimization: str) -> None:
    builder = ks.StreamsBuilder()
    changed = builder.stream("in", key_serde="string", value_serde="json").select_key(lambda key, value: str(value["user"]))
    rows = changed.sql("SELECT count(*) AS n FROM this GROUP BY key", columns=COLUMNS, store="rows", key_serde="string")
    counts = changed.group_by_key(key_serde="string", value_serde="json").count(store="counts")
    rows.join(counts, lambda row, count: [row["n"], count]).to_stream().to("out", key_serde="string", value_serde="json")
    driver = ks.testing.TopologyTestDriver(builder.build({"topology.optimization": optimization}))
    driver.create_input_topic("in", "string", "json").pipe_records([("a", {"user": at % 2}, at) for at in range(10)])
    found = dict(driver.create_output_topic("out", "string", "json").read_key_values())
    assert found == {"0": [5, 5], "1": [5, 5]}


def test_a_key_that_is_json_stays_json() -> None:
    builder = ks.StreamsBuilder()
    stream = builder.stream("in", key_serde="json", value_serde="json")
    stream.sql("SELECT key, count(*) AS n FROM this GROUP BY key", columns=COLUMNS, store="totals").to_stream().to("out")
    driver = ks.testing.TopologyTestDriver(builder.build())
    driver.create_input_topic("in", "json", "json").pipe_records([({"a": 1}, {}, 1), ({"a": 1}, {}, 2), (None, {}, 3)])
    assert driver.create_output_topic("out", "json", "json").read_key_values()[-1] == ({"a": 1}, {"key": {"a": 1}, "n": 2})
    assert driver.dropped == 1


def aggregated(stream: Any) -> Any:
    def add(key: str, value: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
        amount = value.get("amount")
        total = row["total"] if amount is None else amount + (row["total"] or 0)
        low = row["low"] if amount is None else amount if row["low"] is None else min(row["low"], amount)
        return {"n": row["n"] + 1, "total": total, "low": low}

    return stream.group_by_key().aggregate(lambda: {"n": 0, "total": None, "low": None}, add, store="totals", value_serde="json")


def queried(stream: Any) -> Any:
    query = "SELECT count(*) AS n, sum(amount) AS total, min(amount) AS low FROM this GROUP BY key"
    return stream.sql(query, columns=COLUMNS, store="totals")


@pytest.mark.parametrize("cache", [0, 10_000_000])
@pytest.mark.parametrize("rekeyed", [False, True])
def test_what_commits_write_is_what_the_same_aggregate_of_the_dsl_writes(cache: int, rekeyed: bool) -> None:
    rows = orders(900, 3)
    seen = []
    for way in (aggregated, queried):
        builder = ks.StreamsBuilder()
        stream = builder.stream("in", key_serde="string", value_serde="json")
        way(stream.filter(lambda key, value: True) if rekeyed else stream).to_stream().to("out", key_serde="string", value_serde="json")
        rig = Rig(builder.build(), {"statestore.cache.max.bytes": cache}, loop_threshold=1)
        plans = []
        for start in range(0, 900, 300):
            rig.pipe("in", *rows[start : start + 300]).run()
            plans.append(rig.commit())
        sent = rig.outbox.sent if cache else {(topic, key): (value, at, headers) for topic, key, value, at, headers, _ in rig.outbox.sent}
        seen.append((sent, plans, sum(rig.task.dropped.values())))
    assert len(seen[0][0]) > 3
    assert seen[0] == seen[1]


def test_a_commit_writes_one_row_for_each_key_that_changed() -> None:
    builder = ks.StreamsBuilder()
    queried(builder.stream("in", key_serde="string", value_serde="json")).to_stream().to("out", key_serde="string", value_serde="json")
    rig = Rig(builder.build(), {"statestore.cache.max.bytes": 10_000_000}, loop_threshold=1)
    rig.pipe("in", *((f"k{at % 3}", {"amount": at}, at) for at in range(90))).run()
    assert rig.outbox.sent == []
    rig.commit()
    rig.pipe("in", ("k1", {"amount": 1}, 91)).run()
    rig.commit()
    assert [key for key, _, _ in rig.outbox.to("out")] == [b"k0", b"k1", b"k2", b"k1"]
    assert [key for key, _, _ in rig.outbox.to("app-totals-changelog")] == [b"k0", b"k1", b"k2", b"k1"]


# ---- errors ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "what", "hint"),
    [
        ("SELECT median(amount) AS m FROM this GROUP BY key", r"cannot merge median\(\)", "it takes count, count_if, sum"),
        ("SELECT approx_count_distinct(item) AS m FROM this GROUP BY key", "cannot merge approx_count_distinct", "aggregate()"),
        ("SELECT string_agg(item) AS m FROM this GROUP BY key", "cannot merge string_agg", "aggregate()"),
        ("SELECT count(DISTINCT item) AS m FROM this GROUP BY key", "no DISTINCT and no ORDER BY in an aggregate", "aggregate()"),
        ("SELECT sum(amount ORDER BY user) AS m FROM this GROUP BY key", "no DISTINCT and no ORDER BY in an aggregate", "aggregate()"),
        ("SELECT sum(amount) / count(*) AS m FROM this GROUP BY key", "no expression over aggregates", "map_values"),
        ("SELECT sum(sum(amount)) AS m FROM this GROUP BY key", "cannot run .*nested", "declare the fields"),
        ("SELECT count(*) AS n FROM this", "takes one GROUP BY", "GROUP BY key"),
        ("SELECT user FROM this", "takes one GROUP BY", "GROUP BY key"),
        ("SELECT count(*) AS n FROM this GROUP BY ALL", "expected a group key", "GROUP BY key"),
        ("SELECT count(*) AS n FROM this GROUP BY ROLLUP (key)", "without sets", "GROUP BY key"),
        ("SELECT count(*) AS n FROM this GROUP BY GROUPING SETS ((key), (user))", "without sets", "GROUP BY key"),
        ("SELECT count(*) AS n FROM this GROUP BY key HAVING n > 1", "takes no .* HAVING", ""),
        ("SELECT count(*) AS n FROM this GROUP BY key ORDER BY n", "takes no .* ORDER BY", ""),
        ("SELECT * FROM this GROUP BY key", r"cannot select \* by group", "name the group keys"),
        ("SELECT item, count(*) AS n FROM this GROUP BY key", "cannot run .* GROUP BY clause", "declare the fields"),
        ("SELECT count(*) AS n, sum(user) AS n FROM this GROUP BY key", "selects two columns named n", "AS"),
        ("SELECT count(*) AS n FROM this t GROUP BY user, t.user", "groups by two columns named user, user", "AS"),
        ("SELECT min([amount]) AS n FROM this GROUP BY key", r"cannot keep a BIGINT\[\] in a table, as the column n", "CAST"),
        ("SELECT count(*) AS n FROM this GROUP BY [user]", r"cannot keep a BIGINT\[\]", "CAST"),
        ("SELECT count(*) AS n FROM this GROUP BY nobody", "cannot run .* nobody", "declare the fields"),
    ],
)
def test_a_query_whose_results_cannot_be_merged_is_refused_when_the_topology_is_built(query: str, what: str, hint: str) -> None:
    with pytest.raises(TopologyError, match=what) as caught:
        driver_of(query)
    assert hint in str(caught.value.hint)


def test_group_by_needs_a_store_and_a_store_a_group_by() -> None:
    stream = ks.StreamsBuilder().stream("in", key_serde="string", value_serde="json")
    with pytest.raises(TopologyError, match="got a GROUP BY, which makes a table, and no store") as caught:
        stream.sql("SELECT count(*) AS n FROM this GROUP BY key", columns=COLUMNS)
    assert 'store="totals"' in str(caught.value.hint)
    with pytest.raises(TopologyError, match="which makes a table"):
        stream.sql("SELECT user FROM this GROUP BY ALL", columns=COLUMNS)


def test_types_must_be_known_when_the_topology_is_built() -> None:
    stream = ks.StreamsBuilder().stream("in")
    with pytest.raises(TopologyError, match="cannot tell the types") as caught:
        stream.sql("SELECT count(*) AS n FROM this GROUP BY length(value)", store="totals")
    assert "serdes" in str(caught.value.hint)


@pytest.mark.parametrize("mode", MODES)
def test_a_record_that_the_query_cannot_compute_is_named(mode: Mode) -> None:
    driver = driver_of("SELECT sum(1.0 / amount) AS x FROM this GROUP BY key", mode=mode)
    with pytest.raises(StreamsProcessingError, match="the column x is not a finite number") as caught:
        driver.create_input_topic("in", "string", "json").pipe_records([("a", {"amount": 2}, 1), ("a", {"amount": 0}, 2)])
    assert caught.value.fields["offset"] == 1


@pytest.mark.parametrize(("expression", "amount"), [("sum(amount)", 2**62), ("sum(amount::DOUBLE * 1e290)", 10**18)])
def test_a_sum_that_leaves_its_type_is_an_error(expression: str, amount: int) -> None:
    driver = driver_of(f"SELECT {expression} AS x FROM this GROUP BY key")
    with pytest.raises(StreamsProcessingError, match="out of range"):
        driver.create_input_topic("in", "string", "json").pipe_records([("a", {"amount": amount}, 1), ("a", {"amount": amount}, 2)])


def test_a_new_column_begins_when_the_query_is_edited_and_another_form_of_rows_is_refused() -> None:
    columns = "count(*) AS n", "count(*) AS n, sum(amount) AS s, avg(user) AS a"
    before, after = (partials_of(f"SELECT {each} FROM this GROUP BY key").table().merge for each in columns)
    row = before("k", (2,), before("k", (1,), None))
    assert after("k", (1, 5, 8, 2), row) == {"n": 4, "s": 5, "a": 4.0, "a_sum": 8, "a_count": 2}
    value = partials_of("SELECT count(*) AS value FROM this GROUP BY key").table().merge
    for merge, other in ((value, row), (before, 3)):
        with pytest.raises(KStreamsError, match="another form") as caught:
            merge("k", (1,), other)
        assert "reset the store" in str(caught.value.hint)
