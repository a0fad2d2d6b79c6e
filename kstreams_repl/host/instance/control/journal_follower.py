"""The journal as a worker process or a driver follows it: one `Follower` per process and application, a thread of its own, which reads
from the offset at which the plan was made and writes this process's reports and claims.

A command reaches an instance within milliseconds of its commit. While the broker is unavailable the last command holds: nothing can be
committed then.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable

from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.journal.journal import JournalReader, JournalReports
from kstreams_repl.host.journal.journal_state import JournalState
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.kafka.internal_topics import journal_topic_name
from kstreams_repl.system.errors import BrokerUnavailableError, KStreamsError
from kstreams_repl.system.types import TopicPartition

_LOG = logging.getLogger("kstreams_repl.host.instance")
_WAIT_SECONDS = 0.25
_FRESH_SECONDS = 10.0
_STOPPED_SECONDS = 0.3


class Follower:
    """Reads an application's journal in the background and writes instance keys. Thread-safe.

    Args:
        start: first offset; at or before the command that put the plan in force.
        reports: also read instances' reports.
        leaves: end after a stop, as an instance's side does; None: without `reports`, because the driver's side continues.
    """

    def __init__(
        self, settings: ClientSettings, application_id: str, *, start: int = 0, reports: bool = False, leaves: bool | None = None
    ) -> None:
        self.application_id = application_id
        self.start = start
        self.reports = reports
        self._leaves = not reports if leaves is None else leaves
        self._at = TopicPartition(journal_topic_name(application_id), 0)
        self._admin = Admin(settings)
        self._reader = JournalReader(settings, application_id, start=start, reports=reports)
        self.writer = JournalReports(settings, application_id)
        self.position = start
        self._fresh_wanted = 0
        self.over = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._follow, name=f"journal-{application_id}", daemon=True)
        self._thread.start()

    @property
    def state(self) -> JournalState:
        """The state of the journal as read so far; the reader thread changes it, so read one attribute at a time."""
        return self._reader.state

    def refresh(self, *, seconds: float = _FRESH_SECONDS) -> None:
        """Return when `state` includes everything written before the call.

        Raises:
            BrokerUnavailableError: that did not happen within `seconds`.
        """
        end = self._admin.end_offsets([self._at], isolation="read_uncommitted")[self._at]
        self.wait_for(lambda: self.position >= end, seconds, f"the journal to be read to {end}")

    def wait_for(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait until a condition on the state holds.

        Raises:
            BrokerUnavailableError: it did not within `seconds`.
        """
        with self._changed:
            self._fresh_wanted += 1
            try:
                if not self._changed.wait_for(lambda: condition() or self.over, seconds) or not condition():
                    raise BrokerUnavailableError(
                        f"waited {seconds:.0f} s for {what} ({self._at.topic}, now at {self.position})",
                        hint="check that the broker runs",
                        topic=self._at.topic,
                    )
            finally:
                self._fresh_wanted -= 1

    def watch(self, seconds: float) -> None:
        """Wait for new records or until `seconds` have passed."""
        with self._changed:
            self._fresh_wanted += 1
            self._changed.wait(seconds)
            self._fresh_wanted -= 1

    def signal(self, generation: int) -> Signal:
        """Return the command for a generation, as far as the journal has been read."""
        desired = self.state.desired
        if desired is None:
            return Signal.STOP
        if desired.generation != generation:
            return Signal.SUPERSEDED
        return Signal(desired.state)

    def close(self) -> None:
        """Stop following; records that were sent get a short time to be delivered."""
        self.over = True
        self._thread.join(2.0)
        self.writer.flush(0.5)
        self.writer.close()

    def _follow(self) -> None:
        reader = self._reader
        try:
            stopped_at: float | None = None
            while not self.over:
                try:
                    reader.wait(0.005 if self._fresh_wanted else _WAIT_SECONDS)
                except KStreamsError as error:  # the last command holds until the broker is available again
                    _LOG.info("the journal cannot be read now: %s", error, extra={"application": self.application_id})
                    time.sleep(0.5)
                position = reader.position
                with self._changed:
                    self.position = position
                    self._changed.notify_all()
                desired = self.state.desired
                if desired is None or desired.state != "stopped" or not self._leaves:
                    stopped_at = None
                elif stopped_at is None:
                    stopped_at = time.monotonic()
                elif time.monotonic() - stopped_at > _STOPPED_SECONDS:
                    self.over = True
        finally:
            reader.close()


_followers: dict[str, Follower] = {}
_lock = threading.Lock()


def follow(settings: ClientSettings, application_id: str, start: int, *, reports: bool = False) -> Follower:
    """Return this process's follower of an application; create one if there is none or it begins after `start`.

    Args:
        reports: also read instances' reports.
    """
    with _lock:
        follower = _followers.get(application_id)
        if follower is None or follower.over or follower.start > start or reports and not follower.reports:
            if follower is not None:
                follower.close()
            follower = _followers[application_id] = Follower(
                settings, application_id, start=start, reports=reports, leaves=True
            )
        return follower


def followed(application_id: str) -> Follower | None:
    """Return this process's follower, if it has one."""
    return _followers.get(application_id)


def forget(application_id: str) -> None:
    """Close this process's follower of an application."""
    with _lock:
        follower = _followers.pop(application_id, None)
    if follower is not None:
        follower.close()


def _forget_after_fork() -> None:
    _followers.clear()


os.register_at_fork(after_in_child=_forget_after_fork)
