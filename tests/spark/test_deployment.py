"""Applications on real Spark and a real broker: deploy, pause, resume, stop, and what they leave."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path

import pytest

from kstreams_repl.host.journal.journal import JournalReader
from kstreams_repl.host.spark.application_state import Status
from kstreams_repl.system.errors import (
    ApplicationFailedError,
    DeployError,
    ProducerFencedError,
    StreamsProcessingError,
    TaskMigratedError,
    UnknownTopicError,
)
from kstreams_repl.system.types import TopicPartition
from tests.spark.hosting import (
    Host,
    counting,
    decoded,
    expected_counts,
    failed,
    numbered,
    passing,
    processed,
    running,
)

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_stateless_topology_writes_each_record_once(host: Host) -> None:
    source, sink = host.topic("in"), host.topic("out")
    host.produce(source, numbered(5_000))
    deployment = host.deploy(passing(source, sink))
    processed(deployment, 5_000)
    deployment.stop()
    assert sorted(int(value or b"") for _, value in host.read(sink)) == list(range(5_000))


def test_count_is_exact_in_topic_and_changelog(host: Host) -> None:
    source, sink = host.topic("in"), host.topic("out")
    rows = numbered(5_000)
    host.produce(source, rows)
    deployment = host.deploy(counting(source, sink))
    processed(deployment, 5_000)
    deployment.stop()
    wanted = expected_counts(rows)
    assert decoded(host.table(sink)) == wanted
    assert decoded(host.table(f"{deployment.application_id}-counts-changelog")) == wanted


@pytest.mark.slow
def test_at_least_once_loses_nothing(host: Host) -> None:
    source, sink = host.topic("in"), host.topic("out")
    rows = numbered(3_000)
    host.produce(source, rows)
    deployment = host.deploy(counting(source, sink), processing_guarantee="at_least_once")
    processed(deployment, 3_000)
    deployment.pause()
    host.produce(source, numbered(1_000, start=3_000))
    deployment.resume()
    processed(deployment, 4_000)
    deployment.stop()
    assert decoded(host.table(sink)) == expected_counts(numbered(4_000))


def test_pause_commits_and_nothing_is_emitted_after_it(host: Host) -> None:
    source, sink = host.topic("in"), host.topic("out")
    host.produce(source, numbered(1_000))
    deployment = host.deploy(passing(source, sink))
    processed(deployment, 1_000)
    deployment.pause()
    assert deployment.status is Status.PAUSED
    ends = host.admin.end_offsets([TopicPartition(sink, p) for p in range(4)], isolation="read_uncommitted")
    host.produce(source, numbered(1_000, start=1_000))
    assert host.admin.end_offsets(list(ends), isolation="read_uncommitted") == ends
    committed = host.admin.committed_offsets(deployment.application_id)
    assert sum(known.offset for known in committed.values()) == 1_000
    deployment.resume()
    processed(deployment, 2_000)
    deployment.stop()
    assert sorted(int(value or b"") for _, value in host.read(sink)) == list(range(2_000))


def test_pause_resume_and_stop_may_be_repeated(host: Host) -> None:
    source, sink = host.topic("in"), host.topic("out")
    deployment = host.deploy(passing(source, sink))
    for _ in range(2):
        deployment.pause()
        deployment.pause()
        deployment.resume()
        deployment.resume()
    deployment.stop()
    deployment.stop()
    deployment.pause()
    assert deployment.status is Status.STOPPED
    deployment.start()
    running(deployment)
    assert deployment.status is Status.RUNNING


@pytest.mark.slow
def test_whoever_was_taken_over_and_does_not_know_better_stops_nothing(host: Host) -> None:
    source, sink = host.topic("in"), host.topic("out")
    host.produce(source, numbered(500))
    former = host.deploy(passing(source, sink))
    processed(former, 500)
    successor = host.deploy(passing(source, sink))
    failed(former)
    assert isinstance(former.error, TaskMigratedError) and "attach" in (former.error.hint or "")
    with pytest.raises(ProducerFencedError):
        former.resume()
    host.produce(source, numbered(500, start=500))
    processed(successor, 1_000)
    successor.stop()
    former.stop()
    assert sorted(int(value or b"") for _, value in host.read(sink)) == list(range(1_000))


def test_a_stop_after_a_pause_is_told_to_whoever_attaches(host: Host) -> None:
    source, sink = host.topic("in"), host.topic("out")
    deployment = host.deploy(passing(source, sink), num_stream_threads=1)
    running(deployment)
    reader = JournalReader(host.settings, deployment.application_id)
    try:
        for act, wanted in ((deployment.pause, "paused"), (deployment.stop, "stopped")):
            act()
            desired = reader.catch_up(host.admin).desired
            assert desired is not None and desired.state == wanted
    finally:
        reader.close()


@pytest.mark.slow
def test_an_interrupt_while_the_query_ends_leaves_the_end_to_the_next_call(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    source, sink = host.topic("in"), host.topic("out")
    host.produce(source, numbered(1_000))
    deployment = host.deploy(passing(source, sink))
    processed(deployment, 1_000)
    assert deployment._run is not None
    query = deployment._run.query
    assert query is not None

    def interrupted() -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(query, "stop", interrupted)
    with pytest.raises(KeyboardInterrupt):
        deployment.stop()
    deployment.stop()
    assert deployment.status is Status.STOPPED and not query.active
    host.produce(source, numbered(1_000, start=1_000))
    deployment.resume()
    processed(deployment, 2_000)
    deployment.stop()
    assert len(host.read(sink)) == 2_000


def test_count_goes_on_after_a_stop(host: Host) -> None:
    source, sink = host.topic("in"), host.topic("out")
    host.produce(source, numbered(1_000))
    first = host.deploy(counting(source, sink))
    processed(first, 1_000)
    first.stop()
    host.produce(source, numbered(1_000, start=1_000))
    second = host.deploy(counting(source, sink))
    processed(second, 2_000)
    second.stop()
    assert decoded(host.table(sink)) == expected_counts(numbered(2_000))


def test_clean_resume_is_warm(host: Host) -> None:
    source, sink = host.topic("in"), host.topic("out")
    host.produce(source, numbered(500))
    deployment = host.deploy(counting(source, sink), num_stream_threads=1)
    processed(deployment, 500)
    deployment.pause()
    deployment.resume()
    running(deployment)
    assert [report.warm for report in deployment.reports.instances.values()] == [True]


def test_epochs_turn_warm_and_lose_nothing(host: Host) -> None:
    source, sink = host.topic("in"), host.topic("out")
    host.produce(source, numbered(2_000))
    deployment = host.deploy(counting(source, sink), repl_epoch_ms=500)
    processed(deployment, 2_000)
    turns = 0
    for start in range(2_000, 6_000, 1_000):
        host.produce(source, numbered(1_000, start=start))
        processed(deployment, start + 1_000)
        turns = max(turns, *(report.commits for report in deployment.reports.instances.values()))
    # a busy machine may give an epoch other workers once; those then stay
    deployment.wait(30, until=lambda _: all(report.warm for report in deployment.reports.instances.values()))
    assert all(report.warm for report in deployment.reports.instances.values())
    deployment.stop()
    assert decoded(host.table(sink)) == expected_counts(numbered(6_000))


def test_half_a_second_after_a_stop_no_loop_runs_and_no_client_or_environment_is_open(host: Host) -> None:
    source, sink = host.topic("in"), host.topic("out")
    host.produce(source, numbered(500))
    deployment = host.deploy(counting(source, sink), repl_epoch_ms=500)
    processed(deployment, 500)
    running(deployment)
    pids = {report.pid for report in deployment.reports.instances.values()}
    directory = str(deployment.state_root)
    assert all(client_threads(pid) and stores_open(pid, directory) for pid in pids)
    deployment.stop()
    time.sleep(0.5)
    assert [pid for pid in pids if client_threads(pid) or stores_open(pid, directory)] == []


def client_threads(pid: int) -> list[str]:
    """Threads of client libraries; an instance's loop has some as long as it runs."""
    names = []
    for path in Path(f"/proc/{pid}/task").glob("*/comm"):
        with suppress(OSError):  # it has just ended
            names.append(path.read_text())
    return [name for name in names if name.startswith("rdk:")]


def stores_open(pid: int, directory: str) -> list[str]:
    found = []
    for path in Path(f"/proc/{pid}/fd").glob("*"):
        with suppress(OSError):
            found.append(os.readlink(path))
    return [file for file in found if file.startswith(directory) and file.endswith(".mdb")]


@pytest.mark.slow
def test_two_instances_share_a_repartition_topic(host: Host) -> None:
    from kstreams_repl import StreamsBuilder, serdes

    source, sink = host.topic("in"), host.topic("out")
    host.produce(source, [(b"x%d" % i, b"%d" % i) for i in range(4_000)])
    builder = StreamsBuilder()
    stream = builder.stream(source, key_serde=serdes.string, value_serde=serdes.json)
    counts = stream.group_by(lambda key, value: str(value % 7), key_serde=serdes.string, value_serde=serdes.json).count(
        store="sevenths"
    )
    counts.to_stream().to(sink, key_serde=serdes.string, value_serde=serdes.long)
    deployment = host.deploy(builder.build())
    processed(deployment, 4_000)
    wanted = {str(rest).encode(): len(range(rest, 4_000, 7)) for rest in range(7)}
    deployment.wait(20, until=lambda _: decoded(host.table(sink)) == wanted)
    deployment.stop()
    assert decoded(host.table(sink)) == wanted
    assert {slot: len(report.tasks) for slot, report in deployment.reports.instances.items()} == {0: 4, 1: 4}


def test_raising_user_function_fails_the_application_on_its_node(host: Host) -> None:
    source, sink = host.topic("in", 1), host.topic("out", 1)
    host.produce(source, numbered(100))

    def halves(value: int) -> str:
        return str(1 / (value - 150))

    deployment = host.deploy(passing(source, sink, halves), num_stream_threads=1)
    processed(deployment, 100)
    host.produce(source, numbered(100, start=100))
    failed(deployment)
    error = deployment.error
    assert isinstance(error, StreamsProcessingError)
    assert (error.node, error.topic, error.partition, error.offset) == ("shape", source, 0, 150)
    assert "ZeroDivisionError" in str(error) and "1 / (value - 150)" in str(error)
    assert {int(json.loads(value or b"0") * 0) for _, value in host.read(sink, settled=False)} == {0}
    assert 100 <= len(host.read(sink, settled=False)) <= 150
    with pytest.raises(ApplicationFailedError, match="ZeroDivisionError"):
        deployment.wait(5, until=lambda _: False)


def test_fixed_function_goes_on_from_what_was_committed(host: Host) -> None:
    source, sink = host.topic("in", 1), host.topic("out", 1)
    host.produce(source, numbered(200))

    def picky(value: int) -> str:
        if value == 150:
            raise ValueError("not this one")
        return str(value)

    broken = host.deploy(passing(source, sink, picky), num_stream_threads=1)
    failed(broken)
    broken.stop()
    fixed = host.deploy(passing(source, sink), num_stream_threads=1)
    processed(fixed, 200)
    fixed.stop()
    assert sorted(int(value or b"") for _, value in host.read(sink)) == list(range(200))


def test_unknown_topic_is_refused_with_the_nearest_name(host: Host) -> None:
    source, sink = host.topic("flights"), host.topic("out")
    with pytest.raises(UnknownTopicError, match="did you mean"):
        host.deploy(passing(source.replace("flights", "flihgts"), sink))
    with pytest.raises(UnknownTopicError):
        host.deploy(passing(source, f"{sink}-nowhere"))


def test_too_few_slots_are_told_at_once(host: Host) -> None:
    source, sink = host.topic("in", 8), host.topic("out")
    with pytest.raises(DeployError, match="slots"):
        host.deploy(passing(source, sink), num_stream_threads=8)


def test_functions_that_cannot_be_sent_are_refused(host: Host) -> None:
    import threading

    source, sink = host.topic("in"), host.topic("out")
    lock = threading.Lock()

    def locked(value: int) -> str:
        with lock:
            return str(value)

    with pytest.raises(DeployError, match="cannot be sent"):
        host.deploy(passing(source, sink, locked))
