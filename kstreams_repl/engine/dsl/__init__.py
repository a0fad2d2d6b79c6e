"""The streams DSL: `StreamsBuilder`, streams, tables, groupings, windows."""

from __future__ import annotations

from kstreams_repl.engine.dsl.builder import StreamsBuilder
from kstreams_repl.engine.dsl.groupings.windows import JoinWindows, SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows
from kstreams_repl.engine.dsl.kstream import (
    BranchedKStream,
    CogroupedKStream,
    KGroupedStream,
    KGroupedTable,
    KStream,
    KTable,
    SessionWindowedCogroupedKStream,
    SessionWindowedKStream,
    SlidingWindowedKStream,
    TimeWindowedCogroupedKStream,
    TimeWindowedKStream,
)
from kstreams_repl.engine.dsl.options import Branched, EmitStrategy, Materialized, Suppressed
from kstreams_repl.engine.dsl.stores import Stores
from kstreams_repl.engine.dsl.tables.global_ktable import GlobalKTable

__all__ = [
    "Branched",
    "BranchedKStream",
    "CogroupedKStream",
    "EmitStrategy",
    "GlobalKTable",
    "JoinWindows",
    "KGroupedStream",
    "KGroupedTable",
    "KStream",
    "KTable",
    "Materialized",
    "SessionWindowedCogroupedKStream",
    "SessionWindowedKStream",
    "SessionWindows",
    "SlidingWindowedKStream",
    "SlidingWindows",
    "Stores",
    "StreamsBuilder",
    "Suppressed",
    "TimeWindowedCogroupedKStream",
    "TimeWindowedKStream",
    "TimeWindows",
    "UnlimitedWindows",
]
