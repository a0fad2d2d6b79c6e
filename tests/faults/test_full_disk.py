"""R8: no room, for real. Each place that writes has a disk of its own which is full, or fills while it is used."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable

import pytest

from kstreams_repl import connect, serdes
from kstreams_repl.engine.dsl import StreamsBuilder
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.kafka.embedded import EmbeddedBroker
from kstreams_repl.host.spark.application_state import Status
from kstreams_repl.system.errors import EmbeddedBrokerError, StateStoreError
from tests.disks import SmallDisk, small_disk
from tests.faults.reliability import note
from tests.spark.hosting import Host, failed, processed

__all__ = ["small_disk"]
Disks = Callable[[int], SmallDisk]


@pytest.mark.kafka
def test_broker_on_a_small_disk_tells_what_it_needs_and_starts_nothing(small_disk: Disks) -> None:
    disk = small_disk(64)
    with pytest.raises(EmbeddedBrokerError, match=r"not enough disk space for a broker in .*: 67\.1 MB free, 268 MB needed") as caught:
        EmbeddedBroker(disk.path / "broker").start()
    assert caught.value.free_bytes < caught.value.needed_bytes
    assert caught.value.path == str(disk.path / "broker")
    left = list((disk.path / "broker").iterdir())
    note("R8", "a broker started on a disk that is too small: typed error", 1, len(left))
    assert left == []


@pytest.mark.kafka
@pytest.mark.slow
def test_broker_whose_disk_fills_is_told_as_that_and_goes_on_when_there_is_room(small_disk: Disks) -> None:
    disk = small_disk(320)
    with connect(directory=disk.path / "session", report=lambda line: None) as session:
        session.produce("t", [f"before {n}" for n in range(100)], partitions=1)
        disk.fill(leave=1 << 20)
        with pytest.raises(EmbeddedBrokerError, match=r"ended because the disk of .* is full: 0\.\d MB free, 268 MB needed") as caught:
            session.produce("t", (os.urandom(1000).hex() for _ in range(20_000)))
        assert caught.value.path == str(disk.path / "session" / "broker")
        with pytest.raises(EmbeddedBrokerError, match="is full"):
            session.topics()
        disk.make_room(400)
        session.produce("t", ["after"])
        values = [record.value for record in session.read("t", n=None)]
        kept = values[:100] == [f"before {n}" for n in range(100)] and values[-1] == "after"
        note("R8", "a broker's disk fills and gets room: typed error, and it goes on", 1, int(not kept))
        assert kept, (values[:100], values[-1])


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.timeout(240)
@pytest.mark.slow
@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_full_state_directory_ends_the_application_at_its_last_commit_and_it_resumes_exactly(
    small_disk: Disks, host: Host, guarantee: str
) -> None:
    disk = small_disk(64)
    source, sink = host.topic("in"), host.topic("out")
    waves = [[(b"k%d" % (n % 2_000), b"%08d" % n + os.urandom(1_500)) for n in range(at, at + 3_000)] for at in (0, 3_000, 6_000)]
    host.produce(source, waves[0])
    deployment = host.deploy(latest(source, sink), state_dir=str(disk.path), processing_guarantee=guarantee)
    processed(deployment, 3_000)
    disk.fill(leave=1 << 18)
    host.produce(source, waves[1])
    failed(deployment)
    error = deployment.error
    assert isinstance(error, StateStoreError)
    assert f"{disk.path}/" in error.message and "the disk is full (" in error.message
    assert error.fields["free_bytes"] < 1 << 20
    assert "make room and resume" in (error.hint or "")
    host.produce(source, waves[2])
    committed = committed_offsets(host, deployment.application_id)
    written = len(host.read(sink, settled=False))
    time.sleep(1.0)
    assert committed_offsets(host, deployment.application_id) == committed
    assert len(host.read(sink, settled=False)) == written
    assert 3_000 <= sum(committed.values()) <= 6_000
    with pytest.raises(StateStoreError, match="full"):  # no room yet
        deployment.resume()
        failed(deployment)
        raise deployment.error or AssertionError
    disk.make_room(300)
    deployment.resume()
    processed(deployment, 9_000)
    deployment.stop()
    assert deployment.status is Status.STOPPED
    numbers = Counter(int(value or b"") for _, value in host.read(sink))
    wanted = Counter(range(9_000))
    lost, repeated = wanted - numbers, numbers - wanted
    same_state = host.table(f"{deployment.application_id}-latest-changelog") == expected_state(waves[0] + waves[1] + waves[2])
    allowed = guarantee == "at_least_once"
    violations = lost.total() + (0 if allowed else repeated.total()) + int(not same_state)
    note("R8", f"the state directory's disk fills and gets room: typed error, no commit after it, resumed, {guarantee}", 1, violations)
    assert same_state
    assert not lost
    assert allowed or not repeated


def latest(source: str, sink: str) -> Topology:
    """A store that grows: of each key how often it came (so that a lost or doubled state shows) and its last bytes; a number per record."""
    builder = StreamsBuilder()
    rows = builder.stream(source, key_serde=serdes.string, value_serde=serdes.bytes)
    rows.map_values(lambda value: value[:8]).to(sink, key_serde=serdes.string, value_serde=serdes.bytes)
    once = rows.map_values(lambda value: b"%08d" % 1 + value[8:])
    once.group_by_key().reduce(lambda old, new: b"%08d" % (int(old[:8]) + 1) + new[8:], store="latest")
    return builder.build()


def expected_state(rows: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    came = Counter(key for key, _ in rows)
    return {key: b"%08d" % came[key] + value[8:] for key, value in rows}


def committed_offsets(host: Host, application: str) -> dict[object, int]:
    return {at: known.offset for at, known in host.admin.committed_offsets(application).items()}
