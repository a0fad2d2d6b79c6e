"""The embedded broker's life: started, killed, restarted, left behind. Each test starts a broker of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient, NewTopic

from kstreams_repl.cli.broker import main as broker_command
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, make_producer, make_transactional_producer
from kstreams_repl.host.kafka.embedded import EmbeddedBroker, ensure_jars, layout, supervisor
from kstreams_repl.host.kafka.embedded import broker as broker_module
from kstreams_repl.host.kafka.embedded.layout import BrokerDirectory
from kstreams_repl.host.kafka.reading import ranges_of, read_ranges
from kstreams_repl.system.errors import EmbeddedBrokerError, JavaNotFoundError
from kstreams_repl.system.java import find_java
from kstreams_repl.system.types import TopicPartition

pytestmark = pytest.mark.kafka


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No process whose command line names this test's directory outlives the test."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    yield
    _eventually(lambda: not _processes(tmp_path), "a process outlived the test")


def _eventually(condition: Callable[[], object], otherwise: str) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.05)


def _processes(directory: Path) -> list[int]:
    others = (process for process in psutil.process_iter(["pid", "cmdline", "status"]) if process.info["pid"] != os.getpid())
    return [
        process.info["pid"]
        for process in others
        if process.info["status"] != psutil.STATUS_ZOMBIE and str(directory) in " ".join(process.info["cmdline"] or [])
    ]


def _write(broker: EmbeddedBroker, topic: str, values: list[bytes]) -> None:
    producer = make_producer(ClientSettings(broker.bootstrap_servers))
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(20) == 0
    producer.close()


def _read(broker: EmbeddedBroker, topic: str) -> list[bytes | None]:
    settings = ClientSettings(broker.bootstrap_servers)
    ranges = ranges_of(Admin(settings), topic, settled=True)
    return [value for _, batch in read_ranges(settings, ranges) for value in batch.values]


def _owner(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Another process that owns a broker; it prints lines and then waits for its end."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


OWNER = """
    import sys, time
    from kstreams_repl.host.kafka.embedded import EmbeddedBroker
    broker = EmbeddedBroker(sys.argv[1] if len(sys.argv) > 1 else None)
    broker.start()
    print(broker.pid, broker.directory, flush=True)
    time.sleep(600)
"""


def test_a_temporary_broker_listens_on_loopback_only_and_leaves_nothing() -> None:
    with EmbeddedBroker() as broker:
        directory, pid = broker.directory, broker.pid
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        listening = {c.laddr.ip for c in psutil.Process(pid).net_connections("tcp") if c.status == psutil.CONN_LISTEN}
        assert listening <= {"127.0.0.1", "::ffff:127.0.0.1"} and listening
        assert broker.log_path.exists()
        assert repr(broker).startswith(f"EmbeddedBroker(127.0.0.1:{broker.port}, running")
    assert not directory.exists()
    assert not psutil.pid_exists(pid)
    assert not broker.is_alive


@pytest.mark.slow
def test_kept_data_are_there_after_a_stop_and_after_a_kill_on_the_same_port(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "kept") as broker:
        Admin(ClientSettings(broker.bootstrap_servers)).create_topic("t", 1)
        _write(broker, "t", [b"before the stop"])
        port = broker.port
    again = EmbeddedBroker(tmp_path / "kept").start()
    try:
        assert again.port == port
        _write(again, "t", [b"before the kill"])
        again.kill()
        assert not again.is_alive
        again.start()
        assert again.port == port
        assert _read(again, "t") == [b"before the stop", b"before the kill"]
    finally:
        again.stop()
    assert (tmp_path / "kept" / "data" / "meta.properties").exists()


@pytest.mark.slow
def test_an_aborted_transaction_stays_invisible_after_a_broker_kill(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "kept") as broker:
        settings = ClientSettings(broker.bootstrap_servers)
        Admin(settings).create_topic("t", 1)
        producer = make_transactional_producer(settings, transactional_id="x")
        producer.init_transactions(10)
        producer.begin_transaction()
        producer.produce("t", b"committed")
        producer.commit_transaction(10)
        producer.begin_transaction()
        producer.produce("t", b"open at the kill")
        producer.flush(10)
        broker.kill()
        del producer  # its close() would wait for the broker
        broker.start()
        successor = make_transactional_producer(settings, transactional_id="x")
        successor.init_transactions(30)
        successor.close()
        assert _read(broker, "t") == [b"committed"]


@pytest.mark.slow
def test_a_topic_that_any_client_creates_keeps_records_of_long_ago(tmp_path: Path) -> None:
    checks = {"log.retention.check.interval.ms": "100", "log.initial.task.delay.ms": "100"}
    with EmbeddedBroker(tmp_path / "broker", properties=checks) as broker:
        client = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        client.create_topics([NewTopic("others", 1, 1)])["others"].result(30)
        client.create_topics([NewTopic("short", 1, 1, config={"retention.ms": "604800000"})])["short"].result(30)
        producer = make_producer(ClientSettings(broker.bootstrap_servers))
        for topic in ("others", "short"):
            producer.produce(topic, b"flight", timestamp=1_356_998_400_000)
        producer.flush(30)
        admin = Admin(ClientSettings(broker.bootstrap_servers))
        gone = TopicPartition("short", 0)  # the broker has looked at both when this one's record is away
        _eventually(lambda: admin.beginning_offsets([gone])[gone] == 1, "the broker never looked")
        kept = TopicPartition("others", 0)
        assert admin.beginning_offsets([kept])[kept] == 0


def test_a_second_start_on_a_used_directory_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "kept") as broker:
        with pytest.raises(EmbeddedBrokerError, match=f"is in use by the broker with process id {broker.pid} on port {broker.port}"):
            EmbeddedBroker(tmp_path / "kept").start()
        assert broker.is_alive
        Admin(ClientSettings(broker.bootstrap_servers)).topics()


def test_the_broker_dies_with_an_owner_that_is_killed(tmp_path: Path) -> None:
    owner = _owner(OWNER)
    pid, directory = owner.stdout.readline().split()
    assert psutil.pid_exists(int(pid)) and Path(directory).exists()
    owner.kill()
    owner.communicate()
    _eventually(lambda: not psutil.pid_exists(int(pid)), "the broker outlived its owner")
    _eventually(lambda: not Path(directory).exists(), "the temporary directory outlived its owner")


@pytest.mark.slow
def test_what_is_written_while_a_temporary_directory_is_removed_goes_too(tmp_path: Path) -> None:
    owner = _owner(OWNER)
    pid, directory = owner.stdout.readline().split()
    # as the Spark of a session whose process is killed: for a moment it goes on
    code = """
        import itertools, os, sys, time
        folder = os.path.join(sys.argv[1], "session")
        os.mkdir(folder)
        print("begun", flush=True)
        ended = None
        for number in itertools.count():
            if ended is None and not os.path.exists(f"/proc/{sys.argv[2]}"):
                ended = time.monotonic()
            if ended is not None and time.monotonic() > ended + 1:
                break
            try:
                open(os.path.join(folder, str(number % 5000)), "w").close()
            except FileNotFoundError:
                break
    """
    writer = _owner(code, directory, pid)
    assert writer.stdout.readline() == "begun\n"
    owner.kill()
    owner.communicate()
    writer.communicate(timeout=60)
    _eventually(lambda: not Path(directory).exists(), "what was written last is left")


@pytest.mark.slow
def test_a_forked_child_of_the_owner_does_not_keep_the_broker_alive(tmp_path: Path) -> None:
    fork = "import os; child = os.fork(); child or time.sleep(60); print(child, flush=True); os._exit(0)"
    owner = _owner(OWNER.replace("time.sleep(600)", fork))
    pid, _ = owner.stdout.readline().split()
    child = int(owner.stdout.readline())
    owner.wait()
    try:
        _eventually(lambda: not psutil.pid_exists(int(pid)), "a forked child kept the broker alive")
        assert psutil.pid_exists(child)
    finally:
        os.kill(child, signal.SIGKILL)
        owner.stdout.close()


def test_the_broker_dies_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path / "kept").start()
    os.kill(BrokerDirectory(tmp_path / "kept").read_record().supervisor_pid, signal.SIGKILL)
    _eventually(lambda: not broker.is_alive, "the broker outlived its supervisor")
    broker.stop()


@pytest.mark.slow
def test_a_broker_on_another_system_than_linux_outlives_a_killed_supervisor_and_the_next_start_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There the kernel does not end the JVM; simulated by a supervisor that does not request it."""
    source = Path(supervisor.__file__).read_text(encoding="utf-8")
    elsewhere = source.replace('sys.platform == "linux"', "False")
    assert elsewhere != source
    (tmp_path / "supervisor.py").write_text(elsewhere, encoding="utf-8")
    monkeypatch.setattr(supervisor, "__file__", str(tmp_path / "supervisor.py"))
    broker = EmbeddedBroker(tmp_path / "kept").start()
    killed = BrokerDirectory(tmp_path / "kept").read_record().supervisor_pid
    os.kill(killed, signal.SIGKILL)
    _eventually(lambda: not psutil.pid_exists(killed) or psutil.Process(killed).status() == psutil.STATUS_ZOMBIE, "it was not killed")
    with pytest.raises(EmbeddedBrokerError, match=f"is in use by the broker with process id {broker.pid}"):
        EmbeddedBroker(tmp_path / "kept").start()
    Admin(ClientSettings(broker.bootstrap_servers)).topics()
    broker.stop()
    assert not broker.is_alive


@pytest.mark.slow
def test_a_ctrl_c_for_the_owners_group_does_not_reach_the_broker(tmp_path: Path) -> None:
    deaf = "import signal; signal.signal(signal.SIGINT, lambda *_: None)"
    waiting = f"{deaf}; print('ready', flush=True); time.sleep(2); print(broker.is_alive)"
    patient = OWNER.replace("time.sleep(600)", waiting)
    owner = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(patient)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    owner.stdout.readline()
    assert owner.stdout.readline() == "ready\n"
    os.killpg(owner.pid, signal.SIGINT)
    assert owner.communicate()[0].strip() == "True"


@pytest.mark.slow
def test_a_detached_broker_survives_its_owner_and_is_stopped_by_its_directory(tmp_path: Path) -> None:
    owner = _owner(OWNER.replace("start()", "start(detach=True)"), tmp_path / "kept")
    owner.stdout.readline()
    owner.kill()
    owner.communicate()
    time.sleep(1.5)
    attached = EmbeddedBroker.attach(tmp_path / "kept")
    assert attached.is_alive
    Admin(ClientSettings(attached.bootstrap_servers)).create_topic("t", 1)
    attached.stop()
    assert not attached.is_alive
    with pytest.raises(EmbeddedBrokerError, match="no broker is running in"):
        EmbeddedBroker.attach(tmp_path / "kept")


@pytest.mark.slow
def test_the_command_starts_shows_and_stops_a_broker(tmp_path: Path) -> None:
    run, where = CliRunner().invoke, ["--directory", str(tmp_path / "kept")]
    started = run(broker_command, ["start", *where, "--json"])
    assert started.exit_code == 0, started.output
    address = json.loads(started.output)["bootstrap_servers"]
    assert json.loads(run(broker_command, ["status", *where, "--json"]).output)["bootstrap_servers"] == address
    refused = run(broker_command, ["start", *where])
    assert refused.exit_code == 1 and "is in use" in f"{refused.output}{refused.exception}"
    assert address in run(broker_command, ["stop", *where]).output
    assert run(broker_command, ["status", *where]).exit_code == 3


def test_a_busy_port_is_a_typed_error(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(EmbeddedBrokerError, match=f"port {port} on 127.0.0.1 is in use") as caught:
            EmbeddedBroker(tmp_path / "kept", port=port).start()
    assert caught.value.port == port and "Hint: omit port=" in str(caught.value)


@pytest.mark.slow
def test_a_port_taken_between_choice_and_start_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        choices = iter([holder.getsockname()[1]])
        free = broker_module.free_port
        monkeypatch.setattr(broker_module, "free_port", lambda *taken: next(choices, None) or free(*taken))
        with EmbeddedBroker(tmp_path / "kept") as broker:
            assert broker.port != holder.getsockname()[1]
            Admin(ClientSettings(broker.bootstrap_servers)).topics()


def test_a_broken_start_names_the_log_and_its_last_error(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedBrokerError, match=r"ended during its start: .*log\.segment\.bytes.*broker\.log") as caught:
        EmbeddedBroker(tmp_path / "kept", properties={"log.segment.bytes": "one"}).start()
    assert caught.value.path == str(tmp_path / "kept" / "broker.log")


def test_a_jvm_that_does_not_start_is_told_in_its_own_words(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedBrokerError, match="Invalid maximum heap size"):
        EmbeddedBroker(tmp_path / "kept", heap="plenty").start()


def test_a_failed_start_leaves_no_temporary_directory(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedBrokerError):
        EmbeddedBroker(heap="plenty").start()
    assert list(tmp_path.glob("kstreams-broker-*")) == []


def test_no_room_is_told_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "MINIMUM_FREE_BYTES", 1 << 60)
    with pytest.raises(EmbeddedBrokerError, match="not enough disk space for a broker") as caught:
        EmbeddedBroker(tmp_path / "kept").start()
    assert caught.value.free_bytes > 0
    assert list((tmp_path / "kept").iterdir()) == []


def test_a_directory_that_cannot_be_made_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedBrokerError, match="cannot use the broker.s directory"):
        EmbeddedBroker("/proc/kstreams").start()


def test_without_java_the_error_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise JavaNotFoundError("none")

    monkeypatch.setattr(broker_module, "find_java", none)
    with pytest.raises(JavaNotFoundError):
        EmbeddedBroker(tmp_path / "kept").start()
    assert not (tmp_path / "kept").exists()


def test_the_committed_format_is_what_kafkas_own_tool_writes(tmp_path: Path) -> None:
    directory = BrokerDirectory(tmp_path / "ours")
    directory.create()
    directory.format()
    theirs = BrokerDirectory(tmp_path / "theirs")
    theirs.create()
    theirs.write_configuration(19092, 19093, {})
    class_path = os.pathsep.join(map(str, ensure_jars()))
    command = [find_java().executable, "-cp", class_path, f"-Dkstreams.broker.log={theirs.log_path}", "kafka.tools.StorageTool"]
    subprocess.run([*command, "format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c", theirs.properties_path], check=True, capture_output=True)

    def names(path: Path) -> set[str]:
        return {line.split("=")[0] for line in (path / "meta.properties").read_text().splitlines() if not line.startswith("#")}

    def without_times(path: Path) -> bytes:
        checkpoint = bytearray((path / "bootstrap.checkpoint").read_bytes())
        start = 0
        while start < len(checkpoint):  # blank crc and both timestamps of each record batch
            checkpoint[start + 17 : start + 21] = bytes(4)
            checkpoint[start + 27 : start + 43] = bytes(16)
            start += 12 + int.from_bytes(checkpoint[start + 8 : start + 12], "big")
        return bytes(checkpoint)

    assert names(directory.data_path) == names(theirs.data_path)
    ours, tools = without_times(directory.data_path), without_times(theirs.data_path)
    assert len(ours) == len(tools)
    assert sum(a != b for a, b in zip(ours, tools, strict=True)) <= 8  # the snapshot header repeats one time inside
    features = (b"metadata.version", b"group.version", b"transaction.version", b"streams.version", b"share.version")
    assert all(feature in ours for feature in features)


@pytest.mark.slow
def test_the_broker_serves_every_compression_and_transactions_offsets(tmp_path: Path) -> None:
    with EmbeddedBroker() as broker:
        settings = ClientSettings(broker.bootstrap_servers)
        admin = Admin(settings)
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            admin.create_topic(codec, 1, configs={"compression.type": "gzip" if codec == "none" else "producer"})
            producer = make_producer(settings, compression_type=codec)
            for n in range(100):
                producer.produce(codec, b"%d" % n * 20)
            producer.flush(20)
            producer.close()
            assert len(_read(broker, codec)) == 100
            assert admin.end_offsets([TopicPartition(codec, 0)]) == {TopicPartition(codec, 0): 100}
