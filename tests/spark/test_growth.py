"""Partitions added to input topics while an application runs, on real Spark and a real broker."""

from __future__ import annotations

import re

import pytest

from kstreams_repl import StreamsBuilder, serdes
from kstreams_repl.host.spark import deployment as deploying
from kstreams_repl.host.spark.application_state import Status
from kstreams_repl.system.errors import BrokerUnavailableError, DeployError, PartitionsChangedError
from tests.spark.hosting import Host, counting, decoded, expected_counts, failed, numbered, passing, processed, settle

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
QUICK = {"repl_partitions_check_ms": 200}


@pytest.mark.slow
def test_a_stateless_application_reads_partitions_that_were_added(host: Host) -> None:
    source, sink = host.topic("in", 2), host.topic("out", 2)
    host.produce(source, numbered(500))
    deployment = host.deploy(passing(source, sink), **QUICK)
    processed(deployment, 500)
    before = {spec.task_id: slot for slot, specs in enumerate(deployment.plan.assignment) for spec in specs}  # type: ignore[union-attr]
    host.admin.add_partitions(source, 5)
    settle(lambda: len(deployment.reports.tasks) == 5, "five tasks", story=lambda: deployment.reports)
    host.produce(source, numbered(500, start=500))
    processed(deployment, 1_000)
    after = {spec.task_id: slot for slot, specs in enumerate(deployment.plan.assignment) for spec in specs}  # type: ignore[union-attr]
    assert {task: after[task] for task in before} == before, "existing groups kept their instances"
    deployment.stop()
    assert sorted(int(value or b"") for _, value in host.read(sink)) == list(range(1_000))


@pytest.mark.slow
def test_a_changelog_cannot_follow_and_the_application_ends_at_a_commit(host: Host) -> None:
    source, sink = host.topic("in", 2), host.topic("out", 2)
    host.produce(source, numbered(500))
    deployment = host.deploy(counting(source, sink), **QUICK)
    processed(deployment, 500)
    host.admin.add_partitions(source, 3)
    failed(deployment)
    error = deployment.error
    assert isinstance(error, PartitionsChangedError) and error.topic == source
    assert "3 partitions instead of 2" in str(error) and "repartition" in str(error)
    deployment.stop()
    assert decoded(host.table(sink)) == expected_counts(numbered(500))
    with pytest.raises(Exception, match="partitions"):
        deployment.start()
    assert deployment.status is Status.STOPPED


def test_growth_is_looked_at_again_when_the_broker_did_not_answer(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    source, sink = host.topic("in", 2), host.topic("out", 2)
    deployment = host.deploy(passing(source, sink), **QUICK)
    asked: list[int] = []

    def away(*_: object, **__: object) -> None:
        asked.append(1)
        if len(asked) == 2:
            monkeypatch.undo()
        raise BrokerUnavailableError("no broker answers")

    monkeypatch.setattr(deploying, "make_plan", away)
    host.admin.add_partitions(source, 3)
    settle(lambda: len(deployment.reports.tasks) == 3, "three tasks", story=lambda: (deployment, asked))
    assert len(asked) == 2


@pytest.mark.slow
def test_growth_that_cannot_be_started_again_is_told_and_resume_follows_it(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    source, sink = host.topic("in", 2), host.topic("out", 2)
    host.produce(source, numbered(500))
    deployment = host.deploy(passing(source, sink), **QUICK)
    processed(deployment, 500)

    def taken() -> None:
        raise DeployError("another application took the slots")

    monkeypatch.setattr(deployment, "start", taken)
    host.admin.add_partitions(source, 3)
    failed(deployment)
    assert "took the slots" in str(deployment.error)
    monkeypatch.undo()
    host.produce(source, numbered(500, start=500))
    deployment.resume()
    processed(deployment, 1_000)
    deployment.stop()
    assert sorted(int(value or b"") for _, value in host.read(sink)) == list(range(1_000))


def test_state_behind_a_repartition_topic_stays_when_the_input_grows(host: Host) -> None:
    source, sink = host.topic("in", 2), host.topic("out", 2)
    builder = StreamsBuilder()
    stream = builder.stream(source, key_serde=serdes.string, value_serde=serdes.json)
    counts = stream.group_by(lambda key, value: str(value % 7), key_serde=serdes.string, value_serde=serdes.json).count(store="s")
    counts.to_stream().to(sink, key_serde=serdes.string, value_serde=serdes.long)
    host.produce(source, numbered(700))
    deployment = host.deploy(builder.build(), **QUICK)
    processed(deployment, 700)
    host.admin.add_partitions(source, 4)
    settle(lambda: len(deployment.reports.tasks) == 4 + 2, "two tasks more", story=lambda: deployment.reports)
    host.produce(source, numbered(700, start=700))
    wanted = {str(rest).encode(): 200 for rest in range(7)}
    settle(lambda: decoded(host.table(sink)) == wanted, "exact counts", story=lambda: (deployment, decoded(host.table(sink))))
    deployment.stop()
    assert decoded(host.table(sink)) == wanted


@pytest.mark.slow
def test_a_new_topic_that_matches_a_pattern_is_read(host: Host) -> None:
    first, sink = host.topic("in-1", 1), host.topic("out", 1)
    builder = StreamsBuilder()
    stream = builder.stream(re.compile(re.escape(host.name) + "-in-.*"), key_serde=serdes.string, value_serde=serdes.json)
    stream.map_values(str).to(sink, key_serde=serdes.string, value_serde=serdes.string)
    host.produce(first, numbered(100))
    deployment = host.deploy(builder.build(), **QUICK)
    processed(deployment, 100)
    second = host.topic("in-2", 2)
    host.produce(second, numbered(100, start=100))
    processed(deployment, 200)
    deployment.stop()
    assert sorted(int(value or b"") for _, value in host.read(sink)) == list(range(200))
