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
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import psutil

from kstreams_repl.class_archives import archive_path, making_archives, sharing_flags
from kstreams_repl.errors import DeployError
from kstreams_repl.extras import extras
from kstreams_repl.java import find_java, shim_cache, spark_environment
from kstreams_repl.spark.jvm import start_jvm

LOCAL_SLOTS = 32
"""More than cores: instances mostly wait, and a free slot costs nothing."""
TASK_FAILURES = 8
KEPT_LOGS = 10
RESERVED_SLOTS = 2
"""Number of slots kept free for the user's own Spark jobs."""

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
    "spark.python.daemon.module": "kstreams_repl.spark.daemon",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    "spark.sql.streaming.stopTimeout": "20s",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC {_LATE_C2} -XX:-UsePerfData",
}

_ROOT = str(Path(__file__).resolve().parents[2])
"""The directory of this package, for workers of a checkout that is not installed."""

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
    "spark.executorEnv.PYTHONPATH": _ROOT,
    "spark.task.maxFailures": str(TASK_FAILURES),
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:-UsePerfData",
    "spark.executor.heartbeatInterval": "3s",
    "spark.network.timeout": "30s",
    "spark.network.timeoutInterval": "10s",
    "spark.scheduler.minRegisteredResourcesRatio": "0.0",
}
"""Settings for non-local masters. An unresponsive executor is removed after half a minute instead of two."""

POOL_VARIABLE = "KSTREAMS_POOL"
_SOCKET_NAME, _MOST_SOCKET_PATH = 43, 105
"""Number of characters of ``/.<uuid>.sock``, and the maximal length of a socket path."""

SHARED_POOL = "shared"
_EXECUTOR_SECONDS = 10.0
_IDLE_WORKER_SECONDS = 70.0
ARCHIVE_SECONDS = 120.0


@dataclass(slots=True)
class _Pool:
    """The holder of a worker pool, its application, its number of workers, and since when it is free."""

    holder: object | None
    name: str
    workers: int
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class _Claim:
    name: str
    slots: int


_lock = threading.Lock()
_pool_lock = threading.Lock()
_wanted = threading.Event()
"""Set when a caller waits for Spark or has it: starting workers in advance would then get in the way."""
_used: dict[object, _Claim] = {}
"""By holder, because two claims of one application can overlap: after a takeover the first driver may not know of it yet."""
_pools: dict[str, _Pool] = {}


def get_session(
    master: str | None = None,
    *,
    slots: int = LOCAL_SLOTS,
    settings: Mapping[str, str] | None = None,
    cancelled: threading.Event | None = None,
) -> Any:
    """Return the running Spark session, or start one.

    Args:
        master: any Spark master; None: ``local[slots,8]``. Ignored when a session is running.
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
        address = master or f"local[{slots},{TASK_FAILURES}]"
        apart = _CLUSTER_SETTINGS if _is_cluster(address) else own_user_only()
        chosen = {**_SETTINGS, "spark.master": address, **apart, **(settings or {})}
        conf = SparkConf(loadDefaults=False)
        for name, value in chosen.items():
            conf.set(name, value)
        if SparkContext._gateway is None:
            own = spark_environment()
            environment = {**os.environ, **own, "PYTHONPATH": python_path(os.environ.get("PYTHONPATH"))}
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


def ensure_alive(session: Any) -> Any:
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


def python_path(before: str | None) -> str:
    """Return a ``PYTHONPATH`` on which this package is found."""
    return os.pathsep.join(filter(None, (_ROOT, before)))


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
    return found | {"spark.python.unix.domain.socket.enabled": "true", "spark.python.unix.domain.socket.dir": str(place)}


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


def is_used() -> bool:
    """Return whether an application holds slots."""
    with _lock:
        return bool(_used)


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
    _used.clear()
    _pools.clear()


def is_cluster(session: Any) -> bool:
    """Return whether instances run in executors apart from the driver: on any master but ``local`` and ``local[...]``."""
    return _is_cluster(session.sparkContext.master)


def _is_cluster(master: str) -> bool:
    return re.match(r"local(\[|$)", master) is None


def total_slots(session: Any) -> int:
    """Return how many tasks may run at once: N of ``local[N]``, else the slots of all registered executors."""
    context = session.sparkContext
    found = re.match(r"local\[(\d+)", context.master)
    if found:
        return int(found.group(1))
    inner = context._jsc.sc()
    there = int(inner.maxNumConcurrentTasks(inner.resourceProfileManager().defaultResourceProfile()))
    grows = context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true"  # executors are added when tasks wait
    return max(there, int(context.defaultParallelism)) if grows else there


def missing_slots(session: Any) -> int:
    """Return by how many slots the applications' claims exceed the available ones: > 0 after a cluster has lost executors."""
    total = total_slots(session)
    with _lock:
        return max(0, sum(claim.slots for claim in _used.values()) - total)


def claim_slots(session: Any, name: str, count: int, holder: object) -> None:
    """Claim slots for an application's instances; on a cluster, wait some time for executors that are still starting.

    Args:
        holder: the object that releases them (`release_slots`). Claims of another holder for the same application are not counted.

    Raises:
        DeployError: too few are free; Spark would queue the rest forever, because an epoch does not end by itself.
    """
    deadline = time.monotonic() + (_EXECUTOR_SECONDS if is_cluster(session) else 0.0)
    while time.monotonic() < deadline:
        with _lock:
            used = _used_beside(name)
        if used + count + RESERVED_SLOTS <= total_slots(session):
            break
        time.sleep(0.05)
    with _lock:
        total = total_slots(session)
        reserved = RESERVED_SLOTS if total > RESERVED_SLOTS else 0
        used = _used_beside(name)
        if used + count + reserved > total:
            raise DeployError(
                f"{name} needs {count} Spark slots and {max(0, total - used - reserved)} are free "
                f"({total} in all, {used} held by other applications, {reserved} kept for your own Spark jobs)",
                hint="stop an application, lower num.stream.threads, or start Spark with more slots (more than cores is fine)",
                needed=count,
                free=total - used - reserved,
            )
        _used[holder] = _Claim(name, count)


def _used_beside(name: str) -> int:
    return sum(claim.slots for claim in _used.values() if claim.name != name)


def release_slots(holder: object) -> None:
    """Release the slots and the worker pool of a holder."""
    with _lock:
        _used.pop(holder, None)
        for pool in _pools.values():
            if pool.holder is holder:
                pool.holder, pool.since = None, time.monotonic()


def claim_pool(name: str, instances: int, holder: object, *, shared: bool = False) -> str:
    """Return the worker pool of an application: its own while it runs, afterwards free for the next one; or the shared one.

    In a shared pool an epoch gets the worker that was idle longest, so instances move between workers. Of the free pools it takes the
    application's last one, where its stores may be warm, else one whose workers have ended (Spark ends idle ones after a minute), else
    one with the required number of workers; their daemon, with all modules loaded, is still running.
    """
    if shared:
        return SHARED_POOL
    with _lock:
        now = time.monotonic()
        free = {number: pool for number, pool in _pools.items() if pool.holder is None or pool.holder is holder}
        own = (number for number, pool in free.items() if pool.name == name and pool.workers == instances)
        cold = (number for number, pool in free.items() if now - pool.since > _IDLE_WORKER_SECONDS)
        alike = (number for number, pool in free.items() if pool.workers == instances)
        chosen = next(chain(own, cold, alike), f"pool-{len(_pools)}")
        _pools[chosen] = _Pool(holder, name, instances)
        return chosen


def offer_pool(workers: int) -> str:
    """Return a pool for workers started in advance, used by the next application with this number of instances."""
    with _lock:
        chosen = f"pool-{len(_pools)}"
        _pools[chosen] = _Pool(None, "", workers, time.monotonic())
        return chosen


@contextmanager
def pool_of_functions(session: Any, pool: str) -> Iterator[None]:
    """Create the functions inside the block for one worker pool: Spark distinguishes pools by the function's environment variables.

    The same variables contain this package's directory, so that workers of a session started elsewhere find it too.
    """
    environment = session.sparkContext.environment
    with _pool_lock:
        before = {name: environment.get(name) for name in (POOL_VARIABLE, "PYTHONPATH")}
        environment[POOL_VARIABLE] = pool
        environment["PYTHONPATH"] = python_path(before["PYTHONPATH"])
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del environment[name]
                else:
                    environment[name] = value
