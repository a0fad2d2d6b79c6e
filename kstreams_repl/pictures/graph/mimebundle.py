"""Text and HTML of one object, and the hook with which IPython shows topologies, builders, streams and tables.

An object is shown if it *is* a topology or has one: ``describe_topology()`` (applications), ``build`` (builders), or the builder
of a stream or table. `attach` adds IPython's `_repr_mimebundle_` to classes, so the packages that define them do not depend on
display.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kstreams_repl.pictures.graph.picture import Picture
from kstreams_repl.pictures.graph.svg import size_of, svg_of
from kstreams_repl.pictures.graph.view import simplified
from kstreams_repl.pictures.markup import clean_text, element, image, style_sheet

if TYPE_CHECKING:
    from kstreams_repl.engine.topology.graph import TopologyGraph

# JupyterLab's theme may differ from the system's: an image takes the color scheme of the element that shows it. Paper is always
# light.
_THEME = (
    "[data-jp-theme-light='false'] .ks-image{color-scheme:dark}[data-jp-theme-light='true'] .ks-image{color-scheme:light}"
    "@media print{.ks-output .ks-image{color-scheme:light!important;break-inside:avoid}}"
    ".ks-caption{font:11px ui-sans-serif,system-ui,sans-serif;color:var(--jp-ui-font-color2,#777)}"
)


NOTE_LIMIT = 4000


def mimebundle(picture: Picture, text: str, *, note: str = "") -> dict[str, str]:
    """Return the MIME types of one picture, as `View()` simplifies it.

    Args:
        text: the plain-text form (`describe()`'s text).
        note: a line under the picture: a state, or a reason why something is missing.
    """
    note = clean_text(note, limit=NOTE_LIMIT)
    plain = clean_text(text) + (f"\n{note}" if note else "")
    return {"text/plain": plain, "text/html": html_of(picture, note=note)}


def html_of(picture: Picture, *, note: str = "") -> str:
    """Return the picture as an image in HTML that runs no code and fetches nothing."""
    picture = simplified(picture)
    width, height = size_of(picture)
    shown = image(svg_of(picture), alt=clean_text(picture.summary), width=width, height=height, class_="ks-image")
    caption = element("div", clean_text(note, limit=NOTE_LIMIT), class_="ks-caption") if note else None
    return str(element("div", style_sheet(_THEME), shown, caption, class_="ks-output"))


def text_of(topology: TopologyGraph) -> str:
    """Return `describe()`'s text, inert for terminals."""
    return clean_text(str(topology.describe()))


def attach(cls: type, render: Any) -> None:
    """Add `_repr_mimebundle_` to a class: ``render(object) -> dict`` of MIME types. A class that has its own keeps it."""
    if "_repr_mimebundle_" in vars(cls):
        return

    def _repr_mimebundle_(self: object, include: object = None, exclude: object = None) -> dict[str, str]:
        bundle: dict[str, str] = render(self)
        return bundle

    cls._repr_mimebundle_ = _repr_mimebundle_  # type: ignore[attr-defined]
