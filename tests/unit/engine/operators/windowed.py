"""Benches for window operators: the store each of them needs, and the operator behind one source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kstreams_repl import serdes
from kstreams_repl.engine.operators.aggregates.stream_session_window_aggregate import StreamSessionWindowAggregate
from kstreams_repl.engine.operators.aggregates.stream_sliding_window_aggregate import StreamSlidingWindowAggregate
from kstreams_repl.engine.operators.aggregates.stream_window_aggregate import StreamWindowAggregate
from kstreams_repl.engine.topology.store_builder import StoreKind
from tests.unit.engine.operators.harness import Bench


def nothing() -> str:
    return ""


def concat(key: Any, value: Any, aggregate: Any) -> Any:
    return f"{aggregate}|{value}"


def zero() -> int:
    return 0


def plus_one(key: Any, value: Any, aggregate: Any) -> Any:
    return aggregate + 1


def time_windows(
    size: int,
    *,
    advance: int | None = None,
    grace: int = 0,
    cache: int = 0,
    count: bool = False,
    initializer: Callable[[], Any] = nothing,
    aggregator: Callable[[Any, Any, Any], Any] = concat,
    **options: Any,
) -> Bench:
    """A tumbling, hopping or unlimited aggregate of topic "in"."""
    bench = Bench(cache=cache)
    kind = StoreKind.TIME_ORDERED_WINDOW if options.get("emit_on_close") else StoreKind.TIMESTAMPED_WINDOW
    unlimited = options.get("unlimited_start_ms") is not None
    retention, window = (2**62, 2**63 - 1) if unlimited else (size + grace, size)
    bench.store("w", kind, value=serdes.json, retention_ms=retention, window_size_ms=window, caching=cache > 0)
    if count:
        initializer, aggregator = zero, plus_one
    operator = StreamWindowAggregate("w", initializer, aggregator, size, advance or size, grace, count=count, **options)
    return bench.probe(bench.node("aggregate", operator, bench.source("in"), stores=["w"]))


def sliding_windows(
    difference: int,
    *,
    grace: int = 0,
    cache: int = 0,
    initializer: Callable[[], Any] = nothing,
    aggregator: Callable[[Any, Any, Any], Any] = concat,
    **options: Any,
) -> Bench:
    """A sliding-window aggregate of topic "in"."""
    bench = Bench(cache=cache)
    kind = StoreKind.TIME_ORDERED_WINDOW if options.get("emit_on_close") else StoreKind.TIMESTAMPED_WINDOW
    retention = 2 * difference + grace
    bench.store("w", kind, value=serdes.json, retention_ms=retention, window_size_ms=difference, caching=cache > 0)
    operator = StreamSlidingWindowAggregate("w", initializer, aggregator, difference, grace, **options)
    return bench.probe(bench.node("aggregate", operator, bench.source("in"), stores=["w"]))


def session_windows(gap: int, *, grace: int = 0, cache: int = 0, **options: Any) -> Bench:
    """A session-window aggregate of topic "in" whose aggregates show the order of the calls."""
    bench = Bench(cache=cache)
    more = {"options": {"time_ordered": True}} if options.get("emit_on_close") else {}
    bench.store("w", StoreKind.SESSION, value=serdes.json, retention_ms=gap + grace, caching=cache > 0, **more)
    operator = StreamSessionWindowAggregate("w", nothing, concat, lambda key, one, two: one + two, gap, grace, **options)
    return bench.probe(bench.node("aggregate", operator, bench.source("in"), stores=["w"]))
