"""Which objects show a picture when they are evaluated: topologies, builders, streams and tables.

`install` gives their classes IPython's `_repr_mimebundle_`. A builder whose cells do not fit together yet shows what can be built and says
what cannot; a stream or table shows its whole topology, with itself marked.
"""

from __future__ import annotations

from typing import Any

from kstreams_repl.display.mimebundle import attach, mimebundle, text_of
from kstreams_repl.display.picture import Mark, picture_of
from kstreams_repl.dsl import GlobalKTable, KStream, KTable, StreamsBuilder
from kstreams_repl.topology.graph import TopologyGraph
from kstreams_repl.topology.topology import Topology


def install() -> None:
    """Let these objects show themselves; calling it again does nothing."""
    attach(Topology, show_topology)
    attach(StreamsBuilder, show_builder)
    for cls in (KStream, KTable, GlobalKTable):
        attach(cls, show_stream)


def show_topology(topology: TopologyGraph) -> dict[str, str]:
    return mimebundle(picture_of(topology), text_of(topology))


def show_builder(builder: StreamsBuilder) -> dict[str, str]:
    topology, note = preview(builder)
    return mimebundle(picture_of(topology), text_of(topology), note=note)


def show_stream(stream: Any) -> dict[str, str]:
    topology = stream._log.preview()
    problems = "\n".join(f"not in the picture: {problem}" for problem in stream._log.problems)
    here = {f"node:{stream.name}": Mark(lines=("◀ here",))} if stream.name in topology.nodes else {}
    return mimebundle(picture_of(topology, marks=here), text_of(topology), note=problems)


def preview(builder: StreamsBuilder) -> tuple[Topology, str]:
    """What can be built of a builder now, and what is in the way of the rest."""
    topology = builder.preview()
    return topology, "\n".join(f"not in the picture: {problem}" for problem in builder.problems)
