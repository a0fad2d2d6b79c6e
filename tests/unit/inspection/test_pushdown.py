from __future__ import annotations

import json

import duckdb
import pytest

from kstreams_repl.inspection.pushdown import columns_needed, rows_needed


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
    ("query", "rows"), [("FROM t LIMIT 3", 3), ("SELECT a, t.b, 1 FROM t LIMIT 10 OFFSET 5", 15), ("SELECT * FROM t LIMIT 0", 0)]
)
def test_the_first_rows_answer_a_query_without_a_condition(query: str, rows: int) -> None:
    assert rows_needed(parsed(query)) == rows


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM t", "SELECT count(*) FROM t LIMIT 1", "SELECT * FROM t WHERE a = 1 LIMIT 1", "SELECT * FROM t ORDER BY a LIMIT 1",
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
