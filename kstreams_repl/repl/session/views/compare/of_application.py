"""Compare an application with a changed topology, from one of its commits on, on the records that it has processed since.

The base is a commit of each task at one time, which is consistent: a task has only read what others had committed before. The comparison
ends where the application's later commits end, by offsets, never by time. Records of repartition topics are made again by both sides; those
that were between two sub-topologies at the base are left out on both.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from kstreams_repl.engine.runtime.task import TaskSpec
from kstreams_repl.engine.runtime.task_specs import task_specs
from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment
from kstreams_repl.engine.topology.differences.diff import StoreChange
from kstreams_repl.host.instance.initialization.start_offsets import StartOffset
from kstreams_repl.host.instance.state.state_directory import task_directory
from kstreams_repl.host.instance.state.state_manager import open_lmdb
from kstreams_repl.pictures.wording import moment as time_text
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.application.edits.edit import EditPlan, plan_edit
from kstreams_repl.repl.session.application.starting.deploy_preview import check
from kstreams_repl.repl.session.topics.source_serdes import built_with_serdes
from kstreams_repl.repl.session.views.compare.answers import Answers
from kstreams_repl.repl.session.views.compare.compare import compare
from kstreams_repl.repl.session.views.compare.comparison import Comparison
from kstreams_repl.repl.session.views.compare.decoded import PRIVATE
from kstreams_repl.repl.session.views.compare.inputs import Inputs
from kstreams_repl.repl.session.views.compare.row_pairs import HasRows
from kstreams_repl.repl.session.views.compare.side import Base, SideTopology, own_topics
from kstreams_repl.repl.session.views.past.moments import Moment, moment_of
from kstreams_repl.repl.session.views.past.replay.before_record import global_stores, records_between
from kstreams_repl.repl.session.views.past.replay.recorded_answers import RecordedAnswers
from kstreams_repl.repl.session.views.past.state.commit_history import CommitHistory, TaskCommit
from kstreams_repl.repl.session.views.past.state.state_builder import history_of, specs_of, state_directory
from kstreams_repl.system.errors import CallError, InvalidStateStoreError
from kstreams_repl.system.types import RecordBatch, TaskId, TopicPartition

RECORDS = 100_000
_NEAR = 20
Commits = Mapping[TaskId, TaskCommit]


@dataclass(frozen=True, slots=True)
class Span:
    """What part of an application's past is compared.

    Attributes:
        base: the commit of each task from which it begins; a task without one begins empty, with its first record.
        last: the commit of each task at which it ends.
    """

    base: Commits
    last: Commits

    @property
    def stop(self) -> dict[TopicPartition, int]:
        return {partition: offset for commit in self.last.values() for partition, offset in commit.offsets.items()}

    @property
    def until_ms(self) -> int:
        return max(commit.at_ms for commit in self.last.values())

    @property
    def title(self) -> str:
        """The base in words."""
        if not self.base:
            return "the beginning"
        numbers = {commit.commit_id for commit in self.base.values()}
        at = time_text(max(commit.at_ms for commit in self.base.values()) / 1000)
        return f"commit {numbers.pop()}, {at}" if len(numbers) == 1 else f"the commits up to {at}"


def compare_definition(
    app: ApplicationCore,
    definition: object,
    *,
    records: int | None = None,
    start: object = None,
    end: object = None,
    calls: bool = False,
    samples: int = 20,
) -> Comparison:
    """Return what differs between an application and a definition of it, as `Application.compare`.

    Raises:
        CallError: `records` is less than 1, or given with `start`.
        TopologyError, UnknownTopicError: the definition does not fit the cluster.
        InvalidStateStoreError: no base is known, or there is nothing since it.
        IllegalStateError: functions of asynchronous nodes would be called, and `calls` is False.
    """
    if records is not None and (start is not None or records < 1):
        raise CallError(
            "records must be 1 or more, and start is left out", hint="records=100_000 chooses the commit", argument="records"
        )
    built, config = built_with_serdes(app.client, definition, app.config, settled=app.topology.source_topics(), report=False)
    plan = plan_edit(app, built, definition, config=config)
    check(app.client.admin, plan.topology, app.name, plan.config)
    history = history_of(app)
    last = _last(history, end)
    if start is not None:
        return compare_span(app, plan, Span(history.at(moment_of(start)), last), calls=calls, samples=samples)
    refused: InvalidStateStoreError | None = None
    own = own_topics(app.name, app.topology)
    external = {partition: offset for partition, offset in Span({}, last).stop.items() if partition.topic not in own}
    for base in _bases(history, external, records or RECORDS, quiet=bool(app.topology.internal_topics)):
        try:
            return compare_span(app, plan, Span(base, last), calls=calls, samples=samples)
        except InvalidStateStoreError as error:  # compacted, or deleted by retention: a later one may still be known
            refused = refused or error
    raise refused or InvalidStateStoreError("the application has no commit yet", hint="deploy it, and let it process records")


def _last(history: CommitHistory, end: object) -> Commits:
    return history.at(Moment("time", 1 << 62) if end is None else moment_of(end))


def compare_from(
    app: ApplicationCore, plan: EditPlan, commits: Mapping[str, int], *, end: object = None, calls: bool = False, samples: int = 20
) -> Comparison:
    """Return what differs between an application and the plan of an edit, from commits by task and number, as `Fork.compare`.

    Raises:
        InvalidStateStoreError, IllegalStateError: as `compare_span`; a commit is not known any more.
    """
    history = history_of(app)
    known = {(str(task), commit.commit_id): commit for task in history.tasks for commit in history.of(task)}
    gone = [f"{number} of task {task}" for task, number in commits.items() if (task, number) not in known]
    if gone:
        raise InvalidStateStoreError(
            f"commit {gone[0]}, from which the comparison begins, is not known any more", hint="app.compare(builder) finds a later one"
        )
    base = {commit.task: commit for task, number in commits.items() for commit in [known[task, number]]}
    return compare_span(app, plan, Span(base, _last(history, end)), calls=calls, samples=samples)


def compare_span(app: ApplicationCore, plan: EditPlan, span: Span, *, calls: bool = False, samples: int = 20) -> Comparison:
    """Return what differs between an application and the plan of an edit, from its commits on.

    Raises:
        InvalidStateStoreError: the state as of the base, or the records since, are not known any more, or there are none.
        IllegalStateError: functions of asynchronous nodes would be called, and `calls` is False.
    """
    notes = _notes(app, plan, span)
    inputs, left_out = _inputs(app, plan, span)
    notes += left_out
    if not len(inputs):
        raise InvalidStateStoreError(
            f"the application has processed no record since {span.title}",
            hint="compare from an earlier commit: start='10 minutes ago'",
        )
    for note in notes:
        app.client.report(note)
    answers = Answers(calls=calls)
    partitions, results = app.client.admin.topics(), RecordedAnswers(app.client.admin)

    def sides() -> tuple[SideTopology, SideTopology]:
        one, other = (
            SideTopology(topology, app.name, config, partitions, answers.of_a_side(), results)
            for topology, config in ((app.topology, app.config), (plan.topology, plan.config))
        )
        return one, other

    base = _base(app, plan, span)
    with answers.asked_by(app.topology, plan.topology), _real_rows(app, span) as real:
        return compare(sides, base, inputs, title=span.title, samples=samples, notes=notes, report=app.client.report, real=real)


# ---- from where to where


def _bases(history: CommitHistory, stop: Mapping[TopicPartition, int], records: int, *, quiet: bool) -> Iterator[Commits]:
    """Yield commits to begin from: the last ones with this many records since, or the earliest, and then later and later ones.

    Args:
        quiet: prefer, of some commits, the one with the longest time to the next: nothing is on its way in a repartition topic then.
    """
    tasks = [own for task in history.tasks if (own := history.of(task))]
    times = sorted({commit.at_ms for own in tasks for commit in own})
    known = max((own[0].at_ms for own in tasks if own[0].commit_id != 1), default=-1)
    candidates = [-1, *times] if known < 0 else [at for at in times if at >= known]

    def before(at: int) -> Commits:
        found = ((own[0].task, bisect_right(own, at, key=lambda commit: commit.at_ms)) for own in tasks)
        return {task: history.of(task)[number - 1] for task, number in found if number}

    def since(at: int) -> int:
        starts = {partition: offset for commit in before(at).values() for partition, offset in commit.offsets.items()}
        return sum(offset - min(starts.get(partition, 0), offset) for partition, offset in stop.items())

    low, high = 0, len(candidates) - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if since(candidates[middle]) >= records else (low, middle - 1)
    if quiet and low:
        most = since(candidates[low]) + records
        near = [at for at in range(max(1, low - _NEAR), low + 1) if since(candidates[at]) <= most]
        low = max(near, key=lambda at: candidates[at + 1] - candidates[at] if at + 1 < len(candidates) else 0)
    while True:
        yield before(candidates[low])
        if low >= len(candidates) - 2:
            return
        low = min(low + max(1, (len(candidates) - low) // 3), len(candidates) - 2)


# ---- what both sides begin with, and read


def _base(app: ApplicationCore, plan: EditPlan, span: Span) -> Base:
    specs, commits = specs_of(app), span.base
    starts = {
        partition: StartOffset(commit.offset, found.metadata[partition])
        for found in commits.values()
        for partition, commit in found.commits.items()
    }
    states = {}
    if commits:
        directory = state_directory(app, commits)
        states = {task: task_directory(directory, app.name, task) for task in commits}
    homes = {(store.name, task.partition): task for task, spec in specs.items() for store in spec.subtopology.stores}
    stores = {**global_stores(app, plan.topology, span.until_ms + 1), **global_stores(app, app.topology, span.until_ms + 1)}
    return Base(starts, states, homes, frozenset((*_begin_empty(plan), *_converted(app, span))), stores)


def _begin_empty(plan: EditPlan) -> list[str]:
    """Return the stores of both topologies whose rows the changed one cannot read."""
    unread = (StoreChange.REFUSED, StoreChange.RESET, StoreChange.REBUILT)
    return [store.name for store in plan.diff.stores if store.change in unread and store.name in plan.before.stores]


def _converted(app: ApplicationCore, span: Span) -> dict[str, int]:
    """Return the stores whose rows an edit has converted since the base, and its version."""
    since = min((commit.version for commit in span.base.values() if commit.version), default=0)
    return {store: version.number for version in app.versions if since and version.number > since for store in version.migrated}


def _notes(app: ApplicationCore, plan: EditPlan, span: Span) -> list[str]:
    reasons = {store.name: store.reason for store in plan.diff.stores}
    notes = [f"store {store} begins empty on both sides: {reasons[store]}" for store in _begin_empty(plan)]
    for store, number in _converted(app, span).items():
        notes.append(f"store {store} begins empty on both sides: version {number} has converted its rows since")
    unlogged = [store.name for store in plan.before.stores.values() if not store.logging and store.source_topic is None]
    return notes + [f"store {store} begins empty on both sides: it has no changelog" for store in unlogged]


def _inputs(app: ApplicationCore, plan: EditPlan, span: Span) -> tuple[Inputs, list[str]]:
    """Return the records that both sides read, and what is left out."""
    admin, notes = app.client.admin, list[str]()
    before = {partition for spec in specs_of(app).values() for partition in spec.partitions}
    resolved = check(admin, plan.topology, app.name, plan.config)
    after = {
        partition for spec in task_specs(plan.topology, app.name, plan.config, resolved).values() for partition in spec.partitions
    }
    own = own_topics(app.name, app.topology) | own_topics(app.name, plan.topology)
    starts = {partition: offset for commit in span.base.values() for partition, offset in commit.offsets.items()}
    batches: dict[TopicPartition, RecordBatch] = {}
    new = sorted(partition for partition in after - before if partition.topic not in own)
    first = admin.beginning_offsets([*new, *(partition for partition in before if partition.topic not in own)])
    for partition in sorted(before):
        if partition.topic not in own and partition in span.stop:
            begin = starts.get(partition, first[partition])
            batches[partition] = records_between(app, partition, begin, span.stop[partition])
    ends = admin.end_offsets(new)
    for partition in new:
        if plan.config["auto.offset.reset"] == "earliest":
            batches[partition] = records_between(app, partition, first[partition], ends[partition])
    if new:
        topics = ", ".join(sorted({partition.topic for partition in new}))
        how = "are read from the beginning" if batches.keys() & set(new) else "are not read"
        notes.append(f"{topics}: only the changed topology reads it; its records {how} (auto.offset.reset)")
    return Inputs(batches), notes


class _RealRows:
    """The rows of stores as of commits (`row_pairs.HasRows`)."""

    def __init__(self, environments: Mapping[TaskId, LmdbEnvironment], specs: Mapping[TaskId, TaskSpec]) -> None:
        self._environments, self._specs = environments, specs

    def rows(self, store: str) -> Iterator[tuple[int, Iterator[tuple[bytes, bytes]]]]:
        for task, environment in self._environments.items():
            if any(builder.name == store for builder in self._specs[task].subtopology.stores):
                yield task.partition, environment.engine(store).range()


@contextmanager
def _real_rows(app: ApplicationCore, span: Span) -> Iterator[dict[str, HasRows]]:
    """Give the stores that the application has at the end, where records of no repartition topic are on the way to them."""
    specs, own = specs_of(app), own_topics(app.name, app.topology)
    tasks = {task: specs[task] for task in span.last if not any(partition.topic in own for partition in specs[task].partitions)}
    with ExitStack() as opened:
        environments: dict[TaskId, LmdbEnvironment] = {}
        try:
            directory = state_directory(app, {task: span.last[task] for task in tasks}) if tasks else None
        except InvalidStateStoreError:  # compacted since: nothing is said
            directory = None
        for task in tasks if directory is not None else ():
            environments[task] = open_lmdb(task_directory(directory, app.name, task))  # type: ignore[arg-type]
            opened.callback(environments[task].close)
        rows = _RealRows(environments, specs)
        stores = [store for task in environments for store in specs[task].subtopology.stores if store.kind not in PRIVATE]
        yield {store.name: rows for store in stores if store.logging}
