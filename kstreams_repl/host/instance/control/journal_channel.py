"""The control channel for instances on other hosts than their driver: records of the application's journal.

Commands are written with the application's control id, so that a driver whose application was taken over cannot give any. A
`JournalInstanceControl` per slot asks this process's follower (`journal_follower`). A claim is a record, of which the first in log order
wins: a process claims immediately a slot that it holds warm or that had no owner, a moment later one of the same executor directory, and
still later one of another directory, whose worker may only be slow. A later attempt of the same Spark task inherits the slot that the
earlier one claimed, so that a killed worker is replaced without waiting.

Invariant: `signal()` without a time is as of the call. It reads the journal up to its current end, because the second check of a
take-over must see a generation that was raised before it.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import get_args

from kstreams_repl.engine.metrics.metrics_snapshot import validated
from kstreams_repl.host.instance.control.channel import ENDED, EpochTask, PeerTimes, Signal
from kstreams_repl.host.instance.control.event_times import FIELD, JournalTimes
from kstreams_repl.host.instance.control.file_channel import FileChannel
from kstreams_repl.host.instance.control.journal_follower import Follower, forget
from kstreams_repl.host.instance.control.journal_taps import JournalTapServer
from kstreams_repl.host.journal.journal_records import Claim, Failure, InstanceHeartbeat, InstanceStateName, Measured, RetryOrder
from kstreams_repl.host.journal.journal_state import JournalState
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.system.types import JsonMapping, JsonObject

_LOG = logging.getLogger("kstreams_repl.host.instance")
_HEARTBEAT_SECONDS = 5.0
_FLUSH_SECONDS = 1.0
_CLAIM_SECONDS = 30.0
_SAME_EXECUTOR_SECONDS = 0.15
_OTHER_EXECUTOR_SECONDS = 0.5
_BARE = frozenset({"state", "trouble"})
_MOST_METRICS = 900_000
_MOST_FIGURES = 400_000
"""Characters of a report: a record of the journal holds a megabyte, in which each quotation mark of the report counts twice."""
_MOST_TEXT = 10_000
"""Characters of each text in a report that is too long: an exception of a user's function may quote its input."""
_NONE: Mapping[int, InstanceHeartbeat] = MappingProxyType({})
_STATES = frozenset(get_args(InstanceStateName))


class JournalChannel(FileChannel):
    """`ControlChannel` through the journal: the driver's end. Reports of earlier generations and runs are distinguished by generation,
    run and time, because a topic cannot be cleared.

    Args:
        directory: on the driver's host, for checkpoints.
    """

    remote = True

    def __init__(self, directory: Path, settings: ClientSettings, application_id: str) -> None:
        super().__init__(directory)
        self._settings = settings
        self._application_id = application_id
        self._follower: Follower | None = None
        self._send: Callable[[int, Signal], None] | None = None
        self._cleared: dict[int, InstanceHeartbeat] = {}

    def attach(self, end: Callable[[], int], send: Callable[[int, Signal], None]) -> None:
        """Follow the journal; a repeated call keeps the existing follower."""
        if self._follower is None or self._follower.over:
            self._follower = Follower(self._settings, self._application_id, start=end(), reports=True)
        self._send = send

    def signal(self, generation: int, signal: Signal) -> bool:
        given = super().signal(generation, signal)
        if given and self._send is not None:
            self._send(generation, signal)
        return given

    def clear(self) -> None:
        """Ignore all reports up to now."""
        super().clear()
        if self._follower is not None:
            self._follower.refresh()
            self._cleared = dict(self._follower.state.reports)

    def reports(self, generation: int) -> dict[int, JsonObject]:
        if self._follower is None:
            return {}
        found = reports_of(self._follower.state, generation, self._cleared)
        desired = self._follower.state.desired
        if desired is not None and (desired.generation, desired.state) == (generation, Signal.PAUSE.value):
            for slot in range(desired.instances):
                state = found.get(slot, {}).get("state")
                if self._follower.state.is_at_rest(slot):
                    if state not in ENDED:  # between two epochs no instance reports
                        missing = {"generation": generation, "slot": slot, "pid": 0, "at_ms": desired.at_ms}
                        found[slot] = {**found.get(slot, missing), "state": Signal.PAUSE.value}
                elif state == Signal.PAUSE.value:  # a late report of the pause before
                    found[slot] = {**found[slot], "state": Signal.RUN.value}
        return found

    def metrics(self, generation: int) -> dict[int, JsonObject]:
        return {} if self._follower is None else metrics_of(self._follower.state, generation)

    def executors(self) -> dict[int, str]:
        follower = self._follower
        return {} if follower is None else {slot: report.host for slot, report in list(follower.state.reports.items()) if report.host}

    def close(self) -> None:
        if self._follower is not None:
            self._follower.close()


class JournalInstanceControl:
    """`InstanceControl` through the journal.

    Args:
        executor: the directory in which this executor keeps its stores.
        instances: how many instances the generation has.
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
        executor: str,
        instances: int = 1,
        claim: Claim | None = None,
        resting: bool = False,
        parent: int | None = None,
    ) -> None:
        self._claim = claim
        self._resting = resting
        self.taps = JournalTapServer(follower, instances)
        self._follower = follower
        self.generation = generation
        self.slot = slot
        self._executor = executor
        self._parent = parent
        self._last: tuple[str, float] = ("", 0.0)
        self._state = ""
        self._times: JournalTimes | None = None

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

    def has_reported(self, *states: str) -> bool:
        return self._state in states

    def orders(self, now_ms: int) -> list[RetryOrder]:
        orders = list(self._follower.state.orders.values())
        return [order for order in orders if order.generation == self.generation and order.in_force(now_ms)]

    def event_times(self, slots: int, groups: int) -> PeerTimes:
        self._times = JournalTimes(self._follower, self.generation, self.slot, slots)
        return self._times

    def loop_lock(self) -> None:
        """Return None: the signals of an instance on a cluster belong to the claim of one epoch."""
        return None

    def report(self, content: JsonMapping, *, soon: bool = False) -> None:
        self._state = str(content.get("state"))
        if self._state == Signal.SUPERSEDED.value and self._follower.signal(self.generation) is not Signal.SUPERSEDED:
            return  # only this executor was declared lost; the slot's report is its successor's
        if self._times is not None and self._times.reported is not None and not _BARE.issuperset(content):
            content = {**content, FIELD: self._times.reported}
        now = time.monotonic()
        same = json.dumps(content, default=str)
        if same == self._last[0] and now - self._last[1] < _HEARTBEAT_SECONDS:
            return
        self._last = (same, now)
        self._send(content, int(time.time() * 1000))

    def _send(self, content: JsonMapping, at_ms: int, *, done: bool = False) -> None:
        origin = {"generation": self.generation, "slot": self.slot, "pid": os.getpid(), "at_ms": at_ms, "place": self._executor}
        bare = _BARE.issuperset(content)  # of an epoch without work: the stores may be on another executor
        failure = content.get("failure")
        self._follower.writer.send(
            InstanceHeartbeat(
                self.generation,
                self.slot,
                f"{self._executor}:{os.getpid()}",
                self._state if self._state in _STATES else "running",  # type: ignore[arg-type]
                at_ms,
                host="" if bare else self._executor,
                done=done,
                failure=None if failure is None else Failure(str(failure.get("error")), _as_utf8(str(failure.get("message"))[:2_000])),
                figures="" if bare else _figures({**origin, **content}),
            )
        )

    def end_epoch(self) -> None:
        """Report that the worker runs the slot no more, and wait for the delivery; after the instance's end stop following, too."""
        if self._claim is not None and self._state not in ENDED:
            self._send({}, int(time.time() * 1000), done=True)
        self._follower.writer.flush(_FLUSH_SECONDS)
        if self._state in ENDED and self._state != Signal.PAUSE.value:
            forget(self._follower.application_id)

    def metrics(self, snapshot: JsonMapping) -> None:
        text = json.dumps(snapshot)
        if len(text) <= _MOST_METRICS:
            self._follower.writer.send(Measured(self.generation, self.slot, text))
        else:
            _LOG.warning("metrics of %d characters are too many for the journal; record fewer", len(text))


class JournalClaim:
    """The claim to one slot of an epoch across executors; used like `file_channel.FileClaim`. It is not released: the next epoch's claims
    replace it.

    Args:
        executors: the executor directory in which each slot's stores were when the plan was made.
    """

    def __init__(
        self, follower: Follower, generation: int, count: int, task: EpochTask, *, executor: str, executors: Sequence[str | None] = ()
    ) -> None:
        self._follower = follower
        self._generation = generation
        self._count = count
        self._executor, self._executors = executor, executors
        self._run, self._epoch = task.run, task.epoch
        self._partition, self._attempt = task.partition, task.attempt
        self._held = task.held
        self._owner = f"{executor}:{os.getpid()}"
        self.held: Claim | None = None
        """The claim that won."""

    def __enter__(self) -> int | None:
        follower, count = self._follower, self._count
        follower.refresh()
        earlier = follower.state.claimed_by(self._partition, self._epoch, self._run)
        began = time.monotonic()
        order = [slot % count for slot in range(self._partition, self._partition + count)]
        while (waited := time.monotonic() - began) < _CLAIM_SECONDS:
            signal = follower.signal(self._generation)
            if signal is Signal.SUPERSEDED:
                return self._partition % count  # its signal is to leave
            if earlier is not None:
                if signal is not Signal.RUN or self._claim(earlier.slot):
                    return earlier.slot
                earlier = None
            free = [slot for slot in order if follower.state.claim_of(slot, self._epoch, self._run) is None]
            if not free:
                return None
            if signal is not Signal.RUN:
                return free[0]  # the application is to rest: no claim is needed
            chosen = next((slot for slot in free if self._patience(slot) <= waited), None)
            if chosen is None:
                follower.watch(0.02)
            elif self._claim(chosen):
                return chosen
        return None

    def _patience(self, slot: int) -> float:
        """Return for how many seconds to leave a slot to other workers."""
        if slot in self._held:
            return 0.0
        if self._held:
            return _OTHER_EXECUTOR_SECONDS
        planned = self._executors[slot] if slot < len(self._executors) else None
        home = self._follower.state.home_of(slot) or planned  # of an earlier query, too: its worker processes may have been replaced
        if home is None:
            return 0.0
        return _SAME_EXECUTOR_SECONDS if home == self._executor else _OTHER_EXECUTOR_SECONDS

    def _claim(self, slot: int) -> bool:
        """Write the claim and return whether it won."""
        follower, state = self._follower, self._follower.state
        follower.writer.send(
            Claim(
                self._generation,
                slot,
                self._epoch,
                self._owner,
                self._run,
                self._partition,
                self._attempt,
                self._executor,
            )
        )

        def decided() -> bool:
            claim = state.claim_of(slot, self._epoch, self._run)
            if claim is None:
                return follower.signal(self._generation) is Signal.SUPERSEDED
            return claim.partition != self._partition or claim.attempt >= self._attempt

        follower.wait_for(decided, _CLAIM_SECONDS, f"the claim to slot {slot}")
        claim = state.claim_of(slot, self._epoch, self._run)
        if claim is not None and (claim.partition, claim.attempt) == (self._partition, self._attempt):
            self.held = claim
        return claim is None or claim is self.held

    def __exit__(self, *exc: object) -> None:
        return None


def metrics_of(state: JournalState, generation: int) -> dict[int, JsonObject]:
    """Return the last measurements of each slot in that generation, from a journal."""
    read = ((slot, validated(one.snapshot)) for slot, one in dict(state.measured).items() if one.generation == generation)
    return {slot: snapshot for slot, snapshot in read if snapshot is not None}


def reports_of(state: JournalState, generation: int, cleared: Mapping[int, InstanceHeartbeat] = _NONE) -> dict[int, JsonObject]:
    """Return the last report of each slot in a generation, but for those that were cleared."""
    return {
        slot: content_of(report)
        for slot, report in list(state.reports.items())
        if report.generation == generation and cleared.get(slot) is not report
    }


def content_of(report: InstanceHeartbeat) -> JsonObject:
    """Return a report of the journal in the form of one in a file."""
    try:
        figures = json.loads(report.figures or "{}")
    except ValueError:
        figures = {}
    plain = {name: figures[name] for name in figures if isinstance(name, str)} if isinstance(figures, dict) else {}
    return {
        "pid": 0,
        **plain,
        "generation": report.generation,
        "slot": report.slot,
        "state": report.state,
        "at_ms": report.at_ms,
        "place": report.host or None,
    }


def _figures(content: JsonMapping) -> str:
    """Return a report as JSON that fits into a journal record: long texts without their middle, then without tasks."""
    text = json.dumps(content, default=str)
    if len(text) > _MOST_FIGURES:
        content = {name: _cut(part) for name, part in content.items()}
        text = json.dumps(content, default=str)
    if len(text) > _MOST_FIGURES:
        text = json.dumps({**content, "tasks": {}}, default=str)
    return text


def _cut(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _cut(part) for name, part in value.items()}
    if isinstance(value, str) and len(value) > _MOST_TEXT:
        return f"{value[: _MOST_TEXT // 2]} … {value[-_MOST_TEXT // 2 :]}"
    return value


def _as_utf8(text: str) -> str:
    """Return the text with lone surrogates, which a user's text may contain, as escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
