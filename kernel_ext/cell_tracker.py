"""Reports to the builders which cell runs, so that a cell that runs again replaces the nodes that it made.

JupyterLab gives each cell a stable id; without one (a terminal, nbclient) a hash of the cell's text identifies it.
"""

from __future__ import annotations

import hashlib
import linecache
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from kstreams_repl.engine.topology.description.source_location import cell_started
from kstreams_repl.repl.session.source.cell_history import history

if TYPE_CHECKING:
    from IPython.core.interactiveshell import ExecutionInfo, InteractiveShell


class CellTracker:
    """Follows the shell's cells. A cell that is run by another cell counts as part of the outer one."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._events = shell.events
        self._depth = 0
        self._after_cell: list[Callable[[], None]] = []

    @property
    def running(self) -> bool:
        """Return whether a cell is running."""
        return self._depth > 0

    def after_cell(self, call: Callable[[], None]) -> None:
        """Register a function that is called at the end of every cell."""
        self._after_cell.append(call)

    def start(self) -> None:
        self._events.register("pre_run_cell", self._before)
        self._events.register("post_run_cell", self._after)
        history.number_of = lambda file: cell_number(self._shell, file)
        # `%load_ext` itself runs in a cell: the end of that cell is reported to us, its start was not
        self._depth = 0

    def stop(self) -> None:
        self._events.unregister("pre_run_cell", self._before)
        self._events.unregister("post_run_cell", self._after)
        cell_started(None)

    def _before(self, info: ExecutionInfo) -> None:
        self._depth += 1
        if self._depth == 1:
            cell_started(cell_of(info))
            self._note(info)

    def _note(self, info: ExecutionInfo) -> None:
        """Keep the cell's text, so that what is deployed from it can be saved as source."""
        raw = str(info.raw_cell)
        try:
            text = self._shell.transform_cell(raw)
        except SyntaxError:  # reported when the cell runs
            return
        history.note(cell_of(info), text, file=self._file_of(raw, text))

    def _file_of(self, raw: str, text: str) -> Callable[[], str]:
        """Return a function that finds the name under which IPython compiles this cell. In a terminal the name contains the
        execution number, which IPython 9 has already increased here and IPython 8 has not; only the compiler knows, after it has
        compiled the cell."""
        compiler, count = self._shell.compile, self._shell.execution_count
        names = [compiler.get_code_name(raw, text, number) for number in (count, count - 1)]
        return lambda: next((name for name in names if name in linecache.cache), names[0])

    def _after(self, result: object) -> None:
        self._depth = max(self._depth - 1, 0)
        if self._depth == 0:
            cell_started(None)
            for call in self._after_cell:
                call()


def cell_of(info: ExecutionInfo) -> str:
    """Return the id of the cell of an execution."""
    given = getattr(info, "cell_id", None)
    return str(given) if given else hashlib.sha256(str(info.raw_cell).encode()).hexdigest()[:12]


def cell_number(shell: InteractiveShell, file: str) -> int | None:
    """Return the number in ``In[7]`` of the cell that was compiled under this name; None if the file is not a cell."""
    label = shell.compile.format_code_name(file)
    found = None if label is None else re.search(r"\d+", label[1])
    return None if found is None else int(found[0])
