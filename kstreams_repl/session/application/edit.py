"""Edit a running application: plan, change at a commit boundary, history of what ran.

A store that cannot be kept can be *reset*. Between the pause and the new generation its changelog is deleted, and it is created
again, empty, at the start. A local copy of another changelog is never trusted (`instance.state.state_manager`), so every task
restores its stores from the remaining changelogs. After a crash in between, the old version runs with that store empty; it never
reads rows wrongly. Alternatively its values, or keys and values, can be *migrated*: each row through a function, all rows and the
version in one transaction (`spark.state_migration`).

Apply, numbered: 1. reject what would read rows wrongly · 2. check the new topology against the cluster · 3. write the version
into the session file, pause at a commit, replace the topology, start a new generation, whose first journal record confirms the
version (`Deployment.replace`). A failure in 2 changes nothing; one in 3 starts the old version again and removes the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from kstreams_repl.display.diff_text import DiffText
from kstreams_repl.display.frames import Frames
from kstreams_repl.display.markup import clean_text, element
from kstreams_repl.display.table import Table
from kstreams_repl.display.wording import counted
from kstreams_repl.errors import KStreamsError, TopologyError, did_you_mean
from kstreams_repl.serdes import resolve
from kstreams_repl.session.application.deploy import left_rows
from kstreams_repl.session.application.deploy_preview import check
from kstreams_repl.session.source.code_changes import code_changes
from kstreams_repl.session.source.source_slice import Program, program_of
from kstreams_repl.topology.diff import NodeChange, StoreChange, TopologyDiff, diff
from kstreams_repl.topology.graph import TopologyGraph
from kstreams_repl.topology.names import changelog_topic
from kstreams_repl.topology.topology import Topology

if TYPE_CHECKING:
    from kstreams_repl.config import StreamsConfig
    from kstreams_repl.session.application.application import Application
    from kstreams_repl.session.application.versions import VersionHistory
    from kstreams_repl.spark.state_migration import Migration

Conversions = Mapping[str, Callable[[Any, Any], Any]]
"""By store name: a function of each row's key and value."""


class EditPlan(Frames):
    """The effect of an edit on every node and every store. `apply()` carries it out; displaying it changes nothing."""

    def __init__(
        self,
        application: Application,
        topology: Topology,
        definition: Any,
        program: Program | None = None,
        *,
        config: StreamsConfig | None = None,
        reset_state: Collection[str] = (),
        migrate: Conversions | None = None,
        migrate_rows: Conversions | None = None,
    ) -> None:
        self.application = application
        self.topology = topology
        self._before = application.topology
        self.definition = definition
        self.program = program
        self.config = application.config if config is None else config
        self.values, self.rows = dict(migrate or {}), dict(migrate_rows or {})
        for name in (self.values.keys() | self.rows.keys()) & set(reset_state):
            raise TopologyError(f"store {name!r} cannot be both reset and migrated", hint="one of them", store=name)
        for name in self.values.keys() & self.rows.keys():
            hint = "migrate_rows converts the values, too"
            raise TopologyError(f"store {name!r} is named in migrate and in migrate_rows", hint=hint, store=name)
        self.diff: TopologyDiff = diff(
            application.topology,
            topology,
            reset=reset_state,
            migrate=self.values,
            migrate_rows=self.rows,
            left=self._left,
            ran=application.ran,
        )
        known = [store.name for store in self.diff.stores]
        for what, names in (("reset", reset_state), ("migrate", self.values), ("migrate", self.rows)):
            for name in names:
                if name not in known:
                    raise TopologyError(
                        f"there is no store {name!r} to {what}",
                        hint=did_you_mean(name, known) or "see the plan: dry_run=True",
                        store=name,
                    )
        self.applied = False

    def apply(self) -> EditPlan:
        """Apply the edit. Does nothing when nothing changes.

        Raises:
            TopologyError: a store's rows would be read wrongly, or the topology does not fit the cluster.
        """
        app = self.application
        if self.applied or self.diff.empty:
            self.applied = True
            return self
        # 1. Refuse.
        if self.diff.refused:
            store = self.diff.refused[0]
            raise TopologyError(
                f"store {store.name!r} cannot be kept: {store.reason}", hint=store.hint, store=store.name, plan=str(self.diff)
            )
        # 2. Check.
        check(app.session.admin, self.topology, app.name, app.config)
        # 3. History, pause, replace, start.
        program = self.program or program_of(self.definition, self.topology, app.session.variables)
        emptied = tuple(changelog_topic(app.name, store) for store in self.diff.reset)
        definition = self.definition if self.program is None else None
        app.config = self.config
        app._replace(self.topology, program, emptied, self._migrations(), definition=definition)
        self.applied = True
        return self

    def _migrations(self) -> list[Migration]:
        from kstreams_repl.spark.state_migration import Migration, key_reader

        app, found = self.application, []
        key_default, value_default = app.config["default.key.serde"], app.config["default.value.serde"]
        for name in self.diff.rewritten:
            before, after = app.topology.stores[name], self.topology.stores[name]
            read_key = key_reader(before, resolve(before.key_serde, key_default))
            values = resolve(before.value_serde, value_default), resolve(after.value_serde, value_default)
            with_keys = name in self.rows
            function, new_key = (self.rows if with_keys else self.values)[name], resolve(after.key_serde, key_default)
            changelog = changelog_topic(app.name, name)
            found.append(Migration(name, changelog, read_key, *values, function, new_key if with_keys else None))
        return found

    def _left(self, store: str) -> TopologyGraph | None:
        """Return the last version that wrote rows under this store name, if its changelog still exists."""
        app = self.application
        return left_rows(app.versions[:-1], app.name, store, app.session.admin.topics())

    @property
    def code(self) -> DiffText:
        """What changes in the text of the functions, as unified diffs."""
        changed = [node.name for node in self.diff.nodes if node.change is not NodeChange.UNCHANGED]
        return code_changes(self._before, self.topology, changed, before="runs", after="edited")

    def table(self) -> Table:
        rows: list[tuple[Any, ...]] = [
            ("node", node.name, str(node.change), node.reason)
            for node in self.diff.nodes
            if node.change is not NodeChange.UNCHANGED
        ]
        rows += [
            ("store", store.name, str(store.change), " · ".join(filter(None, (store.reason, store.hint))))
            for store in self.diff.stores
        ]
        rows += [("topic", topic, "read from now on", "") for topic in self.diff.topics_added]
        rows += [("topic", topic, "no longer read", "") for topic in self.diff.topics_removed]
        same = sum(node.change is NodeChange.UNCHANGED for node in self.diff.nodes)
        return Table.of(
            ("what", "name", "change", "because"),
            rows,
            note=f"{counted(same, 'node')} unchanged; {self._said()}",
            title=self.application.name,
        )

    def _said(self) -> str:
        if self.diff.empty:
            return "nothing to do"
        if self.applied:
            return f"applied as version {self.application.versions[-1].number}"
        if self.diff.refused:
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


def back_to_before(
    application: Application, history: VersionHistory, *, migrate: Conversions | None = None, migrate_rows: Conversions | None = None
) -> EditPlan:
    """Edit back to the version before, as `Application.rollback`."""
    versions = history.versions
    if len(versions) < 2:
        raise KStreamsError(f"{application.name} is at its first version", hint="there is nothing to go back to")
    before = versions[-2]
    for store in set(versions[-1].migrated) - {*(migrate or {}), *(migrate_rows or {})}:
        raise TopologyError(
            f"version {versions[-1].number} has converted the rows of store {store!r}, which version {before.number} cannot read",
            hint=f"app.rollback(migrate={{{store!r}: function of key and value}}) converts them back (migrate_rows=, if it were rows)",
            store=store,
        )
    saved = history.saved(before.number)
    program = Program("", ("its text",)) if saved is None else Program(saved.text.partition("\n")[2], saved.missing)
    topology = history.as_it_ran(before, application.config)
    return EditPlan(application, topology, topology, program, migrate=migrate, migrate_rows=migrate_rows).apply()
