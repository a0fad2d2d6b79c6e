"""Why a row of a store, or a record of an output, is what it is: the input records that made it.

Both are records that a task has written, to a changelog or a topic: what wrote them is found by processing their commit again, and its own
causes are followed from there (`search`). Invariant: a cause that cannot be found is said to be not known.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kstreams_repl.engine.partitioning import partition_for_key
from kstreams_repl.engine.topology.store_builder import StoreBuilder
from kstreams_repl.host.instance.state.changelogs import ChangelogPartition
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.topics.produce import milliseconds
from kstreams_repl.repl.session.views.past import NO_KEY
from kstreams_repl.repl.session.views.past.causes.result import Cause, Causes, once
from kstreams_repl.repl.session.views.past.causes.row_keys import row_key
from kstreams_repl.repl.session.views.past.causes.search import WINDOWED, CauseSearch
from kstreams_repl.repl.session.views.past.causes.used_rows import UsedRow
from kstreams_repl.repl.session.views.past.moments import Moment, moment_of
from kstreams_repl.repl.session.views.past.replay.replays import Interval, Replays
from kstreams_repl.repl.session.views.past.state.ran_versions import Ran
from kstreams_repl.system.errors import CallError, InvalidStateStoreError, KStreamsError
from kstreams_repl.system.types import RecordPosition, TaskId, Windowed


def why(
    app: ApplicationCore, what: str | RecordPosition, key: Any = NO_KEY, *, window: Any = None, all: bool, as_of: Any, calls: bool
) -> Causes:
    """Return the causes of a row or an output record, as `Application.why`."""
    explainer = Explainer(app, calls=calls)
    if key is not NO_KEY:
        store = app.topology.store(str(what))
        name = f"{store.name}[{key!r}]" if window is None else f"{store.name}[{key!r}, {window}]"
        return explainer.of_row(store, key, window, all=all, as_of=as_of).named(name)
    position = moment_of(what).record
    if position is None:
        raise CallError(
            f"expected a record or a store and a key, got {what!r}", hint="app.why('alerts-0@42'), app.why('counts', 'UA')"
        )
    if as_of is not None or window is not None:
        raise CallError(
            "as_of= and window= say which row of a store is meant", hint=f"app.why({str(position)!r})", argument="as_of"
        )
    return explainer.of_record(position, all=all).named(str(position))


class Found(NamedTuple):
    """The causes of one result, and the version that wrote it."""

    ran: Ran
    causes: tuple[Cause, ...]

    def named(self, of: str) -> Causes:
        return Causes(of, self.causes, self.ran.app.topology)


class Explainer:
    """Finds causes. It keeps what it has processed again, so several questions are cheaper with one of them.

    Args:
        calls: whether functions of asynchronous nodes may be called again.
    """

    def __init__(self, app: ApplicationCore, *, calls: bool = False) -> None:
        self.app = app
        self._replays = Replays(app, calls=calls)

    def of_record(self, position: RecordPosition, *, all: bool = False) -> Found:
        """Return the causes of a record of an output or a repartition topic.

        Raises:
            InvalidStateStoreError: there is no such record, or the one that made it is not found.
            CallError: the application does not write the topic.
        """
        written = self._outputs()
        if position.topic not in written and None not in written:
            topics = ", ".join(sorted(topic for topic in written if topic))
            raise CallError(f"the application does not write {position.topic!r}", hint=f"it writes {topics}")
        ran, causes = CauseSearch(self._replays, all=all).of_output(self._replays.record(position))
        return Found(ran, once(causes))

    def of_row(self, store: StoreBuilder, key: Any, window: Any = None, *, all: bool = False, as_of: Any = None) -> Found:
        """Return the causes of the last update of a row.

        Raises:
            InvalidStateStoreError: the store has no such row, or no changelog, or the record that wrote the row is not found.
            CallError: the store's rows have windows and `window` is None, or the reverse.
        """
        search, present = CauseSearch(self._replays, all=all), self._replays.versions.present
        moment = None if as_of is None else moment_of(as_of)
        if store.name in present.globals:
            until_ms = None if moment is None else moment.number + 1 if moment.kind == "time" else self._time_of(moment)
            cause = search.of_global(present, store, key, until_ms, "row of the global table")
            if cause is not None:
                return Found(present, (cause,))
            raise InvalidStateStoreError(f"global table {store.name!r} has no row {key!r}", store=store.name)
        row = UsedRow(store.name, _with_window(store, key, window))
        for task, log in self._tasks_with(store, key):
            if row_key(log.store, row.key) is None:
                raise CallError(f"{store.name!r} is a private store of an operator", hint="ask for the store of its result")
            interval, before = self._up_to(task, moment)
            if interval is not None and (found := search.of_row(interval, before, log, row)) is not None:
                return Found(found[0], once(found[1]))
        raise InvalidStateStoreError(
            f"store {store.name!r} has no row {key!r}, and its changelog has none either", store=store.name
        )

    def _up_to(self, task: TaskId, moment: Moment | None) -> tuple[Interval | None, int]:
        """Return what a task did just before a moment, as an interval and the index of the first trace after it; None: nothing.

        After a record this is the commit with that record, processed again; after a commit an interval without traces.
        """
        history, present = self._replays.history, self._replays.versions.present
        commits = history.of(task)
        if moment is None:
            number = len(commits)
        elif moment.record is not None and history.task_of(moment.record) == task:
            after = history.around(moment.record)[1]
            history.at(moment)  # raises if it is not committed
            assert after is not None
            interval = self._replays.interval(task, commits.index(after))
            before = next((at for at, trace in enumerate(interval.traces) if trace.position == moment.record), None)
            if before is None:
                raise InvalidStateStoreError(f"there is no record {moment.record}", hint="it may be a transaction's marker")
            return interval, before + 1
        else:
            last = history.at(moment).get(task)
            number = 0 if last is None else commits.index(last) + 1
        return (Interval(present, task, number, number, (), {}) if number else None), 0

    def _time_of(self, moment: Moment) -> int:
        """Return the latest time (ms) of the commits at a moment, exclusive."""
        return max((commit.at_ms for commit in self._replays.history.at(moment).values()), default=0) + 1

    def _outputs(self) -> set[str | None]:
        """Return the topics that the application writes, or wrote at one of its known commits."""
        replays, found = self._replays, set[str | None]()
        for task in replays.versions.present.specs:
            found |= replays.versions.present.outputs(task)
            for number in {commit.version: at for at, commit in enumerate(replays.history.of(task))}.values():
                try:
                    found |= replays.ran(task, number).outputs(task)
                except KStreamsError:  # it is raised where one of its commits is asked for
                    continue
        return found

    def _tasks_with(self, store: StoreBuilder, key: Any) -> list[tuple[TaskId, ChangelogPartition]]:
        """Return the tasks that may have a row, the likely one first."""
        present = self._replays.versions.present
        logs = [(task, own[store.name]) for task in present.specs if store.name in (own := present.logs(task))]
        if not logs:
            raise InvalidStateStoreError(
                f"store {store.name!r} has no changelog", hint="give it one: logging=True", store=store.name
            )
        data = logs[0][1].store.key_serde.serialize(key)
        likely = -1 if data is None else partition_for_key(data, len(logs))
        return sorted(logs, key=lambda each: each[0].partition != likely)


def _with_window(store: StoreBuilder, key: Any, window: Any) -> Any:
    """Return the key of a row of a store, with its window.

    Raises:
        CallError: the store's rows have windows and there is none, or the reverse.
    """
    if isinstance(key, Windowed) and window is None and store.kind in WINDOWED:
        return key
    if (window is None) == (store.kind in WINDOWED):
        raise CallError(
            f"the rows of {store.kind} store {store.name!r} have {'a window' if window is None else 'no windows'}",
            hint="window=start, of sessions window=(start, end); times as for as_of" if window is None else "leave out window=",
            argument="window",
        )
    if window is None:
        return key
    start, end = window if isinstance(window, tuple) else (window, window)
    return Windowed(key, milliseconds(start), milliseconds(end))
