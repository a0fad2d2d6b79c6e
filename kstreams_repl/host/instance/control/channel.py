"""The control channel of an application: commands to its instances, their reports, their claims to slots, and taps on their nodes.

Actors: the *driver* and other clients hold a `ControlChannel`; a worker asks for a slot with `open_channel.claim_slot` and gets an
`InstanceControl`; nothing else of the channel is visible to either. There are two back ends. The journal (`journal_channel`) is the truth:
it decides which generation is in force and what an attaching driver finds. On the driver's own host files (`file_channel`) are its fast
path, because a pause must take 0.15 s and a command through the journal takes a transaction (`docs/design/015-control-channel.md`).

    driver, client          instance
    signal(generation, s)   signal()              the command
    reports, metrics        report(), metrics()   state, figures and measurements of each slot
                            claim_slot()          which worker runs a slot in an epoch; the first wins
    `TapClient`             taps                  requests for values at a node, and the values
    `OrderBox`              orders()              orders about records that wait for another try

The commands to one generation, and what each slot reports once it has followed one:

    RUN ⇄ PAUSE → STOP        RUN → STOP         restoring, running, recovering | paused | stopped
    any → SUPERSEDED          (a higher generation is in force, or another claim holds the slot)

A command below the generation in force is refused. After STOP only a higher generation runs; SUPERSEDED is final.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from kstreams_repl.host.instance.control.node_taps import TapServer
from kstreams_repl.host.instance.control.slot_lock import SlotLock
from kstreams_repl.host.journal.journal_records import RetryOrder
from kstreams_repl.system.types import JsonMapping, JsonObject

ENDED = frozenset({"failed", "paused", "stopped", "superseded"})
"""States in which an instance commits no more: the last report of a slot has one of them, or its process has died."""


class Signal(StrEnum):
    """The command to an instance."""

    RUN = "running"
    PAUSE = "paused"
    STOP = "stopped"
    SUPERSEDED = "superseded"


class ControlChannel(Protocol):
    """The driver's and its clients' end: commands to all instances of a generation, and what these report."""

    directory: Path
    """The application's control directory on this host."""
    remote: bool
    """Whether instances run on other hosts: stores in this host's state directory are outdated then."""

    def signal(self, generation: int, signal: Signal) -> bool:
        """Give a command to a generation; return False, and do nothing, when a higher one is in force.

        Raises:
            ProducerFencedError: another session has taken over the application.
            BrokerUnavailableError: the command must go through the journal, which cannot be written now.
        """

    def generation(self) -> int:
        """Return the generation of the last command from this host; 0 before the first."""

    def reports(self, generation: int) -> dict[int, JsonObject]:
        """Return the last report of each slot in that generation."""

    def metrics(self, generation: int) -> dict[int, JsonObject]:
        """Return the last measurements of each slot in that generation (`engine.metrics.metrics_snapshot`)."""

    def executors(self) -> dict[int, str]:
        """Return the executor directory of each slot according to its last report; empty on the driver's own host."""

    def clear(self) -> None:
        """Forget the reports and claims of earlier queries."""

    def attach(self, end: Callable[[], int], send: Callable[[int, Signal], None]) -> None:
        """Use the journal from its current end on.

        Args:
            end: returns the end offset of the journal.
            send: writes a command to the journal; only the holder of the control id can.
        """

    def close(self) -> None:
        """Stop reading; the last reports stay available."""


ReportedTimes = tuple[Sequence[int], float]
"""(by group of sub-topologies, the oldest event time that the others must wait for; its age in seconds)."""


class PeerTimes(Protocol):
    """What the instances of one generation report to each other."""

    def report(self, times: Sequence[int]) -> None:
        """Report this instance's event times. Never fails."""

    def others(self) -> list[ReportedTimes | None]:
        """Return what each other instance reported last; None: nothing in this generation."""


class InstanceControl(Protocol):
    """An instance's end: the command to its slot, and its reports."""

    generation: int
    slot: int

    @property
    def taps(self) -> TapServer:
        """Clients' requests for values at nodes."""

    def signal(self, *, now: float | None = None) -> Signal:
        """Return the current command.

        Args:
            now: monotonic time; the answer may then be some milliseconds old and is cheap. None: as of this call.
        """

    def signal_when_fenced(self) -> Signal:
        """Return the current command after another owner has taken the transactional id, of this generation or a later one."""

    def has_reported(self, *states: str) -> bool:
        """Return whether the last report of this slot and generation has one of these states."""

    def report(self, content: JsonMapping, *, soon: bool = False) -> None:
        """Write a report for the driver. Never fails.

        Args:
            soon: it may be written after this returns, or be left out if a newer one is written first: the disk is not waited for.
        """

    def metrics(self, snapshot: JsonMapping) -> None:
        """Write the measurements (`engine.metrics.metrics_snapshot`) next to the report."""

    def orders(self, now_ms: int) -> Iterable[RetryOrder]:
        """Return clients' orders in force. Never blocks."""

    def event_times(self, slots: int, groups: int) -> PeerTimes:
        """Return what the instances of this generation report to each other about event time.

        Args:
            slots: number of instances.
            groups: how many groups of sub-topologies are aligned.
        """

    def loop_lock(self) -> SlotLock | None:
        """Return the lock that keeps the loops of a slot apart, so that one may continue between epochs (`epoch_handover`); None:
        it may not continue.
        """


@dataclass(frozen=True, slots=True)
class EpochTask:
    """A Spark task of an epoch, which is about to claim a slot.

    Attributes:
        run, epoch: the query and its batch number.
        partition, attempt: Spark's partition id and attempt number.
        held: slots whose instances this process keeps.
    """

    run: str
    epoch: int
    partition: int
    attempt: int
    held: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimedSlot:
    """The slot that a worker runs for one epoch.

    Attributes:
        executor: the executor directory of the worker; "driver" on the driver's host.
        state_directory: where the slot's stores are kept on this host.
        epoch_over: returns whether another slot has ended the epoch; None: this cannot be known, and no epoch may be put off.
    """

    control: InstanceControl
    executor: str
    state_directory: str
    epoch_over: Callable[[], bool] | None = None
