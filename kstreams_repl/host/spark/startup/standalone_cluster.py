"""`StandaloneCluster`: a Spark standalone cluster on loopback, to try and to test an application on executors with disks of their own.

Actors: a master and workers, JVMs of PySpark's own jars, each supervised as the embedded broker is (`host.kafka.embedded.broker`): they end
with the process that started them, however that ends. Each worker has a state directory, which its executors and their Python workers
inherit.
"""

from __future__ import annotations

import os
import re
import signal
import tempfile
import time
from pathlib import Path
from types import TracebackType

import psutil

from kstreams_repl.host.kafka.embedded.broker import SupervisedJvm
from kstreams_repl.host.kafka.embedded.layout import BrokerDirectory
from kstreams_repl.host.spark.slots.worker_pools import python_path
from kstreams_repl.system.errors import DeployError, IllegalStateError
from kstreams_repl.system.extras import extras
from kstreams_repl.system.java import spark_environment
from kstreams_repl.system.processes import ProcessMark

_START_SECONDS = 60.0
_DEPLOY = "org.apache.spark.deploy"


class StandaloneCluster:
    """A master and workers on this machine. `connect(spark=cluster.master)` deploys to them.

    Args:
        directory: for logs, work and state; None: a temporary directory, removed by `stop`.
        workers: how many; Spark starts one executor on each.
        slots: tasks that may run at once on each worker.

    Example:
        >>> with StandaloneCluster() as cluster:                               # doctest: +SKIP
        ...     session = ks.connect(spark=cluster.master)
    """

    def __init__(self, directory: Path | str | None = None, *, workers: int = 2, slots: int = 4) -> None:
        self._wanted_directory, self._count, self._slots = directory, workers, slots
        self._directory: Path | None = None
        self._daemons: list[SupervisedJvm] = []
        self._workers: dict[int, BrokerDirectory] = {}
        self._master = ""

    def __repr__(self) -> str:
        return f"StandaloneCluster({self._master or 'not started'}, {len(self._workers)} workers)"

    @property
    def master(self) -> str:
        """The address for `connect(spark=…)`.

        Raises:
            IllegalStateError: it has not been started.
        """
        if not self._master:
            raise IllegalStateError("the cluster has not been started", hint="call start() first")
        return self._master

    def start(self) -> StandaloneCluster:
        """Start it and return when all workers have registered. Do nothing if it is running.

        Raises:
            JavaNotFoundError: there is no Java 17 or newer.
            KStreamsError: PySpark is not installed.
            DeployError: a process did not start; the message has the end of its output.
        """
        if self._daemons:
            return self
        self._directory = Path(self._wanted_directory or tempfile.mkdtemp(prefix="kstreams-cluster-"))
        try:
            directory = self._run("master", "master.Master", "--port", "0")
            self._master = _await(directory, r"Starting Spark master at (spark://\S+)")
            for number in range(self._count):
                self._start_worker(number)
            for directory in self._workers.values():
                _await(directory, r"(Successfully registered) with master")
        except BaseException:
            self.stop()
            raise
        return self

    def add_worker(self, number: int) -> None:
        """Start one more worker, or another one under the number of one that was killed: it finds the same state directory.

        Raises:
            DeployError: it did not start.
        """
        self._start_worker(number)
        _await(self._workers[number], r"(Successfully registered) with master")

    def state(self, worker: int) -> Path:
        """Return the state directory of a worker's executors."""
        assert self._directory is not None
        return self._directory / f"state-{worker}"

    def executors(self, worker: int) -> list[psutil.Process]:
        """Return the executor processes of a worker, of which there is one for each connected session."""
        children: list[psutil.Process] = self._process(worker).children()
        return children

    def kill_executor(self, worker: int) -> int:
        """Kill (-9) a worker's executor process alone, and return its pid. Its Python workers end by themselves; Spark starts another."""
        executor = self.executors(worker)[0]
        executor.send_signal(signal.SIGKILL)
        return int(executor.pid)

    def kill(self, worker: int) -> None:
        """Kill (-9) a worker and everything it started, as when its host is lost."""
        process = self._process(worker)
        processes = [process, *process.children(recursive=True)]
        ended = [ProcessMark.of(each.pid) for each in processes]
        for each in processes:
            try:
                each.send_signal(signal.SIGKILL)
            except psutil.NoSuchProcess:
                continue
        deadline = time.monotonic() + 20
        for mark in ended:  # a zombie, whose parent has not asked for it yet, has ended
            mark.wait(deadline - time.monotonic())

    def stop(self) -> None:
        """Stop it, and remove a temporary directory. Do nothing if it is stopped."""
        while self._daemons:  # the master, which removes the directory, last
            self._daemons.pop().finish()
        self._workers.clear()
        self._master = ""

    def __enter__(self) -> StandaloneCluster:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _process(self, worker: int) -> psutil.Process:
        record = self._workers[worker].read_record()
        assert record is not None
        return psutil.Process(record.jvm_pid)

    def _start_worker(self, number: int) -> None:
        assert self._directory is not None
        size = ("--cores", str(self._slots), "--memory", "1g", "--work-dir", str(self._directory / f"work-{number}"))
        name = f"worker-{number}"
        self._workers[number] = self._run(name, "worker.Worker", *size, self.master, KSTREAMS_STATE=str(self.state(number)))

    def _run(self, name: str, main: str, *arguments: str, **environment: str) -> BrokerDirectory:
        """Start one daemon in a directory of its own; the first one's is the parent of all."""
        with extras():
            from pyspark.find_spark_home import _find_spark_home

        assert self._directory is not None
        home = _find_spark_home()
        settings = {
            **spark_environment(),
            "SPARK_HOME": home,
            "PYTHONPATH": python_path(os.environ.get("PYTHONPATH")),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_DIRS": str(self._directory / "spark-local"),  # also what a daemon that is killed leaves of Spark's own
            "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData",
            **environment,
        }
        command = ["env", *(f"{key}={value}" for key, value in settings.items()), str(Path(home) / "bin" / "spark-class")]
        command += [f"{_DEPLOY}.{main}", "--host", "127.0.0.1", "--webui-port", "0", *arguments]
        directory = BrokerDirectory(self._directory if name == "master" else self._directory / name)
        directory.create()
        remove = self._wanted_directory is None and name == "master"
        self._daemons.append(SupervisedJvm.start(directory, command, remove=remove))
        return directory


def _await(place: BrokerDirectory, pattern: str) -> str:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        running = place.is_locked()
        text = place.jvm_output_path.read_text(encoding="utf-8", errors="replace")
        found = re.search(pattern, text)
        if found is not None:
            return found.group(1)
        if not running or time.monotonic() > deadline:
            raise DeployError(
                f"the Spark daemon did not start: expected {pattern!r} in its output, got {text[-1000:]!r}",
                hint=f"read {place.jvm_output_path}; run ./kstreams doctor to check whether Java and Spark are compatible",
                path=str(place.jvm_output_path),
            )
        time.sleep(0.05)
