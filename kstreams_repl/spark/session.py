"""Gets or starts the Spark session that hosts applications.

Local by default, with more slots than cores (workers mostly wait): ``local[N,F]`` where F is how often a task may fail before
Spark gives up. Everything is on loopback and quiet.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import psutil

from kstreams_repl.errors import DeployError
from kstreams_repl.extras import extras
from kstreams_repl.java import shim_cache, spark_environment
from kstreams_repl.spark.jvm import start_jvm

LOCAL_SLOTS = 32
"""More than cores: instances mostly wait. A slot that is free costs nothing."""
TASK_FAILURES = 8
KEPT_LOGS = 10
RESERVED_SLOTS = 2
"""Kept free for the user's own Spark jobs."""

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
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=4 -XX:-UsePerfData",
}

_ROOT = str(Path(__file__).resolve().parents[2])
"""Where this package lies, for workers of a checkout that is not installed."""

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
"""On a master that is not local. An executor that does not answer is given up after half a minute instead of two."""

SHARED_POOL = "shared"
_EXECUTOR_SECONDS = 10.0
_IDLE_WORKER_SECONDS = 70.0


@dataclass(slots=True)
class _Pool:
    """Who holds a worker pool, for which application, how many workers it was used with, and since when it is free."""

    holder: object | None
    name: str
    workers: int
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class _Claim:
    name: str
    slots: int


_lock = threading.Lock()
_used: dict[object, _Claim] = {}
"""By holder: two of one application may overlap, when the second has taken it over and the first does not know yet."""
_pools: dict[str, _Pool] = {}


def get_session(master: str | None = None, *, slots: int = LOCAL_SLOTS, settings: Mapping[str, str] | None = None) -> Any:
    """The running Spark session, or a new one.

    Args:
        master: any Spark master; None: ``local[slots,8]``. Ignored when a session runs already.
        slots: how many Python workers may run at once on local Spark.
        settings: more Spark configuration, wins over the defaults here.

    Raises:
        JavaNotFoundError: there is no Java to start Spark with.
        DeployError: the JVM ended before Spark could be reached.
        KStreamsError: PySpark is not installed.
    """
    with extras():
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession

    with _lock:
        if _jvm_has_ended():
            _forget_jvm()
        active = SparkSession.getActiveSession()
        if active is None and SparkContext._active_spark_context is not None:
            active = SparkSession.builder.getOrCreate()
        if active is not None:
            return active
        address = master or f"local[{slots},{TASK_FAILURES}]"
        chosen = {**_SETTINGS, "spark.master": address, **(_CLUSTER_SETTINGS if _is_cluster(address) else {}), **(settings or {})}
        conf = SparkConf(loadDefaults=False)
        for name, value in chosen.items():
            conf.set(name, value)
        if SparkContext._gateway is None:
            own = spark_environment()
            environment = {**os.environ, **own, "PYTHONPATH": python_path(os.environ.get("PYTHONPATH"))}
            os.environ.update({name: own[name] for name in own if name != "JAVA_HOME"})  # PySpark reads them in this process, too
            _forget_old_logs()
            SparkContext._gateway = start_jvm(chosen, environment, spark_log())
            SparkContext._jvm = SparkContext._gateway.jvm
        session = SparkSession.builder.config(conf=conf).getOrCreate()
        _quiet(session)
        return session


def ensure_alive(session: Any) -> Any:
    """The session itself.

    Raises:
        DeployError: it was stopped, or its JVM has ended.
    """
    if session.sparkContext._jsc is None or _jvm_has_ended():
        raise DeployError(
            "the Spark session that was given has ended",
            hint="give a session that runs, or none: then one is started",
        )
    return session


def _quiet(session: Any) -> None:
    """Workers that are stopped, killed and retried are our business and reported by us; Spark's traces of them are noise."""
    log4j = session.sparkContext._jvm.org.apache.logging.log4j
    for name in _NOISY:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)


def python_path(before: str | None) -> str:
    """A ``PYTHONPATH`` on which this package is found."""
    return os.pathsep.join(filter(None, (_ROOT, before)))


def spark_log(pid: int | None = None) -> Path:
    """What the Spark JVM that a process started, and `print` in its workers, write to stderr; None: this process."""
    return shim_cache().parent / "logs" / f"spark-{os.getpid() if pid is None else pid}.log"


def _forget_old_logs() -> None:
    """Of processes that have ended the last few logs are kept."""
    ended = [path for path in spark_log().parent.glob("spark-[0-9]*.log") if not psutil.pid_exists(int(path.stem.removeprefix("spark-")))]
    with suppress(OSError):  # another process removes them, too
        for path in sorted(ended, key=lambda path: path.stat().st_mtime)[:-KEPT_LOGS]:
            path.unlink()


def stop_session() -> None:
    """Stop Spark and its JVM; a later `get_session` starts a new one. Does nothing when none runs."""
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
        # The JVM first: py4j hangs when it closes a callback connection (a listener of the user's) that is still being read.
        process = getattr(gateway, "proc", None)
        if process is not None:
            process.stdin.close()
            process.wait(20)
        with suppress(Exception):  # there is nobody left to say goodbye to
            gateway.shutdown()
        _forget_jvm()


def _jvm_has_ended() -> bool:
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    return process is not None and process.poll() is not None


def _forget_jvm() -> None:
    """What PySpark and we keep of a JVM that has ended."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkSession._instantiatedSession = None
    _used.clear()
    _pools.clear()


def is_cluster(session: Any) -> bool:
    """Whether instances run in executors apart from the driver: on any master but ``local`` and ``local[...]``."""
    return _is_cluster(session.sparkContext.master)


def _is_cluster(master: str) -> bool:
    return re.match(r"local(\[|$)", master) is None


def total_slots(session: Any) -> int:
    """How many tasks may run at once: N of ``local[N]``, else on the executors that have registered."""
    context = session.sparkContext
    found = re.match(r"local\[(\d+)", context.master)
    if found:
        return int(found.group(1))
    inner = context._jsc.sc()
    there = int(inner.maxNumConcurrentTasks(inner.resourceProfileManager().defaultResourceProfile()))
    grows = context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true"  # executors come when tasks wait for them
    return max(there, int(context.defaultParallelism)) if grows else there


def missing_slots(session: Any) -> int:
    """How many slots less there are than applications hold: more than 0 after a cluster has lost executors."""
    total = total_slots(session)
    with _lock:
        return max(0, sum(claim.slots for claim in _used.values()) - total)


def claim_slots(session: Any, name: str, count: int, holder: object) -> None:
    """Take slots for an application's instances; on a cluster, wait a while for executors that are still starting.

    Args:
        holder: who gives them back (`release_slots`). What another holder has for the same application does not count.

    Raises:
        DeployError: too few are free; Spark would queue the rest for ever, for an epoch never ends by itself.
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
                hint="stop an application, set num.stream.threads lower, or start Spark with more slots: more than cores is fine",
                needed=count,
                free=total - used - reserved,
            )
        _used[holder] = _Claim(name, count)


def _used_beside(name: str) -> int:
    return sum(claim.slots for claim in _used.values() if claim.name != name)


def release_slots(holder: object) -> None:
    """Give slots and pool back."""
    with _lock:
        _used.pop(holder, None)
        for pool in _pools.values():
            if pool.holder is holder:
                pool.holder, pool.since = None, time.monotonic()


def claim_pool(name: str, instances: int, holder: object, *, shared: bool = False) -> str:
    """The worker pool of an application: its own while it runs, then free for the next one; or the one that is shared.

    In a pool that is shared an epoch meets whatever worker was idle longest, and instances hop. A free pool is taken over: the one the
    application had last, where its stores may be warm, else one whose workers are gone (Spark ends idle ones after a minute), else one with
    as many workers as are needed; for its daemon, with all modules loaded, is still there.
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
