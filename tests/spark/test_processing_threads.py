"""More than one processing thread in an instance: tasks do not wait for each other, results and errors are those of one thread."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl import StreamsBuilder, serdes
from kstreams_repl.engine.partitioning import partitioner
from kstreams_repl.system.errors import StreamsProcessingError
from tests.spark.hosting import Host, counting, decoded, expected_counts, failed, numbered, passing, processed, settle

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

AHEAD = 200


def keys_of(partition: int, partitions: int) -> bytes:
    place = partitioner(partitions)
    return next(key for number in range(1_000) if place(key := b"key-%d" % number) == partition)


def waiting_for(path: str) -> Any:
    """Blocks on the value "wait" until the file is there; the value "go" makes it."""

    def mapper(value: str) -> str:
        if value == "go":
            Path(path).touch()
        deadline = time.monotonic() + 60
        while value == "wait" and not Path(path).exists():
            if time.monotonic() > deadline:
                raise TimeoutError("nobody else went on")
            time.sleep(0.01)
        return value

    return mapper


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_a_task_that_blocks_does_not_stall_the_others(host: Host, tmp_path: Path, guarantee: str) -> None:
    """One record waits for what another task does 200 records later: with one thread it would wait for ever."""
    source, sink = host.topic("in", 2), host.topic("out", 1)
    slow, fast = keys_of(0, 2), keys_of(1, 2)
    builder = StreamsBuilder()
    stream = builder.stream(source, key_serde=serdes.string, value_serde=serdes.string)
    stream.map_values(waiting_for(str(tmp_path / "went-on"))).to(sink, key_serde=serdes.string, value_serde=serdes.string)
    deployment = host.deploy(builder.build(), num_stream_threads=1, num_processing_threads=2, processing_guarantee=guarantee)
    host.produce(source, [(slow, b"wait"), (slow, b"after")])
    settle(lambda: sum(task.buffered for task in deployment.reports.tasks.values()) > 0, "the record that blocks")
    host.produce(source, [*((fast, b"%d" % number) for number in range(AHEAD)), (fast, b"go")])
    processed(deployment, AHEAD + 3)
    deployment.stop()
    wanted = [b"wait", b"after"], [*(b"%d" % number for number in range(AHEAD)), b"go"]
    got = host.read(sink)
    assert [value for key, value in got if key == slow] == wanted[0]
    assert [value for key, value in got if key == fast] == wanted[1]


def test_counts_are_exact_over_epochs_pauses_and_threads(host: Host) -> None:
    source, sink = host.topic("in"), host.topic("out")
    deployment = host.deploy(counting(source, sink), num_stream_threads=1, num_processing_threads=3, repl_epoch_ms=700)
    for start in range(0, 6_000, 1_500):
        host.produce(source, numbered(1_500, start=start))
        processed(deployment, start + 1_500)
        deployment.pause()
        deployment.resume()
    deployment.stop()
    assert decoded(host.table(sink)) == expected_counts(numbered(6_000))
    assert decoded(host.table(f"{deployment.application_id}-counts-changelog")) == expected_counts(numbered(6_000))


def test_an_error_in_a_processing_thread_fails_the_application_with_its_coordinates(host: Host) -> None:
    source, sink = host.topic("in", 2), host.topic("out")
    host.produce(source, [(b"k%d" % number, b"%d" % (number - 30)) for number in range(60)])
    deployment = host.deploy(
        passing(source, sink, lambda number: str(1 / number)), num_stream_threads=1, num_processing_threads=2
    )
    failed(deployment)
    error = deployment.error
    assert isinstance(error, StreamsProcessingError) and "ZeroDivisionError" in error.message
    assert error.fields["node"] == "shape" and error.fields["topic"] == source and "offset" in error.fields
