"""Why a row of a store, or a record of an output, is what it is: the input records that made it.

Both are records that a task has written, to a changelog or a topic. 1. The commit that has it is found: each commit has the ends of its
changelogs; for a topic the commits are tried from the first one whose stream time has reached the record's · 2. the task processes that
commit again (`Replays`), and the record whose trace sent the same bytes is the cause · 3. what the nodes on its way have read of other
rows (joins), or have kept back (`suppress`, windows that close), is followed to the last update of those rows in the same manner · 4. a
record of a repartition topic is followed to the record that wrote it. All causes of an aggregate are the records that have written its
row since it was last deleted. Invariant: a cause that cannot be found is said to be not known.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

from kstreams_repl.engine.operators.joins.stream_stream_join import StreamStreamJoin, StreamStreamSelfJoin
from kstreams_repl.engine.operators.joins.stream_table_join import StreamTableJoin
from kstreams_repl.engine.operators.operator import Operator
from kstreams_repl.engine.operators.tables.table_suppress import TableSuppress
from kstreams_repl.engine.partitioning import partition_for_key
from kstreams_repl.engine.stores.kinds.outer_join import side_key
from kstreams_repl.engine.stores.log.log_serdes import with_log_serdes
from kstreams_repl.engine.topology.names import internal_topic
from kstreams_repl.engine.topology.nodes import Node, SinkNode
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.host.instance.state.changelogs import ChangelogPartition, changelogs_of
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.topics.produce import milliseconds
from kstreams_repl.repl.session.views.past import NO_KEY
from kstreams_repl.repl.session.views.past.causes import CONTRIBUTION, NOT_KNOWN, RECORD, RETRACTION, TICK, Cause, Causes, once
from kstreams_repl.repl.session.views.past.moments import moment_of
from kstreams_repl.repl.session.views.past.record_trace import WRITES, NodeVisit, StoreAccess
from kstreams_repl.repl.session.views.past.replays import Interval, Replays, Step, Written
from kstreams_repl.repl.session.views.past.row_keys import RowKey, row_key
from kstreams_repl.system.errors import CallError, InvalidStateStoreError
from kstreams_repl.system.types import RecordPosition, TaskId, TopicPartition, Windowed

_MOST_COMMITS = 200
"""How many commits of each task are tried for a record of a topic."""
_MOST_ROWS = 100
"""How many rows that a processor has read in one call are followed."""
_MANY = 1_000
"""From so many offsets of a commit on, only the records of one key are processed again, where that suffices."""
_REPORT_SECONDS = 2.0
_BY_KEY = frozenset({StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE})
_WINDOWED = frozenset({StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW, StoreKind.TIME_ORDERED_WINDOW, StoreKind.SESSION})
Chain = Sequence[NodeVisit]


def why(
    app: ApplicationCore, what: str | RecordPosition, key: Any = NO_KEY, *, window: Any = None, all: bool, as_of: Any, calls: bool
) -> Causes:
    """Return the causes of a row or an output record, as `Application.why`."""
    explainer = Explainer(app, calls=calls)
    if key is NO_KEY:
        position = moment_of(what).record
        if position is None:
            raise CallError(f"expected a record or a store and a key, got {what!r}", hint="app.why('alerts-0@42'), app.why('counts', 'UA')")
        return Causes(str(position), once(explainer.of_record(position, all=all)), app.topology)
    store = app.topology.store(str(what))
    name = f"{store.name}[{key!r}]" if window is None else f"{store.name}[{key!r}, {window}]"
    return Causes(name, once(explainer.of_row(store, key, window, all=all, as_of=as_of)), app.topology)


class Explainer:
    """Finds causes. It keeps what it has processed again, so several questions are cheaper with one of them.

    Args:
        calls: whether functions of asynchronous nodes may be called again.
    """

    def __init__(self, app: ApplicationCore, *, calls: bool = False) -> None:
        self.app = app
        self._replays = Replays(app, calls=calls)
        specs = self._replays.specs
        self._internal = frozenset(internal_topic(app.name, topic) for topic in app.topology.internal_topics)
        self._logs = {task: {log.store.name: log for log in changelogs_of(spec)} for task, spec in specs.items()}
        self._nodes: dict[str, Node] = dict(app.topology.nodes)
        self._sinks = {task: self._sinks_of(spec.subtopology.nodes) for task, spec in specs.items()}
        self._globals = {store.name: store for part in app.topology.subtopologies() if part.global_ for store in part.stores}
        self._reported_at = time.monotonic()
        self._all = False
        """Whether all causes are asked for."""

    def _sinks_of(self, nodes: Sequence[Node]) -> set[str | None]:
        """Return the topics that nodes write; None among them: any."""
        topics = {node.topic for node in nodes if isinstance(node, SinkNode) and node.table is None}
        return {internal_topic(self.app.name, topic) if topic and topic in self.app.topology.internal_topics else topic for topic in topics}

    # ---- what is asked

    def of_record(self, position: RecordPosition, *, all: bool = False) -> Iterator[Cause]:
        """Yield the causes of a record of an output or a repartition topic.

        Raises:
            InvalidStateStoreError: there is no such record, or the one that made it is not found.
            CallError: the application does not write the topic.
        """
        if not any(position.topic in topics or None in topics for topics in self._sinks.values()):
            topics = sorted(topic for own in self._sinks.values() for topic in own if topic)
            raise CallError(f"the application does not write {position.topic!r}", hint=f"it writes {', '.join(dict.fromkeys(topics))}")
        self._all = all
        return self._causes(self._writer(self._replays.record(position)), all=all)

    def of_row(self, store: StoreBuilder, key: Any, window: Any = None, *, all: bool = False, as_of: Any = None) -> Iterator[Cause]:
        """Yield the causes of the last update of a row.

        Raises:
            InvalidStateStoreError: the store has no such row, or no changelog, or the record that wrote the row is not found.
            CallError: the store's rows have windows and `window` is None, or the reverse.
        """
        self._all = all
        if store.name in self._globals:
            yield self._of_global(store, key, None, "row of the global table")
            return
        moment = None if as_of is None else moment_of(as_of)
        if moment is not None and moment.record is not None:
            raise CallError("why takes a commit or a time as as_of", hint="as_of='commit 12'", argument="as_of")
        commits = None if moment is None else self._replays.history.at(moment)
        for task, log in self._tasks_with(store, key):
            known = self._replays.history.of(task)
            number = (len(known) if commits is None else known.index(commits[task]) + 1 if task in commits else 0) - 1
            if number < 0:
                continue
            wanted = row_key(log.store, _with_window(store, key, window))
            if wanted is None:
                raise CallError(f"{store.name!r} is a private store of an operator", hint="ask for the store of its result")
            found = self._last_write(Interval(task, number + 1, number + 1, (), {}), 0, log, wanted)
            if found is not None:
                yield from self._of_write(found, log, all=all)
                return
        raise InvalidStateStoreError(f"store {store.name!r} has no row {key!r}, and its changelog has none either", store=store.name)

    def _tasks_with(self, store: StoreBuilder, key: Any) -> list[tuple[TaskId, ChangelogPartition]]:
        """Return the tasks that may have a row, the likely one first."""
        logs = [(task, own[store.name]) for task, own in self._logs.items() if store.name in own]
        if not logs:
            raise InvalidStateStoreError(f"store {store.name!r} has no changelog", hint="give it one: logging=True", store=store.name)
        data = logs[0][1].store.key_serde.serialize(key)
        likely = -1 if data is None else partition_for_key(data, len(logs))
        return sorted(logs, key=lambda each: each[0].partition != likely)

    # ---- steps

    def _writer(self, record: Written, until_ms: int | None = None) -> Step:
        """Return the record whose processing has sent a record to an output or a repartition topic.

        Raises:
            InvalidStateStoreError: no commit that was tried has it.
        """
        topic, history = record.position.topic, self._replays.history
        found: list[Step] = []
        before, number = self._replays.equal(record)
        tasks = sorted(
            (task for task, topics in self._sinks.items() if topic in topics or None in topics),
            key=lambda task: task.partition != record.position.partition,
        )
        tried = []
        for task in tasks:
            commits = history.of(task)
            first = bisect_left(commits, record.timestamp, key=lambda commit: commit.stream_time)
            order = [*range(first, len(commits)), *range(first - 1, -1, -1)][:_MOST_COMMITS]
            tried += [(rank, task, each) for rank, each in enumerate(order) if until_ms is None or commits[each].at_ms <= until_ms]
        failed: InvalidStateStoreError | None = None
        for rank, task, each in sorted(tried, key=lambda one: one[0]):
            if len(found) >= number:
                break
            self._report(f"looking for what wrote {record.position}: {rank} of up to {_MOST_COMMITS} commits of each task …")
            try:
                if number == 1 and (alone := self._alone(task, each, record)):
                    return alone[-1]
                interval = self._replays.interval(task, each)
            except InvalidStateStoreError as error:
                failed = failed or error
                continue
            same = [Step(interval, *sent) for sent in interval.sent(topic, record.key) if record.is_like(sent[1])]
            found += [step for step in same if step.sent.partition == record.position.partition]
        if len(found) <= before:
            raise failed or InvalidStateStoreError(
                f"no record is found whose processing sends {record.position}",
                hint="rows that a cache has merged between two commits leave with other old values; functions may not be deterministic",
            )
        found.sort(key=lambda step: (history.of(step.interval.task)[step.interval.last].at_ms, step.interval.task, step.at))
        return found[before]

    def _last_write(self, interval: Interval, index: int, log: ChangelogPartition, wanted: RowKey) -> Step | Written | None:
        """Return the last update of a row before a record of an interval; of a store that is filled from its topic, the record there."""
        topic = log.partition.topic
        for number in range(index - 1, -1, -1):
            trace = interval.traces[number]
            if log.is_source:
                record = interval.inputs[trace.position]
                if record.partition == log.partition and wanted(record.key):
                    return record
            else:
                for sent in reversed(trace.sent):
                    if sent.topic == topic and wanted(sent.key):
                        return Step(interval, number, sent)
        commits = self._replays.history.of(interval.task)
        if log.is_source:
            end = commits[interval.first - 1].offsets.get(log.partition, 0) if interval.first else 0
        else:
            end = self._replays.end_before(interval, topic)
        written = self._replays.last(log.partition, end, lambda record: wanted(record.key))
        return written if written is None or log.is_source else self._logged(interval.task, log, written)

    def _logged(self, task: TaskId, log: ChangelogPartition, record: Written) -> Step:
        """Return the record whose processing has written a record of a changelog."""
        topic, key = log.partition.topic, record.key
        number = self._replays.number_of(task, topic, record.position.offset)
        if log.store.kind in _BY_KEY and (alone := self._alone(task, number, record)):
            return alone[-1]
        interval = self._replays.interval(task, number)
        sent = interval.sent(topic, key)
        if log.store.retain_duplicates and key is not None:  # their sequence numbers are not those of then
            sent = [(at, each) for at, trace in enumerate(interval.traces) for each in trace.sent if each.topic == topic]
            sent = [(at, each) for at, each in sent if each.key is not None and each.key[:-4] == key[:-4]]
        same = [one for one in sent if one[1].value == record.value]
        exact = [one for one in same if one[1].timestamp == record.timestamp] or same
        if not exact:
            raise InvalidStateStoreError(
                f"processed again, the records of {self._replays.history.of(task)[interval.last]} do not write {record.position}",
                hint="the order in which a task took records of several partitions, the wall clock, and functions that are not "
                "deterministic are not kept",
            )
        return Step(interval, *exact[-1])

    def _alone(self, task: TaskId, number: int, record: Written) -> list[Step]:
        """Return the steps of a commit that send a record when only the records of its key are processed, and use no other row; none
        where the commit has few records, or all causes are asked for: the whole commit is processed then.
        """
        if self._all or record.key is None or self._replays.size(task, number) < _MANY:
            return []
        interval = self._replays.interval(task, number, key=record.key)
        same = [Step(interval, *sent) for sent in interval.sent(record.position.topic, record.key) if record.is_like(sent[1])]
        stores = [{access.store for visit in step.trace.visits for access in visit.stores} for step in same]
        return [step for step, used in zip(same, stores, strict=True) if len(used) < 2]

    # ---- causes

    def _causes(self, step: Step, *, all: bool, role: str | None = None, tail: tuple[str, ...] = ()) -> Iterator[Cause]:
        """Yield the causes of what a record has sent: itself, or what wrote it, and the rows that the nodes on the way have used."""
        chain = self._chain(step)
        names = (*(visit.node for visit in chain), *tail)
        others: list[Cause] = []
        ticked = not chain or chain[0].input is None  # a punctuation
        for place, visit in enumerate(chain):
            operator = getattr(self._nodes.get(visit.node), "operator", None)
            child, rest = (chain[place + 1] if place + 1 < len(chain) else None), names[place:]
            kept = self._kept_back(step, visit, child, operator)
            if kept is not None:
                ticked = True
                others += self._of_write(*kept, all=all, tail=rest)
            else:
                others += self._read_rows(step, visit, child, operator, all=all, tail=rest)
            if all:
                others += self._contributions(step, visit, child, operator, tail=rest)
        yield from self._of_input(step, all=all, role=role or (TICK if ticked else None), names=names)
        yield from others

    def _of_input(self, step: Step, *, all: bool, role: str | None, names: tuple[str, ...]) -> Iterator[Cause]:
        position = step.trace.position
        record = step.interval.inputs[position]
        source = step.trace.visits[0] if step.trace.visits else None
        names = names if source is None or names[:1] == (source.node,) else (source.node, *names)
        if position.topic in self._internal:
            yield from self._upstream(record, self._replays.history.of(step.interval.task)[step.interval.last].at_ms, all, role, names)
        elif source is None or source.input is None:
            yield Cause(position, record.key, record.value, record.timestamp, role or RECORD, names)
        else:
            yield Cause(position, *source.input[:3], role or RECORD, names)

    def _upstream(self, record: Written, until_ms: int, all: bool, role: str | None, tail: tuple[str, ...]) -> Iterator[Cause]:
        """Yield the causes of a record of a repartition topic."""
        try:
            step = self._writer(record, until_ms)
        except InvalidStateStoreError as error:
            yield Cause(record.position, record.key, record.value, record.timestamp, f"{NOT_KNOWN}{error.message}", tail)
        else:
            yield from self._causes(step, all=all, role=role, tail=tail)

    def _of_write(
        self, found: Step | Written, log: ChangelogPartition, *, all: bool, role: str | None = None, tail: tuple[str, ...] = ()
    ) -> Iterator[Cause]:
        """Yield the causes of an update of a row."""
        if isinstance(found, Step):
            yield from self._causes(found, all=all, role=role, tail=tail)
            return
        spec = self._replays.specs[log.task]
        source = spec.partitions[log.partition]
        keepers = (node.name for node in spec.subtopology.nodes if getattr(getattr(node, "operator", None), "store", "") == log.store.name)
        names = tuple(dict.fromkeys((source, *list(keepers)[:1], *tail)))
        if log.partition.topic in self._internal:
            task, number = self._replays.reader_of(found)
            yield from self._upstream(found, self._replays.history.of(task)[number].at_ms, all, role, names)
        else:
            yield _decoded(found, log.store, role or RECORD, names)

    def _of_global(self, store: StoreBuilder, key: Any, until_ms: int | None, role: str, tail: tuple[str, ...] = ()) -> Cause:
        """Return the last record of a key in the topic of a global table, up to a time."""
        bound = with_log_serdes(store, self.app.config)
        admin, topic, data = self.app.client.admin, str(bound.source_topic), bound.key_serde.serialize(key)
        partitions = [TopicPartition(topic, number) for number in range(admin.partitions(topic))]
        ends = admin.end_offsets(partitions)
        if until_ms is not None:
            ends |= {at: end for at, end in admin.offsets_for_time(dict.fromkeys(partitions, until_ms)).items() if end is not None}
        for partition in sorted(partitions, key=lambda each: each.partition != partition_for_key(data, len(partitions))):
            found = self._replays.last(partition, ends[partition], lambda record: record.key == data)
            if found is not None:
                return _decoded(found, bound, role, (*self._source_of(topic), *tail))
        raise InvalidStateStoreError(f"global table {store.name!r} has no row {key!r}", store=store.name)

    def _source_of(self, topic: str) -> tuple[str, ...]:
        return tuple(name for name, node in self._nodes.items() if topic in getattr(node, "topics", ()))

    # ---- what the nodes on the way have used

    def _chain(self, step: Step) -> Chain:
        """Return the visits from the source to the node that has sent it."""
        visits, sent = step.trace.visits, step.sent
        store = next((log.store for log in self._logs[step.interval.task].values() if log.partition.topic == sent.topic), None)
        if store is None:
            ends = [at for at, visit in enumerate(visits) if sent in visit.sent]
        else:
            ends = [at for at, visit in enumerate(visits) if any(_writes(each, store.name) for each in visit.stores)]
            own = [at for at in ends if any(_writes(each, store.name) and _is_of(store, each.key, sent.key) for each in visits[at].stores)]
            ends = own or ends
        if not ends:
            return visits[:1]
        line = _line(visits, ends[-1])
        if line[0].input is None:  # a cached row leaves at the commit that follows each record
            entered = [at for at, visit in enumerate(visits) if visit.node == line[0].node and visit.input is not None]
            return [*_line(visits, entered[-1]), *line[1:]] if entered and not self._is_users(line[0]) else line
        return line

    def _is_users(self, visit: NodeVisit) -> bool:
        operator = getattr(self._nodes.get(visit.node), "operator", None)
        return not isinstance(operator, Operator) or _is_users(operator)

    def _kept_back(
        self, step: Step, visit: NodeVisit, child: NodeVisit | None, operator: Any
    ) -> tuple[Step | Written, ChangelogPartition] | None:
        """Return the last update of the row that left a buffer or a window because stream time advanced; None: nothing did."""
        out = child.input if child is not None else None
        if out is None:
            return None
        logs, given, store = self._logs[step.interval.task], visit.input, ""
        wanted: RowKey | None = None
        if getattr(operator, "emit_on_close", False):
            store = operator.store
            wanted = row_key(logs[store].store, out.key) if store in logs else None
        elif isinstance(operator, TableSuppress):
            store = operator.store
            if given is not None and given.key == out.key and given.value[0] == out.value[0]:
                return None
            wanted = RowKey(logs[store].store.key_serde.serialize(out.key)) if store in logs else None
        elif isinstance(operator, StreamTableJoin) and operator.buffer_store is not None:
            store = operator.buffer_store
            if given is not None and (given.key, given.timestamp) == (out.key, out.timestamp):
                return None
            wanted = self._removed(step, logs.get(store), out.key, out.timestamp)
        elif isinstance(operator, StreamStreamJoin) and operator.outer_store is not None and self._pair(visit, child) is None:
            store = operator.outer_store
            if given is not None and (given.key, given.timestamp) == (out.key, out.timestamp):
                return None
            wanted = self._removed(step, logs.get(store), out.key, out.timestamp)
        if wanted is None:
            return None
        found = self._last_write(step.interval, step.at, logs[store], wanted)
        return None if found is None else (found, logs[store])

    def _removed(self, step: Step, log: ChangelogPartition | None, key: Any, timestamp: int) -> RowKey | None:
        """Return the key of a buffered record that a record has removed from its buffer, by its own key and time."""
        if log is None:
            return None
        data = log.store.key_serde.serialize(key)
        gone = [sent.key for sent in step.trace.sent if sent.topic == log.partition.topic and sent.value is None and sent.key is not None]
        time_bytes = side_key(timestamp, False, b"")[:8]
        return next((RowKey(each) for each in gone if data in each and time_bytes in each), None)

    def _pair(self, visit: NodeVisit, child: NodeVisit | None) -> int | None:
        """Return which of the rows that a join has read is in one of its outputs; None: none is."""
        rows = [row for access in visit.stores if isinstance(access.before, list) for row in access.before]
        outputs = len(visit.outputs)
        place = next((at for at, output in enumerate(visit.outputs) if child is not None and child.input == output), None)
        if place is None or place < outputs - len(rows):
            return None
        return place - (outputs - len(rows))

    def _read_rows(
        self, step: Step, visit: NodeVisit, child: NodeVisit | None, operator: Any, *, all: bool, tail: tuple[str, ...]
    ) -> Iterator[Cause]:
        """Yield the causes of the rows that a node has read: the other side of a join, and what a processor has looked up."""
        reads = [each for each in visit.stores if each.call not in WRITES]
        if not isinstance(operator, Operator) or _is_users(operator):
            written = {(each.store, repr(each.key)) for each in visit.stores if each.call in WRITES}
            role = f"read by {visit.node}"
            wanted = [
                (each.store, key) for each in reads for key in _keys_read(each) if (each.store, repr(key)) not in written
            ][:_MOST_ROWS]
        elif _is_join(operator):
            role = f"other side of join {visit.node}"
            wanted = self._joined(visit, child, operator, reads)
        else:
            return
        logs = self._logs[step.interval.task]
        for store, key in dict.fromkeys(wanted):
            if store in self._globals:
                until_ms = self._replays.history.of(step.interval.task)[step.interval.last].at_ms + 1
                yield self._of_global(self._globals[store], key, until_ms, role, tail)
                continue
            matches = key if isinstance(key, RowKey) else row_key(logs[store].store, key) if store in logs else None
            found = None if matches is None else self._last_write(step.interval, step.at, logs[store], matches)
            if found is not None:
                yield from self._of_write(found, logs[store], all=all, role=role, tail=tail)

    def _joined(self, visit: NodeVisit, child: NodeVisit | None, operator: Any, reads: Sequence[StoreAccess]) -> list[tuple[str, Any]]:
        """Return the rows of the other side that are in an output of a join, as store and key."""
        if isinstance(operator, StreamStreamJoin | StreamStreamSelfJoin):
            pair = self._pair(visit, child)
            rows = [(each.store, (each.key[0], row[0])) for each in reads if isinstance(each.before, list) for row in each.before]
            return [] if pair is None else rows[pair : pair + 1]
        found: list[tuple[str, Any]] = []
        for each in reads:
            if isinstance(each.before, list):  # the subscriptions of a foreign key
                pair = self._pair(visit, child)
                found += [] if pair is None else [(each.store, RowKey(each.before[pair][0]))]
            elif each.before is not None:
                found.append((each.store, each.key))
        return found

    def _contributions(
        self, step: Step, visit: NodeVisit, child: NodeVisit | None, operator: Any, *, tail: tuple[str, ...]
    ) -> Iterator[Cause]:
        """Yield the earlier updates of the rows of aggregates that a node has continued."""
        if not (_is_aggregate(operator) or _is_users(operator) or not isinstance(operator, Operator)):
            return
        logs = self._logs[step.interval.task]
        continued = [each for each in visit.stores if each.call in WRITES and each.store in logs]
        if child is not None and child.input is not None and isinstance(child.input.key, Windowed):
            continued = [each for each in continued if _windowed(each.key) == child.input.key[:2]]
        elif child is None:
            log = logs[continued[-1].store] if continued else None
            if log is not None and log.partition.topic == step.sent.topic:
                continued = [each for each in continued if _is_of(log.store, each.key, step.sent.key)]
        for access in continued:
            log = logs[access.store]
            key = child.input.key if log.store.kind is StoreKind.SESSION and child is not None and child.input is not None else access.key
            wanted = row_key(log.store, key, parts=True)
            if wanted is None or log.is_source or (access.before is None and log.store.kind is not StoreKind.SESSION):
                continue
            for contribution in self._writes(step, access, log, wanted, key):
                yield from self._causes(contribution, all=False, role=_contribution_role(contribution, visit.node), tail=tail[1:])

    def _writes(self, step: Step, access: StoreAccess, log: ChangelogPartition, wanted: RowKey, key: Any) -> list[Step]:
        """Return the updates of a row before a record, since it was last deleted.

        Where the row has the record's own key, the records of other keys are left out, if the row then comes to the same value.
        """
        interval, history = step.interval, self._replays.history
        commits, first = history.of(interval.task), 0
        if log.store.kind in _WINDOWED:
            first = bisect_left(commits, key[1], key=lambda commit: commit.stream_time)
        else:
            end = self._replays.end_before(interval, log.partition.topic)
            deleted = self._replays.last(log.partition, end, lambda record: record.value is None and wanted(record.key))
            first = 0 if deleted is None else self._replays.number_of(interval.task, log.partition.topic, deleted.position.offset)
        first = min(first, interval.first)
        self._report(f"processing {interval.last - first + 1} commits of task {interval.task} again …")
        data = step.interval.inputs[step.trace.position].key
        chain = self._chain(step)
        if data is not None and wanted == RowKey(data) and not any(self._is_users(visit) for visit in chain[1:-1]):
            some = self._replays.interval(interval.task, first, interval.last, key=data)
            same = next((trace for trace in some.traces if trace.position == step.trace.position), None)
            again = () if same is None else (each for visit in same.visits for each in visit.stores)
            if any(each[:2] == access[:2] and each[3:] == access[3:] for each in again):
                return _updates(some, step, log, wanted)
        return _updates(self._replays.interval(interval.task, first, interval.last), step, log, wanted)

    def _report(self, text: str) -> None:
        if time.monotonic() - self._reported_at > _REPORT_SECONDS:
            self._reported_at = time.monotonic()
            self.app.client.report(text)


def _updates(interval: Interval, before: Step, log: ChangelogPartition, wanted: RowKey) -> list[Step]:
    """Return the updates of a row in an interval before a record, since it was last deleted there."""
    found: list[Step] = []
    for number, trace in enumerate(interval.traces):
        if trace.position == before.trace.position:
            break
        for sent in trace.sent:
            if sent.topic == log.partition.topic and wanted(sent.key):
                if sent.value is None and wanted.session is None:
                    found.clear()
                elif sent.value is not None:
                    found.append(Step(interval, number, sent))
    return found


def _decoded(record: Written, store: StoreBuilder, role: str, path: tuple[str, ...]) -> Cause:
    """Return a record of a table's topic as a cause."""
    value = None if record.value is None else store.value_serde.deserialize(record.value)
    return Cause(record.position, store.key_serde.deserialize(record.key), value, record.timestamp, role, path)


def _with_window(store: StoreBuilder, key: Any, window: Any) -> Any:
    """Return the key of a row of a store, with its window.

    Raises:
        CallError: the store's rows have windows and there is none, or the reverse.
    """
    if isinstance(key, Windowed) and window is None and store.kind in _WINDOWED:
        return key
    if (window is None) == (store.kind in _WINDOWED):
        raise CallError(
            f"the rows of {store.kind} store {store.name!r} have {'a window' if window is None else 'no windows'}",
            hint="window=start, of sessions window=(start, end); times as for as_of" if window is None else "leave out window=",
            argument="window",
        )
    if window is None:
        return key
    start, end = window if isinstance(window, tuple) else (window, window)
    return Windowed(key, milliseconds(start), milliseconds(end))


def _line(visits: Sequence[NodeVisit], end: int) -> Chain:
    """Return a visit and those that have led to it, the first one first."""
    line = [visits[end]]
    for visit in reversed(visits[:end]):
        if visit.depth == line[-1].depth - 1:
            line.append(visit)
    return line[::-1]


def _writes(access: StoreAccess, store: str) -> bool:
    return access.store == store and access.call in WRITES


def _is_of(store: StoreBuilder, key: Any, data: bytes | None) -> bool:
    """Return whether a call of a store was about a row."""
    try:
        wanted = row_key(store, key)
    except Exception:  # noqa: BLE001 - what a call was given need not be a key: a buffer's call has all that was put
        return False
    return wanted is not None and wanted(data)


def _windowed(key: Any) -> Any:
    return tuple(key[:2]) if isinstance(key, tuple) and len(key) > 1 else key


def _keys_read(access: StoreAccess) -> list[Any]:
    """Return the keys of the rows that a processor's call has read."""
    if not isinstance(access.before, list):
        return [] if access.before is None else [access.key]
    if access.call == "fetch":  # of one key: times and values
        return [row[0] if isinstance(row[0], Windowed) else (access.key[0], row[0]) for row in access.before]
    return [row[0] for row in access.before]


def _module(operator: Any) -> str:
    return type(operator).__module__.removeprefix("kstreams_repl.engine.operators.")


def _is_join(operator: Any) -> bool:
    return _module(operator).startswith(("joins.", "foreign_key."))


def _is_aggregate(operator: Any) -> bool:
    return _module(operator).startswith("aggregates.")


def _is_users(operator: Any) -> bool:
    return _module(operator) in ("processor_api", "tables.table_transform_values")


def _contribution_role(step: Step, node: str) -> str:
    """Return whether a record has added to an aggregate, or only taken from it."""
    change = next((visit.input.value for visit in step.trace.visits if visit.node == node and visit.input is not None), None)
    retracts = isinstance(change, tuple) and len(change) == 3 and change[0] is None and change[1] is not None and change[2] is True
    return RETRACTION if retracts else CONTRIBUTION
