"""What is recorded of Kafka Streams is what each version of it that the oracle runs returns."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.headers import make_cases as header_stores
from tests.conformance.queries import make_cases as queries
from tests.conformance.test_queries import sorted_rows
from workshop.bench.peers.kafka_streams import find_jdk
from workshop.conformance.oracle import RECORDED, VERSIONS, differences, jars_of, knows, results
from workshop.conformance.runner import read_cases

HERE = Path(__file__).parent
FILES = [*sorted((HERE / "cases").glob("*.jsonl")), *sorted((HERE / "random").glob("*.gz")), HERE / "headers" / "dsl.jsonl.gz"]
on_the_jvm = [
    pytest.mark.slow,
    pytest.mark.integration,
    pytest.mark.timeout(600),
    pytest.mark.skipif(find_jdk() is None, reason="no JDK (javac 17 or newer)"),
    pytest.mark.parametrize("version", VERSIONS),
]


def on_each_version(test: Any) -> Any:
    for mark in on_the_jvm:
        test = mark(test)
    return test


@on_each_version
def test_cases_have_the_results_of(version: str) -> None:
    cases = [case for path in FILES for case in read_cases(path) if knows(case, version)]
    assert len(cases) > 1_600
    answers = zip(cases, results(cases, version=version), strict=True)
    different = {case["id"]: found for case, answer in answers if (found := differences(case, answer))}
    assert not different, f"{len(different)} of {len(cases)}: {str(different)[:2_000]}"


@on_each_version
def test_stores_with_headers_answer_as(version: str) -> None:
    recorded = json.loads(gzip.decompress(header_stores.CASES.read_bytes()))
    answers = recorded.pop("answers")
    assert header_stores.answers(recorded, version) == answers


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.timeout(600)
@pytest.mark.skipif(find_jdk() is None, reason="no JDK (javac 17 or newer)")
def test_queries_with_headers_are_answered_as_by_the_newest_version() -> None:
    recorded = json.loads(gzip.decompress(header_stores.QUERIES.read_bytes()))
    assert header_stores.query_answers(recorded["cases"]) == recorded["answers"]


@on_each_version
@pytest.mark.kafka
def test_queries_are_answered_as_by(version: str) -> None:
    recorded = json.loads(gzip.decompress(queries.CASES.read_bytes()))
    answers = recorded.pop("results")
    got = queries.answers(recorded, version)
    shown = [
        (
            asked,
            *(map(sorted_rows, both) if "read" in asked and "partition" not in asked else both),
        )  # the order of partitions is threads'
        for asked, *both in zip(recorded["queries"], answers, got, strict=True)
    ]
    # a composite session store fetches a session from the partition that is first
    different = [
        each for each in shown if each[1] != each[2] and (each[0].get("read") != "fetch_session" or "partition" in each[0])
    ]
    assert not different, f"{len(different)} of {len(got)}: {different[:5]}"


def test_a_difference_names_the_step_the_topic_and_both_values() -> None:
    case = next(read_cases(FILES[0]))
    answer = json.loads(json.dumps(case["expect"]))
    assert differences(case, answer) == []
    step = next(number for number, step in enumerate(answer["trace"]) if step)
    topic = next(iter(answer["trace"][step]))
    answer["trace"][step][topic] = "other"
    answer["dropped"] = 7
    answer["trace"].append({})
    found = differences(case, answer)
    assert found[0].startswith("dropped: recorded") and found[0].endswith("got 7")
    assert found[1].startswith("trace: recorded") and found[2].startswith(f"step {step}, {topic}: recorded [[")
    assert found[2].endswith('got "other"') and len(found) == 3


def test_a_case_of_a_later_version_is_not_asked_of_an_earlier_one() -> None:
    later = {"since": VERSIONS[-1]}
    assert (knows(later, RECORDED), knows(later, VERSIONS[-1]), knows({}, VERSIONS[-1])) == (False, True, True)


def test_the_class_path_of_a_version_has_no_other_jar_of_kafka() -> None:
    for version in VERSIONS:
        ours = [jar for jar in jars_of(version) if jar.group == "org.apache.kafka"]
        assert {jar.version for jar in ours} == {version}
        assert {jar.artifact for jar in ours} == {"kafka-clients", "kafka-streams", "kafka-streams-test-utils"}
