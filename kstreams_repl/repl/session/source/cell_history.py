"""The cells of this process's notebook or terminal: their text as last run, and their execution numbers.

Filled by the notebook extension, empty in a script. IPython compiles each run of a cell under a file name of its own. Tracebacks
and the origins of nodes have that name, and `CellHistory.cell_of` maps it back to the cell and its execution number.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class CellText:
    """The text of one cell as last run, or of a module.

    Attributes:
        name: the file it was compiled as, or a function that returns it: IPython names a cell only after announcing its start.
        before: a statement that its statements need in front of them.
        ran: sequence number of this run among the runs of all cells.
    """

    name: str | Callable[[], str]
    text: str
    before: str = ""
    ran: int = 0

    @property
    def file(self) -> str:
        return self.name if isinstance(self.name, str) else self.name()


@dataclass(frozen=True, slots=True)
class CellLocation:
    """A cell as its user identifies it: the id from JupyterLab (or the hash of its text), and the number in ``In[7]``."""

    cell: str
    number: int | None

    def __str__(self) -> str:
        return f"cell [{' ' if self.number is None else self.number}]"


class CellHistory:
    """The cells of this process as last run, in the order in which they first ran."""

    def __init__(self) -> None:
        self._cells: dict[str, CellText] = {}
        self._runs = 0
        self._noted: list[tuple[str, str, CellText]] = []
        self._by_file: dict[str, tuple[str, str, CellText]] = {}
        """Every run: the id of the cell, under which key its text is in `_cells`, and the text."""
        self.number_of: Callable[[str], int | None] = lambda file: None
        """Return the execution number of the cell that was compiled under a file name; None: it is not a cell's."""

    def note(self, cell: str, text: str, *, file: str | Callable[[], str], before: str = "") -> Callable[[], None]:
        """Note that a cell ran. Return a function that undoes the note.

        Args:
            before: a statement that its statements need in front of them.
        """
        place = cell
        known = self._cells.get(cell)
        if known is not None and known.before != before:
            cell = f"{cell}/{before}"
        earlier = self._cells.get(cell)
        self._runs += 1
        self._cells[cell] = CellText(file, text, before, self._runs)
        self._noted.append((place, cell, self._cells[cell]))

        def take_back() -> None:
            if earlier is None:
                self._cells.pop(cell, None)
            else:
                self._cells[cell] = earlier

        return take_back

    def texts(self) -> list[CellText]:
        return list(self._cells.values())

    def files(self) -> set[str]:
        return {text.file for text in self._cells.values()}

    def cell_of(self, file: str) -> CellLocation | None:
        """Return the cell compiled under a file name, in any of its runs; None if the file is not a cell of this process."""
        found = self._runs_by_file().get(file)
        return None if found is None else CellLocation(found[0], self.number_of(file))

    def go_back(self, dropped: Collection[str], restored: Collection[str]) -> None:
        """Let cells have the text of an earlier run, because a rollback has taken the builder back to it.

        Args:
            dropped, restored: the files of the runs that made the builder's calls so far, and of those that make them again.
        """
        runs = self._runs_by_file()
        for file in dropped:
            if file in runs and self._cells.get(runs[file][1]) is runs[file][2]:
                self._cells[runs[file][1]] = replace(runs[file][2], text="")  # it keeps its place
        for file in restored:
            if file in runs:
                self._cells[runs[file][1]] = runs[file][2]

    def _runs_by_file(self) -> dict[str, tuple[str, str, CellText]]:
        while self._noted:
            run = self._noted.pop(0)
            self._by_file[run[2].file] = run
        return self._by_file

    @property
    def number(self) -> int | None:
        """The execution number of the cell that is running, or ran last."""
        last = max(self._cells.values(), key=lambda text: text.ran, default=None)
        return None if last is None else self.number_of(last.file)


history = CellHistory()
"""Filled by the notebook extension."""
