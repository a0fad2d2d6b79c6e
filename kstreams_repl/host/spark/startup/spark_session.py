"""Get or start the Spark session that hosts applications.

Local by default, with more slots than cores (workers mostly wait): ``local[N,F]``, where F is the number of failures of a task after which
Spark gives up. All ports are on loopback, and Spark's log is quiet.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from kstreams_repl.host.spark.slots.spark_slots import LOCAL_SLOTS, forget_reservations, is_cluster_address
from kstreams_repl.host.spark.slots.worker_pools import PACKAGE_ROOT, forget_pools, python_path
from kstreams_repl.host.spark.startup.fork_server import DAEMON_MODULE, PATH_VARIABLE
from kstreams_repl.host.spark.startup.jvm import start_jvm
from kstreams_repl.system.class_archives import archive_path, making_archives, sharing_flags
from kstreams_repl.system.errors import DeployError
from kstreams_repl.system.extras import extras
from kstreams_repl.system.forks import when_forked
from kstreams_repl.system.java import find_java, shim_cache, spark_environment
from kstreams_repl.system.types import SparkMaster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession as SparkSession

TASK_FAILURES = 8
KEPT_LOGS = 10

_LATE_C2 = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=20000"
    " -XX:Tier4CompileThreshold=100000 -XX:Tier4BackEdgeThreshold=400000"
)
"""JVM flags: optimise only code that runs ten times as often as by default. The first result then costs a third less of Spark's
processor time (9.3 s instead of 14.0), and a user's long jobs are still optimised.
"""
_SETTINGS = {
    "spark.app.name": "kstreams-repl",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.speculation": "false",
    "spark.driver.memory": "768m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.scheduler.mode": "FAIR",
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": DAEMON_MODULE,
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    "spark.sql.streaming.stopTimeout": "20s",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.extraJavaOptions": f"-Xms96m -XX:+UseSerialGC {_LATE_C2} -XX:-UsePerfData",
}

_ELSEWHERE = {name: value for name, value in _SETTINGS.items() if name not in ("spark.driver.host", "spark.driver.bindAddress")}
"""For a master on another host, whose executors must reach the driver."""

_NOISY = (
    "org.apache.spark.api.python",
    "org.apache.spark.executor",
    "org.apache.spark.scheduler",
    "org.apache.spark.sql.execution.datasources.v2",
    "org.apache.spark.sql.execution.python",
    "org.apache.spark.sql.execution.streaming",
    "org.apache.spark.util.Utils",
)

_CLUSTER_SETTINGS = {
    "spark.executorEnv.PYTHONPATH": PACKAGE_ROOT,
    "spark.task.maxFailures": str(TASK_FAILURES),
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:-UsePerfData",
    "spark.executor.heartbeatInterval": "3s",
    "spark.network.timeout": "30s",
    "spark.network.timeoutInterval": "10s",
    "spark.scheduler.minRegisteredResourcesRatio": "0.0",
}
"""Settings for non-local masters. An unresponsive executor is removed after half a minute instead of two."""

_SOCKETS = "spark.python.unix.domain.socket.dir"
_SOCKET_NAME, _MOST_SOCKET_PATH = 43, 105
"""Number of characters of ``/.<uuid>.sock``, and the maximal length of a socket path."""

ARCHIVE_SECONDS = 120.0


_lock = threading.Lock()
_wanted = threading.Event()
"""Set when a caller waits for Spark or has it: starting workers in advance would then get in the way."""


def _is_here(address: str) -> bool:
    return not is_cluster_address(address) or re.match(r"local-cluster\[|spark://(127\.|localhost)", address) is not None


def get_session(
    master: SparkMaster = None,
    *,
    slots: int = LOCAL_SLOTS,
    settings: Mapping[str, str] | None = None,
    cancelled: threading.Event | None = None,
) -> SparkSession:
    """Return the running Spark session, or start one.

    Args:
        master: any Spark master, or settings of Spark with it (``spark.master``); None: ``local[slots,8]``. Ignored when a session is
            running.
        slots: number of Python workers that may run at once on local Spark.
        settings: additional Spark configuration, which overrides the defaults here.
        cancelled: when set, abandons a JVM that is still starting.

    Raises:
        JavaNotFoundError: no Java was found.
        DeployError: the JVM ended before Spark could be reached.
        KStreamsError: PySpark is not installed.
    """
    with extras():
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession

    if cancelled is None:
        _wanted.set()
    with _lock:
        if _jvm_has_ended():
            _forget_jvm()
        active = SparkSession.getActiveSession()
        if active is None and SparkContext._active_spark_context is not None:
            active = SparkSession.builder.getOrCreate()
        if active is not None:
            return active
        given = {"spark.master": master} if isinstance(master, str) else {**(master or {})}
        address = given.setdefault("spark.master", f"local[{slots},{TASK_FAILURES}]")
        apart = _CLUSTER_SETTINGS if is_cluster_address(address) else own_user_only()
        chosen = {**(_SETTINGS if _is_here(address) else _ELSEWHERE), **apart, **given, **(settings or {})}
        conf = SparkConf(loadDefaults=False)
        for name, value in chosen.items():
            conf.set(name, value)
        if SparkContext._gateway is None:
            own = spark_environment()
            environment = {**os.environ, **own, "PYTHONPATH": python_path(os.environ.get("PYTHONPATH"))}
            if _SOCKETS in apart and chosen["spark.python.daemon.module"] == DAEMON_MODULE:
                environment[PATH_VARIABLE] = str(Path(apart[_SOCKETS]) / "fork-server")
            os.environ.update({name: own[name] for name in own if name != "JAVA_HOME"})  # PySpark reads them in this process too
            _forget_old_logs()
            SparkContext._gateway = start_jvm(_with_archive(chosen), environment, spark_log(), cancelled)
            SparkContext._jvm = SparkContext._gateway.jvm
        session = SparkSession.builder.config(conf=conf).getOrCreate()
        _quiet(session)
        return session


def _with_archive(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings with the flags that make the JVM start from its class archive."""
    from pyspark.find_spark_home import _find_spark_home

    archive = archive_path("spark", find_java(), [Path(_find_spark_home()) / "jars"])
    name = "spark.driver.extraJavaOptions"
    return {**settings, name: " ".join([settings.get(name, ""), *sharing_flags(archive)])}


def ensure_alive(session: SparkSession) -> SparkSession:
    """Return the session if it is alive.

    Raises:
        DeployError: it was stopped, or its JVM has ended.
    """
    if session.sparkContext._jsc is None or _jvm_has_ended():
        raise DeployError(
            "the given Spark session has ended",
            hint="pass a running session, or none to start one",
        )
    return session


def _quiet(session: Any) -> None:
    """Silence Spark's stack traces of stopped, killed and retried workers, which this package reports itself."""
    log4j = session.sparkContext._jvm.org.apache.logging.log4j
    for name in _NOISY:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)


def spark_log(pid: int | None = None) -> Path:
    """Return the stderr log of a process's Spark JVM and of `print` in its workers; ``pid`` None: this process."""
    return shim_cache().parent / "logs" / f"spark-{os.getpid() if pid is None else pid}.log"


def own_user_only() -> dict[str, str]:
    """Return settings that protect a local Spark from other users of this machine: the JVM's ports require a generated secret, and Python
    workers use socket files in a directory of this user. If its path is too long for a socket, they use ports.
    """
    found = {"spark.authenticate": "true"}
    place = shim_cache().parent / "sockets" / str(os.getpid())
    if len(os.fsencode(place)) + _SOCKET_NAME > _MOST_SOCKET_PATH:
        return found
    try:
        for old in place.parent.glob("[0-9]*"):  # left behind by killed processes
            if not psutil.pid_exists(int(old.name)):
                shutil.rmtree(old, ignore_errors=True)
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        place.chmod(0o700)
    except (OSError, ValueError):
        return found
    return found | {"spark.python.unix.domain.socket.enabled": "true", _SOCKETS: str(place)}


def _forget_old_logs() -> None:
    """Delete old logs of ended processes, except the latest few."""
    ended = [path for path in spark_log().parent.glob("spark-[0-9]*.log") if not psutil.pid_exists(int(path.stem.removeprefix("spark-")))]
    with suppress(OSError):  # another process may remove them at the same time
        for path in sorted(ended, key=lambda path: path.stat().st_mtime)[:-KEPT_LOGS]:
            path.unlink()


def stop_session() -> None:
    """Stop Spark and its JVM; a later `get_session` starts a new one. Do nothing if none is running."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    with _lock:
        if _jvm_has_ended():
            _forget_jvm()
        session = SparkSession.getActiveSession()
        if session is not None:
            session.stop()
        elif SparkContext._active_spark_context is not None:
            SparkContext._active_spark_context.stop()
        gateway = SparkContext._gateway
        if gateway is None:
            return
        # The JVM first: py4j hangs when it closes a callback connection (a user's listener) that is still being read.
        process = getattr(gateway, "proc", None)
        if process is not None:
            process.stdin.close()
            process.wait(ARCHIVE_SECONDS if making_archives() else 20)
        with suppress(Exception):  # the JVM has already ended
            gateway.shutdown()
        _forget_jvm()


def runs_already() -> bool:
    """Return whether this process has a Spark session or is starting one."""
    pyspark = sys.modules.get("pyspark")
    return _lock.locked() or (pyspark is not None and pyspark.SparkContext._active_spark_context is not None)


def is_wanted() -> bool:
    """Return whether a caller other than the prestart has requested the session."""
    return _wanted.is_set()


def end_jvm() -> None:
    """End Spark's JVM, also while another thread is starting a session, which then gets an error. The JVM removes its directories."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        process.stdin.close()
        process.wait(20)


def _jvm_has_ended() -> bool:
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    return process is not None and process.poll() is not None


_connections: list[Any] = []
"""PySpark's to the JVM while this process forks. A child collects at once what only other threads had, and would shut down the sockets that
it shares with its parent."""


def _keep_connections() -> None:
    pyspark = sys.modules.get("pyspark")
    gateway = None if pyspark is None else pyspark.SparkContext._gateway
    _connections[:] = () if gateway is None else gateway._gateway_client.deque


def _leave_to_the_parent(_: object) -> None:
    """Forget the parent's JVM in a forked child, and close the copies of its sockets without shutting them down."""
    global _lock
    _lock = threading.Lock()
    for connection in _connections:
        connection.socket, shared = None, connection.socket
        if shared is not None:
            os.close(shared.detach())
    if "pyspark" in sys.modules:
        _forget_jvm()
    _connections.clear()


os.register_at_fork(before=_keep_connections, after_in_parent=_connections.clear)
when_forked(_wanted, _leave_to_the_parent)


def _forget_jvm() -> None:
    """Remove the references of PySpark and of this module to a JVM that has ended."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        process.stdin.close()
    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkSession._instantiatedSession = None
    _wanted.clear()
    forget_reservations()
    forget_pools()
