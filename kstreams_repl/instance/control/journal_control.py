"""Signals and reports through the journal, for instances on other hosts than their driver.

Actors: a `Follower` per process and application reads the journal in its own thread, from the offset at which the plan was made,
and writes this process's reports and claims; a `RemoteControl` per slot queries it. A command reaches an instance within
milliseconds of its commit. While the broker is unavailable the last command holds: nothing can be committed then.

Invariant: `signal()` without a time is as of the call. It reads the journal up to its current end, because the second check of a
take-over must see a generation that was raised before it.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

from kstreams_repl.errors import BrokerUnavailableError, KStreamsError
from kstreams_repl.instance.control.file_control import LEASE, Signal, read_whole
from kstreams_repl.kafka.admin import Admin
from kstreams_repl.kafka.clients import ClientSettings
from kstreams_repl.kafka.internal_topics import journal_topic_name
from kstreams_repl.kafka.journal import JournalReader, JournalReports
from kstreams_repl.kafka.journal_records import Claim, Failure, InstanceReport, InstanceStateName, Measured
from kstreams_repl.kafka.journal_state import JournalState
from kstreams_repl.types import TopicPartition

_LOG = logging.getLogger("kstreams_repl.instance")
_WAIT_SECONDS = 0.25
_FRESH_SECONDS = 10.0
_HEARTBEAT_SECONDS = 5.0
_STOPPED_SECONDS = 0.3
_BARE = frozenset({"state", "trouble"})
_MOST_METRICS = 900_000
_MOST_FIGURES = 400_000
"""Characters of a report: a record of the journal holds a megabyte, in which each quotation mark of the report counts twice."""
_MOST_TEXT = 10_000
"""Characters of each text in a report that is too long: an exception of a user's function may quote its input."""
_STATES = frozenset(get_args(InstanceStateName))


class Follower:
    """Reads an application's journal in the background and writes instance keys. Thread-safe.

    Args:
        start: first offset; at or before the command that put the plan in force.
        reports: also read instances' reports: the driver's side, which continues after a stop, where an instance's ends.
    """

    def __init__(self, settings: ClientSettings, application_id: str, *, start: int = 0, reports: bool = False) -> None:
        self.application_id = application_id
        self.start = start
        self._leaves = not reports
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


class RemoteControl:
    """`InstanceControl` of one slot over the journal.

    Args:
        place: the directory in which this executor keeps its stores.
        directory: the control directory of the driver's host.
        claim: the claim that holds the slot; when another claim holds it (Spark declared this executor lost and runs the task
            again on another one) the instance is superseded.
        resting: the slot was not claimed, because the application was to rest when the epoch began; if it is resumed in the
            meantime, other workers run the slot.
        parent: process whose end ends the instance too; None: no process.
    """

    def __init__(
        self,
        follower: Follower,
        generation: int,
        slot: int,
        *,
        place: str,
        directory: Path,
        claim: Claim | None = None,
        resting: bool = False,
        parent: int | None = None,
    ) -> None:
        self._claim = claim
        self._resting = resting
        self.directory = directory
        self._follower = follower
        self.generation = generation
        self.slot = slot
        self._place = place
        self._parent = parent
        self._last: tuple[str, float] = ("", 0.0)
        self._state = ""
        self._tapped = self._sees_driver()

    def signal(self, *, now: float | None = None) -> Signal:
        if self._parent is not None and os.getppid() != self._parent:
            return Signal.STOP
        if now is None:
            self._follower.refresh()
        claim = self._claim
        if claim is not None and self._follower.state.last_claim(self.slot, claim.run) is not claim:
            return Signal.SUPERSEDED
        wanted = self._follower.signal(self.generation)
        return Signal.SUPERSEDED if self._resting and wanted is Signal.RUN else wanted

    def signal_when_fenced(self) -> Signal:
        return self.signal()

    def told(self, state: str) -> bool:
        return self._state == state

    def loop_lock(self) -> None:
        """Return None: the signals of an instance on a cluster belong to the claim of one epoch."""
        return None

    def report(self, content: Mapping[str, Any]) -> None:
        self._state = str(content.get("state"))
        if self._state == Signal.SUPERSEDED.value and self._follower.signal(self.generation) is not Signal.SUPERSEDED:
            return  # only this executor was declared lost; the slot's report is its successor's
        now = time.monotonic()
        same = json.dumps(content, default=str)
        if same == self._last[0] and now - self._last[1] < _HEARTBEAT_SECONDS:
            return
        self._last = (same, now)
        at_ms = int(time.time() * 1000)
        place = {"generation": self.generation, "slot": self.slot, "pid": os.getpid(), "at_ms": at_ms, "place": self._place}
        place["taps"] = self._tapped
        bare = _BARE.issuperset(content)  # of an epoch without work: the stores may be on another executor
        failure = content.get("failure")
        self._follower.writer.send(
            InstanceReport(
                self.generation,
                self.slot,
                f"{self._place}:{os.getpid()}",
                self._state if self._state in _STATES else "running",  # type: ignore[arg-type]
                at_ms,
                host="" if bare else self._place,
                failure=None if failure is None else Failure(str(failure.get("error")), _as_utf8(str(failure.get("message"))[:2_000])),
                figures="" if bare else _figures({**place, **content}),
            )
        )

    def _sees_driver(self) -> bool:
        """Return whether the driver's control directory is at its path on this host: `instance.control.node_taps` uses it.

        The check is the driver's lease of this generation in it, because another host may have a directory of the same name.
        """
        lease = read_whole(self.directory / LEASE)
        return lease is not None and lease.get("generation") == self.generation

    def metrics(self, snapshot: Mapping[str, Any]) -> None:
        text = json.dumps(snapshot)
        if len(text) <= _MOST_METRICS:
            self._follower.writer.send(Measured(self.generation, self.slot, text))
        else:
            _LOG.warning("metrics of %d characters are too many for the journal; record fewer", len(text))


def _figures(content: Mapping[str, Any]) -> str:
    """Return a report as JSON that fits into a journal record: long texts without their middle, then without tasks."""
    text = json.dumps(content, default=str)
    if len(text) > _MOST_FIGURES:
        content = {name: _cut(said) for name, said in content.items()}
        text = json.dumps(content, default=str)
    if len(text) > _MOST_FIGURES:
        text = json.dumps({**content, "tasks": {}}, default=str)
    return text


def _cut(said: Any) -> Any:
    if isinstance(said, Mapping):
        return {name: _cut(part) for name, part in said.items()}
    if isinstance(said, str) and len(said) > _MOST_TEXT:
        return f"{said[: _MOST_TEXT // 2]} … {said[-_MOST_TEXT // 2 :]}"
    return said


def _as_utf8(text: str) -> str:
    """Return the text with lone surrogates, which a user's text may contain, as escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


_followers: dict[str, Follower] = {}
_lock = threading.Lock()


def follow(settings: ClientSettings, application_id: str, start: int) -> Follower:
    """Return this process's follower of an application; create one if there is none or it begins after `start`."""
    with _lock:
        follower = _followers.get(application_id)
        if follower is None or follower.over or follower.start > start:
            if follower is not None:
                follower.close()
            follower = _followers[application_id] = Follower(settings, application_id, start=start)
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
