"""Text and HTML of one object together, and the hook that makes IPython show them for topologies, builders, streams and tables.

An object takes part when it *is* a topology or has one: ``describe_topology()`` (applications), ``build`` (builders), or a builder behind
it (streams and tables). `attach` gives classes IPython's `_repr_mimebundle_`; the layers that define them know nothing of display.
"""

from __future__ import annotations

from typing import Any

from kstreams_repl.display.markup import clean_text, element, image, style_sheet
from kstreams_repl.display.picture import Picture
from kstreams_repl.display.svg import size_of, svg_of

# JupyterLab's theme need not be the system's: an image only sees the latter, so it is turned round where the two differ.
_THEME = (
    "@media (prefers-color-scheme:light){[data-jp-theme-light='false'] .ks-image{filter:invert(.92) hue-rotate(180deg)}}"
    "@media (prefers-color-scheme:dark){[data-jp-theme-light='true'] .ks-image{filter:invert(.92) hue-rotate(180deg)}}"
    ".ks-caption{font:11px ui-sans-serif,system-ui,sans-serif;color:var(--jp-ui-font-color2,#777)}"
)


NOTE_LIMIT = 4000


def mimebundle(picture: Picture, text: str, *, note: str = "") -> dict[str, str]:
    """The forms of one picture.

    Args:
        text: the plain form (`describe()`'s text).
        note: a line under the picture: a state, a reason why there is less than expected.
    """
    note = clean_text(note, limit=NOTE_LIMIT)
    plain = clean_text(text) + (f"\n{note}" if note else "")
    return {"text/plain": plain, "text/html": html_of(picture, note=note)}


def html_of(picture: Picture, *, note: str = "") -> str:
    """The picture as an image in HTML; nothing in it runs and nothing is fetched."""
    width, height = size_of(picture)
    shown = image(svg_of(picture), alt=clean_text(picture.summary), width=width, height=height, class_="ks-image")
    caption = element("div", clean_text(note, limit=NOTE_LIMIT), class_="ks-caption") if note else None
    return str(element("div", style_sheet(_THEME), shown, caption, class_="ks-output"))


def text_of(topology: Any) -> str:
    """`describe()`'s text, inert for terminals."""
    return clean_text(str(topology.describe()))


def attach(cls: type, render: Any) -> None:
    """Give a class `_repr_mimebundle_`: ``render(object) -> dict`` of forms. A class that has its own keeps it."""
    if "_repr_mimebundle_" in vars(cls):
        return

    def _repr_mimebundle_(self: Any, include: Any = None, exclude: Any = None) -> dict[str, str]:
        bundle: dict[str, str] = render(self)
        return bundle

    cls._repr_mimebundle_ = _repr_mimebundle_  # type: ignore[attr-defined]
