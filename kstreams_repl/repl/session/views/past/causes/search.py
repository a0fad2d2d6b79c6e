"""`CauseSearch`: the causes of one result, followed from the record that wrote it through repartition topics and the rows that were used.

A step has what a record's processing has sent. Its causes are 1. the record itself, or what wrote it if it is one of a repartition topic
· 2. the last updates of the rows that the nodes on its way have used (`used_rows`), each followed in the same manner · 3. if all are asked
for, the earlier updates of the rows of aggregates. Each step is explained with the topology of the version that ran then.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

from kstreams_repl.engine.operators.aggregates.stream_sliding_window_aggregate import StreamSlidingWindowAggregate
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.host.instance.state.changelogs import ChangelogPartition
from kstreams_repl.repl.session.views.past.causes.result import CONTRIBUTION, NOT_KNOWN, RECORD, RETRACTION, TICK, Cause
from kstreams_repl.repl.session.views.past.causes.row_keys import RowKey, row_key
from kstreams_repl.repl.session.views.past.causes.used_rows import (
    Chain,
    UsedRow,
    chain_of,
    is_of,
    is_users,
    kept_back,
    operator_of,
    rows_read,
)
from kstreams_repl.repl.session.views.past.causes.writers import Writers
from kstreams_repl.repl.session.views.past.replay.record_trace import WRITES
from kstreams_repl.repl.session.views.past.replay.replays import Interval, Replays, Step, Written
from kstreams_repl.repl.session.views.past.state.ran_versions import Ran
from kstreams_repl.system.errors import InvalidStateStoreError, SessionFileError
from kstreams_repl.system.types import TaskId, Windowed

WINDOWED = frozenset({StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW, StoreKind.TIME_ORDERED_WINDOW, StoreKind.SESSION})


class CauseSearch:
    """Finds the causes of one result.

    Args:
        all: whether earlier updates of aggregates are causes, too.
    """

    def __init__(self, replays: Replays, *, all: bool) -> None:
        self._replays, self._all = replays, all
        self._writers = Writers(replays)

    def of_output(self, record: Written) -> tuple[Ran, Iterator[Cause]]:
        """Return the version that has written a record of an output or a repartition topic, and the causes.

        Raises:
            InvalidStateStoreError: the record that made it is not found.
        """
        step = self._writers.of_output(record)
        return step.interval.ran, self._causes(step)

    def of_row(
        self, interval: Interval, before: int, log: ChangelogPartition, row: UsedRow
    ) -> tuple[Ran, Iterator[Cause]] | None:
        """Return the version that has written a row last, and the causes; None: there is no such row.

        Args:
            interval, before: the update is before this trace of this interval.

        Raises:
            InvalidStateStoreError: the record that wrote the row is not found.
        """
        found = self._writers.of_row(interval, before, log, row)
        if found is None:
            return None
        ran = found.interval.ran if isinstance(found, Step) else interval.ran
        return ran, self._of_write(found, log, interval.ran, interval.task)

    def of_global(
        self, ran: Ran, store: StoreBuilder, key: Any, until_ms: int | None, role: str, tail: tuple[str, ...] = ()
    ) -> Cause | None:
        """Return the last record of a key in the topic of a global table, up to a time; None: it has none."""
        found = self._writers.of_global(store, key, until_ms, ran)
        return None if found is None else _decoded(*found, role, (*ran.sources_of(found[0].position.topic), *tail))

    def _causes(self, step: Step, *, deep: bool = True, role: str | None = None, tail: tuple[str, ...] = ()) -> Iterator[Cause]:
        """Yield the causes of what a record has sent: itself, or what wrote it, and the rows that the nodes on the way have used.

        Args:
            deep: whether the earlier updates of aggregates are followed, if all are asked for.
        """
        ran = step.interval.ran
        logs = ran.logs(step.interval.task)
        chain = chain_of(step.trace, step.sent, _log_of(step), ran.nodes)
        names = (*(visit.node for visit in chain), *tail)
        others: list[Cause] = []
        ticked = not chain or chain[0].input is None  # a punctuation
        for place, visit in enumerate(chain):
            operator = operator_of(ran.nodes, visit)
            child, rest = (chain[place + 1] if place + 1 < len(chain) else None), names[place:]
            kept = kept_back(step.trace, visit, child, operator, logs)
            if kept is not None:
                ticked = True
                others += self._of_used(step, kept, None, rest, deep=deep)
            for row in rows_read(step.trace, visit, child, operator):
                source = f"read by {visit.node}" if is_users(operator) else f"other side of join {visit.node}"
                others += self._of_used(step, row, source, rest, deep=deep)
            if self._all and deep and kept is None:
                others += self._contributions(step, chain, place, operator, tail=rest)
        yield from self._of_input(step, deep=deep, role=role or (TICK if ticked else None), names=names)
        yield from others

    def _of_used(self, step: Step, row: UsedRow, role: str | None, tail: tuple[str, ...], *, deep: bool) -> Iterator[Cause]:
        """Yield the causes of a row that was used."""
        ran, task = step.interval.ran, step.interval.task
        if row.store in ran.globals:
            until_ms = self._replays.history.of(task)[step.interval.last].at_ms + 1
            cause = self.of_global(ran, ran.globals[row.store], row.key, until_ms, role or RECORD, tail)
            yield from [] if cause is None else [cause]
            return
        log = ran.logs(task).get(row.store)
        found = None if log is None else self._writers.of_row(step.interval, step.at, log, row)
        if found is not None and log is not None:
            yield from self._of_write(found, log, ran, task, deep=deep, role=role, tail=tail)

    def _of_input(self, step: Step, *, deep: bool, role: str | None, names: tuple[str, ...]) -> Iterator[Cause]:
        interval, position = step.interval, step.trace.position
        record = interval.inputs[position]
        source = step.trace.visits[0] if step.trace.visits else None
        names = names if source is None or names[:1] == (source.node,) else (source.node, *names)
        if position.topic in interval.ran.internal:
            yield from self._upstream(
                record, self._replays.history.of(interval.task)[interval.last].at_ms, role, names, deep=deep
            )
        elif source is None or source.input is None:
            yield Cause(position, record.key, record.value, record.timestamp, role or RECORD, names)
        else:
            yield Cause(position, *source.input[:3], role or RECORD, names)

    def _upstream(
        self, record: Written, until_ms: int, role: str | None, tail: tuple[str, ...], *, deep: bool
    ) -> Iterator[Cause]:
        """Yield the causes of a record of a repartition topic."""
        try:
            step = self._writers.of_output(record, until_ms)
        except (InvalidStateStoreError, SessionFileError) as error:
            yield Cause(record.position, record.key, record.value, record.timestamp, f"{NOT_KNOWN}{error.message}", tail)
        else:
            yield from self._causes(step, deep=deep, role=role, tail=tail)

    def _of_write(
        self,
        found: Step | Written,
        log: ChangelogPartition,
        ran: Ran,
        task: TaskId,
        *,
        deep: bool = True,
        role: str | None = None,
        tail: tuple[str, ...] = (),
    ) -> Iterator[Cause]:
        """Yield the causes of an update of a row."""
        if isinstance(found, Step):
            yield from self._causes(found, deep=deep, role=role, tail=tail)
            return
        spec = ran.task(task)
        source = spec.partitions[log.partition]
        keepers = (
            node.name
            for node in spec.subtopology.nodes
            if getattr(getattr(node, "operator", None), "store", "") == log.store.name
        )
        names = tuple(dict.fromkeys((source, *list(keepers)[:1], *tail)))
        if log.partition.topic in ran.internal:
            reader, number = self._replays.reader_of(found)
            yield from self._upstream(found, self._replays.history.of(reader)[number].at_ms, role, names, deep=deep)
        else:
            yield _decoded(found, log.store, role or RECORD, names)

    # ---- all causes

    def _contributions(self, step: Step, chain: Chain, place: int, operator: Any, *, tail: tuple[str, ...]) -> Iterator[Cause]:
        """Yield the earlier updates of the rows of aggregates that a node has continued."""
        if not is_users(operator) and operator.role != "aggregate":
            return
        visit, child = chain[place], chain[place + 1] if place + 1 < len(chain) else None
        logs = step.interval.ran.logs(step.interval.task)
        continued = [each for each in visit.stores if each.call in WRITES and each.store in logs]
        if child is not None and child.input is not None and isinstance(child.input.key, Windowed):
            continued = [each for each in continued if _windowed(each.key) == child.input.key[:2]]
        elif child is None:
            log = logs[continued[-1].store] if continued else None
            if log is not None and log.partition.topic == step.sent.topic:
                continued = [each for each in continued if is_of(log, each, step.sent.key)]
        for access in continued:
            log = logs[access.store]
            key = (
                child.input.key
                if log.store.kind is StoreKind.SESSION and child is not None and child.input is not None
                else access.key
            )
            sliding = isinstance(operator, StreamSlidingWindowAggregate)
            wanted = row_key(log.store, key, parts=True, any_window=sliding)
            if wanted is None or log.is_source or (access.before is None and not wanted.has_parts):
                continue
            alone = not any(is_users(operator_of(step.interval.ran.nodes, each)) for each in chain[1:-1])
            first = self._first_commit(step, log, wanted, key)
            updates = self._writers.updates(step, access, log, wanted, first=first, alone=alone)
            for each in _in_window(step, updates, key[1], operator.time_difference_ms, visit.node) if sliding else updates:
                yield from self._causes(each, deep=False, role=_contribution_role(each, visit.node), tail=tail[1:])

    def _first_commit(self, step: Step, log: ChangelogPartition, wanted: RowKey, key: Any) -> int:
        """Return the index of the first commit that may have updates of a row: since it was last deleted, or since its window began."""
        interval, commits = step.interval, self._replays.history.of(step.interval.task)
        if log.store.kind in WINDOWED:
            first = bisect_left(
                commits, key[1] - 1, key=lambda commit: commit.stream_time
            )  # a sliding window may begin after a record
        else:
            end = self._replays.end_before(interval, log.partition.topic)
            deleted = self._replays.last(log.partition, end, lambda record: record.value is None, wanted.match)
            first = 0 if deleted is None else self._replays.number_of(interval.task, log.partition.topic, deleted.position.offset)
        return min(first, interval.first)


def _log_of(step: Step) -> ChangelogPartition | None:
    """Return the changelog that a step has written to; None: it was a topic of a sink."""
    logs = step.interval.ran.logs(step.interval.task).values()
    return next((log for log in logs if log.partition.topic == step.sent.topic and not log.is_source), None)


def _decoded(record: Written, store: StoreBuilder, role: str, path: tuple[str, ...]) -> Cause:
    """Return a record of a table's topic as a cause."""
    value = None if record.value is None else store.value_serde.deserialize(record.value)
    return Cause(record.position, store.key_serde.deserialize(record.key), value, record.timestamp, role, path)


def _windowed(key: Any) -> Any:
    return tuple(key[:2]) if isinstance(key, tuple) and len(key) > 1 else key


def _in_window(last: Step, updates: list[Step], start: int, difference_ms: int, node: str) -> list[Step]:
    """Return which updates of windows of a key were made by records of one sliding window, and the one by the record just before it, unless
    a record at its end has begun it.

    Args:
        last: the last update of the window, which is not among them.
    """

    def time_of(step: Step) -> int:
        return next((visit.input.timestamp for visit in step.trace.visits if visit.node == node and visit.input is not None), -1)

    times = [time_of(step) for step in updates]
    end = start + difference_ms
    start -= end not in (*times, time_of(last))
    return [step for step, time in zip(updates, times, strict=True) if start <= time <= end]


def _contribution_role(step: Step, node: str) -> str:
    """Return whether a record has added to an aggregate, or only taken from it."""
    change = next((visit.input.value for visit in step.trace.visits if visit.node == node and visit.input is not None), None)
    retracts = (
        isinstance(change, tuple) and len(change) == 3 and change[0] is None and change[1] is not None and change[2] is True
    )
    return RETRACTION if retracts else CONTRIBUTION
