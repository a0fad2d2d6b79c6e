"""`RanVersions`: an application as it ran at earlier commits, each with the topology and the settings of its version then.

Each commit names the version that wrote it. What was processed then is processed again with that version's own functions
(`VersionHistory.as_it_ran`), over its own stores. A version that cannot be loaded is an error, never replaced by another one.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cached_property

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.runtime.task import TaskSpec
from kstreams_repl.engine.runtime.task_specs import task_specs
from kstreams_repl.engine.stores.log.log_serdes import with_log_serdes
from kstreams_repl.engine.topology.differences.node_diff import whole_code
from kstreams_repl.engine.topology.names import internal_topic
from kstreams_repl.engine.topology.nodes import Node, SinkNode
from kstreams_repl.engine.topology.partitions import ResolvedTopology
from kstreams_repl.host.instance.state.changelogs import ChangelogPartition, changelogs_of
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.application.starting.deploy_preview import check
from kstreams_repl.repl.session.views.past.state.commit_history import TaskCommit
from kstreams_repl.repl.session.views.past.state.state_builder import history_of
from kstreams_repl.system.errors import InvalidStateStoreError, KStreamsError
from kstreams_repl.system.types import TaskId


class Ran:
    """One version of an application.

    Args:
        app: with the topology and the settings of that version.
        number: of the version.
        present: the version that runs now; None: this one is it.

    Attributes:
        nodes: of the whole topology, by name.
        globals: the stores of global tables by name.
        internal: names of the internal topics that it has on the broker.
    """

    def __init__(self, app: ApplicationCore, number: int, present: Ran | None = None) -> None:
        self.app, self.number, self._present = app, number, present
        topology = app.topology
        self.nodes: dict[str, Node] = dict(topology.nodes)
        self.globals = {store.name: store for part in topology.subtopologies() if part.global_ for store in part.stores}
        self.internal = frozenset(internal_topic(app.name, topic) for topic in topology.internal_topics)
        self._logs: dict[TaskId, dict[str, ChangelogPartition]] = {}

    @cached_property
    def resolved(self) -> ResolvedTopology:
        """The topology with the partitions of its topics, checked against the broker."""
        return check(self.app.client.admin, self.app.topology, self.app.name, self.app.config)

    @cached_property
    def specs(self) -> dict[TaskId, TaskSpec]:
        """Its tasks, by their ids of then."""
        return task_specs(self.app.topology, self.app.name, self.app.config, self.resolved)

    def task(self, task: TaskId) -> TaskSpec:
        """Return what a task of the present version was then.

        Raises:
            InvalidStateStoreError: an edit has changed which inputs it reads.
        """
        if self._present is None:
            return self.specs[task]
        inputs = self._present.specs[task].partitions.keys()
        spec = next((each for each in self.specs.values() if each.partitions.keys() == inputs), None)
        if spec is None:
            raise InvalidStateStoreError(
                f"version {self.number} of {self.app.name!r} had no task that reads the inputs of task {task}: an edit has changed which "
                "are processed together",
                hint="ask for what was processed after the edit",
                task=str(task),
            )
        return spec

    def logs(self, task: TaskId) -> dict[str, ChangelogPartition]:
        """Return the changelogs of a task of the present version as it was then, by store; each store has its serdes.

        Raises:
            InvalidStateStoreError: as `task`.
        """
        found = self._logs.get(task)
        if found is None:
            logs, config = changelogs_of(self.task(task)), self.app.config
            logs = [replace(log, store=with_log_serdes(log.store, config, log.partition.topic)) for log in logs]
            found = self._logs[task] = {log.store.name: log for log in logs}
        return found

    def outputs(self, task: TaskId) -> frozenset[str | None]:
        """Return the topics that a task wrote; None among them: any.

        Raises:
            InvalidStateStoreError: as `task`.
        """
        nodes, internal = self.task(task).subtopology.nodes, self.app.topology.internal_topics
        topics = {node.topic for node in nodes if isinstance(node, SinkNode) and node.table is None}
        return frozenset(internal_topic(self.app.name, topic) if topic and topic in internal else topic for topic in topics)

    def sources_of(self, topic: str) -> tuple[str, ...]:
        """Return the source nodes that read a topic."""
        return tuple(name for name, node in self.nodes.items() if topic in getattr(node, "topics", ()))


class RanVersions:
    """The versions of an application, for one question: its commits are those up to its creation.

    Attributes:
        history: its commits.
        present: the version that runs.

    Raises:
        InvalidStateStoreError: the application does not commit exactly once.
    """

    def __init__(self, app: ApplicationCore) -> None:
        self.app, self.history = app, history_of(app)
        versions = app.versions
        self.present = Ran(app, versions[-1].number if versions else 1)
        self._loaded: dict[int, Ran | KStreamsError] = {}
        last = versions[-1] if versions else None
        if last is None or last.code is None or last.code == whole_code(app.topology):
            self._loaded[self.present.number] = self.present

    def at(self, commit: TaskCommit | None) -> Ran:
        """Return the version that wrote a commit; None: what is not committed yet is processed by the present one.

        Raises:
            SessionFileError: it cannot be loaded.
            InvalidStateStoreError: the commit does not say which one it was, and there were several.
        """
        if commit is None:
            return self.present
        number = commit.version
        if not number and len(self.app.versions) > 1:
            raise InvalidStateStoreError(
                f"{commit} does not say which version of {self.app.name!r} wrote it",
                hint="commits of an earlier release, or of Kafka Streams on the JVM, do not; ask for a later moment",
            )
        return self.version(number or self.present.number)

    def version(self, number: int) -> Ran:
        """Return a version by its number.

        Raises:
            SessionFileError: it cannot be loaded.
            InvalidStateStoreError: the session file does not have it.
        """
        found = self._loaded.get(number)
        if found is None:
            try:
                found = self._load(number)
            except KStreamsError as error:
                found = error
            self._loaded[number] = found
        if isinstance(found, KStreamsError):
            raise found
        return found

    def _load(self, number: int) -> Ran:
        app = self.app
        version = next((each for each in app.versions if each.number == number), None)
        if version is None:
            raise InvalidStateStoreError(
                f"version {number} of {app.name!r}, which ran then, is not in the session file",
                hint="records that it processed can be explained where the application was deployed and edited; or ask for a later moment",
            )
        then = copy.copy(app)
        then.config = self._config(number)
        then.topology = app.history.as_it_ran(version, then.config)
        return Ran(then, number, self.present)

    def _config(self, number: int) -> StreamsConfig:
        """Return the settings of a version: those of its text; brokers, clients and directories as they are now.

        Raises:
            InvalidStateStoreError: a setting of it was an object that the session file does not have.
        """
        app = self.app
        saved, last = app.history.saved(number), app.history.saved(self.present.number)
        if saved is None or last is None or (saved.settings, saved.unsaved) == (last.settings, last.unsaved):
            return app.config
        if saved.unsaved:
            raise InvalidStateStoreError(
                f"version {number} of {app.name!r} ran with other settings, of which {', '.join(saved.unsaved)} was not stored",
                hint="settings that are functions or objects are not in the session file; ask for a later moment",
            )
        return app.client.application_config(app.name, {**saved.settings, "state.dir": app.config["state.dir"]})
