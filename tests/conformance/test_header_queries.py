"""Queries of stores with headers (KIP-1356): ours against Kafka Streams 4.4's.

`headers/queries.json.gz` has writes, queries and the JVM's answers; `headers/make_cases.py` writes it.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.system.errors import InvalidRecordError
from kstreams_repl.system.types import Windowed
from tests.conformance.test_headers import RUN, builder, shown_headers
from tests.queried import State

CASES = json.loads(gzip.decompress((Path(__file__).parent / "headers" / "queries.json.gz").read_bytes()))
BOTH = list(zip(CASES["cases"], CASES["answers"], strict=True))
ORDERS: dict[str, Any] = {
    "any": lambda query: query,
    "ascending": ks.queries.TimestampedRangeWithHeadersQuery.with_ascending_keys,
    "descending": ks.queries.TimestampedRangeWithHeadersQuery.with_descending_keys,
}


def query_of(op: dict[str, Any]) -> ks.queries.Query:
    match op["query"]:
        case "key":
            return ks.queries.TimestampedKeyWithHeadersQuery.with_key(op["key"])
        case "range":
            made: ks.queries.Query = ORDERS[op["order"]](
                ks.queries.TimestampedRangeWithHeadersQuery.with_range(op["low"], op["high"])
            )
            return made
        case "window_key":
            of_key = ks.queries.TimestampedWindowKeyWithHeadersQuery
            return of_key.with_key_and_window_start_range(op["key"], op["from"], op["to"])
        case _:
            of_range = ks.queries.TimestampedWindowRangeWithHeadersQuery
            return of_range.with_key(op["key"]) if "key" in op else of_range.with_window_start_range(op["from"], op["to"])


def shown(record: Any) -> list[Any]:
    assert isinstance(record, ks.Record)
    key = list(record.key) if isinstance(record.key, Windowed) else record.key
    return [key, record.value, record.timestamp, shown_headers(record.headers)]


def answer(state: State, query: ks.queries.Query) -> dict[str, Any]:
    with state.queries.query(ks.queries.StateQueryRequest.in_store("s").with_query(query)) as answers:
        found = answers.partition_results[0]
        if found.is_failure:
            return {"failure": str(found.failure_reason)}
        result = found.result
        return {"records": [] if result is None else list(map(shown, [result] if isinstance(result, ks.Record) else result))}


@pytest.mark.parametrize(("case", "expected"), BOTH, ids=[f"{case['store']}-{number}" for number, (case, _) in enumerate(BOTH)])
def test_queries_with_headers_equal_the_jvm(case: dict[str, Any], expected: list[Any], tmp_path: Path) -> None:
    state = State(tmp_path, builder({**case, "in_memory": False, "cached": False}))
    writes = [op for op in case["ops"] if "query" not in op]
    state.write(0, lambda stores: [RUN[case["store"]](stores["s"], op["k"], op) for op in writes])  # type: ignore[func-returns-value]
    asked = list(zip(case["ops"][len(writes) :], expected[len(writes) :], strict=True))
    different = [(op, want, got) for op, want in asked if (got := answer(state, query_of(op))) != want]
    state.local.close()
    assert not different and len(asked) > 8, different[:3]


def test_the_cases_cover_rows_headers_and_refusals() -> None:
    answers = [(op["query"], got) for case, all_ in BOTH for op, got in zip(case["ops"], all_, strict=True) if "query" in op]
    assert {name for name, _ in answers} == {"key", "range", "window_key", "window_range"}
    assert Counter(got["failure"] for _, got in answers if "failure" in got).keys() == {"UNKNOWN_QUERY_TYPE"}
    assert sum(bool(row[3]) for _, got in answers for row in got.get("records", ())) > 40


def test_a_store_without_headers_does_not_answer_and_a_negative_timestamp_is_refused(tmp_path: Path) -> None:
    plain = State(
        tmp_path / "plain", ks.StoreBuilder("s", ks.StoreKind.TIMESTAMPED_KEY_VALUE, key_serde="string", value_serde="string")
    )
    plain.write(0, lambda stores: stores["s"].put("a", ("v", 1)))
    one = ks.queries.TimestampedKeyWithHeadersQuery.with_key("a")
    assert answer(plain, one) == {"failure": "UNKNOWN_QUERY_TYPE"}
    plain.local.close()
    state = State(tmp_path / "headers", builder({"store": "key-value", "in_memory": False, "cached": False}))
    state.write(0, lambda stores: stores["s"].put("a", ks.types.ValueTimestampHeaders("v", -1, [])))
    assert answer(state, one) == {"failure": "STORE_EXCEPTION"}
    with pytest.raises(InvalidRecordError):
        answer(state, ks.queries.TimestampedRangeWithHeadersQuery.with_no_bounds())
    state.local.close()
