"""`Table`: rows for people, as text and as HTML, bounded in rows and in characters; whatever is in a cell stays inert."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kstreams_repl.display.markup import Markup, clean_text, element, one_line, style_sheet

MAX_ROWS = 100
MAX_CELL = 200
MAX_TEXT_CELL = 60
MAX_NOTE = 4000

_STYLE = (
    ".ks-table{font:12px ui-sans-serif,system-ui,sans-serif;color:var(--jp-ui-font-color1,inherit);border-collapse:collapse;margin:4px 0}"
    ".ks-table th,.ks-table td{text-align:left;padding:3px 10px;border-bottom:1px solid var(--jp-border-color2,#8884);white-space:pre-wrap;"
    "unicode-bidi:isolate;max-width:48em;overflow-wrap:anywhere}"
    ".ks-table caption{text-align:left;font-weight:600}"
    ".ks-table th{font-weight:600}.ks-table .number{text-align:right;font-variant-numeric:tabular-nums}"
    ".ks-note{font:11px ui-sans-serif,system-ui,sans-serif;color:var(--jp-ui-font-color2,#777)}"
)


@dataclass(frozen=True, slots=True)
class Table:
    """Columns, rows and a note below them (what bounded the rows, what to do about none).

    Shows itself: as text in a terminal, as HTML in a notebook.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    note: str = ""
    title: str = ""

    @classmethod
    def of(cls, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, note: str = "", title: str = "") -> Table:
        return cls(tuple(columns), tuple(tuple(row) for row in rows), note, title)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return self.text()

    def text(self) -> str:
        """The table in aligned columns; numbers to the right."""
        shown = self.rows[:MAX_ROWS]
        head = [one_line(column, limit=MAX_TEXT_CELL) for column in self.columns]
        body = [[one_line(cell_text(value, MAX_TEXT_CELL), limit=MAX_TEXT_CELL) for value in row] for row in shown]
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
        return "\n".join(lines)

    def html(self) -> Markup:
        """The table as HTML."""
        shown = self.rows[:MAX_ROWS]
        right = [_is_numeric([row[index] for row in shown]) for index in range(len(self.columns))]
        head = element("tr", *(element("th", clean_text(column, limit=MAX_CELL), scope="col", class_="number" if is_right else None)
                               for column, is_right in zip(self.columns, right, strict=True)))  # fmt: skip
        body = [
            element("tr", *(element("td", clean_text(cell_text(value, MAX_CELL), limit=MAX_CELL), class_="number" if is_right else None)
                            for value, is_right in zip(row, right, strict=True)))
            for row in shown
        ]  # fmt: skip
        caption = element("caption", clean_text(self.title, limit=MAX_CELL)) if self.title else None
        return element(
            "div",
            style_sheet(_STYLE),
            element("table", caption, element("thead", head), element("tbody", *body), class_="ks-table")
            if self.columns
            else None,
            *(element("div", note, class_="ks-note") for note in self._notes()),
        )

    def _notes(self) -> list[str]:
        notes = [clean_text(self.note, limit=MAX_NOTE)] if self.note else []
        if len(self.rows) > MAX_ROWS:
            notes.insert(0, f"{MAX_ROWS} of {len(self.rows):,} rows shown")
        return notes

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": self.text(), "text/html": str(self.html())}


def cell_text(value: Any, limit: int = MAX_CELL) -> str:
    """One value for a cell: text as it is, bytes and the rest as Python writes them; huge values are cut before they are formatted."""
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
        return f"{value:.6g}" if value == value and abs(value) < 1e15 else repr(value)
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 4000:
        return f"an integer of {value.bit_length():,} bits"
    try:
        return repr(value) if isinstance(value, dict | list | tuple | set) else str(value)
    except Exception as error:  # a user's own __repr__ may raise, or print a digit string beyond Python's limit
        return f"<{type(value).__name__}: {type(error).__name__} while it was shown>"


def _is_numeric(values: Sequence[Any]) -> bool:
    numbers = [isinstance(value, int | float) and not isinstance(value, bool) for value in values if value is not None]
    return bool(numbers) and all(numbers)
