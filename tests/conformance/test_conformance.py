"""Kafka Streams' own results, case by case: the designed and random cases checked on the JVM, through our DSL and test driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from workshop.conformance.runner import QUIRKS_WAIVED, read_cases, run_case

HERE = Path(__file__).parent
FILES = sorted((HERE / "cases").glob("*.jsonl"))
RANDOM = sorted((HERE / "random").glob("*.jsonl.gz"))


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for path in FILES for case in read_cases(path)])
def test_case_equals_the_jvm(case: dict[str, Any]) -> None:
    outcome = run_case(case)
    if outcome.waived is not None:
        assert outcome.waived in QUIRKS_WAIVED
        return
    assert outcome.difference is None, outcome.difference


def test_all_473_cases_are_here() -> None:
    assert sum(1 for path in FILES for _ in read_cases(path)) == 473


@pytest.mark.parametrize("path", RANDOM, ids=lambda path: path.name.removesuffix(".jsonl.gz"))
def test_random_topologies_equal_the_jvm(path: Path) -> None:
    outcomes = [run_case(case) for case in read_cases(path)]
    wrong = [outcome for outcome in outcomes if outcome.difference is not None and outcome.waived is None]
    assert not wrong, "\n\n".join(f"{outcome.case_id}\n{outcome.difference}" for outcome in wrong[:3])
    assert outcomes


@pytest.mark.parametrize(
    ("where", "told"),
    [
        (lambda case: case, "unknown fields"),
        (lambda case: case["expect"], "unknown fields"),
        (lambda case: case["events"][0], "unknown fields"),
        (lambda case: case["ops"][0], "does not know the fields"),
    ],
    ids=["case", "expect", "event", "op"],
)
def test_a_field_that_nobody_reads_fails_the_case(where: Any, told: str) -> None:
    case = next(read_cases(FILES[0]))
    assert run_case(case).difference is None
    where(case)["surprise"] = 1
    difference = run_case(case).difference
    assert difference is not None and told in difference and "surprise" in difference


def test_an_operation_that_is_not_known_fails_the_case() -> None:
    case = next(read_cases(FILES[0]))
    case["ops"].append({"op": "teleport", "id": "x"})
    assert "teleport" in str(run_case(case).difference)


def test_one_case_is_waived_and_for_one_reason() -> None:
    waived = [outcome for path in FILES for case in read_cases(path) if "quirk" in case and (outcome := run_case(case)).waived]
    assert [(outcome.case_id, outcome.waived) for outcome in waived] == [("processor_api_punctuate/versioned-store", "as-of-valid-to")]
    assert QUIRKS_WAIVED == {"as-of-valid-to"}
