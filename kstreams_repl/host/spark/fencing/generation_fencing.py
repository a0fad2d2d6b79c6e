"""The generation of an application, raised in the journal (for all drivers) and in the lease (for this host's workers).

It also keeps the group's offsets beyond the broker's retention. `Generations.tell` stores them in the journal at a pause or stop; the next
start or resume restores to the group those that it no longer has. That is one transaction under the control id: the new desired state, the
offsets, and an empty record of kept offsets. Therefore
- the group's own offset always comes first, then the kept one. No instance works at rest (one that did not confirm is fenced before its
  offsets are read), hence the kept offset is the last commit itself: a store's commit is never ahead of it, and may be behind.
- offsets kept before a later commit are never used: the journal drops them with the first work after them, and running instances commit
  theirs daily (`Instance.refresh`). After a crash and a week at rest no offset is known, as without a journal.
- a recreated topic has another id and is read like a new one; `repl.session.cleanup` deletes the journal with the group.
"""

from __future__ import annotations

import base64
import logging
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from kstreams_repl.engine.commit import offset_metadata
from kstreams_repl.engine.commit.committed_counts import merged_counts
from kstreams_repl.engine.commit.failpoints import failpoint
from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.instance.control.channel import ENDED, ControlChannel, Signal
from kstreams_repl.host.instance.initialization.task_initialization import fence_instances
from kstreams_repl.host.journal.journal import TRANSACTION_MS, JournalControl, JournalReader, TopicRecord, ensure_journal
from kstreams_repl.host.journal.journal_records import (
    Assignment,
    ControlRecord,
    DesiredState,
    KeptOffset,
    KeptOffsets,
    StopOffsets,
    VersionRecord,
    encode,
)
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.kafka.exact_metadata import OffsetAndMetadata
from kstreams_repl.host.kafka.internal_topics import journal_topic_name
from kstreams_repl.system.errors import KStreamsError, ProducerFencedError
from kstreams_repl.system.types import TaskId, TopicPartition

_LOG = logging.getLogger("kstreams_repl.host.spark")


@dataclass(frozen=True, slots=True)
class Previous:
    """Where tasks, standby copies and slots were in the last generation.

    Attributes:
        tasks: the slot that ran each task.
        standbys: the slots that kept a standby copy of its stores.
        places: by slot, the executor's directory.
    """

    tasks: Mapping[TaskId, int] = field(default_factory=dict)
    standbys: Mapping[TaskId, tuple[int, ...]] = field(default_factory=dict)
    places: Mapping[int, str] = field(default_factory=dict)


MOST_BYTES = 400_000
"""Maximal size of a version in the journal."""
STAY_SECONDS = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class VersionText:
    """A version as stored in the journal: its number, source text (for display and its hash) and ``describe()`` text."""

    number: int
    source: str
    description: str


class Generations:
    """The driver's control of an application's journal; opening it fences the previous driver.

    Raises:
        BrokerUnavailableError: no broker answered.
    """

    def __init__(
        self,
        settings: ClientSettings,
        admin: Admin,
        application_id: str,
        lease: ControlChannel,
        *,
        transaction_timeout_ms: int = TRANSACTION_MS,
    ) -> None:
        self._settings, self._admin = settings, admin
        self._looked_at = -1
        self._lease = lease
        self._application_id = application_id
        self._writing = threading.RLock()
        self._stay_at = time.monotonic() + STAY_SECONDS
        ensure_journal(admin, application_id)
        self._control = JournalControl(settings, application_id, transaction_timeout_ms=transaction_timeout_ms)
        reader = JournalReader(settings, application_id)
        try:
            state = reader.catch_up(admin)
        finally:
            reader.close()
        self._generation = max(state.generation, lease.generation())
        # Removed slots stay in the assignment, empty, so that the next start knows them if this one dies before it has fenced
        # them.
        self._slots = max(state.desired.instances if state.desired else 0, len(state.assignment.tasks) if state.assignment else 0)
        self._version = state.desired.version if state.desired is not None else 1
        self._instances = state.desired.instances if state.desired is not None else 0
        self._assignment = state.assignment
        self._places = {slot: report.host for slot, report in state.reports.items() if report.host}
        lease.attach(self.end, self._send)
        self._desired_now = state.desired
        self._kept = state.kept_offsets
        self.run = state.stop_offsets
        """The last bounded run (`batch`); None: there was none."""
        self._counted = {n: (version.source_hash, version.counts) for n, version in state.versions.items() if n <= self._version}

    @property
    def generation(self) -> int:
        """The current generation, as far as this driver knows."""
        return self._generation

    @property
    def version(self) -> int:
        """The number of the version that the next generation runs."""
        return self._version

    def go_back(self, version: int) -> None:
        """Let the next generation run an earlier version again, after a newer one that is already in the journal could not be started."""
        self._version = version
        self._counted = {number: counted for number, counted in self._counted.items() if number <= version}

    def next(self) -> int:
        return self._generation + 1

    def end(self) -> int:
        """The current end offset of the journal; later records are at or after it."""
        journal = TopicPartition(journal_topic_name(self._application_id), 0)
        return self._admin.end_offsets([journal], isolation="read_uncommitted")[journal]

    @property
    def slots(self) -> int:
        """The number of slots that generations so far may have used."""
        return self._slots

    @property
    def previous(self) -> Previous:
        """The last known assignment, from the journal."""
        assignment = self._assignment
        if assignment is None:
            return Previous()
        try:
            return Previous(
                {TaskId.parse(task): int(slot) for slot, tasks in assignment.tasks.items() for task in tasks},
                _by_task(assignment.standbys),
                {int(slot): place for slot, place in assignment.places.items()} | self._places | self._lease.executors(),
            )
        except ValueError:  # not a task name; the next generation replaces it
            return Previous()

    @property
    def is_broken(self) -> bool:
        """Whether the control id is unusable although no other driver took it: the broker was down, or the id has expired."""
        broken = self._control.broken
        return broken is not None and not isinstance(broken, ProducerFencedError)

    def raise_to(self, plan: ApplicationPlan, version: VersionText | None = None, *, bounded: StopOffsets | None = None) -> int:
        """Put the plan's generation and its version into effect; return how many slots earlier generations may have used.

        Args:
            bounded: the bounded run that the plan is part of. Without one the application becomes a stream, and an open run is dropped.
        """
        texts = self._take(version, plan.generation)
        tasks = {str(slot): tuple(str(spec.task_id) for spec in specs) for slot, specs in enumerate(plan.assignment)}
        before = self._slots
        self._slots = max(before, plan.instances)
        tasks |= {str(slot): () for slot in range(plan.instances, self._slots)}
        standbys = {str(slot): tuple(str(spec.task_id) for spec in specs) for slot, specs in enumerate(plan.standbys) if specs}
        places = {str(slot): place for slot, place in enumerate(plan.places) if place is not None}
        self._assignment = Assignment(plan.generation, tasks, standbys, places)
        self._instances = plan.instances
        if bounded is None and self.run is not None and self.run.state == "open":
            bounded = replace(self.run, state="dropped")
        runs = () if bounded is None else (replace(bounded, generation=plan.generation),)
        self._to_work(self._desired(plan.generation, Signal.RUN), self._assignment, *texts, *runs)
        self.run = runs[0] if runs else self.run
        failpoint("B2")
        self._generation = plan.generation
        self._lease.signal(plan.generation, Signal.RUN)
        return before

    def resume(self, plan: ApplicationPlan) -> None:
        """Set the same generation to running again.

        Raises:
            ProducerFencedError: another driver has taken over the application.
        """
        self._to_work(self._desired(plan.generation, Signal.RUN))

    def declare(self, version: VersionText) -> None:
        """Write which version the next start runs, without changing the desired state. Do nothing if nothing was deployed yet."""
        now = self._desired_now
        texts = self._take(version, self._generation)
        if now is not None:
            self._write(replace(now, version=self._version, at_ms=_now()), *texts)

    def announce(
        self,
        version: VersionText,
        *,
        topic_records: Iterable[TopicRecord] = (),
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
    ) -> None:
        """Write the version as `declare` does, also if nothing was deployed yet: another process is about to start it and checks the hash.

        Args:
            topic_records: records of other topics, written in the same transaction.
            offsets: of inputs, committed in it, too.
        """
        texts = self._take(version, self._generation)
        now = self._desired_now or DesiredState(self._generation, "stopped", version.number, 0)
        self._write(replace(now, version=version.number, at_ms=_now()), *texts, topic_records=topic_records, offsets=offsets)

    def drop_run(self) -> bool:
        """Drop the stop offsets of an open bounded run: the next one takes new ones. Return whether there was one."""
        if self.run is None or self.run.state != "open" or self._desired_now is None:
            return False
        self.run = replace(self.run, generation=self._generation, state="dropped")
        self._write(self._desired_now, self.run)
        return True

    def tell(self, plan: ApplicationPlan, signal: Signal, *, finished: bool = False) -> None:
        """Write that the application is paused or stopped, and its offsets (the broker deletes them after some days). Instances that have
        not confirmed are fenced first.

        Args:
            finished: the bounded run is over.
        """
        reports = self._lease.reports(plan.generation)
        silent = [slot for slot in range(plan.instances) if reports.get(slot, {}).get("state") not in ENDED]
        if silent and self._desired_now is not None:  # not after a takeover: a successor's instances must not be fenced
            self._write(self._desired_now)
        fence_instances(plan.settings, self._application_id, silent, timeout_ms=plan.config["transaction.timeout.ms"])
        kept: dict[str, dict[str, KeptOffset]] = {}
        inputs = [partition for specs in plan.assignment for spec in specs for partition in spec.partitions]
        for partition, committed in self._admin.committed_offsets(self._application_id, inputs).items():
            kept.setdefault(partition.topic, {})[str(partition.partition)] = KeptOffset(committed.offset, committed.metadata)
        ids = {name: topic.id for name, topic in self._admin.describe_topics(kept).items()}
        keeping = KeptOffsets(plan.generation, kept, _now(), ids)
        runs = (replace(self.run, state="finished"),) if finished and self.run is not None else ()
        failpoint("B5")
        self._write(self._desired(plan.generation, signal), keeping, *runs)
        failpoint("B6")
        self._kept = keeping
        self.run = runs[0] if runs else self.run

    def stay(self) -> bool:
        """Write the desired state again if nothing was written for a day; return whether it was written. The broker expires a
        transactional id, and with it this driver's control, after ``transactional.id.expiration.ms`` (7 days) without a transaction.
        """
        with self._writing:
            if self._desired_now is None or self._control.broken is not None or time.monotonic() < self._stay_at:
                return False
            self.end()  # raises if the broker is down, before a failed write would end this driver's control
            self._write(self._desired_now)
            return True

    def successor(self) -> DesiredState | None:
        """Return what another driver has put into effect since; None: nothing. Reads the journal only if it has grown since the last call.
        """
        end = self.end()
        if self._lease.remote or end == self._looked_at:  # instances on a cluster follow the journal themselves
            return None
        reader = JournalReader(self._settings, self._application_id, reports=False)
        try:
            desired = reader.catch_up(self._admin).desired
        finally:
            reader.close()
        self._looked_at = end
        return desired if desired is not None and desired.generation > self._generation else None

    def close(self) -> None:
        self._lease.close()
        try:
            self._control.close()
        except KStreamsError:  # fenced by a successor
            return

    def _send(self, generation: int, signal: Signal) -> None:
        self._write(self._desired(generation, signal))

    def _take(self, version: VersionText | None, generation: int) -> tuple[VersionRecord, ...]:
        if version is None:
            return ()
        self._version = version.number
        written = VersionRecord.of(
            version.source, generation=generation, version=version.number, description=version.description, at_ms=_now()
        )
        source, counts = self._counted.get(version.number, ("", ""))
        if source != written.source_hash:  # it takes effect now
            counts = self._counts()
        written = replace(written, counts=counts)
        self._counted[version.number] = written.source_hash, counts
        if len(encode(written)[1]) > MOST_BYTES:  # the hash is sufficient; records have a maximal size
            written = replace(written, source="")
        if len(encode(written)[1]) > MOST_BYTES:
            written = replace(written, description="")
        return (written,)

    def _counts(self) -> str:
        """Return the node counts as of the last commit: from the kept offsets after an orderly end, else from the group's."""
        if self._desired_now is None:
            return ""
        kept = [at.metadata for of in self._kept.offsets.values() for at in of.values()] if self._kept is not None else []
        if not kept:
            kept = [at.metadata for at in self._admin.committed_offsets(self._application_id, stable=False).values()]
        return base64.b64encode(merged_counts(offset_metadata.decode(text).counts for text in kept)).decode("ascii")

    def _to_work(self, desired: DesiredState, *others: ControlRecord) -> None:
        """Set the application to running; restore missing offsets to the group and drop the kept ones."""
        back = self._forgotten()
        if back:
            _LOG.warning("the group offsets of %s have expired; continuing from those of its last pause or stop", self._application_id)
        used = () if self._kept is None else (KeptOffsets(desired.generation, {}, _now()),)
        self._write(desired, *others, *used, offsets=back)
        self._kept = None

    def _forgotten(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the kept offsets that the group does not have, of topics that were not recreated."""
        if self._kept is None:
            return {}
        kept = {TopicPartition(topic, int(n)): at for topic, of in self._kept.offsets.items() for n, at in of.items() if n.isdecimal()}
        committed = self._admin.committed_offsets(self._application_id, list(kept))
        lacking = {at: (offset.offset, offset.metadata) for at, offset in kept.items() if at not in committed}
        there = self._admin.describe_topics({at.topic for at in lacking})
        ids = self._kept.topics
        return {at: offset for at, offset in lacking.items() if at.topic in there and ids.get(at.topic) == there[at.topic].id}

    def _write(
        self,
        desired: DesiredState,
        *others: ControlRecord,
        topic_records: Iterable[TopicRecord] = (),
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
    ) -> None:
        with self._writing:
            self._stay_at = time.monotonic() + STAY_SECONDS
            self._control.write(desired, *others, topic_records=topic_records, offsets=offsets)
            self._desired_now = desired

    def _desired(self, generation: int, signal: Signal) -> DesiredState:
        state = {Signal.RUN: "running", Signal.PAUSE: "paused", Signal.STOP: "stopped"}[signal]
        return DesiredState(generation, state, self._version, self._instances, _now())  # type: ignore[arg-type]


def announce(version: VersionText, settings: ClientSettings, admin: Admin, application_id: str, lease: ControlChannel) -> None:
    """Write which version another process is going to start; the previous driver is fenced."""
    generations = Generations(settings, admin, application_id, lease)
    try:
        generations.announce(version)
    finally:
        generations.close()


def _by_task(slots: Mapping[str, tuple[str, ...]]) -> dict[TaskId, tuple[int, ...]]:
    slots_of: dict[TaskId, tuple[int, ...]] = {}
    for slot, tasks in slots.items():
        for task in tasks:
            slots_of[TaskId.parse(task)] = (*slots_of.get(TaskId.parse(task), ()), int(slot))
    return slots_of


def _now() -> int:
    return time.time_ns() // 1_000_000
