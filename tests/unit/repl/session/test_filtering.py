"""A SQL condition over values at a node."""

from __future__ import annotations

import pytest

from kstreams_repl.repl.session.topics.filtering import records_where
from kstreams_repl.repl.session.topics.records import ReadRecord
from kstreams_repl.system.errors import SqlError

ORDERS = [ReadRecord(f"k{n}", {"amount": n, "to": {"city": "Ulm"}}, 1_000 * n, partition=n % 2) for n in range(5)]


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("amount > 2", [3, 4]),
        ("key = 'k1' OR \"partition\" = 0", [0, 1, 2, 4]),
        ("timestamp >= '1970-01-01 00:00:03'", [3, 4]),
        ("\"to\".city = 'Ulm' AND amount < 1", [0]),
        ("value.amount = 2 -- a comment", [2]),
        ("false", []),
    ],
)
def test_columns_are_those_of_a_topic(condition: str, found: list[int]) -> None:
    assert [record.value["amount"] for record in records_where(ORDERS, condition)] == found


def test_plain_values_and_no_records() -> None:
    assert records_where([ReadRecord(None, 3, 1), ReadRecord(None, 4, 2)], "value > 3") == [ReadRecord(None, 4, 2)]
    assert records_where([], "whatever") == []


@pytest.mark.parametrize("condition", ["amount >", "nothing = 1", "1); DROP TABLE passed; --", "1) UNION SELECT 7 --"])
def test_what_is_no_condition_is_told(condition: str) -> None:
    with pytest.raises(SqlError):
        records_where(ORDERS, condition)
