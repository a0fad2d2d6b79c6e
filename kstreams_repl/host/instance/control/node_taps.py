"""Taps on a running application: a client's requests and an instance's samples.

Actors: the client puts one `TapRequest` per tap through a `TapClient` and renews its lease while it is shown; each instance's `TapBoard`
reads the requests a few times a second from its `TapServer`, attaches observers to the tasks that have the node
(`engine.runtime.compiler.tap_points`), and shows the observed records there. On the driver's host both ends are `TapFiles`: small files of
the control directory, ``taps/<id>.json`` and ``tapped-<generation>-<slot>.json``; on a cluster records of the journal (`journal_taps`).
Invariants: a tap whose lease has expired is detached and its request removed, whether or not its client still exists; rows and bytes of
every tap are bounded, records beyond the rate are only counted; values leave the worker as trimmed JSON, never as code; without a request
the cost is one `stat` per report on the driver's host, and a look into a dictionary on a cluster.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kstreams_repl.host.instance.control.control_files import read_whole, write_whole
from kstreams_repl.host.instance.control.json_safe import shown
from kstreams_repl.host.instance.control.request_files import RequestFiles
from kstreams_repl.host.journal.journal_records import TapRequest
from kstreams_repl.system.types import JsonMapping, JsonObject, TaskId, header_text

if TYPE_CHECKING:
    from kstreams_repl.engine.runtime.task import StreamTask

LEASE_SECONDS = 5.0
"""A tap that its client does not renew for this long expires."""
LONGEST_SECONDS = 3600.0
MOST_ROWS = 1_000
"""As `journal_records.TapRows` allows."""
MOST_BYTES = 256 * 1024
_FOLDER = "taps"


class TapClient(Protocol):
    """The client's end."""

    def put(self, request: TapRequest) -> None:
        """Request a tap, or extend its lease.

        Raises (only a first request, and only through the journal):
            AuthorizationError: the client has no right to write to it.
            BrokerUnavailableError: it cannot be written now.
        """

    def drop(self, request_id: str) -> None:
        """Remove a request."""

    def seen(self, generation: int, tap: str) -> list[JsonObject]:
        """Return what each instance shows of one tap: ``slot``, ``began`` (a new value restarts the count), ``count`` and ``rows``,
        which are numbered. Rows of an earlier call may be among them, in several parts of one slot, each newer than the one before.
        """

    def close(self) -> None:
        """Drop the connection."""


class TapServer(Protocol):
    """The instance's end. Never blocks, never fails."""

    @property
    def requested(self) -> bool:
        """Whether there may be a request."""

    def wanted(self, now_ms: int) -> dict[str, TapRequest]:
        """Return the requests in force by id; remove the others."""

    def show(self, generation: int, slot: int, content: JsonMapping | None) -> bool:
        """Show the values observed by an instance; None: it has no taps any more.

        Returns:
            False: not now; show them again in the next round.
        """


class TapFiles(RequestFiles[TapRequest]):
    """Both ends on the driver's own host: `TapClient` and `TapServer`.

    Args:
        directory: the application's control directory.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, _FOLDER, TapRequest.read)

    def seen(self, generation: int, tap: str) -> list[JsonObject]:
        found = []
        for path in self.directory.glob(f"tapped-{generation}-*.json"):
            content = read_whole(path)
            mine = (content or {}).get("taps", {}).get(tap)
            if content is not None and isinstance(mine, dict):
                found.append({"slot": content["slot"], "began": content.get("began"), **mine})
        return sorted(found, key=lambda item: item["slot"])

    def show(self, generation: int, slot: int, content: JsonMapping | None) -> bool:
        path = self.directory / f"tapped-{generation}-{slot}.json"
        with suppress(FileNotFoundError):  # the driver has removed the directory
            if content is None:
                path.unlink()
            else:
                write_whole(path, content)
        return True

    def close(self) -> None:
        """Do nothing: files need no connection."""


class _Tap:
    """One active request in one instance; `engine.runtime.compiler.tap_points.Observer` for each of its tasks."""

    def __init__(self, request: TapRequest) -> None:
        self.request = request
        self.count = 0
        self.kept: deque[list[object]] = deque(maxlen=request.rows)
        self.room = self._share()
        self.changed = True
        self.attached: list[tuple[Any, _TaskTap]] = []

    def refill(self, seconds: float) -> None:
        """Reset how many records may be kept in the next period, by the rate."""
        self.room = self._share(seconds)

    def _share(self, seconds: float = 0.2) -> int:
        return max(1, round(self.request.per_second * min(seconds, 1.0)))

    def keep(self, task: str, key: object, value: object, timestamp: int, headers: Any) -> None:
        """Keep one record as bounded JSON values."""
        self.room -= 1
        texts = [(name, header_text(data)) for name, data in headers or ()]
        self.kept.append([self.count, task, shown(key), shown(value), timestamp, shown(texts)])

    def show(self) -> JsonObject:
        """Return the tap's content, bounded in bytes: the oldest rows are dropped first."""
        rows: list[list[object]] = []
        size = 0
        for row in reversed(self.kept):
            size += _size(row)
            if size > MOST_BYTES and rows:
                break
            rows.append(row)
        return {"node": self.request.node, "count": self.count, "rows": rows[::-1]}


class _TaskTap:
    """The observer of one task for a tap."""

    def __init__(self, tap: _Tap, task: TaskId, changes: bool, serdes: tuple[Any, Any] | None) -> None:
        self._tap = tap
        self._task = str(task)
        self._changes = changes
        self._serdes = serdes

    def record(self, key: object, value: Any, timestamp: int, headers: Any) -> None:
        tap = self._tap
        tap.count += 1
        tap.changed = True
        if tap.room > 0:
            tap.keep(self._task, key, value[0] if self._changes else value, timestamp, headers)

    def rows(
        self, keys: Sequence[object], values: Sequence[object], timestamps: Sequence[int], headers: Sequence[object] | None
    ) -> None:
        tap = self._tap
        first = tap.count
        tap.count += len(keys)
        tap.changed = True
        if tap.room <= 0 or self._serdes is None:
            return
        read_key, read_value = (serde.deserialize for serde in self._serdes)
        begin = max(0, len(keys) - tap.room)
        for index in range(begin, len(keys)):
            value = values[index]
            own = [] if headers is None else headers[index]
            tap.keep(self._task, read_key(keys[index]), None if value is None else read_value(value), timestamps[index], own)
            tap.kept[-1][0] = first + index + 1


class TapBoard:
    """The instance's side: attaches and detaches taps; call it at intervals from the task's own thread, between records."""

    def __init__(self, server: TapServer, generation: int, slot: int) -> None:
        self._server = server
        self._generation, self._slot = generation, slot
        self._taps: dict[str, _Tap] = {}
        self._last = 0.0
        self._began = time.time_ns()

    @property
    def active(self) -> frozenset[str]:
        """Ids of the attached taps."""
        return frozenset(self._taps)

    def serve(self, tasks: Iterable[StreamTask]) -> None:
        """Attach requested taps, detach expired ones, and write the observed records.

        Args:
            tasks: the instance's `StreamTask`s.
        """
        if not self._taps and not self._server.requested:
            return
        now = time.time()
        wanted = self._server.wanted(int(now * 1000))
        for over in [name for name in self._taps if name not in wanted]:
            self._take_off(self._taps.pop(over))
        for name, request in wanted.items():
            tap = self._taps.get(name)
            if tap is None:
                tap = self._taps[name] = _Tap(request)
                self._put_on(tap, tasks)
            else:
                tap.request = request
                tap.refill(now - self._last)
        self._last = now
        self._show()

    def _put_on(self, tap: _Tap, tasks: Iterable[StreamTask]) -> None:
        node = tap.request.node
        for task in tasks:
            taps = task.taps(node)
            if taps is None:
                continue
            observer = _TaskTap(tap, task.id, taps.changes, taps.serdes)
            for point in taps.points:
                point.attach(observer)
                tap.attached.append((point, observer))

    def _take_off(self, tap: _Tap) -> None:
        for point, observer in tap.attached:
            point.detach(observer)
        tap.attached = []

    def _show(self) -> None:
        if not self._taps:
            self._server.show(self._generation, self._slot, None)
        elif any(tap.changed for tap in self._taps.values()):
            taps = {name: tap.show() for name, tap in self._taps.items()}
            if self._server.show(self._generation, self._slot, {"slot": self._slot, "began": self._began, "taps": taps}):
                for tap in self._taps.values():
                    tap.changed = False


def _size(row: list[object]) -> int:
    return len(repr(row))
