"""Spark's task slots: how many there are, and which applications have reserved them.

A driver reserves the slots of all instances before it starts a query: Spark would queue an instance without a slot forever, because an
epoch does not end by itself.
"""

from __future__ import annotations

import os
import re
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kstreams_repl.system.errors import DeployError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_SLOTS = 32
"""Of a Spark that is started here; more than cores: instances mostly wait, and a free slot costs nothing."""
USER_SLOTS = 2
"""Number of slots kept free for the user's own Spark jobs."""
_EXECUTOR_SECONDS = 10.0
_UNLIMITED = 2**31 - 1
"""Spark's default of ``spark.dynamicAllocation.maxExecutors``."""


@dataclass(frozen=True, slots=True)
class _Reservation:
    name: str
    slots: int


_lock = threading.Lock()
_reservations: dict[object, _Reservation] = {}
"""By holder, because two reservations of one application can overlap: after a takeover the first driver may not know of it yet."""


def is_cluster(session: SparkSession) -> bool:
    """Return whether instances run in executors apart from the driver: on any master but ``local`` and ``local[...]``."""
    return is_cluster_address(str(session.sparkContext.master))


def is_cluster_address(master: str) -> bool:
    """Return the same for a master's address."""
    return re.match(r"local(\[|$)", master) is None


def is_used() -> bool:
    """Return whether an application holds slots."""
    with _lock:
        return bool(_reservations)


def slots_there(session: SparkSession) -> int:
    """Return how many tasks may run at once: N of ``local[N]``, else the slots of all registered executors."""
    context = session.sparkContext
    found = re.match(r"local\[(\d+)", str(context.master))
    if found:
        return int(found.group(1))
    inner = context._jsc.sc()
    return int(inner.maxNumConcurrentTasks(inner.resourceProfileManager().defaultResourceProfile()))


def total_slots(session: SparkSession) -> int:
    """Return `slots_there`, or with dynamic allocation what Spark may add executors for: it does so when tasks wait.

    An executor whose number of cores is not set counts as one slot, which is the least it can have.
    """
    there, context = slots_there(session), session.sparkContext
    if not is_cluster(session) or context.getConf().get("spark.dynamicAllocation.enabled", "false") != "true":
        return there
    conf = context.getConf()
    each = max(1, int(conf.get("spark.executor.cores", "1")) // int(conf.get("spark.task.cpus", "1")))
    return max(there, int(conf.get("spark.dynamicAllocation.maxExecutors", str(_UNLIMITED))) * each)


def free_slots(name: str, master: str | None) -> int | None:
    """Return how many slots of a local Spark, started or not, an application may reserve now; None: `master` is a cluster.

    Args:
        master: its address; None: the default one.
    """
    if master is not None and is_cluster_address(master):
        return None
    address = master or f"local[{LOCAL_SLOTS}]"
    found = re.match(r"local\[(\d+)", address)
    total = int(found.group(1)) if found else 1 if address == "local" else os.cpu_count() or 1
    with _lock:
        return max(0, total - USER_SLOTS - _reserved_by_others(name))


def missing_slots(session: SparkSession) -> int:
    """Return by how many slots the reserved slots exceed those that are there: > 0 after a cluster has lost executors."""
    there = slots_there(session)
    with _lock:
        return max(0, sum(reservation.slots for reservation in _reservations.values()) - there)


def reserve_slots(session: SparkSession, name: str, count: int, holder: object) -> None:
    """Reserve slots for an application's instances; on a cluster, wait some time for executors that are still starting.

    Args:
        holder: the object that releases them (`release_slots`). Reservations of another holder for the same application are not counted.

    Raises:
        DeployError: too few are free; Spark would queue the rest forever, because an epoch does not end by itself.
    """
    deadline = time.monotonic() + (_EXECUTOR_SECONDS if is_cluster(session) else 0.0)
    while time.monotonic() < deadline:
        with _lock:
            used = _reserved_by_others(name)
        if used + count + USER_SLOTS <= total_slots(session):
            break
        time.sleep(0.05)
    with _lock:
        total = total_slots(session)
        reserved = USER_SLOTS if total > USER_SLOTS else 0
        used = _reserved_by_others(name)
        if not total:
            raise DeployError(
                f"{name} needs {count} Spark slots, and no executor of {session.sparkContext.master} has registered within "
                f"{_EXECUTOR_SECONDS:.0f} s",
                hint="the cluster is starting, busy, or has no room for an executor of this size (spark.executor.memory, .cores): "
                "see its master's page; resume() tries again",
                needed=count,
                free=0,
            )
        if used + count + reserved > total:
            raise DeployError(
                f"{name} needs {count} Spark slots and {max(0, total - used - reserved)} are free "
                f"({total} in all, {used} held by other applications, {reserved} kept for your own Spark jobs)",
                hint="stop an application, lower num.stream.threads, or start Spark with more slots (more than cores is fine)",
                needed=count,
                free=total - used - reserved,
            )
        _reservations[holder] = _Reservation(name, count)


def _reserved_by_others(name: str) -> int:
    return sum(reservation.slots for reservation in _reservations.values() if reservation.name != name)


def release_slots(holder: object) -> None:
    """Release the slots of a holder."""
    with _lock:
        _reservations.pop(holder, None)


def forget_reservations() -> None:
    """Drop all reservations: Spark has ended."""
    with _lock:
        _reservations.clear()
