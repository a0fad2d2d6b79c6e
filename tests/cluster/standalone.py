"""A standalone Spark cluster on loopback, from pyspark's own jars: a master and workers as processes of the test.

Each worker has a state directory of its own (``KSTREAMS_STATE``), which its executors and their Python workers inherit.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pyspark

from kstreams_repl.java import spark_environment

_SECONDS = 60.0
_ROOT = str(Path(__file__).resolve().parents[2])


class SparkCluster:
    """Start a master and `workers` workers, each with some slots; `stop` ends what is left of them.

    Args:
        slots: tasks that may run at once on each worker.
    """

    def __init__(self, directory: Path, *, workers: int = 2, slots: int = 4) -> None:
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        self.workers: list[subprocess.Popen[bytes]] = []
        self._slots = slots
        log = self._start(
            "master", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"
        )
        self.master = _await(log, r"Starting Spark master at (spark://\S+)")
        for number in range(workers):
            self.add_worker(number)

    def add_worker(self, number: int) -> None:
        """Start one more worker, or one anew under a number that was used before: it finds the same state directory."""
        log = self._start(
            f"worker-{number}",
            "org.apache.spark.deploy.worker.Worker",
            "--host",
            "127.0.0.1",
            "--webui-port",
            "0",
            "--cores",
            str(self._slots),
            "--memory",
            "1g",
            "--work-dir",
            str(self._directory / f"work-{number}"),
            self.master,
            state=self.state(number),
        )
        self.workers.append(self._processes[-1])
        _await(log, r"(Successfully registered) with master")

    def state(self, number: int) -> Path:
        """The state directory of a worker's executors."""
        return self._directory / f"state-{number}"

    def executors(self, worker: int) -> list[psutil.Process]:
        """The executor processes of a worker."""
        return psutil.Process(self.workers[worker].pid).children()

    def kill(self, worker: int) -> None:
        """kill -9 of a worker and everything it started, as when its host goes."""
        process = psutil.Process(self.workers[worker].pid)
        for each in [process, *process.children(recursive=True)]:
            try:
                each.send_signal(signal.SIGKILL)
            except psutil.NoSuchProcess:
                continue
        self.workers[worker].wait(20)

    def kill_executor(self, worker: int) -> int:
        """kill -9 of a worker's executor process alone; its Python workers end by themselves. Returns its pid."""
        executor = self.executors(worker)[0]
        executor.send_signal(signal.SIGKILL)
        return executor.pid

    def stop(self) -> None:
        for process in reversed(self._processes):
            if process.poll() is None:
                process.terminate()
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(20)

    def _start(self, name: str, main: str, *arguments: str, state: Path | None = None) -> Path:
        environment = {**os.environ, **spark_environment()}
        environment["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (_ROOT, environment.get("PYTHONPATH"))))
        environment["SPARK_DAEMON_MEMORY"] = "256m"
        # what a daemon or an executor that is killed leaves of Spark's own goes with the test's directory
        environment["SPARK_LOCAL_DIRS"] = str(self._directory / "spark-local")
        environment["SPARK_DAEMON_JAVA_OPTS"] = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"
        if state is not None:
            environment["KSTREAMS_STATE"] = str(state)
        log = self._directory / f"{name}-{len(self._processes)}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [str(Path(pyspark.__file__).parent / "bin" / "spark-class"), main, *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(process)
        return log


def _await(log: Path, pattern: str) -> str:
    deadline = time.monotonic() + _SECONDS
    while True:
        text = log.read_text(encoding="utf-8", errors="replace")
        found = re.search(pattern, text)
        if found is not None:
            return found.group(1)
        assert time.monotonic() < deadline, f"never said {pattern!r}:\n{text[-3000:]}"
        time.sleep(0.05)
