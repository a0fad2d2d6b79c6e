"""What a fork and its parent have written since the fork began, and how far each is: for a promotion, and counted live."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path

from kstreams_repl.engine.config import SNAPSHOT_DIR
from kstreams_repl.engine.stores.engine.lmdb_snapshot import LmdbSnapshot
from kstreams_repl.engine.stores.log.changelog_rows import logged_row, row_key
from kstreams_repl.engine.topology.names import changelog_topic, internal_topic
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.host.instance.reports.run_progress import progress_of, waiting_records
from kstreams_repl.host.instance.state.snapshot_directory import snapshot_directory
from kstreams_repl.host.instance.state.snapshots import fetch_snapshot
from kstreams_repl.host.instance.state.state_directory import application_directory
from kstreams_repl.host.kafka.group_admin import CommittedOffset
from kstreams_repl.host.kafka.reading import ranges_of, read_ranges
from kstreams_repl.pictures.table import Table
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.application.forks.differences import Difference, Last, Place, Tail
from kstreams_repl.repl.session.application.forks.fork_plan import ForkPlan
from kstreams_repl.repl.session.application.forks.fork_record import ForkRecord
from kstreams_repl.repl.session.application.starting.deploy_preview import check
from kstreams_repl.repl.session.views.past.state.state_builder import specs_of
from kstreams_repl.system.types import TaskId, TopicPartition


class Side:
    """The inputs of the parent, or of the fork.

    Attributes:
        inputs: all of them.
        between: those that it writes itself.
    """

    def __init__(self, app: ApplicationCore) -> None:
        self.app, self._admin = app, app.client.admin
        self._tasks = check(self._admin, app.topology, app.name, app.config).tasks
        own = {internal_topic(app.name, topic) for topic in app.topology.internal_topics}
        written = own | (set(app.topology.sink_topics()) - set(app.topology.internal_topics))
        self.inputs = sorted({at for of in self._tasks.values() for at in of})
        self.between = {at for at in self.inputs if at.topic in written}

    def committed(self) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets."""
        return self._admin.committed_offsets(self.app.name, self.inputs)

    def behind(self, parent: Side) -> int:
        """Return how many offsets of inputs that both have its parent has committed and it has not."""
        mine, theirs = self.committed(), parent.committed()
        return sum(max(0, theirs[at].offset - mine[at].offset) for at in theirs.keys() & mine.keys())

    def has_reached(self, stops: Mapping[TopicPartition, int]) -> bool:
        """Return whether everything below these offsets of its inputs is processed, and all that its tasks have written to each other."""
        committed = self.committed()
        ends = self._admin.end_offsets(self.between, isolation="read_uncommitted")
        shared = {at: stop for at, stop in stops.items() if at in self.inputs and at not in self.between}
        waiting = waiting_records(self._tasks, committed)
        return progress_of({at: found.offset for at, found in committed.items()}, shared, ends, waiting).is_complete


def differences_of(
    parent: ApplicationCore, fork: ApplicationCore, record: ForkRecord, plan: ForkPlan, work: Path, *, outputs: bool
) -> list[Difference]:
    """Return what fork and parent have written since the fork began, not read yet: a difference for each store, and each output if asked.

    Args:
        work: where bases are unpacked, when a key is asked for.
    """
    client, admin, found = parent.client, parent.client.admin, []
    bases = {topic: {int(n): offset for n, offset in of.items()} for topic, of in record.bases.items()}
    tasks = {(store.name, task.partition): task for task, spec in specs_of(fork).items() for store in spec.subtopology.stores}
    counts = admin.topics()
    for store in fork.topology.stores.values():
        if not store.logging or store.source_topic is not None:
            continue
        mine, theirs = changelog_topic(fork.name, store.name), changelog_topic(parent.name, store.name)
        begun = bases.get(theirs)
        tail = None if begun is None else Tail(client.settings, admin, theirs, begun)
        base = _Base(fork, store, {n: tasks[store.name, n] for n in range(counts[mine])}, work)
        found.append(Difference(store.name, theirs, Tail(client.settings, admin, mine, {}), tail, base.before))
    for topic, own in record.outputs.items() if outputs else ():
        if topic not in plan.edit.topology.sink_topics() or topic in plan.runs.loops:
            continue
        since = {int(n): offset for n, offset in record.since.get(topic, {}).items()}
        theirs_tail = Tail(client.settings, admin, topic, since)
        before = partial(_written_before, parent, topic, since)
        found.append(Difference(topic, topic, Tail(client.settings, admin, own, {}), theirs_tail, before, by_value=True))
    return found


class _Base:
    """The rows with which a fork's store began."""

    def __init__(self, fork: ApplicationCore, store: StoreBuilder, tasks: Mapping[int, TaskId], work: Path) -> None:
        self._fork, self._store, self._tasks, self._work = fork, store, tasks, work

    def before(self, places: Collection[Place]) -> dict[Place, Last]:
        """Return the records of these keys, as they were."""
        found: dict[Place, Last] = {}
        if self._store.kind is StoreKind.VERSIONED:
            return found
        for number in {place[0] for place in places}:
            keys = [key for at, key in places if at == number]
            with LmdbSnapshot(self._fetched(self._tasks[number])) as base:
                if self._store.name not in base.names():
                    continue
                base.tree(self._store.name)  # before the transaction, which would not see its handle
                with base.transaction() as view:
                    for key in keys:
                        row = view.get(self._store.name, row_key(self._store, key))
                        if row is not None:
                            found[number, key] = logged_row(self._store, row)
        return found

    def _fetched(self, task: TaskId) -> Path:
        path = self._work / str(task)
        if not path.exists():
            directory = snapshot_directory(self._fork.config[SNAPSHOT_DIR])
            fetch_snapshot(directory, self._fork.name, str(task), path, lambda manifest: None)
        return path


def _written_before(
    parent: ApplicationCore, topic: str, since: Mapping[int, int], places: Collection[Place]
) -> dict[Place, Last]:
    """Return the last records of keys of an output before the fork began."""
    wanted, found = set(places), {}
    ranges = ranges_of(parent.client.admin, topic, end=since)
    for at, batch in read_ranges(parent.client.settings, ranges):
        headers = batch.headers or [None] * len(batch)
        for key, value, timestamp, own in zip(batch.keys, batch.values, batch.timestamps, headers, strict=True):
            if key is not None and (at.partition, key) in wanted:
                found[at.partition, key] = value, timestamp, list(own or ())
    return {place: last for place, last in found.items() if last[0] is not None}


class LiveDifferences:
    """What fork and parent have written since the fork began, counted again and again as they go on."""

    def __init__(self, parent: ApplicationCore, fork: ApplicationCore, record: ForkRecord, plan: ForkPlan) -> None:
        self._parent, self._fork, self._record = Side(parent), Side(fork), record
        work = application_directory(Path(record.state), record.id) / "unused"  # nothing is asked about the time before
        self._differences = differences_of(parent, fork, record, plan, work, outputs=True)
        self._before: tuple[float, dict[int, tuple[int, int]]] | None = None
        self._reading = threading.Lock()

    def table(self) -> Table:
        """Read what was written since the last call, and count."""
        with self._reading:
            behind = self._fork.behind(self._parent)
            for difference in self._differences:
                difference.read()
            now = time.monotonic()
            read = {n: (one.theirs.count if one.theirs else 0, one.mine.count) for n, one in enumerate(self._differences)}
            rows: list[tuple[object, ...]] = []
            for number, difference in enumerate(self._differences):
                rates: tuple[object, ...] = ("", "")
                if self._before is not None:
                    seconds, earlier = now - self._before[0], self._before[1][number]
                    rates = tuple(round((count - before) / seconds) for count, before in zip(read[number], earlier, strict=True))
                kind = "output" if difference.by_value else "store"
                rows.append((kind, difference.store, *difference.counts(), *rates))
            self._before = now, read
            behind = max(behind, self._fork.behind(self._parent))  # both go on while their topics are read
        lag = (
            f"the fork is {behind:,} records behind, whose keys may differ only for that"
            if behind
            else "both are at the same offsets"
        )
        columns = (
            "what",
            "name",
            "equal",
            "changed",
            f"only {self._record.application}",
            "only fork",
            "records/s",
            "records/s of fork",
        )
        return Table.of(columns, rows, title=self._record.id, note=f"keys written since the fork began; {lag}")
