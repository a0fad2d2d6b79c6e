"""Clients' requests to a running application as small files of its control directory: one file per request, ended by its client or by time.

`node_taps` and `retry_orders` say what is requested. Invariants: a request is written whole or not at all; the instance that reads a
damaged or expired one removes it; without a request the cost is one `stat`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from kstreams_repl.host.instance.control.control_files import read_whole, write_whole
from kstreams_repl.system.types import JsonMapping


class Request(Protocol):
    """A frozen dataclass of JSON values."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def id(self) -> str:
        """Name of the file: 8 to 32 hexadecimal digits."""

    def in_force(self, now_ms: int) -> bool:
        """Return whether its time is not over."""


R = TypeVar("R", bound=Request)


class RequestFiles(Generic[R]):
    """The requests of one kind.

    Args:
        directory: the application's control directory.
        folder: of this kind, in that directory.
        parse: makes a request of a file's content; None: it is invalid.
    """

    def __init__(self, directory: Path, folder: str, parse: Callable[[JsonMapping], R | None]) -> None:
        self.directory = directory
        self._folder = directory / folder
        self._parse = parse

    # ---- the client's end

    def put(self, request: R) -> None:
        """Write or replace a request."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        write_whole(self._folder / f"{request.id}.json", asdict(request))

    def drop(self, request_id: str) -> None:
        """Remove a request."""
        with suppress(FileNotFoundError):
            (self._folder / f"{request_id}.json").unlink()

    def active(self) -> list[str]:
        """Return the ids of the existing requests."""
        return sorted(path.stem for path in self._folder.glob("*.json"))

    # ---- the instance's end

    @property
    def requested(self) -> bool:
        """Whether there may be a request; costs one `stat`."""
        return os.path.isdir(self._folder)

    def wanted(self, now_ms: int) -> dict[str, R]:
        """Return the requests in force by id; remove the others."""
        wanted = {}
        for path in sorted(self._folder.glob("*.json")):
            content = read_whole(path)
            request = None if content is None else self._parse(content)
            if request is not None and request.in_force(now_ms):
                wanted[request.id] = request
            else:
                self.drop(path.stem)
        return wanted
