"""Stores on both environments, with what they send and drop kept in lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl import serdes
from kstreams_repl.engine.processor.record_context import RecordContext
from kstreams_repl.engine.stores.cache.record_cache import RecordCache
from kstreams_repl.engine.stores.engine.environment import Environment
from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment
from kstreams_repl.engine.stores.engine.memory import MemoryEnvironment
from kstreams_repl.engine.stores.factory import open_store
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind

SMALL_MAP = 256 << 20


@dataclass
class Opened:
    """One open store and everything around it."""

    store: Any
    builder: StoreBuilder
    environment: Environment
    context: RecordContext
    sent: list[tuple[Any, ...]] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    cache: RecordCache | None = None

    def log(self) -> list[tuple[Any, Any, Any]]:
        """Changelog records so far: key, value, timestamp."""
        return [record[:3] for record in self.sent]


Open = Callable[..., Opened]


@pytest.fixture(params=["memory", "lmdb"])
def environment(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Environment]:
    made: Environment = MemoryEnvironment() if request.param == "memory" else LmdbEnvironment(tmp_path / "state", map_bytes=SMALL_MAP)
    yield made
    made.close()


@pytest.fixture
def open_kind(environment: Environment) -> Open:
    def open_one(
        kind: StoreKind,
        *,
        key_serde: Any = serdes.string,
        value_serde: Any = serdes.long,
        cache_bytes: int = 0,
        exact: bool = True,
        suppress: bool = False,
        inside: Environment | None = None,
        **described: Any,
    ) -> Opened:
        builder = StoreBuilder("st", kind, key_serde=key_serde, value_serde=value_serde, caching=cache_bytes > 0, **described)
        context = RecordContext()
        context.topic, context.partition, context.offset, context.timestamp = "in", 0, 0, 0
        opened = Opened(None, builder, inside or environment, context)
        opened.cache = RecordCache(cache_bytes, exact=exact) if cache_bytes else None
        opened.store = open_store(
            builder,
            opened.environment,
            record_context=context,
            send=lambda *record: opened.sent.append(record),
            cache=opened.cache,
            on_dropped=opened.dropped.append,
            suppress_changelog=suppress,
        )
        return opened

    return open_one
