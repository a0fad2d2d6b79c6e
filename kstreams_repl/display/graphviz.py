"""`to_graphviz`: the picture for those who have `dot`. Every id and label is quoted by the library or by us."""

from __future__ import annotations

from typing import Any

from kstreams_repl.display.markup import one_line
from kstreams_repl.display.picture import Kind, Picture
from kstreams_repl.errors import KStreamsError

_SHAPES = {
    Kind.TOPIC: {"shape": "cds"},
    Kind.INTERNAL_TOPIC: {"shape": "cds", "style": "dashed"},
    Kind.SOURCE: {"shape": "box", "style": "rounded,bold"},
    Kind.SINK: {"shape": "box", "style": "rounded,bold"},
    Kind.PROCESSOR: {"shape": "box"},
    Kind.STORE: {"shape": "cylinder"},
}


def to_graphviz(picture: Picture) -> Any:
    """A `graphviz.Digraph`; drawing it needs Graphviz's ``dot``, its `source` does not.

    Raises:
        KStreamsError: the ``graphviz`` package is not installed.
    """
    try:
        from graphviz import Digraph
        from graphviz.quoting import escape
    except ImportError as cause:
        raise KStreamsError(
            "the graphviz package is not installed", hint="pip install graphviz; the SVG needs nothing"
        ) from cause
    # Ids are numbers: a name with a colon would be read as a port, and one with a dot broke others' pictures.
    number = {shape.id: f"n{index}" for index, shape in enumerate(picture.shapes)}
    graph = Digraph(comment=one_line(picture.title), graph_attr={"compound": "true"}, node_attr={"fontname": "sans-serif"})
    for cluster in picture.clusters:
        looks = {"label": escape(one_line(cluster.label)), "style": "dashed"}
        with graph.subgraph(name=f"cluster_{cluster.id}", graph_attr=looks) as inside:
            for shape in picture.shapes:
                if shape.cluster == cluster.id:
                    inside.node(number[shape.id], label=escape(one_line(shape.name)), **_SHAPES[shape.kind])
    for shape in picture.shapes:
        if shape.cluster is None:
            graph.node(number[shape.id], label=escape(one_line(shape.name)), **_SHAPES[shape.kind])
    for link in picture.links:
        graph.edge(number[link.source], number[link.target], **({"style": "dashed", "dir": "none"} if link.state else {}))
    return graph
