"""`CountsReader`: reads the record counts of an application, while it runs and at rest.

Actors: the instances, which report while they run; the application's committed offsets, with which the counts are stored
(`engine.commit.committed_counts`), so that they outlive epochs, edits, pauses and kernels; the journal, where each version has the
counts of the commit at which it took effect. The reports count if every instance has sent one, and else the commit.
Invariant: a call waits for the broker no longer than `PATIENCE_SECONDS`; without an answer it returns the last counts.
"""

from __future__ import annotations

import base64
import binascii
import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from kstreams_repl.engine.commit.committed_counts import committed_counts
from kstreams_repl.engine.runtime.nodes.node_counts import NodeCounts
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.journal.journal import JournalReader
from kstreams_repl.host.kafka.reading import FEW_OFFSETS
from kstreams_repl.repl.session.views.counts.consumer_lag import Remaining, remaining
from kstreams_repl.repl.session.views.counts.record_counts import Counts, Rates, committed, reported, since
from kstreams_repl.system.errors import KStreamsError

if TYPE_CHECKING:
    from kstreams_repl.host.spark.instance_reports import ApplicationReport

PATIENCE_SECONDS = 1.5
FRESH_SECONDS = 2.0

_JOURNAL_SECONDS = 5.0

T = TypeVar("T")


class CountedApplication(Protocol):
    """What it reads of an application: of the session's, and of a query server's."""

    name: str
    topology: Topology
    client: Any

    @property
    def status(self) -> str: ...
    @property
    def versions(self) -> list[Any]: ...
    @property
    def reports(self) -> ApplicationReport: ...


class CountsReader:
    """Reads the counts of one application; may be called from any thread.

    Args:
        instances: returns how many instances run, as far as the driver knows.
    """

    def __init__(self, app: CountedApplication, instances: Callable[[], int]) -> None:
        self._app = app
        self._instances = instances
        self._last = Counts()
        self._rates = Rates()
        self._control_calls = 0
        self._rest: _BrokerQuery[Remaining] = _BrokerQuery(f"rest-{app.name}")
        self._before: _BrokerQuery[bytes] = _BrokerQuery(f"version-{app.name}", keep=math.inf)

    def read(self) -> Counts:
        """Return the present counts; after the session is closed, those of `settle`."""
        if not self._app.client.closed:
            self._last = self._read()
        before = self._before_version()
        return self._last if before is None else replace(self._last, this_version=since(self._app.topology, self._last, before))

    def remaining(self, *, most: int = FEW_OFFSETS) -> Remaining:
        """Read from the broker, now, what is not processed and committed.

        Args:
            most: as `consumer_lag.remaining`.
        """
        app = self._app
        return remaining(app.client.admin, app.client.counter, app.name, app.topology, most=most)

    def settle(self) -> None:
        """Read the counts of the last commit, however long the broker takes, before it ends: `read` returns them from then on."""
        app = self._app
        with suppress(KStreamsError):  # the broker does not answer: the counts stay as they were
            self._last = committed(app.topology, self.remaining(), self._last)
            self._before_version()

    def forget(self) -> None:
        """Note a control call on the application: the next `read` queries the broker."""
        self._control_calls += 1

    def _read(self) -> Counts:
        app = self._app
        status = app.status
        if status == "running":
            report = app.reports
            if _complete(report, self._instances()):
                return self._rates.smoothed(app.topology, reported(app.topology, report), time.monotonic())
        rest = self._rest.answer((status, self._control_calls), self.remaining, closed=app.client.closed)
        return self._last if rest is None else committed(app.topology, rest, self._last)

    def _before_version(self) -> NodeCounts | None:
        """Return the counts of the nodes at the commit at which the version in force took effect, from the journal."""
        app = self._app
        versions = app.versions
        number = versions[-1].number if versions else 1
        if number == 1:
            return {}
        data = self._before.answer((number, self._control_calls), lambda: _counted_before(app, number), closed=app.client.closed)
        return None if data is None else committed_counts(data, app.topology.nodes)


def _complete(report: ApplicationReport, instances: int) -> bool:
    """Return whether every instance has reported the counts of its nodes."""
    reports = report.instances.values()
    return len(reports) >= instances and all(instance.nodes is not None for instance in reports)


def _counted_before(app: CountedApplication, version: int) -> bytes | None:
    """Return a version's counts from the journal; None while it has no such version."""
    reader = JournalReader(app.client.settings, app.name, reports=False)
    try:
        found = reader.catch_up(app.client.admin, seconds=_JOURNAL_SECONDS).versions.get(version)
    finally:
        reader.close()
    try:
        return None if found is None else base64.b64decode(found.counts)
    except binascii.Error:  # not written by this project
        return b""


class _BrokerQuery(Generic[T]):
    """A query to the broker, which runs in a thread of its own. Its answer is kept for a while.

    Args:
        name: of the thread.
        keep: seconds after which the query is sent again.
    """

    def __init__(self, name: str, *, keep: float = FRESH_SECONDS) -> None:
        self._name = name
        self._keep = keep
        self._lock = threading.Lock()
        self._known: T | None = None
        self._of: object = None
        self._failed: object = None
        self._at = 0.0
        self._asking: threading.Event | None = None

    def answer(self, wanted: object, ask: Callable[[], T | None], *, closed: bool) -> T | None:
        """Return the last answer to a query; None while there is none.

        Args:
            wanted: identifies the query; the answer to another one does not count.
            ask: returns the answer; None, or an error: no answer yet.
            closed: no more queries are possible: return the last answer to any query.
        """
        with self._lock:
            age = time.monotonic() - self._at
            fresh = self._of == wanted and age < self._keep or self._failed == wanted and age < FRESH_SECONDS
            if fresh or closed:
                return self._known if self._of == wanted or closed else None
            asked = self._asking
            if asked is None:
                asked = self._asking = threading.Event()
                threading.Thread(target=self._ask, args=(wanted, ask, asked), name=self._name, daemon=True).start()
            wait = self._of != wanted
        if wait:
            asked.wait(PATIENCE_SECONDS)
        return self._known if self._of == wanted else None

    def _ask(self, wanted: object, ask: Callable[[], T | None], asked: threading.Event) -> None:
        try:
            found = ask()
        except Exception:  # the broker is unreachable, or the session is closed: keep the last answer
            found = None
        with self._lock:
            self._asking = None
            self._at = time.monotonic()
            self._failed = wanted if found is None else None
            if found is not None:
                self._known, self._of = found, wanted
        asked.set()
