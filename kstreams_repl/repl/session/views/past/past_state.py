"""The stores of an application as of a moment, in a state directory of their own, so that whatever reads stores reads them, too."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.topology.nodes import SourceNode
from kstreams_repl.engine.topology.store_builder import StoreBuilder
from kstreams_repl.host.instance.state.state_directory import task_directory
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.views.counts.consumer_lag import topics_of_source
from kstreams_repl.repl.session.views.past.moments import moment_of
from kstreams_repl.repl.session.views.past.replay.before_record import before_record, replay
from kstreams_repl.repl.session.views.past.state.commit_history import TaskCommit
from kstreams_repl.repl.session.views.past.state.ran_versions import RanVersions
from kstreams_repl.repl.session.views.past.state.state_builder import StateBuilder, all_on_disk, state_directory
from kstreams_repl.system.errors import CallError, InvalidStateStoreError
from kstreams_repl.system.types import RecordPosition, TaskId


@dataclass(frozen=True, slots=True)
class PastState:
    """The state of an application as of a moment.

    Attributes:
        application: a copy of the application that reads this state.
        commits: the last commit of each task.
        converted: stores whose rows an edit has converted since, and its version.
    """

    application: ApplicationCore
    commits: Mapping[TaskId, TaskCommit]
    converted: Mapping[str, int]

    def refuse(self, store: StoreBuilder) -> None:
        """Raise for a store whose past nobody has.

        Raises:
            InvalidStateStoreError: it has no changelog, or the present version cannot read its rows of then.
        """
        if store.name in self.converted:
            raise InvalidStateStoreError(
                f"version {self.converted[store.name]} has converted the rows of store {store.name!r} since {self.application.as_of}",
                hint="ask for a later moment",
                store=store.name,
            )
        if not store.logging and store.source_topic is None:
            raise InvalidStateStoreError(
                f"store {store.name!r} has no changelog, so that its rows as of {self.application.as_of} are not known",
                hint="give it one: logging=True",
                store=store.name,
            )


def past_state(app: ApplicationCore, as_of: object) -> PastState:
    """Return the state of an application as of a moment.

    Args:
        as_of: the moment, as for `moments.moment_of`.

    Raises:
        CallError: it is no moment.
        InvalidStateStoreError: the state as of then is not known any more, or the application does not commit exactly once.
    """
    moment, versions = moment_of(as_of), RanVersions(app)
    commits = versions.history.at(moment)
    if moment.record is None:
        directory = state_directory(app, commits, versions.history, versions.present.resolved)
    else:
        directory = _after_record(versions, moment.record, commits)
    past = copy.copy(app)
    past.topology = all_on_disk(app.topology, app.config)
    past.config = StreamsConfig({**app.config, "state.dir": str(directory), "application.server": None})
    past.registry = {app.name: past}
    past.as_of, past.until_ms = str(moment), max((commit.at_ms for commit in commits.values()), default=0) + 1
    since = min((commit.version for commit in commits.values() if commit.version), default=0)
    converted = {store: version.number for version in app.versions if since and version.number > since for store in version.migrated}
    return PastState(past, commits, converted)


def _after_record(versions: RanVersions, record: RecordPosition, commits: Mapping[TaskId, TaskCommit]) -> Path:
    """Return a state directory with the stores exactly after a record in its own task, and after these commits in others.

    The task processes the records since its last commit again, as the version that did; what it then writes to its changelogs must be what
    it wrote.

    Raises:
        SessionFileError: that version cannot be loaded.
        InvalidStateStoreError: it is not, so that the order in which it took them is not known, or its functions are not deterministic.
    """
    app, history = versions.app, versions.history
    task = history.task_of(record)
    others = {other: commit for other, commit in commits.items() if other != task}
    builder = StateBuilder(app, history, others, record, versions.present.resolved)
    builder.make(lambda root: replay(versions, before_record(versions, record), record, task_directory(root, app.name, task)))
    return builder.directory


class Past:
    """The state of applications as of one moment (`sql_catalog.Past`), each made when it is first needed.

    Args:
        as_of: the moment, as for `past_state`.
    """

    def __init__(self, as_of: object) -> None:
        self._moment = moment_of(as_of)
        self._states: dict[str, PastState] = {}

    def of(self, app: ApplicationCore) -> PastState:
        """Return the state of an application, as `past_state`."""
        state = self._states.get(app.name)
        if state is None:
            state = self._states[app.name] = past_state(app, self._moment)
        return state

    def reader(self, app: ApplicationCore, store: StoreBuilder) -> ApplicationCore:
        """Return a copy of an application that reads a store as of then."""
        state = self.of(app)
        state.refuse(store)
        return state.application

    def end_of(self, topic: str, applications: Iterable[ApplicationCore]) -> tuple[Mapping[int, int] | None, int | None]:
        """Return where a topic ended then: by partition, as an application has read it, or else by time (ms)."""
        for app in applications:
            if app.config.exactly_once and _reads(app, topic):
                offsets = [item for commit in self.of(app).commits.values() for item in commit.offsets.items()]
                own = {at.partition: offset for at, offset in offsets if at.topic == topic}
                if self._moment.record is not None and self._moment.record.topic == topic:
                    own[self._moment.record.partition] = self._moment.record.offset + 1
                if own:
                    return own, None
        if self._moment.kind == "time":
            return None, self._moment.number + 1
        if not self._states:
            raise CallError(
                f"no application that runs exactly once reads topic {topic!r}: {self._moment} says nothing of it", hint="give a time"
            )
        return None, max(state.application.until_ms or 0 for state in self._states.values())


def _reads(app: ApplicationCore, topic: str) -> bool:
    sources = [node for node in app.topology.nodes.values() if isinstance(node, SourceNode)]
    return any(topic in topics_of_source(node, app.topology, app.name, {topic: 1}) for node in sources)
