"""Pools of Python workers, one per running application, so that its epochs find their own warm workers.

Spark distinguishes pools by the environment variables of a function; it keeps idle workers for a minute.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POOL_VARIABLE = "KSTREAMS_POOL"
SHARED_POOL, BACKGROUND = "shared", "background"
BACKGROUND_NICE = 15
"""Niceness of a background pool's workers."""
PACKAGE_ROOT = str(Path(__file__).resolve().parents[4])
"""The directory of this package, for workers of a checkout that is not installed."""
_OWN = "pool"
_IDLE_WORKER_SECONDS = 70.0


@dataclass(slots=True)
class _Pool:
    """The holder of a worker pool, its application, its number of workers, and since when it is free."""

    holder: object | None
    name: str
    workers: int
    since: float = 0.0


_lock = threading.Lock()
_environment_lock = threading.Lock()
_pools: dict[str, _Pool] = {}


def take_pool(name: str, instances: int, holder: object, *, kind: str = "own") -> str:
    """Return the worker pool of an application: its own while it runs, afterwards free for the next one; or the shared one.

    In a shared pool an epoch gets the worker that was idle longest, so instances move between workers. Of the free pools it takes the
    application's last one, where its stores may be warm, else one whose workers have ended (Spark ends idle ones after a minute), else
    one with the required number of workers; their daemon, with all modules loaded, is still running.

    Args:
        kind: of `repl.worker.pool`. A process cannot raise its priority again, so a background pool is never another application's own.
    """
    if kind == SHARED_POOL:
        return SHARED_POOL
    prefix = BACKGROUND if kind == BACKGROUND else _OWN
    with _lock:
        now = time.monotonic()
        free = {number: pool for number, pool in _pools.items() if pool.holder in (None, holder) and number.startswith(prefix)}
        own = (number for number, pool in free.items() if pool.name == name and pool.workers == instances)
        cold = (number for number, pool in free.items() if now - pool.since > _IDLE_WORKER_SECONDS)
        alike = (number for number, pool in free.items() if pool.workers == instances)
        chosen = next(chain(own, cold, alike), f"{prefix}-{len(_pools)}")
        _pools[chosen] = _Pool(holder, name, instances)
        return chosen


def offer_pool(workers: int) -> str:
    """Return a pool for workers started in advance, used by the next application with this number of instances."""
    with _lock:
        chosen = f"{_OWN}-{len(_pools)}"
        _pools[chosen] = _Pool(None, "", workers, time.monotonic())
        return chosen


@contextmanager
def pool_of_functions(session: SparkSession, pool: str) -> Iterator[None]:
    """Create the functions inside the block for one worker pool: Spark distinguishes pools by the function's environment variables.

    The same variables contain this package's directory, so that workers of a session started elsewhere find it too.
    """
    environment = session.sparkContext.environment
    with _environment_lock:
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


def release_pool(holder: object) -> None:
    """Release the worker pool of a holder."""
    with _lock:
        for pool in _pools.values():
            if pool.holder is holder:
                pool.holder, pool.since = None, time.monotonic()


def forget_pools() -> None:
    """Drop all pools: Spark has ended."""
    with _lock:
        _pools.clear()


def python_path(before: str | None) -> str:
    """Return a ``PYTHONPATH`` on which this package is found."""
    return os.pathsep.join(filter(None, (PACKAGE_ROOT, before)))
