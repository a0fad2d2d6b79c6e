"""Starts the JVM of Spark and connects to it.

PySpark would start it, too, but in a way that a notebook cannot live with: a kernel that is interrupted or killed in the two seconds in
which the JVM starts leaves a directory behind, and when only that directory goes, the JVM stays for ever (it cannot write where it
listens, and its gateway thread keeps it alive).

Rules: the JVM has a process session of its own, so that Ctrl-C, which goes to the whole foreground group, does not reach it; it ends
with its driver, because it reads the driver's pipe; the directory in which it tells its port goes when the start is over, or, if the
driver is killed before that, when the JVM has ended as well.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kstreams_repl.errors import DeployError

_SWEEP = 'cat >/dev/null; rm -rf -- "$1"'
_POLL_SECONDS = 0.02


def start_jvm(settings: Mapping[str, str], environment: Mapping[str, str], log: Path) -> Any:
    """A JVM of Spark's, and PySpark's gateway to it; its ``proc`` is the process, whose closed ``stdin`` ends the JVM.

    Args:
        settings: Spark configuration, whole.
        environment: of the JVM and, through it, of its Python workers.
        log: what the JVM and the workers write to stderr; begun anew.

    Raises:
        DeployError: the JVM ended before it could be reached.
    """
    log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _directory_until_both_ended() as (directory, held), log.open("wb") as stderr:
        told = directory / "gateway"
        process = subprocess.Popen(
            _command(settings),
            env={**environment, "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(told)},
            stdin=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
            pass_fds=(held,),
        )
        try:
            while not told.exists():
                if process.poll() is not None:
                    raise DeployError(
                        f"the JVM of Spark ended with exit code {process.returncode} before it was ready",
                        hint=f"what it said is in {log}; ./kstreams doctor tells whether Java and Spark fit together",
                    )
                time.sleep(_POLL_SECONDS)
            return _connect(told.read_bytes(), process)
        except BaseException:  # an interrupt, too: nobody else knows this process
            process.kill()
            process.communicate()
            raise


def _command(settings: Mapping[str, str]) -> list[str]:
    from pyspark.find_spark_home import _find_spark_home

    submit = str(Path(_find_spark_home()) / "bin" / "spark-submit")
    settled = (part for name, value in settings.items() for part in ("--conf", f"{name}={value}"))
    return [submit, *settled, *shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))]


def _connect(told: bytes, process: subprocess.Popen[bytes]) -> Any:
    """PySpark's own gateway: it takes the port of a JVM that runs from the environment. Told: port and secret, as Java writes them."""
    from pyspark.java_gateway import launch_gateway

    address = {"PYSPARK_GATEWAY_PORT": str(int.from_bytes(told[:4], "big")), "PYSPARK_GATEWAY_SECRET": told[8:].decode()}
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
    """A directory that is removed at the end of the block, or when this process and all who inherited the descriptor have ended.

    The second is done by a shell that reads a pipe whose writing end is that descriptor.
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
            os.killpg(sweeper.pid, 15)  # the shell and what it waits for
        sweeper.wait()
        os.close(held)
        shutil.rmtree(directory, ignore_errors=True)
