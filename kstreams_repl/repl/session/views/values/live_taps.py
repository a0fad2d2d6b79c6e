"""Tap a node of a running application: the tap is on its tasks only while a caller reads it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from dataclasses import replace
from types import TracebackType

from kstreams_repl.host.instance.control.node_taps import LEASE_SECONDS, LONGEST_SECONDS, MOST_ROWS, TapClient
from kstreams_repl.host.instance.control.open_channel import open_taps
from kstreams_repl.host.instance.state.state_directory import control_directory, state_root
from kstreams_repl.host.journal.journal_records import TapRequest
from kstreams_repl.host.kafka.internal_topics import journal_topic_name
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.topics.records import ReadRecord, Records
from kstreams_repl.repl.session.views.values.calls_view import call_lines
from kstreams_repl.repl.session.views.values.journaled_run import JournaledRun
from kstreams_repl.system.errors import AuthorizationError, CallError, TapUnavailableError

POLL_SECONDS = 0.1
_RENEW_SECONDS = LEASE_SECONDS / 4
PER_SECOND = 200


TappedApplication = ApplicationCore | JournaledRun
"""An application of this session, or one that another kernel drives."""


class LiveTap:
    """A tap that is on while the `with` block runs. `new()` returns the values since the last call.

    The tap also ends when this process dies (its lease expires within seconds) and after an hour.

    Args:
        rows: each instance keeps this many of the last records between two calls.
        per_second: per instance; records beyond it are only counted.
    """

    def __init__(self, application: TappedApplication, node: str, *, rows: int = 100, per_second: int = PER_SECOND) -> None:
        self._application = application
        self._client: TapClient | None = None
        self._remote = False
        now_ms = int(time.time() * 1000)
        self._request = TapRequest(
            0, secrets.token_hex(8), node, min(max(rows, 1), MOST_ROWS), per_second, 0, now_ms + int(LONGEST_SECONDS * 1000)
        )
        self._renew_at, self._ends_at = 0.0, time.monotonic() + LONGEST_SECONDS
        self._reached: dict[tuple[int, int], int] = {}
        self._counts: dict[tuple[int, int], int] = {}

    @property
    def count(self) -> int:
        """Return how many records have passed so far, shown or not."""
        return sum(self._counts.values())

    @property
    def id(self) -> str:
        return self._request.id

    def __enter__(self) -> LiveTap:
        try:
            self._renew()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._close()

    def new(self) -> list[ReadRecord]:
        """Return the values since the last call, in order of time. Never waits, unless it is the first call that finds instances.

        Raises:
            TapUnavailableError: the instances run on other hosts, and this session has no right to write to the application's journal.
            BrokerUnavailableError: they do, and the journal cannot be read or written now.
        """
        self._renew()
        if self._client is None:
            return []
        fresh: list[ReadRecord] = []
        for part in self._client.seen(self._application.generation, self._request.id):
            place = (int(part["slot"]), int(part["began"] or 0))
            self._counts[place] = int(part["count"])
            after = self._reached.get(place, 0)
            for number, task, key, value, timestamp, headers in part["rows"]:
                if number > after:
                    self._reached[place] = max(self._reached.get(place, 0), number)
                    partition = int(str(task).rpartition("_")[2])
                    fresh.append(ReadRecord(key, value, timestamp, partition=partition, headers=[tuple(pair) for pair in headers]))
        return sorted(fresh, key=lambda record: record.timestamp)

    def _renew(self) -> None:
        application, now = self._application, time.monotonic()
        if not self._renew_at <= now < self._ends_at:
            return
        reports = application.reports
        if reports.remote and not self._remote:
            self._close()
        if self._client is None:
            if not reports.instances:
                return  # it is not known yet where they run
            self._remote = reports.remote
            directory = control_directory(state_root(application.config), application.name)
            settings = application.client.settings
            try:
                self._client = open_taps(directory, settings, application.name, remote=self._remote)
                self._put()
            except AuthorizationError as error:
                raise self._unavailable(error) from error
        else:
            self._put()
        self._renew_at = now + _RENEW_SECONDS

    def _put(self) -> None:
        assert self._client is not None
        until_ms = int((time.time() + LEASE_SECONDS) * 1000)
        self._request = replace(self._request, generation=self._application.generation, until_ms=until_ms)
        self._client.put(self._request)

    def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.drop(self._request.id)
            client.close()

    def _unavailable(self, error: AuthorizationError) -> TapUnavailableError:
        name, node = self._application.name, self._request.node
        topic = journal_topic_name(name)
        return TapUnavailableError(
            f"the values at {node} of {name} cannot be shown live: its instances run on other hosts, and {error.message}",
            hint=f"grant READ and WRITE on topic {topic}; without them session.values({node!r}) runs a sample, session.read(...) reads a "
            "sink's topic, and stores can be read as always",
            node=node,
            application=name,
            topic=topic,
        )


def live_tap(application: TappedApplication, node: str, n: int, seconds: float) -> Records:
    """Return the next `n` values at a node of a running application, or those of `seconds`."""
    deadline = time.monotonic() + seconds
    found: list[ReadRecord] = []
    with LiveTap(application, node, rows=MOST_ROWS) as tap:  # an instance that kept n rows would keep the last n of those that pass at once
        while len(found) < n and time.monotonic() < deadline and application.status == "running":
            time.sleep(POLL_SECONDS)
            found += tap.new()
    passed = f"{tap.count:,} passed"
    if not tap.count:
        passed = f"nothing passed within {seconds:g} s; session.values(...) runs a sample of what is there, and says where values end"
    calls = "".join(f"; {line}" for line in call_lines(application.reports).get(node, ()))
    return Records(found[:n], note=f"{node}: live from {application.name}, {passed}{calls}", title=node)


def live_tail(application: TappedApplication, node: str, seconds: float | None) -> Iterator[ReadRecord]:
    """Yield values at a node as they pass, for `seconds` or until the application no longer runs. Closing it removes the tap."""
    deadline = None if seconds is None else time.monotonic() + seconds
    with LiveTap(application, node) as tap:
        while application.status in ("starting", "running") and (deadline is None or time.monotonic() < deadline):
            time.sleep(POLL_SECONDS)
            yield from tap.new()


def node_name(application: ApplicationCore, target: object) -> str:
    """Return the name of a node, given by name, stream or table.

    Raises:
        TopologyError: the application has no such node.
        CallError: the node belongs to a global table, which has no tasks to tap.
    """
    name = target if isinstance(target, str) else str(getattr(target, "name", target))
    application.topology.node(name)
    shared = application.topology.global_stores()
    if shared is not None and any(node.name == name for node in shared.nodes):
        raise CallError(
            f"expected a node that runs in a task, but {name} belongs to a global table",
            hint="read its topic: session.read(...), or its store: app.store(...)",
            node=name,
        )
    return name
