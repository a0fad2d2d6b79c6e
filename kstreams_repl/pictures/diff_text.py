"""`DiffText`: changes of texts as unified diffs, plain in a terminal, with colours and signs in a notebook."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from kstreams_repl.pictures.markup import Markup, clean_text, element, style_sheet

MAX_LINES = 400
_STYLE = (
    ".ks-diff{font:12px var(--jp-code-font-family,ui-monospace,monospace);color:var(--jp-ui-font-color1,inherit);margin:4px 0;"
    "padding:4px 0;overflow-x:auto;white-space:pre;tab-size:4}"
    ".ks-diff div{padding:0 8px;width:max-content;min-width:100%;box-sizing:border-box;line-height:1.45}"
    ".ks-diff .added{background:#2ea04326;border-left:3px solid #2ea043}"
    ".ks-diff .removed{background:#f8514926;border-left:3px solid #f85149}"
    ".ks-diff .context,.ks-diff .hunk{border-left:3px solid transparent}.ks-diff .hunk{color:var(--jp-ui-font-color2,#777)}"
    ".ks-diff .name{font-weight:600;border-left:3px solid transparent}"
)


@dataclass(frozen=True, slots=True)
class DiffText:
    """Unified diffs, one per changed text; empty when nothing changed.

    Attributes:
        lines: in the format of ``diff -u``.
    """

    lines: tuple[str, ...] = ()

    @classmethod
    def of(cls, changed: Iterable[tuple[str, str, str]], *, before: str, after: str) -> DiffText:
        """Return the diffs of changed texts.

        Args:
            changed: (name, text before, text after).
            before, after: names of the two sides.

        Example:
            >>> import kstreams_repl as ks
            >>> print(ks.reports.DiffText.of([("long", "len(word) > 3", "len(word) > 1")], before="runs", after="edited"))
            --- long (runs)
            +++ long (edited)
            @@ -1 +1 @@
            -len(word) > 3
            +len(word) > 1
        """
        lines: list[str] = []
        for name, old, new in changed:
            found = difflib.unified_diff(old.splitlines(), new.splitlines(), f"{name} ({before})", f"{name} ({after})", lineterm="")
            lines += found
        return cls(tuple(lines))

    def __bool__(self) -> bool:
        return bool(self.lines)

    def text(self) -> str:
        """Return the diffs as text; the empty text when nothing changed.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.reports.DiffText.of([], before="runs", after="edited").text()
            ''
        """
        return "\n".join(clean_text(line, limit=500) for line in self._shown())

    def html(self) -> Markup:
        """Return the diffs with added and removed lines highlighted; the signs stay.

        Example:
            >>> import kstreams_repl as ks
            >>> changes = ks.reports.DiffText.of([("long", "len(word) > 3", "len(word) > 1")], before="runs", after="edited")
            >>> "len(word) &gt; 1" in changes.html()
            True
        """
        lines = [element("div", clean_text(line, limit=500) or " ", class_=_kind(line)) for line in self._shown()]
        return element("div", style_sheet(_STYLE), element("div", *lines, class_="ks-diff"))

    def _shown(self) -> list[str]:
        left = len(self.lines) - MAX_LINES
        return [*self.lines[:MAX_LINES], *([f"… {left:,} more lines"] if left > 0 else [])]

    def __repr__(self) -> str:
        return self.text() or "no difference"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": str(self.html() if self else element("div", "no difference"))}


def _kind(line: str) -> str:
    if line.startswith(("--- ", "+++ ")):
        return "name"
    return {"+": "added", "-": "removed", "@": "hunk"}.get(line[:1], "context")
