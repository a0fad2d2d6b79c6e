"""Start Spark's JVM and connect to it.

PySpark can start it too, but not in a way that suits a notebook: a kernel interrupted or killed during the two seconds of the start leaves
a directory behind, and if only that directory is removed, the JVM runs forever (it cannot write its port file, and its gateway thread
keeps it alive).

Rules: the JVM runs in its own process session, so that Ctrl-C, which goes to the whole foreground group, does not reach it. It ends with
its driver, because it reads the driver's pipe. The directory of its port file is removed when the start is over or, if the driver is
killed before that, when the JVM has ended as well.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kstreams_repl.host.spark.startup.fork_server import forking
from kstreams_repl.system.errors import DeployError

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

_SWEEP = 'cat >/dev/null; rm -rf -- "$1"'
_POLL_SECONDS = 0.02


def start_jvm(
    settings: Mapping[str, str], environment: Mapping[str, str], log: Path, cancelled: threading.Event | None = None
) -> JavaGateway:
    """Return Spark's JVM and PySpark's gateway to it; closing ``stdin`` of the gateway's process ``proc`` ends the JVM.

    Args:
        settings: the complete Spark configuration.
        environment: environment variables of the JVM and, through it, of its Python workers.
        log: the file for stderr of the JVM and the workers; overwritten.
        cancelled: when set, the JVM is killed.

    Raises:
        DeployError: the JVM ended before it could be reached, or its start was cancelled.
    """
    log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (
        _directory_until_both_ended() as (directory, held),
        log.open("wb") as stderr,
        forking(environment, stderr) as server,
    ):
        address_file = directory / "gateway"
        process = subprocess.Popen(
            _command(settings),
            env={**environment, "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(address_file)},
            stdin=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
            pass_fds=(held, *server),
        )
        try:
            while not address_file.exists():
                if cancelled is not None and cancelled.is_set():
                    raise DeployError("the start of Spark was cancelled")
                if process.poll() is not None:
                    raise DeployError(
                        f"the JVM of Spark ended with exit code {process.returncode} before it was ready",
                        hint=f"read its output in {log}; run ./kstreams doctor to check whether Java and Spark are compatible",
                    )
                time.sleep(_POLL_SECONDS)
            return _connect(address_file.read_bytes(), process)
        except BaseException:  # also on interrupts: only this function knows the process
            process.kill()
            process.communicate()
            raise


def _command(settings: Mapping[str, str]) -> list[str]:
    from pyspark.find_spark_home import _find_spark_home

    submit = str(Path(_find_spark_home()) / "bin" / "spark-submit")
    settled = (part for name, value in settings.items() for part in ("--conf", f"{name}={value}"))
    return [submit, *settled, *shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))]


def _connect(answer: bytes, process: subprocess.Popen[bytes]) -> JavaGateway:
    """Return PySpark's gateway to a running JVM, whose port it reads from the environment. `answer`: port and secret as Java wrote them."""
    from pyspark.java_gateway import launch_gateway

    address = {"PYSPARK_GATEWAY_PORT": str(int.from_bytes(answer[:4], "big")), "PYSPARK_GATEWAY_SECRET": answer[8:].decode()}
    os.environ.update(address)
    try:
        gateway = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        for name in address:
            del os.environ[name]
    gateway.proc = process
    return gateway


@contextmanager
def _directory_until_both_ended() -> Iterator[tuple[Path, int]]:
    """Yield a directory that is removed at the end of the block, or when this process and all that inherited the descriptor have ended.

    A shell does the latter: it reads a pipe whose writing end is that descriptor.
    """
    directory = Path(tempfile.gettempdir()) / f"kstreams-spark-{uuid.uuid4().hex}"
    reading, held = os.pipe()
    try:
        sweeper = subprocess.Popen(["sh", "-c", _SWEEP, "sh", str(directory)], stdin=reading, start_new_session=True)
    finally:
        os.close(reading)
    try:
        directory.mkdir(mode=0o700)
        yield directory, held
    finally:
        with suppress(ProcessLookupError):
            os.killpg(sweeper.pid, 15)  # the shell and its child
        sweeper.wait()
        os.close(held)
        shutil.rmtree(directory, ignore_errors=True)
