"""Find repartition topics whose keys or values have an unknown type and no serde: they fail at their first record unless it is bytes.

A function's result has any type, so the DSL forgets the serde there. What follows writes with the application's default serde, which is
bytes if none is configured.
"""

from __future__ import annotations

from typing import Literal

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.operators.processor_api import ProcessorOperator
from kstreams_repl.engine.operators.streams.pass_through import PassThrough
from kstreams_repl.engine.operators.streams.stream_async import AsyncKind, StreamAsync
from kstreams_repl.engine.operators.streams.stream_branch import StreamBranch
from kstreams_repl.engine.operators.streams.stream_filter import StreamFilter
from kstreams_repl.engine.operators.streams.stream_flat_map import StreamFlatMap
from kstreams_repl.engine.operators.streams.stream_map import StreamMap
from kstreams_repl.engine.operators.streams.stream_peek import StreamPeek
from kstreams_repl.engine.operators.streams.stream_select_key import StreamSelectKey
from kstreams_repl.engine.operators.tables.table_filter import TableFilter
from kstreams_repl.engine.operators.tables.table_repartition_map import TableRepartitionMap
from kstreams_repl.engine.operators.tables.table_source import TableSource
from kstreams_repl.engine.operators.tables.table_suppress import TableSuppress
from kstreams_repl.engine.operators.tables.table_to_stream import TableToStream
from kstreams_repl.engine.serdes.deferred import DeferredSerde
from kstreams_repl.engine.topology.description.user_lines import line_of
from kstreams_repl.engine.topology.nodes import ProcessorNode, SinkNode
from kstreams_repl.engine.topology.topology import Topology

_NEW_KEYS = (StreamMap, StreamFlatMap, StreamSelectKey, ProcessorOperator, TableRepartitionMap)
_SAME_VALUES = (
    PassThrough, StreamBranch, StreamFilter, StreamPeek, StreamSelectKey, TableFilter, TableSource, TableSuppress, TableToStream,
)  # fmt: skip


def unknown_serdes(topology: Topology, config: StreamsConfig) -> list[str]:
    """Return a warning for each repartition topic that is written with bytes because a function's result type is unknown."""
    warnings = []
    for node in topology.nodes.values():
        if not isinstance(node, SinkNode) or not node.internal:
            continue
        for part, serde in (("key", node.key_serde), ("value", node.value_serde)):
            if f"default.{part}.serde" in config.given or not (serde is None or isinstance(serde, DeferredSerde)):
                continue
            maker = _maker(topology, node, "key" if part == "key" else "value")
            if maker is not None:
                line = line_of(maker.origin) or line_of(node.origin)
                warnings.append(
                    f"warning: topic {node.topic} is written with the {part} serde bytes: the type of the {part}s that {maker.name} "
                    "returns is not known, and any type but bytes fails at the first record"
                    + (f"\n  {line}" if line else "")
                    + f"\nHint: give {part}_serde= where the stream is grouped, repartitioned or joined, for example "
                    f'group_by(..., {part}_serde="string"), or the setting default.{part}.serde'
                )
    return warnings


def _maker(topology: Topology, sink: SinkNode, part: Literal["key", "value"]) -> ProcessorNode | None:
    """Return the nearest node upstream whose function makes the keys or values; None: they are what a source reads."""
    left = list(sink.parents)
    while left:
        node = topology.nodes[left.pop()]
        if isinstance(node, ProcessorNode):
            if _makes(node.operator, part):
                return node
            left += node.parents
    return None


def _makes(operator: object, part: Literal["key", "value"]) -> bool:
    if isinstance(operator, StreamAsync) and operator.kind is AsyncKind.FILTER:
        return False
    if part == "value":
        return not isinstance(operator, _SAME_VALUES)
    return isinstance(operator, _NEW_KEYS) or (isinstance(operator, StreamAsync) and operator.kind is AsyncKind.PROCESS)
