"""Pictures and tables of user-visible objects: topologies, streams, applications, records, rows of stores.

Pure Python: no Jupyter, no `dot`, no browser. Only `markup` writes markup, and it escapes everything else; `layout` knows only
boxes and edges; `picture` decides what of a topology is drawn; `svg` draws it; `mimebundle` combines text and HTML.
"""

from __future__ import annotations

from kstreams_repl.pictures.graph.graphviz import to_graphviz
from kstreams_repl.pictures.graph.mimebundle import attach, mimebundle, text_of
from kstreams_repl.pictures.graph.picture import Mark, Picture, picture_of
from kstreams_repl.pictures.graph.svg import svg_of
from kstreams_repl.pictures.markup import Markup, clean_text
from kstreams_repl.pictures.table import Table

__all__ = [
    "Mark",
    "Markup",
    "Picture",
    "Table",
    "attach",
    "clean_text",
    "mimebundle",
    "picture_of",
    "svg_of",
    "text_of",
    "to_graphviz",
]
