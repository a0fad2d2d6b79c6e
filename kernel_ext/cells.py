"""Tells the builders which cell runs, so that a cell that runs again replaces what it made.

JupyterLab gives each cell an id that stays; where there is none (a terminal, nbclient) the cell's text stands for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from kstreams_repl.session.program import history
from kstreams_repl.topology.origin import cell_started


class CellTracker:
    """Follows the shell's cells. A cell that a cell runs belongs to the outer one."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._events = shell.events
        self._depth = 0
        self._after_cell: list[Callable[[], None]] = []

    @property
    def running(self) -> bool:
        """Whether a cell is running."""
        return self._depth > 0

    def after_cell(self, call: Callable[[], None]) -> None:
        """Call this at the end of every cell."""
        self._after_cell.append(call)

    def start(self) -> None:
        self._events.register("pre_run_cell", self._before)
        self._events.register("post_run_cell", self._after)
        # `%load_ext` itself runs in a cell: its end is seen, its beginning was not
        self._depth = 0

    def stop(self) -> None:
        self._events.unregister("pre_run_cell", self._before)
        self._events.unregister("post_run_cell", self._after)
        cell_started(None)

    def _before(self, info: Any) -> None:
        self._depth += 1
        if self._depth == 1:
            cell_started(cell_of(info))
            self._note(info)

    def _note(self, info: Any) -> None:
        """Keep the cell's text: what is deployed from it can then be written down as source."""
        raw = str(info.raw_cell)
        try:
            text = self._shell.transform_cell(raw)
        except SyntaxError:  # it is told when the cell runs
            return
        file = self._shell.compile.get_code_name(raw, text, self._shell.execution_count)
        history.note(cell_of(info), text, file=file)

    def _after(self, result: Any) -> None:
        self._depth = max(self._depth - 1, 0)
        if self._depth == 0:
            cell_started(None)
            for call in self._after_cell:
                call()


def cell_of(info: Any) -> str:
    """What identifies the cell of an execution."""
    given = getattr(info, "cell_id", None)
    return str(given) if given else hashlib.sha256(str(info.raw_cell).encode()).hexdigest()[:12]
