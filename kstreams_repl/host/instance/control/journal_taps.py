"""Taps on instances on other hosts: records of the application's journal (`node_taps` says what a tap is).

Actors: `JournalTapClient` writes the request under ``tap/<id>`` and reads ``tapped/…`` from the journal's end on, only while it is open;
each instance's `JournalTapServer` reads the requests from its process's follower, which skips the values, and writes what passed since its
last record under ``tapped/<slot>``. None of these are control keys, so a tap fences no driver.

Invariants: a lease runs from the arrival of its request, because clocks of hosts differ; an instance removes an expired request. All
instances of an application together write at most `BYTES_PER_SECOND` for all its taps, rows that do not fit are only counted. One key per
slot and one per tap: compaction leaves nothing but the last record of each, and whichever end closes the tap removes these.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kstreams_repl.host.instance.control.journal_follower import Follower
from kstreams_repl.host.instance.control.json_safe import MOST_TEXT
from kstreams_repl.host.instance.control.node_taps import LEASE_SECONDS
from kstreams_repl.host.journal.journal import JournalReader, JournalReports
from kstreams_repl.host.journal.journal_records import TappedValues, TapRequest
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.kafka.internal_topics import journal_topic_name
from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.system.types import JsonMapping, JsonObject, TopicPartition

_LOG = logging.getLogger("kstreams_repl.host.instance")
BYTES_PER_SECOND = 256 * 1024
"""Of all instances of an application together. Each of their processes fetches the whole journal."""
_LEAST_BYTES_PER_SECOND = 8 * 1024
_BURST_SECONDS = 1.0
_MOST_ROW = 32 * 1024
_CLOSE_SECONDS = 2.0


class JournalTapClient:
    """`TapClient` for instances on other hosts.

    Raises:
        BrokerUnavailableError: the journal cannot be read now.
        AuthorizationError: there is no right to read it.
    """

    def __init__(self, settings: ClientSettings, application_id: str) -> None:
        self._application_id = application_id
        at = TopicPartition(journal_topic_name(application_id), 0)
        end = Admin(settings).end_offsets([at], isolation="read_uncommitted")[at]
        self._reader = JournalReader(settings, application_id, start=end, tapped=True)
        self._writer = JournalReports(settings, application_id)
        self._requests: dict[str, str] = {}
        self._slots: set[int] = set()

    def put(self, request: TapRequest) -> None:
        self._writer.send(request)
        if request.id not in self._requests:
            self._requests[request.id] = request.key
            doing = f"writing the request for a tap on {request.node} of {self._application_id} to the journal"
            self._writer.confirm(doing, hint="check that the broker runs, then again")

    def drop(self, request_id: str) -> None:
        key = self._requests.pop(request_id, None)
        if key is not None:
            self._writer.remove(key)

    def seen(self, generation: int, tap: str) -> list[JsonObject]:
        """Return the parts that arrived since the last call."""
        try:
            self._reader.poll()
        except KStreamsError as error:  # the instances are read again once the broker is available
            _LOG.info("the journal cannot be read now: %s", error, extra={"application": self._application_id})
        arrived, found = self._reader.state.tapped, []
        while arrived:
            record = arrived.popleft()
            self._slots.add(record.slot)
            part = _part_of(record, tap) if record.generation == generation else None
            if part is not None:
                found.append(part)
        return found

    def close(self) -> None:
        """Remove the requests and the last values, and drop the connections."""
        for request_id in list(self._requests):
            self.drop(request_id)
        for slot in self._slots:
            self._writer.remove(f"tapped/{slot}")
        self._writer.flush(_CLOSE_SECONDS)
        self._writer.close()
        self._reader.close()


@dataclass(slots=True)
class _Lease:
    """A request as this instance got it: when it arrived, and whether its removal was written."""

    request: TapRequest
    arrived: float
    removed: bool = False


class JournalTapServer:
    """`TapServer` through the journal.

    Args:
        instances: how many share `BYTES_PER_SECOND`.
        clock: monotonic time in seconds.
    """

    def __init__(self, follower: Follower, instances: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._follower = follower
        self._clock = clock
        self._leases: dict[str, _Lease] = {}
        self._per_second = max(BYTES_PER_SECOND / max(instances, 1), _LEAST_BYTES_PER_SECOND)
        self._room = self._per_second * _BURST_SECONDS
        self._shown_at: float | None = None
        self._sent: dict[str, int] = {}
        """By tap: the number of its last row that was sent."""

    @property
    def requested(self) -> bool:
        return bool(self._follower.state.taps)

    def wanted(self, now_ms: int) -> dict[str, TapRequest]:
        now = self._clock()
        leases = {}
        for name, request in list(self._follower.state.taps.items()):
            lease = self._leases.get(name)
            if lease is None or lease.request is not request:
                lease = _Lease(request, now)
            leases[name] = lease
            if now - lease.arrived >= LEASE_SECONDS and not lease.removed:
                lease.removed = True
                self._follower.writer.remove(request.key)
        self._leases = leases
        return {name: lease.request for name, lease in leases.items() if not lease.removed}

    def show(self, generation: int, slot: int, content: JsonMapping | None) -> bool:
        now, last = self._clock(), self._shown_at
        if content is None:
            if last is not None:
                self._follower.writer.remove(f"tapped/{slot}")
                self._shown_at = None
                self._sent.clear()
            return True
        if last is not None:
            self._room = min(self._room + (now - last) * self._per_second, self._per_second * _BURST_SECONDS)
        self._shown_at = now
        if self._room <= 0:  # a large row took the share of the next seconds
            return False
        taps: Mapping[str, JsonMapping] = content["taps"]
        parts = {name: {**tap, "rows": self._new_rows(name, tap["rows"], self._room / len(taps))} for name, tap in taps.items()}
        self._sent = {name: self._sent.get(name, 0) for name in taps}
        values = json.dumps({"began": content["began"], "taps": parts})
        self._room -= len(values)
        self._follower.writer.send(TappedValues(generation, slot, values))
        return True

    def _new_rows(self, tap: str, rows: Sequence[list[Any]], room: float) -> list[list[Any]]:
        """Return the last rows after those that were sent, as many as there is room for, and at least one."""
        after = self._sent.get(tap, 0)
        chosen: list[list[Any]] = []
        for row in reversed(rows):
            if row[0] <= after or room <= 0:
                break
            row, size = _cut(row)
            if size > room and chosen:
                break
            room -= size
            chosen.append(row)
        if rows:
            self._sent[tap] = max(after, rows[-1][0])
        return chosen[::-1]


def _cut(row: list[Any]) -> tuple[list[Any], int]:
    """Return a row, with key and value as text and without headers if it is long, and the length of its JSON."""
    size = len(json.dumps(row))
    if size <= _MOST_ROW:
        return row, size
    number, task, key, value, timestamp, _ = row
    texts = (part if len(part) <= MOST_TEXT else f"{part[:MOST_TEXT]}…" for part in (json.dumps(key), json.dumps(value)))
    row = [number, task, *texts, timestamp, []]
    return row, len(json.dumps(row))


def _part_of(record: TappedValues, tap: str) -> JsonObject | None:
    """Return what a record shows of a tap; None: nothing, or not in the form in which an instance writes it."""
    try:
        content = json.loads(record.values)
        part = content["taps"].get(tap)
        if part is None:
            return None
        rows = [
            [int(number), str(task), key, value, int(timestamp), list(headers)]
            for number, task, key, value, timestamp, headers in part["rows"]
        ]
        return {"slot": record.slot, "began": int(content["began"]), "count": int(part["count"]), "rows": rows}
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
