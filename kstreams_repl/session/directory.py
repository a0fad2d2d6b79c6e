"""Where a session keeps what must outlive it: ``.kstreams`` in the current directory, one of the user's choice, or nothing at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from kstreams_repl.errors import KStreamsError

TEMPORARY = "temporary"
PROJECT = ".kstreams"


def closed_error() -> KStreamsError:
    """What a session that is closed answers."""
    return KStreamsError("this session is closed", hint="session = kstreams_repl.connect(...) opens another")


class SessionDirectory:
    """The directory of a session's broker data and state.

    Args:
        chosen: a path; ``"temporary"`` for one that goes with the session; None for ``.kstreams`` here, or a temporary one where nothing
            can be written.
    """

    home: Callable[[], Path] | None = None
    """Where a temporary directory goes even if this process is killed: with the embedded broker's, which its supervisor removes."""

    def __init__(self, chosen: str | os.PathLike[str] | None) -> None:
        here = Path.cwd()
        self.temporary = chosen == TEMPORARY or (chosen is None and not os.access(here, os.W_OK))
        self.closed = False
        self._path = None if self.temporary else Path(chosen if chosen is not None else here / PROJECT).expanduser().absolute()

    @property
    def path(self) -> Path:
        """The directory, made when it is first asked for; readable by its user only.

        Raises:
            KStreamsError: it cannot be made, or was temporary and has gone.
        """
        if self.closed:
            raise closed_error()
        if self._path is None:
            self._path = Path(tempfile.mkdtemp(prefix="kstreams-session-")) if self.home is None else self.home() / "session"
        try:
            self._path.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise KStreamsError(
                f"the directory {self._path} cannot be made: {error.strerror or error}",
                hint='connect(directory="temporary") keeps nothing',
                path=str(self._path),
            ) from error
        return self._path

    @property
    def broker(self) -> Path | None:
        """Where the embedded broker keeps its data; None: its own temporary directory."""
        return None if self.temporary else self.path / "broker"

    @property
    def state(self) -> Path:
        """``state.dir`` of applications."""
        return self.path / "state"

    def close(self) -> None:
        """Remove a temporary directory, for good: to ask for it again would start the broker that its place is with."""
        self.closed = self.temporary
        if self.temporary and self._path is not None:
            shutil.rmtree(self._path, ignore_errors=True)
            self._path = None

    def __repr__(self) -> str:
        return TEMPORARY if self.temporary else str(self._path)
