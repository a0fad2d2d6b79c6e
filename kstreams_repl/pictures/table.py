"""`Table`: rows as text and as HTML, limited in rows and characters; the content of a cell is always inert."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from kstreams_repl.pictures.frames import Frames
from kstreams_repl.pictures.markup import Markup, clean_text, element, one_line, style_sheet

MAX_ROWS = 100
MAX_CELL = 200
MAX_TEXT_CELL = 60
MAX_NOTE = 4000

_STYLE = (
    ".ks-scroll{max-width:100%;overflow-x:auto;margin:4px 0}"
    ".ks-scroll .ks-table{font:12px ui-sans-serif,system-ui,sans-serif;color:var(--jp-ui-font-color1,inherit);border-collapse:collapse;"
    "width:max-content;max-width:none;margin:0;table-layout:auto}"
    ".ks-scroll .ks-table th,.ks-scroll .ks-table td{text-align:left;vertical-align:top;padding:3px 10px;max-width:48em;"
    "white-space:pre-wrap;border-bottom:1px solid var(--jp-border-color2,#8884);unicode-bidi:isolate;"
    "word-break:normal;overflow-wrap:break-word;hyphens:none}"
    ".ks-scroll .ks-table caption{text-align:left;font-weight:600}"
    ".ks-scroll .ks-table th{font-weight:600;white-space:nowrap}"
    ".ks-scroll .ks-table .number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}"
    ".ks-scroll .ks-table .json{font-family:var(--jp-code-font-family,ui-monospace,monospace)}"
    ".ks-note{font:11px ui-sans-serif,system-ui,sans-serif;color:var(--jp-ui-font-color2,#777);"
    "white-space:pre-line}"
    ".ks-note[title]{cursor:help}"
    ".ks-warning{font:600 12px ui-sans-serif,system-ui,sans-serif;color:var(--jp-ui-font-color1,inherit);padding:3px 8px;"
    "border-left:3px solid var(--jp-warn-color1,#d29922)}"
)


@dataclass(frozen=True, slots=True)
class Table(Frames):
    """Columns, rows and a note below them (what limited the rows, or what to do if there are none).

    It shows itself: as text in a terminal, as HTML in a notebook, where a wide table scrolls sideways.

    Attributes:
        warning: shown above the rows: why they may be incomplete or misleading.
        tooltip: details of the note, shown when the pointer rests on it.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    note: str = ""
    title: str = ""
    warning: str = ""
    tooltip: str = ""

    @classmethod
    def of(
        cls,
        columns: Sequence[str],
        rows: Iterable[Sequence[object]],
        *,
        note: str = "",
        title: str = "",
        warning: str = "",
        tooltip: str = "",
    ) -> Table:
        """Make a table from rows.

        Args:
            columns: names of the columns.
            rows: one sequence of values per row.
            note: text under the table.
            title: text above the table.
            warning: text that stands out, above the table.
            tooltip: text shown when the mouse is over the table.

        Example:
            >>> import kstreams_repl as ks
            >>> table = ks.reports.Table.of(("word", "n"), [("to", 2), ("be", 1)])
            >>> len(table)
            2
        """
        return cls(tuple(columns), tuple(tuple(row) for row in rows), note, title, warning, tooltip)

    def table(self) -> Table:
        """Return the table itself; other results return their table.

        Example:
            >>> import kstreams_repl as ks
            >>> table = ks.reports.Table.of(("word", "n"), [("to", 2), ("be", 1)])
            >>> table.table() is table
            True
        """
        return self

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return self.text()

    def text(self) -> str:
        """Return the table in aligned columns, numbers to the right.

        Example:
            >>> import kstreams_repl as ks
            >>> table = ks.reports.Table.of(("word", "n"), [("to", 2), ("be", 1)])
            >>> print(table.text())
            word  n
            ────  ─
            to    2
            be    1
        """
        shown = self.rows[:MAX_ROWS]
        head = [one_line(column, limit=MAX_TEXT_CELL) for column in self.columns]
        body = [[one_line(value_text(value, MAX_TEXT_CELL), limit=MAX_TEXT_CELL) for value in row] for row in shown]
        widths = [max(map(len, column)) for column in zip(head, *body, strict=True)] if head else []
        right = [_is_numeric([row[index] for row in shown]) for index in range(len(head))]

        def line(cells: Sequence[str]) -> str:
            return "  ".join(
                cell.rjust(width) if is_right else cell.ljust(width)
                for cell, width, is_right in zip(cells, widths, right, strict=True)
            ).rstrip()

        lines = [line(head), "  ".join("─" * width for width in widths), *map(line, body)] if head else []
        if self.title:
            lines.insert(0, one_line(self.title, limit=MAX_CELL))
        lines += [clean_text(note) for note in self._notes()]
        if self.warning:
            lines.insert(0, f"Warning: {clean_text(self.warning, limit=MAX_NOTE)}")
        return "\n".join(lines)

    def html(self) -> Markup:
        """Return the table as HTML.

        Example:
            >>> import kstreams_repl as ks
            >>> table = ks.reports.Table.of(("word", "n"), [("to", 2), ("be", 1)])
            >>> html = table.html()
        """
        shown = self.rows[:MAX_ROWS]
        right = [_is_numeric([row[index] for row in shown]) for index in range(len(self.columns))]
        head = element("tr", *(element("th", clean_text(column, limit=MAX_CELL), scope="col", class_="number" if is_right else None)
                               for column, is_right in zip(self.columns, right, strict=True)))  # fmt: skip
        body = [
            element("tr", *(element("td", clean_text(value_text(value, MAX_CELL), limit=MAX_CELL), class_=_class_of(value, is_right))
                            for value, is_right in zip(row, right, strict=True)))
            for row in shown
        ]  # fmt: skip
        caption = element("caption", clean_text(self.title, limit=MAX_CELL)) if self.title else None
        table = element("table", caption, element("thead", head), element("tbody", *body), class_="ks-table")
        tooltip = clean_text(self.tooltip, limit=MAX_NOTE) or None
        return element(
            "div",
            style_sheet(_STYLE),
            element("div", clean_text(self.warning, limit=MAX_NOTE), class_="ks-warning", role="alert") if self.warning else None,
            element("div", table, class_="ks-scroll", tabindex="0") if self.columns else None,
            *(element("div", note, class_="ks-note", title=tooltip) for note in self._notes()),
        )

    def _notes(self) -> list[str]:
        notes = [clean_text(self.note, limit=MAX_NOTE)] if self.note else []
        if len(self.rows) > MAX_ROWS:
            notes.insert(0, f"{MAX_ROWS} of {len(self.rows):,} rows")
        return notes

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": self.text(), "text/html": str(self.html())}


def value_text(value: object, limit: int = MAX_CELL) -> str:
    """Return one value as the text of a cell: text as it is, structures as JSON, bytes and other values as `repr`; huge values
    are cut before they are formatted."""
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return value[: limit + 1]
    if isinstance(value, bytes | bytearray | memoryview):
        return repr(bytes(value[: limit + 1]))
    if isinstance(value, datetime):
        exact = "microseconds" if value.microsecond % 1000 else "milliseconds" if value.microsecond else "seconds"
        return value.isoformat(sep=" ", timespec=exact)
    if isinstance(value, float):
        return float.__repr__(value).removesuffix(".0")  # the fewest digits that give the same number again
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 4000:
        return f"an integer of {value.bit_length():,} bits"
    try:
        return _as_json(value) if isinstance(value, dict | list | tuple) else str(value)
    except Exception as error:  # a user's own __repr__ may raise, or produce more digits than Python's limit
        return f"<{type(value).__name__}: {type(error).__name__} while it was shown>"


def _as_json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=value_text)
    except (TypeError, ValueError, RecursionError):  # keys that JSON does not support; a circular structure
        return repr(value)


def _class_of(value: object, is_right: bool) -> str | None:
    return "number" if is_right else "json" if isinstance(value, dict | list | tuple) else None


def _is_numeric(values: Sequence[object]) -> bool:
    numbers = [isinstance(value, int | float | Decimal) and not isinstance(value, bool) for value in values if value is not None]
    return bool(numbers) and all(numbers)
