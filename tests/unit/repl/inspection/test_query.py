from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterable
from typing import Any

import orjson
import pandas
import pytest

from kstreams_repl.repl.inspection import Limits, SqlResult, TableData, run_sql
from kstreams_repl.repl.inspection.topics import records_table
from kstreams_repl.system.errors import SqlError
from kstreams_repl.system.types import RecordBatch, TopicPartition


def topic(values: list[Any], keys: list[bytes | None] | None = None) -> TableData:
    data = [value if isinstance(value, bytes) or value is None else orjson.dumps(value) for value in values]
    count = range(len(values))
    batch = RecordBatch(
        keys or [b"k%d" % i for i in count], data, [1000 * i for i in count], list(count), [[("h", b"1")] for _ in count]
    )
    return records_table([(TopicPartition("t", 0), batch)], key_serde=None, value_serde=None, bound="all of it")


class Tables:
    def __init__(self, **tables: Any) -> None:
        self.tables = tables

    def table(self, schema: str, name: str, limits: Limits) -> Any:
        return self.tables.get(f"{schema}__{name}" if schema else name)

    def expect(self, tables: Any) -> None:
        self.expected = list(tables)

    def names(self) -> Iterable[str]:
        return self.tables


FLIGHTS = [
    {"carrier": "UA", "delay": -3, "leg": {"from": "EWR", "miles": 1400}},
    {"carrier": "AA", "delay": 12, "leg": {"from": "JFK", "miles": 733}},
]


def ask(query: str, **tables: Any) -> SqlResult:
    return run_sql(query, Tables(**tables))


def test_a_topic_has_key_fields_place_time_and_headers() -> None:
    result = ask("SELECT * FROM flights", flights=topic(FLIGHTS))
    assert result.columns == ["key", "carrier", "delay", "leg", "partition", "offset", "timestamp", "headers"]
    first = result.fetchall()[0]
    assert first[:4] == ("k0", "UA", -3, {"from": "EWR", "miles": 1400})
    assert first[4:6] == (0, 0) and first[7] == [{"name": "h", "value": "1"}]


def test_the_whole_value_is_there_when_the_query_names_it() -> None:
    assert ask("SELECT value.carrier, value.leg.miles FROM flights", flights=topic(FLIGHTS)).fetchall() == [
        ("UA", 1400),
        ("AA", 733),
    ]


def test_a_field_named_like_a_column_is_reached_through_the_value() -> None:
    result = ask("SELECT key, value.key FROM t", t=topic([{"key": "inner", "x": 1}]))
    assert result.fetchall() == [("k0", "inner")]


def test_topics_and_dataframes_join() -> None:
    names = pandas.DataFrame({"code": ["UA", "AA"], "name": ["United", "American"]})
    query = "SELECT n.name, sum(f.delay) FROM flights f JOIN names n ON f.carrier = n.code GROUP BY 1 ORDER BY 1"
    result = ask(query, flights=topic(FLIGHTS), names=names)
    assert [(name, int(total)) for name, total in result.fetchall()] == [("American", 12), ("United", -3)]


def test_shapes_that_differ_become_one_table() -> None:
    rows = [*FLIGHTS, {"carrier": "DL", "extra": [1, 2]}, None]
    assert ask('SELECT carrier, extra FROM t ORDER BY "offset"', t=topic(rows)).fetchall()[2:] == [("DL", [1, 2]), (None, None)]


def test_text_that_is_no_json_is_null_and_said() -> None:
    result = ask("SELECT carrier FROM t", t=topic([*FLIGHTS * 60, b"{broken"]))
    assert result.fetchall()[-1] == (None,)
    assert result.notes == ("1 cell of t.value is not JSON and is NULL",)


def test_integers_larger_than_a_long_keep_their_value() -> None:
    assert ask("SELECT n FROM t", t=topic([{"n": 2**64 - 1}, {"n": -1}])).fetchall() == [(2**64 - 1,), (-1,)]


def test_a_date_in_json_stays_text() -> None:
    assert ask("SELECT d FROM t", t=topic([{"d": "2013-01-01"}])).fetchall() == [("2013-01-01",)]


def test_values_that_are_no_objects_have_one_column() -> None:
    assert ask("SELECT key, value FROM t", t=topic([b"a", b"b"])).fetchall() == [("k0", "a"), ("k1", "b")]


def test_objects_with_endless_fields_stay_json() -> None:
    wide = topic([{f"user-{i}-{n}": 1 for n in range(200)} for i in range(10)])
    assert ask("SELECT json_extract(value, '$.user-0-1') FROM t", t=wide).fetchall()[0] == ("1",)


def test_names_with_dots_and_hyphens_are_quoted_by_the_user() -> None:
    assert ask('SELECT count(*) FROM "a.b-c"', **{"a.b-c": topic(FLIGHTS)}).fetchall() == [(2,)]


def test_a_schema_says_which_table_is_meant() -> None:
    assert ask("SELECT count(*) FROM topics.t", topics__t=topic(FLIGHTS)).fetchall() == [(2,)]


@pytest.mark.parametrize(
    "query",
    [
        "FROM t",
        "WITH q AS (SELECT * FROM t) SELECT * FROM q",
        "WITH t2 AS (SELECT 1) SELECT * FROM t2, t",
        "DESCRIBE t",
        "SUMMARIZE t",
        "EXPLAIN SELECT * FROM t",
        "SELECT * FROM t WHERE key IN (SELECT key FROM t)",
        "PIVOT t ON carrier IN ('UA', 'AA') USING count(*)",
        "SELECT 1;",
        "SELECT * FROM duckdb_settings() LIMIT 1",
    ],
)
def test_queries_of_all_forms_run(query: str) -> None:
    assert len(ask(query, t=topic(FLIGHTS)).fetchall()) >= 1


@pytest.mark.parametrize(
    "query",
    [
        "DROP TABLE t",
        "INSERT INTO t VALUES (1)",
        "SELECT 1; SELECT 2",
        "CREATE TABLE x AS SELECT 1",
        "COPY t TO '/tmp/x'",
        "ATTACH 'x.db'",
        "SET threads=1",
        "",
    ],
)
def test_what_is_no_single_query_is_refused(query: str) -> None:
    with pytest.raises(SqlError):
        ask(query, t=topic(FLIGHTS))


def test_an_unknown_table_comes_with_the_nearest_name() -> None:
    with pytest.raises(SqlError, match="there is no topic, store or dataframe 'flihgts'") as caught:
        ask("SELECT * FROM flihgts", flights=topic(FLIGHTS))
    assert caught.value.hint == "did you mean 'flights'?"


def test_an_unknown_column_comes_with_duckdbs_candidates() -> None:
    with pytest.raises(SqlError, match="carrier"):
        ask("SELECT carrrier FROM t", t=topic(FLIGHTS))


def test_an_empty_topic_says_that_its_fields_are_unknown() -> None:
    with pytest.raises(SqlError) as caught:
        ask("SELECT carrier FROM t", t=topic([]))
    assert "t: no records yet" in (caught.value.hint or "")


def test_offset_without_quotes_gets_the_right_hint() -> None:
    with pytest.raises(SqlError) as caught:
        ask("SELECT * FROM t ORDER BY offset DESC", t=topic(FLIGHTS))
    assert "quote the column" in (caught.value.hint or "")


def test_the_bound_of_every_table_is_shown() -> None:
    shown = repr(ask("SELECT count(*) FROM t", t=topic(FLIGHTS)))
    assert "all of it" in shown


def test_more_rows_than_fit_are_said_to_be_more() -> None:
    assert "100 of 500 rows; .df() gives all" in repr(ask("SELECT * FROM range(500)"))


def test_results_come_as_pandas_arrow_and_relation() -> None:
    result = ask("SELECT carrier FROM t ORDER BY carrier", t=topic(FLIGHTS))
    assert list(result.df()["carrier"]) == ["AA", "UA"]
    assert result.arrow().column("carrier").to_pylist() == ["AA", "UA"]
    assert result.relation.filter("carrier = 'UA'").fetchall() == [("UA",)]


@pytest.mark.parametrize("hostile", ["<script>alert(1)</script>", "\x1b[31m", "\u202e", "'; DROP TABLE t; --", '"'])
def test_hostile_keys_values_and_fields_stay_data(hostile: str) -> None:
    result = ask("SELECT * FROM t", t=topic([{hostile: hostile}], [hostile.encode()]))
    assert result.fetchall()[0][:2] == (hostile, hostile)
    bundle = result._repr_mimebundle_()
    assert "<script" not in bundle["text/html"] and "\x1b" not in bundle["text/plain"]


def test_a_query_that_fails_with_its_rows_fails_like_one_that_fails_at_once() -> None:
    result = ask("SELECT CAST(carrier AS INTEGER) AS n FROM t", t=topic(FLIGHTS))
    for look in (result.fetchall, result.df, result.arrow, result.table, lambda: repr(result)):
        with pytest.raises(SqlError, match="Could not convert string 'UA'"):
            look()


def test_one_table_may_be_written_with_large_and_small_letters() -> None:
    both = {name: topic(FLIGHTS) for name in ("flights", "Flights")}
    query = "SELECT count(*) FROM flights a JOIN Flights b ON a.key = b.key"

    class OneTopic(Tables):
        def names(self) -> Iterable[str]:
            return ["flights"]

    assert run_sql(query, OneTopic(**both)).fetchall() == [(2,)]
    with pytest.raises(SqlError, match="'(flights' and 'F|Flights' and 'f)lights' cannot be used in one query"):
        ask(query, **both)


def test_a_value_whose_fields_are_hidden_shows_itself() -> None:
    assert ask("SELECT * FROM t", t=topic([{"key": 1, "offset": 2}])).columns[:2] == ["key", "value"]


def test_a_value_that_is_nested_too_deep_hides_nothing_else() -> None:
    """One such record ended the database, and with it every query of its topic."""
    deep = b'{"a":%s%s}' % (b"[" * 900, b"]" * 900)
    result = ask("SELECT key, value FROM t", t=topic([*FLIGHTS, deep]))
    assert [row[0] for row in result.fetchall()] == ["k0", "k1", "k2"] and "UA" in result.fetchall()[0][1]
    assert "nested too deeply" in result.notes[-1]


IDS = [1234567890123456789, 1234567890123456788]


@pytest.mark.parametrize(
    "rows", [[{"id": IDS[0]}, {"id": IDS[1]}], [{"id": IDS[0]}, {"other": 1}, {"id": IDS[1]}], [{"id": 2**64 - 1}, {"id": -IDS[0]}]]
)
def test_large_integers_keep_their_digits_in_a_dataframe(rows: list[dict[str, int]]) -> None:
    """pandas makes floats of integers beside NULLs, DuckDB of those over 64 bits: an id lost its last digits."""
    frame = ask('SELECT id, carrier FROM t LEFT JOIN n USING (key) ORDER BY t."offset"', t=topic(rows), n=topic(FLIGHTS)).df()
    assert [None if pandas.isna(found) else int(found) for found in frame["id"]] == [row.get("id") for row in rows]
    assert list(frame["carrier"])[:2] == ["UA", "AA"]


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("SELECT * FROM orders.v1", "orders.v1"),
        ("SELECT count(*) FROM word-counts", "word-counts"),
        ("SELECT count(*) FROM a.b-c.d.e", "a.b-c.d.e"),
    ],
)
def test_a_name_that_wants_quotes_is_told_so(query: str, name: str) -> None:
    with pytest.raises(SqlError) as error:
        ask(query, **{name: topic(FLIGHTS), "other": topic(FLIGHTS)})
    assert f'FROM "{name}"' in str(error.value.hint)


@pytest.mark.parametrize("look", ["fetchall", "df", "arrow", "table"])
@pytest.mark.usefixtures("sigint")
def test_an_interrupt_ends_a_query(look: str) -> None:
    """Some looks did not hear it before all was computed, others raised a RuntimeError."""
    result = ask("SELECT sum(a.range * b.range) FROM range(100000000) a, range(10000000) b")
    interrupt = threading.Timer(0.2, lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        interrupt.start()
        getattr(result, look)()
    interrupt.join()
    assert not [thread for thread in threading.enumerate() if thread.name == "kstreams-sql"]


def test_an_answer_of_few_rows_lets_go_of_what_it_was_made_of() -> None:
    frame = pandas.DataFrame({"n": [1, 2]})
    result = ask("SELECT carrier, n FROM t JOIN frame ON true ORDER BY ALL", t=topic(FLIGHTS), frame=frame)
    first = result.fetchall()
    left = "SELECT table_name FROM duckdb_tables() UNION ALL SELECT view_name FROM duckdb_views() WHERE NOT internal"
    assert result._database.sql(left).fetchall() == [("_kstreams_answer",)]
    assert result.fetchall() == first == [("AA", 1), ("AA", 2), ("UA", 1), ("UA", 2)]
    assert result.relation.filter("n = 2").fetchall() == [("AA", 2), ("UA", 2)]


def test_an_answer_of_many_rows_is_counted_and_stays_a_query() -> None:
    result = ask("SELECT range AS n FROM range(20_000)")
    assert repr(result).endswith("100 of 20,000 rows; .df() gives all")
    assert len(result.fetchall()) == result.count() == 20_000


def test_columns_of_one_name_and_explain_are_shown_as_ever() -> None:
    assert ask("SELECT 1 AS a, 2 AS a").fetchall() == [(1, 2)]
    assert "Projection" in repr(ask("EXPLAIN SELECT carrier FROM t", t=topic(FLIGHTS)))


@pytest.mark.parametrize(("rows", "said"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows"), (2000, "100 of 2,000 rows; .df() gives all")])
def test_a_result_says_how_many_rows_it_has(rows: int, said: str) -> None:
    assert repr(ask(f"SELECT * FROM range({rows})")).splitlines()[-1] == said


def test_a_result_with_numbers_has_a_bar_a_line_and_a_histogram_below_it() -> None:
    result = ask("SELECT key, delay, partition FROM t", t=topic(FLIGHTS))
    html = result._repr_mimebundle_()["text/html"]
    assert re.findall("<summary>(.*?)</summary>", html) == ["bar", "line", "histogram"]
    assert 'alt="bar of delay by key"' in html
    chart = result.chart("line", x="key", y="partition")
    assert (chart.x, chart.y, chart.points) == ("key", "partition", (("k0", 0), ("k1", 0)))
    assert "<summary>" not in ask("SELECT key FROM t", t=topic(FLIGHTS))._repr_mimebundle_()["text/html"]


def test_a_chart_of_some_rows_says_of_how_many() -> None:
    result = ask("SELECT range AS n FROM range(5000)")
    assert repr(result.chart("bar")) == "Chart(bar of n by row, the first 40 of 5,000 rows, 40 points)"
    assert repr(result.chart("histogram")) == "Chart(histogram of n, 5,000 points)"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda result: result.chart("pie"), "no chart kind 'pie'"),
        (lambda result: result.chart("bar", y="delya"), "no column 'delya'"),
        (lambda result: ask("SELECT 'a' AS word").chart(), "no numeric column"),
    ],
)
def test_a_chart_that_cannot_be_drawn_is_refused_with_a_hint(call: Any, said: str) -> None:
    with pytest.raises(SqlError, match=said) as caught:
        call(ask("SELECT delay FROM t", t=topic(FLIGHTS)))
    assert caught.value.hint
