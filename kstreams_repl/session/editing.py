"""Editing a running application: the plan first, then the change at a commit boundary, and the history of what ran.

A store that cannot be kept can be *reset*: between the pause and the new generation its changelog is deleted, and made anew and empty
at the start; a local copy of another changelog is never believed (`instance.local_state`), so every task fills its stores again from the
changelogs that are left. A crash in between leaves the old version with that store empty, never with rows that are read wrongly.
Its values, or keys and values, can be *migrated* instead: each row through a function, all of them and the version in one transaction
(`spark.migrating`).

Apply, numbered: 1. refuse what would read rows wrongly · 2. check the new topology against the cluster · 3. write the version into the
session file, pause at a commit, put it in place, start a new generation, whose first journal record confirms the version
(`Deployment.replace`). A failure in 2 leaves everything as it was, one in 3 starts the old version again and takes the new one out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from kstreams_repl.display.markup import clean_text
from kstreams_repl.display.table import Table
from kstreams_repl.errors import TopologyError, did_you_mean
from kstreams_repl.serdes import resolve
from kstreams_repl.session.deploying import left_rows
from kstreams_repl.session.planned import check
from kstreams_repl.session.program import Program, program_of
from kstreams_repl.topology.diff import NodeChange, StoreChange, TopologyDiff, diff
from kstreams_repl.topology.graph import TopologyGraph
from kstreams_repl.topology.names import changelog_topic
from kstreams_repl.topology.topology import Topology

if TYPE_CHECKING:
    from kstreams_repl.session.application import Application
    from kstreams_repl.spark.migrating import Migration

Conversions = Mapping[str, Callable[[Any, Any], Any]]
"""By store: a function of each row's key and value."""


class EditPlan:
    """What an edit does: every node, every store. `apply()` does it; looking changes nothing."""

    def __init__(
        self,
        application: Application,
        topology: Topology,
        definition: Any,
        program: Program | None = None,
        *,
        reset_state: Collection[str] = (),
        migrate: Conversions | None = None,
        migrate_rows: Conversions | None = None,
    ) -> None:
        self.application = application
        self.topology = topology
        self.definition = definition
        self.program = program
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
        """Put the new topology to work; does nothing when nothing changes.

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
        app._replace(self.topology, program, emptied, self._migrations(), definition=definition)
        self.applied = True
        return self

    def _migrations(self) -> list[Migration]:
        from kstreams_repl.spark.migrating import Migration, key_reader

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
        """The last version that wrote rows under this name, if its changelog is still there."""
        app = self.application
        return left_rows(app.versions[:-1], app.name, store, app.session.admin.topics())

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
            note=f"{same} nodes unchanged; {self._said()}",
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
        return f"not applied yet; the rows of {kept} stores are kept{migrated}{reset}"

    def __repr__(self) -> str:
        return clean_text(self.table().text())

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return self.table()._repr_mimebundle_()
