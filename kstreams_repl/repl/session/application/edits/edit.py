"""Plan an edit of a running application.

`EditPlan` is a value: what an edit would do to every node and store. `edits.apply` carries it out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.dsl.graph.call_log import go_back_to
from kstreams_repl.engine.topology.differences.diff import StoreChange, TopologyDiff, diff
from kstreams_repl.engine.topology.differences.node_diff import NodeChange, whole_code
from kstreams_repl.engine.topology.graph import TopologyGraph
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.pictures.diff_text import DiffText
from kstreams_repl.pictures.frames import Frames
from kstreams_repl.pictures.markup import clean_text, element
from kstreams_repl.pictures.table import Table
from kstreams_repl.pictures.wording import counted
from kstreams_repl.repl.session.application.checks.compatibility import last_writer
from kstreams_repl.repl.session.application.checks.contracts import compare_schemas
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.application.edits.topology_resolution import topology_of
from kstreams_repl.repl.session.source import source_slice
from kstreams_repl.repl.session.source.code_changes import code_changes
from kstreams_repl.repl.session.source.source_slice import Program
from kstreams_repl.system.errors import IllegalStateError, KStreamsError, TopologyError, did_you_mean
from kstreams_repl.system.types import KeyValueMapper

Conversions = Mapping[str, KeyValueMapper]
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
        rows: list[tuple[object, ...]] = [
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

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        code = self.code
        return {"text/plain": repr(self), "text/html": str(element("div", self.table().html(), code.html() if code else None))}


def plan_edit(
    app: ApplicationCore,
    topology: Topology,
    definition: object,
    *,
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
        return last_writer(app.versions[:-1], app.name, store, app.client.admin.topics())

    before, settings = app.topology, app.config if config is None else config
    schemas = compare_schemas(
        app.name, topology, settings, before=before, ran=app.config, sources=False, ask=ask,
        topics=lambda: app.client.admin.topics(),
    )  # fmt: skip
    compared = diff(
        before, topology, reset=reset_state, migrate=values, migrate_rows=rows, left=writer_of, ran=app.running_code, schemas=schemas
    )
    known = [store.name for store in compared.stores]
    for option, names in (("reset_state", reset_state), ("migrate", values), ("migrate_rows", rows)):
        for name in names:
            if name not in known:
                raise TopologyError(
                    f"{option} names the store {name!r}, which {app.name} does not have",
                    hint=did_you_mean(name, known) or "app.edit(builder, dry_run=True) lists the stores",
                    store=name,
                )
    return EditPlan(app.name, before, topology, definition, settings, compared, values, rows, program)


def plan_rollback(
    app: ApplicationCore, *, migrate: Conversions | None = None, migrate_rows: Conversions | None = None
) -> EditPlan:
    """Return the plan of an edit back to the version before the present one, as `Application.rollback`.

    Raises:
        IllegalStateError: this is the first version.
        TopologyError: a converted store has no reverse function.
    """
    versions = app.versions
    if len(versions) < 2:
        raise IllegalStateError(
            f"{app.name} is at its first version: there is none before it", hint="app.versions lists the versions"
        )
    before = versions[-2]
    for store in set(versions[-1].migrated) - {*(migrate or {}), *(migrate_rows or {})}:
        raise TopologyError(
            f"version {versions[-1].number} has converted the rows of store {store!r}, which version {before.number} cannot read",
            hint=f"app.rollback(migrate={{{store!r}: function of (key, value)}}) converts the values back; migrate_rows= keys and values",
            store=store,
        )
    topology = app.history.as_it_ran(before, app.config)
    return plan_edit(
        app,
        topology,
        topology,
        program=app.history.program(before.number),
        migrate=migrate,
        migrate_rows=migrate_rows,
    )


def plan_of_definition(app: ApplicationCore, definition: object) -> EditPlan | None:
    """Return the edit to a notebook's present builder; None if there is none, or if it cannot be built because cells are inconsistent."""
    if definition is None:
        return None
    try:
        built = topology_of(definition, app.config)
        return plan_edit(app, built, definition, ask=False)
    except KStreamsError:
        return None


def follow_rollback(app: ApplicationCore, before: EditPlan | None) -> object:
    """Take the notebook's builder, and the texts of its cells, back to what runs after a rollback.

    Reports the nodes in which the builder differs from what runs all the same: helpers or values have changed, another builder made that
    version, or an earlier kernel.

    Args:
        before: the edit that would have applied the builder before the rollback; unless it is empty the builder stays.

    Returns:
        The definition from then on; None: it stays.
    """
    gone_back = go_back_to(app.topology, before.definition) if before is not None and before.diff.empty else None
    if gone_back is not None:
        source_slice.history.go_back(*gone_back[1:])
    changes = None if before is None else plan_of_definition(app, before.definition)
    if changes is not None and not changes.diff.empty:
        names = ", ".join(node.name for node in changes.diff.nodes if node.change is not NodeChange.UNCHANGED)
        app.client.report(
            f"{app.name} runs version {app.versions[-1].number}; the notebook's builder still differs from it ({names}), "
            "and app.edit(builder) applies that again. Hint: run its cells with the code of that version, app.versions[-1].source"
        )
    return None if gone_back is None else gone_back[0]


def refuse_rolled_back(app: ApplicationCore, plan: EditPlan, node: str) -> None:
    """Raise if an edit of one node would bring back in others what a rollback has taken back.

    Raises:
        TopologyError: it would.
    """
    code, others = whole_code(plan.topology), [changed for changed in plan.diff.nodes if changed.name != node]
    changed = [other.name for other in others if other.change is not NodeChange.UNCHANGED]
    back = [name for name in changed if code.get(name) == app.rolled_back.get(name)]
    if back:
        raise TopologyError(
            f"{app.name} runs version {app.versions[-1].number}, after a rollback, and the notebook's builder still has "
            f"what was rolled back: the edit of {node} would also change {', '.join(back)}",
            hint="run the cells of these nodes, their functions and values again with the code of that version, "
            "app.versions[-1].source; or app.edit(builder) applies all of the builder",
            node=node,
            plan=str(plan.diff),
        )
