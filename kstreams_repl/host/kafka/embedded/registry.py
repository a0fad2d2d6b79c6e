"""`EmbeddedRegistry`: a real Schema Registry (Apicurio) as a child process that does not outlive its owner.

It answers the API of Confluent's Schema Registry. The application is fetched on first use (142 MB), verified by its hash and unpacked
next to the broker's jars. Its process is supervised as the broker's is (`broker`); it starts in six to eight seconds.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import TracebackType

from kstreams_repl.host.kafka.embedded.broker import PORT_TRIES, SupervisedJvm, free_port
from kstreams_repl.host.kafka.embedded.jars import APICURIO, Progress, cache_directory, ensure_jars
from kstreams_repl.host.kafka.embedded.layout import BrokerDirectory
from kstreams_repl.system.errors import EmbeddedBrokerError
from kstreams_repl.system.java import find_java

API = "/apis/ccompat/v7"
START_SECONDS = 90.0
_JVM_FLAGS = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+ExitOnOutOfMemoryError", "-XX:-UsePerfData")


class EmbeddedRegistry:
    """A Schema Registry on loopback for notebooks and tests.

    Args:
        directory: where to keep the schemas; None: a temporary directory, removed when it is stopped.
        port: the port; None: any free one.
        properties: system properties of the application that override the defaults.
        progress: called while the application is fetched; by default a progress bar in the terminal.

    Example:
        >>> with EmbeddedRegistry() as registry:                        # doctest: +SKIP
        ...     session = ks.connect(schema_registry=registry.url)
    """

    def __init__(
        self,
        directory: Path | str | None = None,
        *,
        port: int | None = None,
        properties: Mapping[str, str] | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._wanted_directory, self._port = directory, port
        self._properties, self._progress = dict(properties or {}), progress
        self._directory: BrokerDirectory | None = None
        self._process: SupervisedJvm | None = None

    @property
    def url(self) -> str:
        """Address for ``schema.registry.url``; unchanged when it is started again."""
        if self._port is None:
            raise EmbeddedBrokerError("the registry has not been started", hint="call start() first")
        return f"http://127.0.0.1:{self._port}{API}"

    @property
    def is_alive(self) -> bool:
        """Whether its process is alive."""
        return self._process is not None and self._directory is not None and self._directory.is_locked()

    @property
    def pid(self) -> int:
        """The process id of its JVM, for fault tests."""
        record = None if self._directory is None else self._directory.read_record()
        if record is None:
            raise EmbeddedBrokerError("the registry has not been started", hint="call start() first")
        return record.jvm_pid

    def start(self) -> EmbeddedRegistry:
        """Start it and return when it serves requests. Do nothing if it is running.

        Raises:
            JavaNotFoundError: there is no Java 17 or newer.
            EmbeddedBrokerError: the application cannot be fetched, or did not start; the message has the last line of its output.
        """
        if self.is_alive:
            return self
        java, application = find_java(), _unpacked(self._progress)
        if self._process is not None:  # it ended by itself
            self._process.finish(keep=True)
        if self._directory is None:
            where = self._wanted_directory or tempfile.mkdtemp(prefix="kstreams-registry-")
            self._directory = BrokerDirectory(Path(where))
        directory = self._directory
        directory.create()
        for attempt in range(PORT_TRIES):
            port = self._port or free_port()
            if self._runs(directory, port, [str(java.executable), *_JVM_FLAGS], application, last=attempt == PORT_TRIES - 1):
                self._port = port
                return self
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _runs(self, directory: BrokerDirectory, port: int, java: list[str], application: Path, *, last: bool) -> bool:
        """Start it. Return False if another process took the port meanwhile and another port should be tried."""
        settings = {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": str(port),
            "REGISTRY_DATASOURCE_URL": f"jdbc:h2:file:{directory.path / 'schemas'};WRITE_DELAY=0",
            **self._properties,
        }
        command = [*java, *(f"-D{name}={value}" for name, value in settings.items()), "-jar", str(application)]
        self._process = SupervisedJvm.start(directory, command, port=port, remove=self._wanted_directory is None)
        deadline = time.monotonic() + START_SECONDS
        while not (directory.is_locked() and _answers(port)):
            if not directory.is_locked() or time.monotonic() > deadline:
                text = directory.jvm_output_path.read_text(errors="replace").strip()
                self._process.finish(keep=True)
                self._process = None
                if "already bound" in text and self._port is None and not last:
                    return False
                raise EmbeddedBrokerError(
                    f"the embedded Schema Registry did not start: {text.splitlines()[-1] if text else 'no output'}",
                    hint=f"read {directory.jvm_output_path}",
                    path=str(directory.jvm_output_path),
                )
            time.sleep(0.05)
        return True

    def stop(self) -> None:
        """Stop it and remove a temporary directory. Do nothing if it is stopped."""
        if self._process is not None:
            self._process.finish()
            self._process = None
        if self._wanted_directory is None:
            self._directory = None

    def __enter__(self) -> EmbeddedRegistry:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


def _unpacked(progress: Progress | None) -> Path:
    """Return the application's jar, unpacked; fetch and unpack what is missing."""
    home = cache_directory() / f"{APICURIO.artifact}-{APICURIO.version}"
    runner = home / f"{APICURIO.artifact}-{APICURIO.version}-runner.jar"
    if runner.exists():
        return runner
    (archive,) = ensure_jars(jars=(APICURIO,), progress=progress)
    scratch = Path(tempfile.mkdtemp(prefix=".registry-", dir=home.parent))
    try:
        with tarfile.open(archive) as packed:
            packed.extractall(scratch, filter="data")
        try:
            os.rename(scratch, home)
        except OSError:  # another process was first
            if not runner.exists():
                raise
        archive.unlink(missing_ok=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return runner


def _answers(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", f"{API}/subjects")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
