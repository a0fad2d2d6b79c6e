"""`sql`: which queries are taken, and what they make of records, by the test driver."""

from __future__ import annotations

from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.system.errors import StreamsProcessingError, TopologyError
from kstreams_repl.test_driver.driver import Mode

COLUMNS = {"user": int, "amount": int, "item": str}
MODES: tuple[Mode, ...] = ("exact", "deployed")


def driver_of(
    query: Any, *, columns: Any = None, serde: Any = "json", out: str = "json", mode: Mode = "exact", **config: Any
) -> ks.testing.TopologyTestDriver:
    builder = ks.StreamsBuilder()
    stream = builder.stream("in", key_serde="string", value_serde=serde)
    stream.sql(query, columns=columns, name="query").to("out", key_serde="string", value_serde=out)
    return ks.testing.TopologyTestDriver(builder.build(), config, mode=mode)


def results(driver: ks.testing.TopologyTestDriver, *rows: Any, serde: str = "json", out: str = "json") -> list[tuple[Any, Any]]:
    driver.create_input_topic("in", "string", serde).pipe_records(rows)
    return driver.create_output_topic("out", "string", out).read_key_values()


@pytest.mark.parametrize("mode", MODES)
def test_selected_columns_are_the_value(mode: Mode) -> None:
    driver = driver_of("SELECT user, amount * 2 AS total FROM this WHERE amount > 100", columns=COLUMNS, mode=mode)
    rows = [("a", {"user": 1, "amount": 5}, 1), ("b", {"user": 2, "amount": 500, "more": {}}, 2), ("c", {"amount": 101}, 3)]
    assert results(driver, *rows) == [("b", {"user": 2, "total": 1000}), ("c", {"user": None, "total": 202})]


@pytest.mark.parametrize("mode", MODES)
def test_a_star_is_the_declared_fields(mode: Mode) -> None:
    query = "SELECT *, t.\"offset\" + 1 AS next FROM this t WHERE key <> 'x'"
    rows = [("x", {"user": 1}, 1), ("a", {"user": 1, "amount": 2, "item": "ü\n\"", "more": 3}, 2)]
    assert results(driver_of(query, columns=COLUMNS, mode=mode), *rows) == [("a", {"user": 1, "amount": 2, "item": "ü\n\"", "next": 2})]


@pytest.mark.parametrize("mode", MODES)
def test_a_selected_value_is_passed_whole(mode: Mode) -> None:
    rows = [("a", {"n": 1}, 1), ("b", {"n": 5, "more": [1.0, None, "ü"]}, 2), ("c", None, 3)]
    assert results(driver_of("SELECT value FROM this WHERE (value->>'n')::INT > 1", mode=mode), *rows) == [rows[1][:2]]
    assert results(driver_of("SELECT * FROM this", mode=mode), *rows) == [row[:2] for row in rows]


def test_key_timestamp_and_headers_are_those_of_the_input() -> None:
    driver = driver_of("SELECT epoch_ms(timestamp) AS at, key AS whose, headers[1].name AS h, partition FROM this")
    driver.create_input_topic("in", "string", "json").pipe_input("a", {"amount": 4}, timestamp=77, headers=[("h", b"1")])
    record = driver.create_output_topic("out", "string", "json").read_record()
    assert record.value == {"at": 77, "whose": "a", "h": "h", "partition": 0}
    assert (record.key, record.timestamp, record.headers) == ("a", 77, [("h", b"1")])


def test_values_of_other_serdes_have_their_type() -> None:
    driver = driver_of("SELECT upper(value) AS value FROM this WHERE value IS NOT NULL", serde="string", out="string")
    assert results(driver, ("a", "x", 1), ("b", None, 2), serde="string", out="string") == [("a", "X")]
    driver = driver_of("SELECT value + 1 AS value FROM this", serde="long", out="long")
    assert results(driver, ("a", 41, 1), serde="long", out="long") == [("a", 42)]


def test_a_type_that_no_serde_tells_is_that_of_the_first_value() -> None:
    builder = ks.StreamsBuilder()
    stream = builder.stream("in", key_serde="string", value_serde="json").map(lambda key, value: (key, value["n"]))
    stream.sql("SELECT value * 2 AS value FROM this").to("out", key_serde="string", value_serde="json")
    assert results(ks.testing.TopologyTestDriver(builder.build()), ("a", {"n": 4}, 1), ("b", {"n": 5}, 2)) == [("a", 8), ("b", 10)]


@pytest.mark.parametrize("mode", MODES)
def test_a_deletion_stays_one_or_is_filtered(mode: Mode) -> None:
    assert results(driver_of("SELECT user, 1 AS one FROM this", columns=COLUMNS, mode=mode), ("a", None, 1)) == [("a", None)]
    assert results(driver_of("SELECT user FROM this WHERE amount > 1", columns=COLUMNS, mode=mode), ("a", None, 1)) == []


@pytest.mark.parametrize("mode", MODES)
def test_unnest_makes_several_records_of_one(mode: Mode) -> None:
    import pyarrow as pa

    columns = {"items": pa.list_(pa.string()), "user": int}
    driver = driver_of("SELECT user, unnest(items) AS item FROM this", columns=columns, mode=mode)
    rows = [("a", {"user": 1, "items": ["x", "y"]}, 1), ("b", {"user": 2, "items": []}, 2), ("c", {"user": 3, "items": ["z"]}, 3)]
    assert results(driver, *rows) == [("a", {"user": 1, "item": "x"}), ("a", {"user": 1, "item": "y"}), ("c", {"user": 3, "item": "z"})]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("1.5", 1.5), ("CAST(1 AS DECIMAL(9,3)) / 4", 0.25), ("10000000000000000", 10**16), ("TRUE", True), ("NULL", None),
        ("'ü\"\\'", "ü\"\\"),
        ("DATE '2026-01-02'", "2026-01-02"), ("[1, 2]", [1, 2]), ("{'a': 1}", {"a": 1}), ("1e300::DOUBLE", 1e300), ("chr(1)", "\x01"),
    ],
)  # fmt: skip
def test_values_as_json(expression: str, expected: Any) -> None:
    assert results(driver_of(f"SELECT {expression} AS x FROM this"), ("a", {}, 1)) == [("a", {"x": expected})]


@pytest.mark.parametrize(
    ("query", "what", "hint"),
    [
        ("SELEC 1", "does not parse: syntax error", "write SELECT columns FROM this"),
        ("DELETE FROM this", "is not a SELECT", "write SELECT columns FROM this"),
        ("SELECT 1 FROM this; SELECT 2 FROM this", "expected one SELECT, got 2 statements", "write SELECT"),
        ("SELECT 1", "reads nothing but the stream", "FROM this"),
        ("SELECT * FROM orders", "reads nothing but the stream", "FROM this"),
        ("SELECT * FROM read_csv('/etc/passwd')", "reads nothing but the stream", "FROM this"),
        ("SELECT a.user FROM this a, this b", "reads nothing but the stream", "FROM this"),
        ("SELECT user FROM this UNION ALL SELECT user FROM this", "reads nothing but the stream", "FROM this"),
        ("WITH x AS (SELECT 1) SELECT user FROM this", "no subquery and no WITH", "chain two calls"),
        ("SELECT (SELECT max(user) FROM this) AS m FROM this", "no subquery and no WITH", "chain two calls"),
        ("SELECT user FROM this ORDER BY user", "takes no window function, ORDER BY", "group_by_key"),
        ("SELECT DISTINCT user FROM this", "takes no .* DISTINCT", "group_by_key"),
        ("SELECT user FROM this LIMIT 1", "takes no .* LIMIT", "group_by_key"),
        ("SELECT user FROM this GROUP BY user", "got a GROUP BY, which makes a table, and no store", "store=\"totals\""),
        ("SELECT row_number() OVER () AS n FROM this", "takes no window function", "group_by_key"),
        ("SELECT sum(amount) AS s FROM this", "cannot aggregate over a batch", "group_by_key"),
        ("SELECT user FROM this USING SAMPLE 10%", "sample", "group_by_key"),
        ("SELECT usr FROM this", "cannot run .* usr", "declare the fields"),
        ("SELECT amount + item AS x FROM this WHERE user = []", "cannot run", "declare the fields"),
        ("SELECT user AS x, item AS x FROM this", "selects two columns named x", "AS"),
        (5, "expected a query as text, got 5", "write SELECT"),
    ],
)
def test_a_query_that_is_not_by_record_is_refused_when_the_topology_is_built(query: Any, what: str, hint: str) -> None:
    with pytest.raises(TopologyError, match=what) as caught:
        driver_of(query, columns=COLUMNS)
    assert hint in str(caught.value.hint)


def test_without_declared_fields_an_unknown_column_names_those_there_are() -> None:
    with pytest.raises(TopologyError, match="cannot run .* usr") as caught:
        driver_of("SELECT usr FROM this")
    assert 'columns={"user": int}' in str(caught.value.hint)


@pytest.mark.parametrize("mode", MODES)
def test_a_record_that_the_query_cannot_compute_is_named(mode: Mode) -> None:
    driver = driver_of("SELECT CAST(item AS INT) AS n FROM this", columns=COLUMNS, mode=mode)
    with pytest.raises(StreamsProcessingError, match="the query failed: Conversion Error") as caught:
        results(driver, ("a", {"item": "1"}, 1), ("b", {"item": "x"}, 2))
    assert (caught.value.node, caught.value.fields["offset"]) == ("query", 1)
    assert "TRY_CAST" in str(caught.value.hint)


@pytest.mark.parametrize("query", ["SELECT content FROM this, read_text('/etc/hostname')", "SELECT getenv('HOME') AS home FROM this"])
def test_a_query_reads_no_file_and_no_environment(query: str) -> None:
    with pytest.raises(TopologyError, match="reads nothing but the stream|cannot run"):
        driver_of(query)


def test_two_queries_may_be_chained_and_edited_values_flow_on() -> None:
    builder = ks.StreamsBuilder()
    first = builder.stream("in", key_serde="string", value_serde="json").sql("SELECT amount * 2 AS n FROM this", columns=COLUMNS)
    first.sql("SELECT n + 1 AS n FROM this WHERE n > 2", columns={"n": int}).to("out", key_serde="string", value_serde="json")
    driver = ks.testing.TopologyTestDriver(builder.build())
    assert results(driver, ("a", {"amount": 1}, 1), ("b", {"amount": 4}, 2)) == [("b", {"n": 9})]


@pytest.mark.parametrize("mode", MODES)
def test_names_of_fields_may_have_any_characters(mode: Mode) -> None:
    name = "a{b}'c\"d ?"
    driver = driver_of('SELECT *, {\'x\': 1} AS "{y}" FROM this', columns={name: int}, mode=mode)
    assert results(driver, ("a", {name: 5}, 1)) == [("a", {name: 5, "{y}": {"x": 1}})]
