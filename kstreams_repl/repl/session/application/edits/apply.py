"""Carry out an edit of a running application, in the order in which it happens: `apply` is the page to read.

A store that cannot be kept can be *reset*. Between the pause and the new generation its changelog is deleted, and it is created
again, empty, at the start. A local copy of another changelog is never trusted (`host.instance.state.state_manager`), so every task
restores its stores from the remaining changelogs. After a crash in between, the old version runs with that store empty; it never
reads rows wrongly. Alternatively its values, or keys and values, can be *migrated*: each row through a function, all rows and the
version in one transaction (`host.spark.fencing.state_migration`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kstreams_repl.engine.serdes import Serde, resolve
from kstreams_repl.engine.serdes.schemas.schema_registry import Part, settings_from
from kstreams_repl.engine.topology.differences.node_diff import whole_code
from kstreams_repl.engine.topology.differences.schema_diff import SchemaChange
from kstreams_repl.engine.topology.names import changelog_topic
from kstreams_repl.repl.session.application.checks.compatibility import warnings_of
from kstreams_repl.repl.session.application.checks.contracts import begin_versions, refuse_schemas
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.application.edits.edit import EditPlan
from kstreams_repl.repl.session.application.life.wait import await_stores
from kstreams_repl.repl.session.application.starting.deploy_preview import check, late_warnings
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.repl.session.source.source_slice import program_of
from kstreams_repl.system.errors import SchemaRegistryError, TaskMigratedError, TopologyError

if TYPE_CHECKING:
    from kstreams_repl.host.kafka.exact_metadata import OffsetAndMetadata
    from kstreams_repl.host.spark.fencing.state_migration import Migration, NewRows
    from kstreams_repl.system.types import TopicPartition

_RESTORE_SECONDS = 10.0


def apply(
    app: ApplicationCore,
    plan: EditPlan,
    *,
    rows: Collection[NewRows] = (),
    offsets: Mapping[TopicPartition, OffsetAndMetadata] = MappingProxyType({}),
    promoted: str = "",
) -> EditPlan:
    """Carry out the plan of an edit, as `Application.apply`. A failure in 1 or 2 changes nothing.

    Args:
        rows, offsets: what the version brings along.
        promoted: the fork from which they are; "": none.
    """
    if plan.applied or (plan.diff.empty and not promoted):
        return plan if plan.applied else replace(plan, version=app.versions[-1].number)
    # 1. Refuse an application that another program runs, and what would read rows wrongly.
    if isinstance(app.error, TaskMigratedError):
        raise app.error
    refuse_misreads(plan)
    # 2. Check the new topology against the cluster.
    check(app.client.admin, plan.topology, app.name, app.config)
    report_new_warnings(plan, app.client)
    program = plan.program or program_of(plan.definition, plan.topology, app.client.variables)
    app.refuse_replaced()

    def change() -> None:
        ran, migrations = app.generation, migrations_of(plan)
        with editing_alone(app):
            # 3. Write the version into the session file.
            count = len(app.versions)
            migrated = [migration.store for migration in migrations]
            version = app.history.keep(program, plan.topology, plan.config, migrated=migrated, promoted=promoted)
            try:
                with begun_schemas(plan):
                    # 4. Pause at a commit, delete the changelogs of stores that are reset, convert rows, put the topology in place, start a
                    # generation: its first journal record confirms the version. A failure starts the old version again.
                    emptied = tuple(changelog_topic(app.name, store) for store in plan.diff.reset)
                    brought: dict[str, Any] = {"offsets": offsets} if offsets else {}
                    every: list[NewRows] = [*migrations, *rows]
                    app.deployment.replace(plan.topology, version=version, emptied=emptied, migrations=every, **brought)  # type: ignore[arg-type]
            except Exception:
                # Undo 3, unless rows are converted: then the new version stays, and starts after the next resume.
                if app.deployment.topology is plan.topology:
                    app.topology, app.config = plan.topology, plan.config
                elif len(app.versions) > count:
                    app.history.forget_last()
                raise
        # 5. Note what runs now.
        install(app, plan)
        # 6. Resume it, if it had failed.
        if app.status == "failed" and app.generation == ran:
            app.start()

    reported = bool(app.reports.instances)
    app.run(change)  # on the control thread, so that it completes even if the wait is interrupted
    app.finish_start()
    if reported and (plan.diff.rewritten or plan.diff.reset):
        await_stores(app, _RESTORE_SECONDS)
    return replace(plan, version=app.versions[-1].number)


def editing_alone(app: ApplicationCore) -> AbstractContextManager[object]:
    """Hold the lock for editing while a process of its own drives the application: another kernel may edit it, too."""
    driver = app.driver_process
    return nullcontext() if driver is None else driver.editing(app.versions[-1].number)


def install(app: ApplicationCore, plan: EditPlan) -> None:
    """Let the session know what runs after the edit."""
    app.topology, app.config = plan.topology, plan.config
    app.running_code = whole_code(plan.topology)
    if plan.program is None and plan.definition is not None:
        app.definition = plan.definition
    app.stale, app.rolled_back = frozenset(), {}
    app.client.serdes.learn(app.topology, app.name, app.config)


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


def report_new_warnings(plan: EditPlan, client: ClusterClient) -> None:
    """Report the warnings of a deploy that the new topology adds."""
    before, after = (
        [*warnings_of(plan.application, topology, plan.config), *late_warnings(client.admin, topology, plan.config)]
        for topology in (plan.before, plan.topology)
    )
    for warning in after:
        if warning not in before:
            client.report(warning)


@contextmanager
def begun_schemas(plan: EditPlan) -> Iterator[None]:
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

    def bound(serde: object, part: Part, topic: str) -> Serde:
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
