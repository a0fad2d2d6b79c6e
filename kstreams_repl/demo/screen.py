"""The demo's output for a person: lines, tables and a progress bar; none of it under ``--json``."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

_NEAR = 100
"""At or below this lag the broker is queried for the remaining records."""
_ASK_SECONDS = 2.0


class Screen:
    """Progress and tables for a person; no output if quiet.

    Args:
        terminal, width: of the terminal to which another process copies this output; None: those of standard output.
    """

    def __init__(self, *, quiet: bool, terminal: bool | None = None, width: int | None = None) -> None:
        from rich.console import Console

        self.console = Console(quiet=quiet, highlight=False, force_terminal=terminal, width=width)

    def line(self, text: str) -> None:
        self.console.print(text, markup=False)

    def rows(self, title: str, columns: Iterable[str], rows: Iterable[tuple[object, ...]]) -> None:
        from rich.table import Table
        from rich.text import Text

        table = Table(title=title, title_justify="left")
        for column in columns:
            table.add_column(Text(column))
        for row in rows:
            table.add_row(*(Text(str(cell)) for cell in row))
        self.console.print(table)

    def progress(self, app: Any, total: int) -> tuple[int, float]:
        """Show the progress until no records remain; returns the number of input records and the seconds from the first records
        processed to the last commit, by the clocks of the instances.
        """
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.table import Column

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}", table_column=Column(width=17)),  # a notebook does not erase the rest of a longer line
            TimeElapsedColumn(),
        )
        began: float | None = None
        next_ask = 0.0
        with Progress(*columns, console=self.console, transient=True) as bar:
            followed = bar.add_task("processing", total=total, rate="")
            while True:
                reports = app.reports
                now = time.monotonic()
                firsts = [one.first_at for one in reports.instances.values() if one.first_at is not None]
                began = min([*firsts, *([] if began is None else [began])], default=None)
                bar.update(followed, completed=min(total, reports.records), rate=f"{reports.rate:,.0f} records/s" if reports.rate else "")
                # Reports are small files and cheap to read; only the broker knows that no records remain. It is also queried
                # regularly because a session restarts an embedded broker that died, or raises why it cannot.
                ask = reports.lag <= _NEAR or now >= next_ask
                if ask:
                    next_ask = now + _ASK_SECONDS
                if app.wait(0, until=lambda app, ask=ask: ask and app.remaining() == 0):
                    ended = max((one.committed_at or 0.0 for one in app.reports.instances.values()), default=0.0)
                    return total, max(ended - began, 0.001) if began is not None else 0.001
                time.sleep(0.05 if reports.lag >= 0 else 0.25)
