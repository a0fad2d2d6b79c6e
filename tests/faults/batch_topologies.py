"""Topologies of several stages for bounded runs, by name; each is made for the name of a test, before ``-in`` and ``-out``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kstreams_repl import EmitStrategy, SessionWindows, StreamsBuilder, Suppressed, TimeWindows, serdes

BYTES = {"key_serde": serdes.bytes, "value_serde": serdes.bytes}
COUNTS = {"key_serde": serdes.bytes, "value_serde": serdes.long}


def _group(key: bytes, value: bytes) -> bytes:
    return b"g%d" % (int(value) % 7)


def _parity(key: bytes, value: bytes) -> bytes:
    return b"p%d" % (int(value) % 2)


def _by_count(key: bytes, count: int) -> bytes:
    return b"c%d" % (count % 3)


def _pair(value: bytes, row: bytes) -> bytes:
    return value + b"|" + row


def _foreign(value: bytes) -> bytes:
    return b"k%d" % (int(value) % 5)


def one(name: str) -> Any:
    """One sub-topology: count by key."""
    builder = StreamsBuilder()
    builder.stream(f"{name}-in", **BYTES).group_by_key(**BYTES).count(store="counts").to_stream().to(f"{name}-out", **COUNTS)
    return builder.build()


async def _ask(value: bytes) -> bytes:
    await asyncio.sleep(int(value) % 5 * 0.02)
    return value


def calls(name: str) -> Any:
    """Count by key behind an asynchronous node: records still wait when their offsets are committed."""
    builder = StreamsBuilder()
    asked = builder.stream(f"{name}-in", **BYTES).map_values_async(_ask, name="ask", in_flight=8)
    asked.group_by_key(**BYTES).count(store="counts").to_stream().to(f"{name}-out", **COUNTS)
    return builder.build()


def two(name: str) -> Any:
    """Three sub-topologies in a row, two repartition topics; the later one counts what the former counted."""
    builder = StreamsBuilder()
    first = builder.stream(f"{name}-in", **BYTES).group_by(_group, **BYTES).count(store="first").to_stream()
    first.group_by(_by_count, **COUNTS).count(store="second").to_stream().to(f"{name}-out", **COUNTS)
    return builder.build()


def diamond(name: str) -> Any:
    """One input, two ways to a repartition topic each, joined again in a fourth sub-topology."""
    builder = StreamsBuilder()
    stream = builder.stream(f"{name}-in", **BYTES)
    left = stream.group_by(_parity, **BYTES).count(store="left").to_stream()
    right = stream.group_by(_group, **BYTES).count(store="right").to_stream()
    merged = left.merge(right).select_key(_by_count)
    merged.repartition(name="met", **COUNTS).group_by_key(**COUNTS).count(store="met").to_stream().to(f"{name}-out", **COUNTS)
    return builder.build()


def foreign(name: str) -> Any:
    """A foreign-key join of a table with itself under other keys: sub-topologies that write to each other in a circle."""
    builder = StreamsBuilder()
    table = builder.table(f"{name}-in", store="rows", **BYTES)
    table.join(builder.table(f"{name}-side", store="side", **BYTES), _pair, foreign_key=_foreign, store="joined", **BYTES).to_stream().to(
        f"{name}-out", **BYTES
    )
    return builder.build()


def sessions(name: str) -> Any:
    """Session windows behind a repartition topic."""
    builder = StreamsBuilder()
    grouped = builder.stream(f"{name}-in", **BYTES).group_by(_group, **BYTES)
    windows = grouped.windowed_by(SessionWindows.of_inactivity_gap_and_grace(50, 10_000_000)).count(store="sessions")
    windows.to_stream().map(_counted).to(f"{name}-out", **COUNTS)
    return builder.build()


def windows(name: str) -> Any:
    """Two stages of windows that emit nothing before they close: suppressed counts, repartitioned, and counts emitted on close."""
    builder = StreamsBuilder()
    first = builder.stream(f"{name}-in", **BYTES).group_by_key(**BYTES).windowed_by(TimeWindows.of_size(20, grace=0)).count(store="first")
    keyed = first.suppress(Suppressed.until_window_closes(name="held")).to_stream().map(_by_window)
    second = keyed.group_by_key(**COUNTS).windowed_by(TimeWindows.of_size(100, grace=10_000_000))
    second.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(store="second").to_stream().map(_counted).to(f"{name}-out", **COUNTS)
    return builder.build()


def _by_window(windowed: Any, count: int) -> tuple[bytes, int]:
    return b"c%d" % (count % 3), count


def _counted(windowed: Any, count: int | None) -> tuple[bytes, int | None]:
    return b"%s@%d-%d" % (windowed.key, windowed.start, windowed.end), count


def table_of(directory: Path, format: str, name: str) -> Any:
    """Counts behind a repartition topic as a table of files, `Path(directory, format)`, that is committed at the end of a run only."""
    builder = StreamsBuilder()
    counts = builder.stream(f"{name}-in", **BYTES).group_by(_group, **BYTES).count(store="counts").to_stream()
    path = str(directory / format)
    counts.to_table_files(path, format, key_column="key", commit_interval_ms=3_600_000, name="table")
    return builder.build()


TOPOLOGIES: Mapping[str, Callable[[str], Any]] = {
    "one": one,
    "calls": calls,
    "two": two,
    "diamond": diamond,
    "foreign": foreign,
    "sessions": sessions,
    "windows": windows,
}
