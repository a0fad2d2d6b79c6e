"""`Applications`: the applications of a session by name, and those in its directory that are not attached, as a table."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from kstreams_repl.pictures.frames import Frames
from kstreams_repl.pictures.table import Table
from kstreams_repl.repl.session.application.application import Application
from kstreams_repl.repl.session.left_applications import LeftApplication, left_applications


class Applications(Frames, dict[str, Application]):
    """The applications of a session by name, displayed as a table; `left` are those of its directory that are not attached."""

    def __init__(self, attached: dict[str, Application], root: Path | None) -> None:
        super().__init__(attached)
        self._root = root

    @property
    def left(self) -> tuple[LeftApplication, ...]:
        """Applications in the session's directory that are not attached; `Session.attach` attaches one."""
        return left_applications(self._root, self)

    def __missing__(self, name: str) -> Application:
        found = next((left for left in self.left if left.name == name), None)
        raise KeyError(name if found is None else f"{name} is {found.standing}; session.attach({name!r}) attaches it")

    def table(self) -> Table:
        """Return one row for each application: status, records, lag, error.

        Example:
            >>> len(session.applications.table())
            1
        """
        return applications_table(self.values(), self.left)

    def __repr__(self) -> str:
        here = ", ".join(f"{app.name} {app.standing}" for app in self.values()) or "none"
        left = ", ".join(f"{left.name} {left.status}" for left in self.left)
        return f"Applications({here}{f'; not attached: {left}' if left else ''})"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return self.table()._repr_mimebundle_()


def applications_table(attached: Iterable[Application], left: Collection[LeftApplication]) -> Table:
    """Return one row per application; the note explains how to attach or remove those that are not attached."""
    rows: list[tuple[object, ...]] = []
    for app in attached:
        counts, error = app.counts, app.error
        first = "" if error is None else error.message.splitlines()[0]
        rows.append((app.name, app.standing, counts.records, round(counts.per_second), counts.lag if counts.lag >= 0 else None, first))
    rows += [(item.name, item.standing, None, None, None, item.error) for item in left]
    note = "" if rows else "no applications; %topo_deploy NAME starts one"
    if left:
        name = next(iter(left)).name
        note = (
            f"not attached: session.attach({name!r}).resume() continues it; "
            f"%topo_remove {name} --dry-run lists what removing it would delete"
        )
    return Table.of(("application", "status", "records", "records/s", "lag", "error"), rows, note=note)
