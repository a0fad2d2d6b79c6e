"""`to_graphviz`: the picture for users who have `dot`. Every id and label is quoted by the library or by this module."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstreams_repl.pictures.graph.picture import Kind, Picture
from kstreams_repl.pictures.markup import one_line
from kstreams_repl.system.errors import MissingPackageError

if TYPE_CHECKING:
    from graphviz import Digraph

_SHAPES = {
    Kind.TOPIC: {"shape": "cds"},
    Kind.INTERNAL_TOPIC: {"shape": "cds", "style": "dashed"},
    Kind.SOURCE: {"shape": "box", "style": "rounded,bold"},
    Kind.SINK: {"shape": "box", "style": "rounded,bold"},
    Kind.PROCESSOR: {"shape": "box"},
    Kind.STORE: {"shape": "cylinder"},
    Kind.REPARTITION: {"shape": "cds", "style": "dashed"},
    Kind.SUBTOPOLOGY: {"shape": "box3d"},
}


def to_graphviz(picture: Picture) -> Digraph:
    """Return a `graphviz.Digraph`; rendering it needs Graphviz's ``dot``, its `source` does not.

    Raises:
        MissingPackageError: the ``graphviz`` package is not installed.
    """
    try:
        from graphviz import Digraph
        from graphviz.quoting import escape
    except ImportError as cause:
        raise MissingPackageError(
            "the graphviz package is not installed", hint="pip install graphviz; the SVG needs nothing"
        ) from cause
    # Ids are numbers: a colon in a name would be read as a port, and a dot in a name breaks other pictures.
    number = {shape.id: f"n{index}" for index, shape in enumerate(picture.shapes)}
    graph = Digraph(comment=one_line(picture.title), graph_attr={"compound": "true"}, node_attr={"fontname": "sans-serif"})
    for cluster in picture.clusters:
        attributes = {"label": escape(one_line(cluster.label)), "style": "dashed"}
        with graph.subgraph(name=f"cluster_{cluster.id}", graph_attr=attributes) as inside:
            for shape in picture.shapes:
                if shape.cluster == cluster.id:
                    inside.node(number[shape.id], label=escape(one_line(shape.label or shape.name)), **_SHAPES[shape.kind])
    for shape in picture.shapes:
        if shape.cluster is None:
            graph.node(number[shape.id], label=escape(one_line(shape.label or shape.name)), **_SHAPES[shape.kind])
    for link in picture.links:
        graph.edge(number[link.source], number[link.target], **({"style": "dashed", "dir": "none"} if link.state else {}))
    return graph
