from __future__ import annotations

import json

import duckdb
import pytest

from kstreams_repl.repl.inspection.pushdown import Bounds, bounds_of, columns_needed, rows_needed


def parsed(query: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(duckdb.execute("SELECT json_serialize_sql(?)", [query]).fetchall()[0][0])
    assert not found["error"], found
    return found


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("SELECT count(*) FROM t", set()),
        ("SELECT o.partition, count(*) FROM t o WHERE o.timestamp > '2013-01-01' GROUP BY 1", {"partition", "timestamp"}),
        ("SELECT count(DISTINCT key) FROM topics.t", {"key"}),
        ("SELECT max(window_end) FROM t", {"window_end"}),
        ("SELECT sum(amount) FROM t", {"value"}),
        ("SELECT t.value.leg.miles, KEY FROM t", {"value", "key"}),
        ("SELECT count(*) FROM t JOIN u USING (key)", {"key"}),
        ("WITH q AS (SELECT key FROM t) SELECT count(q.key) FROM q", {"key"}),
    ],
)
def test_only_columns_that_a_query_names_are_read(query: str, columns: set[str]) -> None:
    assert columns_needed(parsed(query)) == columns


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM t", "FROM t", "SELECT t FROM t", "SELECT count(o) FROM t o", "DESCRIBE t", "SUMMARIZE t",
        "SELECT COLUMNS('k.*') FROM t",
        "SELECT #1 FROM t", "SELECT count(*) FROM t NATURAL JOIN u", "SELECT a FROM t AS x(a, b)", "SELECT count(*) FROM (SELECT * FROM t)",
    ],
)  # fmt: skip
def test_a_query_that_may_name_any_column_reads_them_all(query: str) -> None:
    assert columns_needed(parsed(query)) is None


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("FROM t LIMIT 3", (3, 3)), ("SELECT a, t.b, 1 FROM t LIMIT 10 OFFSET 5", (10, 15)), ("SELECT * FROM t LIMIT 0", (0, 0)),
        ("SELECT * FROM t WHERE a = 1 AND upper(b) = 'X' LIMIT 2", (2, 2)), ("SELECT a + 1, b::INT, c->>'d' FROM t LIMIT 2", (2, 2)),
    ],
)  # fmt: skip
def test_the_first_rows_that_meet_the_condition_answer_a_query_with_a_limit(query: str, rows: tuple[int, int]) -> None:
    assert rows_needed(parsed(query)) == rows


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM t", "SELECT count(*) FROM t LIMIT 1", "SELECT * FROM t WHERE random() < 0.5 LIMIT 1",
        "SELECT * FROM t WHERE a = (SELECT max(a) FROM t) LIMIT 1", "SELECT upper(a) FROM t LIMIT 1", "SELECT * FROM t ORDER BY a LIMIT 1",
        "SELECT DISTINCT a FROM t LIMIT 1", "SELECT a FROM t GROUP BY a LIMIT 1", "SELECT a FROM t GROUP BY ALL LIMIT 1",
        "SELECT a FROM t HAVING count(*) > 1 LIMIT 1", "SELECT unnest(a) FROM t LIMIT 1", "SELECT * FROM t, u LIMIT 1",
        "SELECT * FROM t LIMIT 10%", "SELECT * FROM t LIMIT (SELECT 3)", "SELECT * FROM t OFFSET 3",
        "SELECT * FROM t USING SAMPLE 3 LIMIT 2",
        "SELECT a FROM t QUALIFY row_number() OVER () = 1 LIMIT 1", "SELECT max(a) OVER () FROM t LIMIT 1",
        "SELECT (SELECT 1) FROM t LIMIT 1",
        "SELECT a FROM t UNION ALL SELECT a FROM u LIMIT 1", "WITH q AS (SELECT max(a) FROM t) SELECT * FROM q LIMIT 1",
    ],
)  # fmt: skip
def test_every_other_query_has_to_see_all_rows(query: str) -> None:
    assert rows_needed(parsed(query)) is None


def one(value: object) -> Bounds:
    return Bounds(among=frozenset({value}))


@pytest.mark.parametrize(
    ("query", "bounds"),
    [
        ('FROM t WHERE partition = 1 AND "offset" >= 100', {"partition": one(1), "offset": Bounds(low=100)}),
        ('FROM t AS x WHERE 3 < x."offset" AND "offset" < 9 AND a = 1', {"offset": Bounds(4, 8)}),
        ('FROM topics.t WHERE topics.t."offset" BETWEEN -5 AND 7', {"offset": Bounds(-5, 7)}),
        ("FROM t WHERE partition IN (1, 2) AND partition IN (2, 3)", {"partition": one(2)}),
        ("FROM t WHERE timestamp >= '2013-01-01' AND timestamp < '2014-01-01'", {"timestamp": Bounds(low=77)}),
        ("FROM t WHERE timestamp > now() - INTERVAL 1 HOUR", {"timestamp": Bounds(low=77)}),
        ("FROM t WHERE key = 'a'", {"key": one("a")}),
        ("SELECT count(*) FROM t JOIN u USING (key) WHERE t.partition = 1 AND u.partition = 2", {"partition": one(1)}),
        ("WITH q AS (SELECT * FROM t WHERE partition = 1) SELECT max(n) FROM q, q AS r", {"partition": one(1)}),
        ("SELECT 5 AS partition FROM t WHERE partition = 0", {"partition": one(0)}),  # the column, not the alias
    ],
)
def test_conditions_that_compare_a_column_with_constants_bound_the_read(query: str, bounds: dict[str, Bounds]) -> None:
    schema = "topics" if "topics.t" in query else ""
    assert bounds_of(parsed(query), schema, "t", lambda moment: 77) == bounds


@pytest.mark.parametrize(
    "query",
    [
        "FROM t WHERE partition = 1 OR a = 2", "FROM t WHERE NOT partition = 1", "FROM t WHERE partition = a",
        "FROM t WHERE partition <> 1",
        "FROM t WHERE partition = '1'", 'FROM t WHERE "offset" > 1.5', 'FROM t WHERE value."offset" = 1',
        "FROM t WHERE partition IN (1, a)", "FROM t WHERE partition IN (SELECT 1)", "FROM t HAVING partition = 1",
        "FROM t WHERE timestamp > now() - to_hours(CAST(random() * 5 AS INT))", "FROM t WHERE timestamp < '2014-01-01'",
        "FROM t WHERE timestamp > TIMESTAMP '2030-01-01' - (now() - TIMESTAMPTZ '2020-01-01')",
        "FROM t AS x(partition, a) WHERE partition = 1", "FROM t AS partition WHERE partition = 1",
        "FROM t TABLESAMPLE 5 WHERE partition = 1",
        "FROM t USING SAMPLE 5", "FROM t, t AS u WHERE t.partition = 1", "FROM t WHERE partition = 1 UNION ALL FROM t",
        "FROM t JOIN u USING (key) WHERE partition = 1", "FROM t POSITIONAL JOIN u WHERE t.partition = 1",
        "FROM t ASOF JOIN u ON t.key = u.key AND t.timestamp >= u.timestamp WHERE t.partition = 1",
    ],
)  # fmt: skip
def test_every_other_condition_leaves_all_rows_to_read(query: str) -> None:
    assert bounds_of(parsed(query), "", "t", lambda moment: 77) == {}
