"""The streams DSL: `StreamsBuilder`, streams, tables, groupings, windows."""

from __future__ import annotations

from kstreams_repl.dsl.builder import StreamsBuilder
from kstreams_repl.dsl.global_ktable import GlobalKTable
from kstreams_repl.dsl.kstream import (
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
from kstreams_repl.dsl.options import Branched, EmitStrategy, Materialized, Suppressed
from kstreams_repl.dsl.stores import Stores
from kstreams_repl.dsl.windows import JoinWindows, SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows

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
