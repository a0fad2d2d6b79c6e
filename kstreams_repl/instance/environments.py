"""Opens the environment of a task: LMDB on disk when a store of it is persistent, else memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kstreams_repl.stores.engine.base import Environment
from kstreams_repl.stores.engine.memory import MemoryEnvironment
from kstreams_repl.topology.stores import StoreBuilder


def open_environment(path: Path, stores: Sequence[StoreBuilder], *, in_memory: bool = False) -> Environment:
    """The environment for these stores; a task without persistent stores touches no disk."""
    if in_memory or not any(store.persistent for store in stores):
        return MemoryEnvironment()
    from kstreams_repl.stores.engine.lmdb import LmdbEnvironment

    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    environment: Environment = LmdbEnvironment(str(path))
    return environment
