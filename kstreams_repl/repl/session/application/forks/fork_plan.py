"""Plan a fork: what it writes, what it leaves out, and with which rows its stores begin."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kstreams_repl.engine.config import FOLLOWED, SNAPSHOT_DIR, SNAPSHOT_REQUIRED, StreamsConfig
from kstreams_repl.engine.topology.internal_topics import FOR_EVER
from kstreams_repl.engine.topology.nodes import SourceNode
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.instance.state.state_directory import application_directory, state_root
from kstreams_repl.pictures.frames import Frames
from kstreams_repl.pictures.table import Table
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.application.edits.edit import EditPlan, plan_edit
from kstreams_repl.repl.session.application.forks.fork_record import fork_id
from kstreams_repl.repl.session.application.forks.fork_topology import DEAD_LETTERS, ForkTopology, fork_topology
from kstreams_repl.repl.session.source.source_slice import program_of
from kstreams_repl.repl.session.topics.source_serdes import built_with_serdes
from kstreams_repl.system.errors import InvalidStateStoreError, TopologyError

SNAPSHOTS = "snapshots-of-a-fork"
_NEVER_MS = 2**53
"""Interval of snapshots: the base stays the only one."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ForkPlan(Frames):
    """What a fork would do. `Application.fork` carries it out; displaying it changes nothing.

    Attributes:
        application, name: its parent, and its name.
        edit: the edit of the parent that it would be if it were promoted.
        runs: the topology that it runs.
        config: its settings.
    """

    application: str
    name: str
    edit: EditPlan
    runs: ForkTopology
    config: StreamsConfig

    @property
    def id(self) -> str:
        """The fork's application id."""
        return fork_id(self.application, self.name)

    @property
    def topology(self) -> Topology:
        """The topology that it runs."""
        return self.runs.topology

    @property
    def empty(self) -> tuple[str, ...]:
        """Stores of the parent that it begins without, because it could not read their rows."""
        return tuple(store.name for store in self.edit.diff.refused)

    def table(self) -> Table:
        """Return the plan as rows: what is other than in the application, its name, what the fork does, and why.

        Example:
            >>> app.fork("cheaper", builder, dry_run=True).table()     # doctest: +SKIP
        """
        edited = [row for row in self.edit.table().rows if row[0] != "store"]
        rows: list[tuple[object, ...]] = [*edited]
        for store in self.edit.diff.stores:
            empty = store.name in self.empty
            rows.append(("store", store.name, "begins empty" if empty else str(store.change), store.reason))
        rows += [("output", topic, f"written to {own}", "read there, too" if topic in self.runs.loops else "")
                 for topic, own in self.runs.outputs.items()]  # fmt: skip
        rows += [
            ("effect", node, "left out", f"{effect}; allow=[{node!r}] has it done") for node, effect in self.runs.left_out.items()
        ]
        rows += [("store", name, "begins empty", "it has no changelog") for name in self._without_changelog()]
        return Table.of(("what", "name", "fork", "because"), rows, note=f"fork {self.name} of {self.application}", title=self.id)

    def _without_changelog(self) -> list[str]:
        return [store.name for store in self.topology.stores.values() if not store.logging and store.source_topic is None]

    def __repr__(self) -> str:
        return self.table().text()

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return self.table()._repr_mimebundle_()


def plan_fork(
    app: ApplicationCore,
    name: str,
    definition: object = None,
    *,
    allow: Collection[str] = (),
    config: Mapping[str, object] | None = None,
) -> ForkPlan:
    """Return the plan of a fork, as `Application.fork`.

    Raises:
        TopologyError: a node would call out, a pattern of a source covers the fork's topics, or `allow` names a node without an effect.
        InvalidStateStoreError: the application does not commit exactly once.
        InvalidNameError: no application can have the fork's id.
    """
    from kstreams_repl.repl.session.views.past.state.state_builder import all_on_disk

    identity = fork_id(app.name, name)
    if not app.config.exactly_once:
        raise InvalidStateStoreError(
            f"{app.name} runs at least once: its commits do not say what its stores had, so a fork would not begin at one",
            hint="processing.guarantee=exactly_once_v2 does",
        )
    thing = app.topology if definition is None else definition
    built, settings = built_with_serdes(app.client, thing, app.config, settled=app.topology.source_topics())
    program = app.history.program() if definition is None else program_of(definition, built, app.client.variables)
    edit = plan_edit(app, built, app.definition if definition is None else definition, config=settings, program=program)
    runs = fork_topology(all_on_disk(built, settings), settings, identity, allow)
    plan = ForkPlan(app.name, name, edit, runs, _config(app, settings, identity, runs, config or {}))
    _refuse_patterns(app.topology, plan)
    _refuse_patterns(built, plan)
    return plan


def _config(
    app: ApplicationCore, settings: StreamsConfig, identity: str, runs: ForkTopology, own: Mapping[str, object]
) -> StreamsConfig:
    folder = application_directory(state_root(settings), identity) / SNAPSHOTS
    dead_letters = settings[DEAD_LETTERS]
    return settings.with_(**{
        "application.id": identity,
        "application.server": None,
        "num.standby.replicas": 0,
        "num.stream.threads": 1,  # the parent's instances are more
        "num.threads.per.task": 1,
        "repl.openlineage.url": None,
        "repl.worker.pool": "background",  # the parent keeps its speed
        "repl.snapshot.interval.ms": _NEVER_MS,
        # deletions are kept as long as the base, which the changelogs follow
        "topic.delete.retention.ms": FOR_EVER,
        SNAPSHOT_DIR: settings[SNAPSHOT_DIR] or str(folder),
        DEAD_LETTERS: runs.outputs[dead_letters] if dead_letters else None,
        **own,
        SNAPSHOT_REQUIRED: True,
        FOLLOWED: app.name,
    })  # fmt: skip


def _refuse_patterns(topology: Topology, plan: ForkPlan) -> None:
    for node in topology.nodes.values():
        if isinstance(node, SourceNode) and node.pattern is not None:
            covered = [topic for topic in plan.runs.outputs.values() if node.pattern.fullmatch(topic)]
            if covered:
                raise TopologyError(
                    f"source {node.name!r} reads topics like {node.pattern.pattern!r}: {covered[0]}, too, which the fork would write",
                    hint="give the fork another name, or the source a narrower pattern",
                    node=node.name,
                    topic=covered[0],
                )
