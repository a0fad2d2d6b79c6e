"""Which objects are shown as a picture when they are evaluated: topologies, builders, streams and tables.

`install` adds IPython's `_repr_mimebundle_` to their classes. A builder whose cells do not fit together yet shows what can be
built and the problems; a stream or table shows its whole topology and marks itself in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kstreams_repl.engine.dsl import GlobalKTable, KStream, KTable, StreamsBuilder
from kstreams_repl.engine.topology.graph import TopologyGraph
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.pictures.graph.mimebundle import attach, mimebundle, text_of
from kstreams_repl.pictures.graph.picture import Mark, picture_of
from kstreams_repl.pictures.markup import clean_text, element
from kstreams_repl.system.errors import KStreamsError


def install() -> None:
    """Make these objects show themselves; calling it again does nothing."""
    attach(Topology, show_topology)
    attach(StreamsBuilder, show_builder)
    for cls in (KStream, KTable, GlobalKTable):
        attach(cls, show_stream)


def show_topology(topology: TopologyGraph) -> dict[str, str]:
    return mimebundle(picture_of(topology), text_of(topology))


def show_builder(builder: StreamsBuilder) -> dict[str, str]:
    return _show(builder, builder.preview, lambda: builder.problems)


def show_stream(stream: Any) -> dict[str, str]:
    return _show(stream, stream._log.preview, lambda: stream._log.problems, here=f"node:{stream.name}")


def _show(
    thing: object, preview: Callable[[], Topology], problems: Callable[[], Iterable[Any]], *, here: str | None = None
) -> dict[str, str]:
    try:
        topology = preview()
    except KStreamsError as error:  # during construction anything may be missing: shown as a note, not raised
        message = f"{thing!r} cannot be built yet: {error}"
        return {"text/plain": clean_text(message), "text/html": str(element("pre", message))}
    note = "\n".join(f"not in the picture: {problem}" for problem in problems())
    marks = {} if here is None else {here: Mark(lines=("◀ here",))}
    return mimebundle(picture_of(topology, marks=marks), text_of(topology), note=note)
