"""The only module that writes markup. Everything that is not `Markup` is escaped; only this module creates `Markup`.

`element("td", text, title=name)` takes text, numbers or `Markup` as children and text as attribute values. Tag and attribute
names come from code and are nevertheless checked; event handlers and scriptable addresses are refused. `clean_text` makes a text
inert for terminals and plain-text outputs: control characters, escape sequences and bidirectional overrides become visible.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from html import escape

_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9:-]*", re.ASCII)
_VOID = frozenset({"br", "hr", "img", "input"})
_ADDRESSES = frozenset({"href", "src", "action", "formaction", "xlink:href"})
_SAFE_ADDRESS = re.compile(r"(#[\w.-]*|data:image/(svg\+xml|png);base64,[A-Za-z0-9+/=]*)", re.ASCII)

# C0 and C1 controls except tab and newline, DEL, zero-width and bidirectional controls, line and paragraph separators, BOM, lone
# surrogates, interlinear annotation, tag characters.
_INERT = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)


class Markup(str):
    """Text that is already markup; created only by this module."""

    __slots__ = ()


def clean_text(value: object, *, limit: int | None = None) -> str:
    """Return a text in which nothing controls a terminal or a browser; removed characters are shown as ``\\x1b``-like escapes.

    Args:
        limit: maximum number of characters; a longer text is cut, with an ellipsis.
    """
    text = value if isinstance(value, str) else str(value)
    if limit is not None and len(text) > limit:
        text = text[: max(limit - 1, 0)] + "…"
    return _INERT.sub(_visible, text)


def one_line(value: object, *, limit: int | None = None) -> str:
    """Return `clean_text` on one line: newlines and tabs are escaped too."""
    return clean_text(value, limit=limit).replace("\n", "\\n").replace("\t", "\\t")


def _visible(found: re.Match[str]) -> str:
    code = ord(found.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def text(value: object) -> Markup:
    """Return escaped text."""
    return value if isinstance(value, Markup) else Markup(escape(clean_text(value), quote=True))


def element(tag: str, *children: object, **attributes: object) -> Markup:
    """Return one element. In attribute names a trailing underscore is dropped and others become hyphens: ``class_``,
    ``data_node``.

    Attributes that are None are left out.

    Example:
        >>> element("td", "<b>", title='"')
        '<td title="&quot;">&lt;b&gt;</td>'
    """
    _check(_NAME.fullmatch(tag), tag)
    shown = "".join(_attribute(name, value) for name, value in attributes.items() if value is not None)
    if tag in _VOID:
        return Markup(f"<{tag}{shown}>")
    return Markup(f"<{tag}{shown}>{join(children)}</{tag}>")


def join(parts: Iterable[object]) -> Markup:
    """Return the concatenated parts, each escaped unless it is markup; None parts are skipped."""
    return Markup("".join(text(part) for part in parts if part is not None))


def style_sheet(css: str) -> Markup:
    """Return a ``<style>`` element with CSS of this package, never with a user's text."""
    _check("<" not in css, "a style sheet with <")
    return Markup(f"<style>{css}</style>")


def image(svg: Markup, *, alt: str, width: float, height: float, class_: str) -> Markup:
    """Return an ``<img>`` with the SVG embedded; JupyterLab drops raw SVG in notebooks that are not trusted."""
    _check(isinstance(svg, Markup), "an image that is not Markup")
    data = base64.b64encode(svg.encode()).decode("ascii")
    return element(
        "img", src=f"data:image/svg+xml;base64,{data}", alt=alt, width=f"{width:g}", height=f"{height:g}", class_=class_,
        style="max-width:100%;height:auto",
    )  # fmt: skip


def _attribute(name: str, value: object) -> str:
    name = name.rstrip("_").replace("_", "-")
    _check(_NAME.fullmatch(name) and not name.lower().startswith("on"), name)
    shown = clean_text(value)
    _check(name.lower() not in _ADDRESSES or _SAFE_ADDRESS.fullmatch(shown), f"{name}={shown[:40]}")
    return f' {name}="{escape(shown, quote=True)}"'


def _check(condition: object, what: str) -> None:
    if not condition:
        raise ValueError(f"markup refused: {what!r}")
