"""The embedded broker's directory: its files, its formatting and its lock.

    broker.lock         flock'ed by the broker's JVM as long as it lives: tells whether the broker is running
    broker.json         endpoint and process ids of the last start
    server.properties   written at every start
    log4j2.properties   rolling log into broker.log (10 MB, two old files)
    broker.log  jvm.out the broker's log, and the JVM's own output
    data/               Kafka's data: meta.properties, bootstrap.checkpoint, partitions

Formatting writes what ``kafka-storage format`` writes, without starting a JVM: ``meta.properties`` with new ids, and the checkpoint of the
feature levels of this Kafka version. The checkpoint is the same for every cluster and is therefore committed next to this module. Another
Kafka version formats by its own ``kafka-storage format``.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from kstreams_repl.host.kafka.embedded.jars import KAFKA_VERSION
from kstreams_repl.system.disk_errors import free_bytes, is_full, room
from kstreams_repl.system.errors import EmbeddedBrokerError
from kstreams_repl.system.files import is_locked, take_lock, write_atomically

MINIMUM_FREE_BYTES = 256 * 1024 * 1024
NODE_ID = 1

DEFAULT_PROPERTIES: Mapping[str, str] = {
    # One node: no replication, and few partitions of the internal topics (each costs files, memory and start time).
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "default.replication.factor": "1",
    "num.partitions": "1",
    # A notebook's consumer does not wait three seconds for other members; a misspelt topic is an error, not a new topic.
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    # Records of a data set are often older than seven days; a topic created by another client would lose them during the read.
    "log.retention.ms": "-1",
    # Memory: the log cleaner alone would take 128 MB of a small heap.
    "log.cleaner.dedupe.buffer.size": str(32 * 1024 * 1024),
    "log.cleaner.io.buffer.size": str(256 * 1024),
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "4",
    "num.recovery.threads.per.data.dir": "2",
    "socket.send.buffer.bytes": "1048576",
    "socket.receive.buffer.bytes": "1048576",
    "log.index.size.max.bytes": str(1024 * 1024),
    # After a kill -9 the controller refuses the restarted broker until the session of the killed one has expired (9 s by default).
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}

_LOG4J2 = """\
status=error
appenders=file
appender.file.type=RollingFile
appender.file.name=file
appender.file.fileName=${sys:kstreams.broker.log}
appender.file.filePattern=${sys:kstreams.broker.log}.%i
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=%d %p %m (%c{1})%n
appender.file.policies.type=Policies
appender.file.policies.size.type=SizeBasedTriggeringPolicy
appender.file.policies.size.size=10MB
appender.file.strategy.type=DefaultRolloverStrategy
appender.file.strategy.max=2
loggers=config,request
logger.config.name=org.apache.kafka.common.config
logger.config.level=warn
logger.request.name=kafka.request.logger
logger.request.level=warn
rootLogger.level=info
rootLogger.appenderRefs=file
rootLogger.appenderRef.file.ref=file
"""


_EXCEPTION = re.compile(r"(Caused by: )?[\w.$]+(Exception|Error)\b")


@dataclass(frozen=True, slots=True)
class BrokerRecord:
    """The content of ``broker.json``: the last start of a directory's broker."""

    port: int
    controller_port: int
    supervisor_pid: int = 0
    jvm_pid: int = 0
    owner_pid: int = 0
    detached: bool = False


class BrokerDirectory:
    """The directory of one broker; creating the object does not touch the file system."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().resolve()
        self.lock_path = self.path / "broker.lock"
        self.record_path = self.path / "broker.json"
        self.log_path = self.path / "broker.log"
        self.jvm_output_path = self.path / "jvm.out"
        self.properties_path = self.path / "server.properties"
        self.logging_path = self.path / "log4j2.properties"
        self.data_path = self.path / "data"

    def __repr__(self) -> str:
        return f"BrokerDirectory({str(self.path)!r})"

    def create(self) -> None:
        """Create the directory, readable by its owner only, and check that the disk has enough free space.

        Raises:
            EmbeddedBrokerError: the directory cannot be created or written to, or its disk has less than 256 MB left.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.path.chmod(0o700)
            free = shutil.disk_usage(self.path).free
        except OSError as error:
            raise self.unusable(error, f"cannot use the broker's directory {self.path}") from error
        if free < MINIMUM_FREE_BYTES:
            raise self.no_room()

    def unusable(self, error: OSError, what: str) -> EmbeddedBrokerError:
        """Return the error for a directory that cannot be written."""
        if is_full(error):
            return self.no_room()
        return EmbeddedBrokerError(
            f"{what}: {error.strerror or error}", hint="pass a directory that you can write to", path=str(self.path)
        )

    def no_room(self) -> EmbeddedBrokerError:
        """Return the error for a disk with too little free space for a broker."""
        return EmbeddedBrokerError(
            f"not enough disk space for a broker in {self.path}: {room(self.path, MINIMUM_FREE_BYTES)}",
            hint="free some space on that disk, or pass a directory on another one",
            path=str(self.path),
            free_bytes=free_bytes(self.path),
            needed_bytes=MINIMUM_FREE_BYTES,
        )

    def acquire(self) -> int:
        """Take the directory's lock and return its file descriptor, which the broker's JVM inherits.

        Raises:
            EmbeddedBrokerError: a broker is running there.
        """
        for _ in range(5):
            if (descriptor := take_lock(self.lock_path)) is not None:
                return descriptor
            time.sleep(0.02)  # another process may be in is_locked()
        record = self.read_record()
        who = f" by the broker with process id {record.jvm_pid} on port {record.port}" if record and record.jvm_pid else ""
        raise EmbeddedBrokerError(
            f"the directory {self.path} is in use{who}",
            hint="use EmbeddedBroker.attach(directory) to connect to it, or start in another directory",
            path=str(self.path),
            port=record.port if record else None,
        )

    def is_locked(self) -> bool:
        """Return whether a broker is running there. Takes a shared lock for a moment; `acquire` retries because of that."""
        return is_locked(self.lock_path)

    def read_record(self) -> BrokerRecord | None:
        """Return the ports and process ids of the last start; None if there was none or the file is damaged."""
        try:
            fields = json.loads(self.record_path.read_text(encoding="utf-8"))
            return BrokerRecord(**{name: fields[name] for name in BrokerRecord.__slots__ if name in fields})
        except (OSError, ValueError, TypeError):
            return None

    def is_formatted(self) -> bool:
        return (self.data_path / "meta.properties").exists()

    def format(self, java: Path | None = None, class_path: Iterable[Path] = ()) -> None:
        """Format an empty data directory for this Kafka version; do nothing if it is formatted.

        Args:
            java: if the class path is another Kafka version's: runs that version's own tool, which reads the written configuration.
            class_path: that of the broker.

        Raises:
            EmbeddedBrokerError: the tool failed.
        """
        if self.is_formatted():
            return
        if java is not None:
            tool: list[str | Path] = [java, "-cp", os.pathsep.join(map(str, class_path)), "kafka.tools.StorageTool", "format"]
            command = [*tool, "--cluster-id", _kafka_uuid(), "--config", self.properties_path]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise EmbeddedBrokerError(
                    f"the data directory {self.data_path} could not be formatted: {(done.stderr or done.stdout).strip()}",
                    hint="check the broker's properties",
                    path=str(self.data_path),
                )
            return
        self.data_path.mkdir(mode=0o700, exist_ok=True)
        checkpoint = files(__package__).joinpath(f"bootstrap-{KAFKA_VERSION}.checkpoint").read_bytes()
        (self.data_path / "bootstrap.checkpoint").write_bytes(checkpoint)
        identity = f"version=1\nnode.id={NODE_ID}\ncluster.id={_kafka_uuid()}\ndirectory.id={_kafka_uuid()}\n"
        write_atomically(self.data_path / "meta.properties", identity)  # written last: its presence marks a formatted directory

    def write_configuration(self, port: int, controller_port: int, properties: Mapping[str, str]) -> None:
        """Write ``server.properties`` and the logging configuration; ``properties`` override the defaults, their listeners are added."""
        more = {name: f",{properties[name]}" for name in ("listeners", "advertised.listeners") if properties.get(name)}
        settings = {
            **DEFAULT_PROPERTIES,
            **properties,
            "process.roles": "broker,controller",
            "node.id": str(NODE_ID),
            "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}{more.get('listeners', '')}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}{more.get('advertised.listeners', '')}",
            "log.dirs": _escaped(str(self.data_path)),
        }
        write_atomically(self.properties_path, "".join(f"{name}={value}\n" for name, value in settings.items()))
        write_atomically(self.logging_path, _LOG4J2)

    def log_size(self) -> int:
        try:
            return self.log_path.stat().st_size
        except OSError:
            return 0

    def last_error(self, since: int = 0) -> str | None:
        """Return the line of the log (from byte ``since`` on) or of the JVM's output that best explains why the broker did not start."""
        lines = _read_tail(self.log_path, since)
        for at in range(len(lines) - 1, -1, -1):
            if " ERROR " in lines[at] or " FATAL " in lines[at]:
                trace = [line for line in lines[at + 1 :] if _EXCEPTION.match(line)]
                return " — ".join(dict.fromkeys([lines[at], *trace[:1], *trace[-1:]]))
        output = [line for line in _read_tail(self.jvm_output_path, 0) if line.strip()]
        return output[0] if output else None


def _kafka_uuid() -> str:
    """Return a random id in Kafka's format: 16 bytes, URL-safe base64 without padding, not starting with a dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")
        if not text.startswith("-"):
            return text


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _read_tail(path: Path, since: int, limit: int = 256 * 1024) -> list[str]:
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(since if since <= size else 0, size - limit))
            return stream.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []
