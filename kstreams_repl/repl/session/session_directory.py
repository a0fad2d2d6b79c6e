"""Directory for what must outlive a session: ``.kstreams`` in the current directory, a chosen one, or a temporary one."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from kstreams_repl.system.errors import ConfigError, IllegalStateError, KStreamsError

TEMPORARY = "temporary"
PROJECT = ".kstreams"


def closed_error() -> KStreamsError:
    """Return the error for calls on a closed session."""
    return IllegalStateError("this session is closed", hint="open another: session = kstreams_repl.connect(...)")


class SessionDirectory:
    """The directory of a session's broker data and state.

    Args:
        chosen: a path; ``"temporary"`` for one that is removed with the session; None for ``.kstreams`` in the current directory,
            or a temporary one if that is not writable.
    """

    home: Callable[[], Path] | None = None
    """Returns the parent of a temporary directory: the broker's, removed by its supervisor even if this process is killed."""

    def __init__(self, chosen: str | os.PathLike[str] | None) -> None:
        here = Path.cwd()
        self.temporary = chosen == TEMPORARY or (chosen is None and not os.access(here, os.W_OK))
        self.closed = False
        self._path = None if self.temporary else Path(chosen if chosen is not None else here / PROJECT).expanduser().absolute()

    @property
    def path(self) -> Path:
        """The directory, created on first access; readable by its user only.

        Raises:
            ConfigError: it cannot be created, or was temporary and has been removed.
        """
        if self.closed:
            raise closed_error()
        if self._path is None:
            self._path = Path(tempfile.mkdtemp(prefix="kstreams-session-")) if self.home is None else self.home() / "session"
        try:
            self._path.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise ConfigError(
                f"the directory {self._path} cannot be created: {error.strerror or error}",
                hint='choose another: connect(directory="…"), or connect(directory="temporary"), which is removed at the end',
                path=str(self._path),
            ) from error
        return self._path

    @property
    def broker(self) -> Path | None:
        """Data directory of the embedded broker; None: its own temporary directory."""
        return None if self.temporary else self.path / "broker"

    @property
    def schemas(self) -> Path | None:
        """Data directory of the embedded Schema Registry; None: its own temporary directory."""
        return None if self.temporary else self.path / "schemas"

    @property
    def state(self) -> Path:
        """``state.dir`` of applications."""
        return self.path / "state"

    def close(self) -> None:
        """Remove a temporary directory, permanently: creating it again would start the broker whose directory contains it."""
        self.closed = self.temporary
        if self.temporary and self._path is not None:
            shutil.rmtree(self._path, ignore_errors=True)
            self._path = None

    def __repr__(self) -> str:
        return TEMPORARY if self.temporary else str(self._path)
