"""Who is in force: the generation of an application, raised in the journal (for everybody) and in the lease (for this host's
workers).
"""

from __future__ import annotations

import time

from kstreams_repl.errors import KStreamsError
from kstreams_repl.instance.control import LeaseWriter, Signal
from kstreams_repl.instance.plan import ApplicationPlan
from kstreams_repl.kafka.admin import Admin
from kstreams_repl.kafka.clients import ClientSettings
from kstreams_repl.kafka.journal import JournalControl, JournalReader, ensure_journal
from kstreams_repl.kafka.journal_records import Assignment, DesiredState, KeptOffset, KeptOffsets


class Generations:
    """The driver's hold on an application's journal; opening it fences the holder before it.

    Raises:
        BrokerUnavailableError: no broker answers.
    """

    def __init__(self, settings: ClientSettings, admin: Admin, application_id: str, lease: LeaseWriter) -> None:
        self._admin = admin
        self._lease = lease
        self._application_id = application_id
        ensure_journal(admin, application_id)
        self._control = JournalControl(settings, application_id)
        reader = JournalReader(settings, application_id)
        try:
            state = reader.catch_up(admin)
        finally:
            reader.close()
        self._generation = max(state.generation, lease.generation())
        # Vanished slots stay in the assignment, empty, so that a start that dies before it has fenced leaves them to the next
        # one.
        self._slots = max(state.desired.instances if state.desired else 0, len(state.assignment.tasks) if state.assignment else 0)
        self._version = state.desired.version if state.desired is not None else 1

    def next(self) -> int:
        return self._generation + 1

    def raise_to(self, plan: ApplicationPlan) -> int:
        """Put the plan's generation in force; returns how many slots earlier generations may have used."""
        tasks = {str(slot): tuple(str(spec.task_id) for spec in specs) for slot, specs in enumerate(plan.assignment)}
        before = self._slots
        self._slots = max(before, plan.instances)
        tasks |= {str(slot): () for slot in range(plan.instances, self._slots)}
        self._control.write(self._desired(plan, Signal.RUN), Assignment(plan.generation, tasks))
        self._generation = plan.generation
        self._lease.write(plan.generation, Signal.RUN)
        return before

    def resume(self, plan: ApplicationPlan) -> None:
        """Put the same generation to work again.

        Raises:
            ProducerFencedError: somebody else has taken the application over since.
        """
        self._control.write(self._desired(plan, Signal.RUN))

    def tell(self, plan: ApplicationPlan, signal: Signal) -> None:
        """Write down that the application is paused or stopped, and the offsets it stopped at (the broker forgets them after
        some days).
        """
        kept: dict[str, dict[str, KeptOffset]] = {}
        inputs = [at for specs in plan.assignment for spec in specs for at in spec.partitions]
        for at, committed in self._admin.committed_offsets(self._application_id, inputs).items():
            kept.setdefault(at.topic, {})[str(at.partition)] = KeptOffset(committed.offset, committed.metadata)
        self._control.write(self._desired(plan, signal), KeptOffsets(plan.generation, kept, _now()))

    def close(self) -> None:
        try:
            self._control.close()
        except KStreamsError:  # a successor holds the journal by now
            return

    def _desired(self, plan: ApplicationPlan, signal: Signal) -> DesiredState:
        state = {Signal.RUN: "running", Signal.PAUSE: "paused", Signal.STOP: "stopped"}[signal]
        return DesiredState(plan.generation, state, self._version, plan.instances, _now())  # type: ignore[arg-type]


def _now() -> int:
    return time.time_ns() // 1_000_000
