"""Edit a running application: plan, change at a commit boundary, history of what ran.

A store that cannot be kept can be *reset*. Between the pause and the new generation its changelog is deleted, and it is created
again, empty, at the start. A local copy of another changelog is never trusted (`host.instance.state.state_manager`), so every task
restores its stores from the remaining changelogs. After a crash in between, the old version runs with that store empty; it never
reads rows wrongly. Alternatively its values, or keys and values, can be *migrated*: each row through a function, all rows and the
version in one transaction (`spark.state_migration`).

`EditPlan` is a value: what an edit would do. `Application.apply` carries it out, numbered: 1. reject what would read rows wrongly ·
2. check the new topology against the cluster · 3. write the version into the session file, pause at a commit, replace the topology,
start a new generation, whose first journal record confirms the version (`Deployment.replace`) · 4. resume, if it had failed. A failure
in 2 changes nothing; one in 3 starts the old version again and removes the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.dsl.graph.call_log import go_back_to
from kstreams_repl.engine.serdes import Serde, resolve
from kstreams_repl.engine.serdes.schemas.schema_registry import Part, settings_from
from kstreams_repl.engine.topology.diff import StoreChange, TopologyDiff, diff
from kstreams_repl.engine.topology.graph import TopologyGraph
from kstreams_repl.engine.topology.names import changelog_topic
from kstreams_repl.engine.topology.node_diff import NodeChange, whole_code
from kstreams_repl.engine.topology.schema_diff import SchemaChange
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.pictures.diff_text import DiffText
from kstreams_repl.pictures.frames import Frames
from kstreams_repl.pictures.markup import clean_text, element
from kstreams_repl.pictures.table import Table
from kstreams_repl.pictures.wording import counted
from kstreams_repl.repl.session.application.checks.compatibility import last_writer, warnings_of
from kstreams_repl.repl.session.application.checks.contracts import begin_versions, compare_schemas, refuse_schemas
from kstreams_repl.repl.session.application.edits.topology_resolution import topology_of
from kstreams_repl.repl.session.application.edits.versions import VersionHistory
from kstreams_repl.repl.session.application.read_only import ReadOnlyApplication
from kstreams_repl.repl.session.application.starting.deploy_preview import check, late_warnings
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.repl.session.source import source_slice
from kstreams_repl.repl.session.source.code_changes import code_changes
from kstreams_repl.repl.session.source.source_slice import Program
from kstreams_repl.system.errors import IllegalStateError, KStreamsError, SchemaRegistryError, TopologyError, did_you_mean

if TYPE_CHECKING:
    from kstreams_repl.host.spark.fencing.state_migration import Migration

Conversions = Mapping[str, Callable[[Any, Any], Any]]
"""By store name: a function of each row's key and value."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class EditPlan(Frames):
    """The effect of an edit on every node and every store. `Application.apply` carries it out; displaying it changes nothing.

    Attributes:
        application: its name.
        before, topology: what ran when the plan was made, and what would run.
        definition: the builder, stream, table or topology of the edit.
        config: the settings from then on.
        program: the source text; None: that of the call that applies it.
        migrate, migrate_rows: the functions that convert rows, by store.
        version: the version as which it was applied; None: it is not applied.
    """

    application: str
    before: Topology
    topology: Topology
    definition: Any
    config: StreamsConfig
    diff: TopologyDiff
    migrate: Conversions
    migrate_rows: Conversions
    program: Program | None = None
    version: int | None = None

    @property
    def applied(self) -> bool:
        """Whether it was applied."""
        return self.version is not None

    @property
    def code(self) -> DiffText:
        """What changes in the text of the functions, as unified diffs."""
        changed = [node.name for node in self.diff.nodes if node.change is not NodeChange.UNCHANGED]
        return code_changes(self.before, self.topology, changed, before="runs", after="edited")

    def table(self) -> Table:
        """Return the plan as rows: what changes (a node, a store, a schema, a topic), its name, the change and the reason.

        Example:
            >>> app.edit(builder, dry_run=True).table()
        """
        rows: list[tuple[Any, ...]] = [
            ("node", node.name, str(node.change), node.reason)
            for node in self.diff.nodes
            if node.change is not NodeChange.UNCHANGED
        ]
        rows += [
            ("store", store.name, str(store.change), " · ".join(filter(None, (store.reason, store.hint))))
            for store in self.diff.stores
        ]
        rows += [
            (f"{schema.part} schema", schema.topic, str(schema.change), " · ".join(filter(None, (schema.reason, schema.hint))))
            for schema in self.diff.schemas
        ]
        rows += [("topic", topic, "read from now on", "") for topic in self.diff.topics_added]
        rows += [("topic", topic, "no longer read", "") for topic in self.diff.topics_removed]
        same = sum(node.change is NodeChange.UNCHANGED for node in self.diff.nodes)
        return Table.of(
            ("what", "name", "change", "because"),
            rows,
            note=f"{counted(same, 'node')} unchanged; {self._summary()}",
            title=self.application,
        )

    def _summary(self) -> str:
        if self.diff.empty:
            return "nothing to do"
        if self.version is not None:
            return f"applied as version {self.version}"
        if self.diff.refused or self.diff.refused_schemas:
            return "refused as it is"
        kept = sum(store.change is StoreChange.KEPT for store in self.diff.stores)
        reset = f", those of {', '.join(self.diff.reset)} go" if self.diff.reset else ""
        migrated = f", those of {', '.join(self.diff.rewritten)} are converted" if self.diff.rewritten else ""
        return f"not applied yet; the rows of {counted(kept, 'store')} are kept{migrated}{reset}"

    def __repr__(self) -> str:
        return "\n".join(filter(None, (clean_text(self.table().text()), self.code.text())))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        code = self.code
        return {"text/plain": repr(self), "text/html": str(element("div", self.table().html(), code.html() if code else None))}


def prepare(plan: EditPlan, client: ClusterClient, config: StreamsConfig) -> None:
    """Run steps 1 and 2 of an edit, and report the warnings of a deploy that its topology adds; nothing is changed.

    Raises:
        TopologyError: as `refuse_misreads`, or the topology does not fit the cluster.
    """
    # 1. Refuse.
    refuse_misreads(plan)
    # 2. Check.
    check(client.admin, plan.topology, plan.application, config)
    before, after = (
        [*warnings_of(plan.application, topology, plan.config), *late_warnings(client.admin, topology, plan.config)]
        for topology in (plan.before, plan.topology)
    )
    for warning in after:
        if warning not in before:
            client.report(warning)


def refuse_misreads(plan: EditPlan) -> None:
    """Raise if the edit would read rows wrongly.

    Raises:
        TopologyError: a store cannot be kept; the plan is in ``plan``, the remedy is in the hint.
        IncompatibleSchemaError, SchemaRegistryUnavailableError: as `contracts.refuse_schemas`.
    """
    if plan.diff.refused:
        store = plan.diff.refused[0]
        raise TopologyError(
            f"store {store.name!r} cannot be kept: {store.reason}", hint=store.hint, store=store.name, plan=str(plan.diff)
        )
    converted = SchemaChange.MIGRATE  # with migrate= or reset_state=, else the store is refused
    refuse_schemas([schema for schema in plan.diff.schemas if schema.change is not converted], plan.application, str(plan.diff))


@contextmanager
def begun(plan: EditPlan) -> Iterator[None]:
    """Let the subjects of stores that are reset, and of new internal topics, begin with schemas that fit none before; with those of the
    version before again if the edit fails. Subjects of converted stores begin while the application is at rest (`state_migration`).

    Raises:
        SchemaRegistryError: as `contracts.begin_versions`.
    """
    begins = [
        schema for schema in plan.diff.schemas
        if schema.begins or (schema.change is SchemaChange.MIGRATE and schema.owner in plan.diff.reset)
    ]  # fmt: skip
    if begins:
        begin_versions(plan.application, plan.topology, plan.config, begins)
    try:
        yield
    except Exception:
        if begins:
            with suppress(SchemaRegistryError):  # the error of the edit is the one to show
                begin_versions(plan.application, plan.before, plan.config, begins)
        raise


def migrations_of(plan: EditPlan) -> list[Migration]:
    """Return how the rows of each migrated store are converted."""
    from kstreams_repl.host.spark.fencing.state_migration import Migration, Subjects, key_reader

    def bound(serde: Any, part: Part, topic: str) -> Serde:
        return resolve(serde, plan.config[f"default.{part}.serde"]).for_topic(topic, part, settings_from(plan.config.client))

    found = []
    for name in plan.diff.rewritten:
        before, after = plan.before.stores[name], plan.topology.stores[name]
        changelog = changelog_topic(plan.application, name)
        read_key = key_reader(before, bound(before.key_serde, "key", changelog))
        values = bound(before.value_serde, "value", changelog), bound(after.value_serde, "value", changelog)
        with_keys = name in plan.migrate_rows
        function = (plan.migrate_rows if with_keys else plan.migrate)[name]
        new_key = bound(after.key_serde, "key", changelog) if with_keys else None
        begins = [one for one in plan.diff.schemas if one.role == "store" and one.owner == name and one.change is SchemaChange.MIGRATE]
        subjects = Subjects(*(
            partial(begin_versions, plan.application, topology, plan.config, begins) for topology in (plan.topology, plan.before)
        )) if begins else None  # fmt: skip
        found.append(Migration(name, changelog, read_key, *values, function, new_key, subjects))
    return found


def plan_edit(
    application: ReadOnlyApplication,
    topology: Topology,
    definition: Any,
    *,
    running_code: Mapping[str, Any],
    config: StreamsConfig | None = None,
    program: Program | None = None,
    reset_state: Collection[str] = (),
    migrate: Conversions | None = None,
    migrate_rows: Conversions | None = None,
    ask: bool = True,
) -> EditPlan:
    """Return the plan of an edit, as `Application.edit`.

    Args:
        ask: whether to ask the Schema Registry about changed schemas.
        running_code: the code of the nodes as it was last sent to the workers.
        config: the settings from then on; None: the present ones.

    Raises:
        TopologyError: a store that is to be reset or migrated does not exist, or is named twice.
    """
    values, rows = dict(migrate or {}), dict(migrate_rows or {})
    for name in (values.keys() | rows.keys()) & set(reset_state):
        raise TopologyError(
            f"store {name!r} is named both in reset_state and in migrate", hint="reset it, or migrate its rows", store=name
        )
    for name in values.keys() & rows.keys():
        hint = f"omit it in migrate: the function in migrate_rows returns (key, value) of {name!r}"
        raise TopologyError(f"store {name!r} is named both in migrate and in migrate_rows", hint=hint, store=name)

    def writer_of(store: str) -> TopologyGraph | None:
        return last_writer(application.versions[:-1], application.name, store, application.client.admin.topics())

    before, settings = application.topology, application.config if config is None else config
    schemas = compare_schemas(
        application.name, topology, settings, before=before, ran=application.config, sources=False, ask=ask,
        topics=lambda: application.client.admin.topics(),
    )  # fmt: skip
    compared = diff(
        before, topology, reset=reset_state, migrate=values, migrate_rows=rows, left=writer_of, ran=running_code, schemas=schemas
    )
    known = [store.name for store in compared.stores]
    for option, names in (("reset_state", reset_state), ("migrate", values), ("migrate_rows", rows)):
        for name in names:
            if name not in known:
                raise TopologyError(
                    f"{option} names the store {name!r}, which {application.name} does not have",
                    hint=did_you_mean(name, known) or "app.edit(builder, dry_run=True) lists the stores",
                    store=name,
                )
    return EditPlan(application.name, before, topology, definition, settings, compared, values, rows, program)


def plan_rollback(
    application: ReadOnlyApplication,
    history: VersionHistory,
    *,
    running_code: Mapping[str, Any],
    migrate: Conversions | None = None,
    migrate_rows: Conversions | None = None,
) -> EditPlan:
    """Return the plan of an edit back to the version before the present one, as `Application.rollback`.

    Raises:
        IllegalStateError: this is the first version.
        TopologyError: a converted store has no reverse function.
    """
    versions = history.versions
    if len(versions) < 2:
        raise IllegalStateError(
            f"{application.name} is at its first version: there is none before it", hint="app.versions lists the versions"
        )
    before = versions[-2]
    for store in set(versions[-1].migrated) - {*(migrate or {}), *(migrate_rows or {})}:
        raise TopologyError(
            f"version {versions[-1].number} has converted the rows of store {store!r}, which version {before.number} cannot read",
            hint=f"app.rollback(migrate={{{store!r}: function of (key, value)}}) converts the values back; migrate_rows= keys and values",
            store=store,
        )
    topology = history.as_it_ran(before, application.config)
    return plan_edit(
        application,
        topology,
        topology,
        running_code=running_code,
        program=history.program(before.number),
        migrate=migrate,
        migrate_rows=migrate_rows,
    )


def plan_of_definition(application: ReadOnlyApplication, definition: Any) -> EditPlan | None:
    """Return the edit to a notebook's present builder; None if there is none, or if it cannot be built because cells are inconsistent."""
    if definition is None:
        return None
    try:
        built = topology_of(definition, application.config)
        return plan_edit(application, built, definition, running_code=application.running_code, ask=False)
    except KStreamsError:
        return None


def follow_rollback(application: ReadOnlyApplication, before: EditPlan | None) -> Any:
    """Take the notebook's builder, and the texts of its cells, back to what runs after a rollback.

    Reports the nodes in which the builder differs from what runs all the same: helpers or values have changed, another builder made that
    version, or an earlier kernel.

    Args:
        before: the edit that would have applied the builder before the rollback; unless it is empty the builder stays.

    Returns:
        The definition from then on; None: it stays.
    """
    gone_back = go_back_to(application.topology, before.definition) if before is not None and before.diff.empty else None
    if gone_back is not None:
        source_slice.history.go_back(*gone_back[1:])
    changes = None if before is None else plan_of_definition(application, before.definition)
    if changes is not None and not changes.diff.empty:
        names = ", ".join(node.name for node in changes.diff.nodes if node.change is not NodeChange.UNCHANGED)
        application.client.report(
            f"{application.name} runs version {application.versions[-1].number}; the notebook's builder still differs from it ({names}), "
            "and app.edit(builder) applies that again. Hint: run its cells with the code of that version, app.versions[-1].source"
        )
    return None if gone_back is None else gone_back[0]


def refuse_rolled_back(application: ReadOnlyApplication, plan: EditPlan, node: str, rolled_back: Mapping[str, Any]) -> None:
    """Raise if an edit of one node would bring back in others what a rollback has taken back.

    Args:
        rolled_back: the code of the version that was rolled back, by node.

    Raises:
        TopologyError: it would.
    """
    code = whole_code(plan.topology)
    back = [
        changed.name for changed in plan.diff.nodes
        if changed.change is not NodeChange.UNCHANGED and changed.name != node and code.get(changed.name) == rolled_back.get(changed.name)
    ]  # fmt: skip
    if back:
        raise TopologyError(
            f"{application.name} runs version {application.versions[-1].number}, after a rollback, and the notebook's builder still has "
            f"what was rolled back: the edit of {node} would also change {', '.join(back)}",
            hint="run the cells of these nodes, their functions and values again with the code of that version, "
            "app.versions[-1].source; or app.edit(builder) applies all of the builder",
            node=node,
            plan=str(plan.diff),
        )
