"""Promote a fork: its topology becomes the next version of its parent, and its rows the parent's, in one transaction.

Numbered: 1. reject what cannot be promoted · 2. read how the two differ so far; wait until the fork is close behind · 3. pause the parent
at a commit; if records wait between its tasks, let it process these · 4. the fork follows to the same offsets by itself; pause it · 5. read
the rest · 6. in one transaction of the parent's control id write the rows by which the fork's stores differ, the corrections of
the outputs if asked for, the offsets of inputs that are new, and the version (`state_migration`) · 7. start the parent's next generation ·
8. drop the fork. Before the commit of 6 everything is the old application, after it everything is the new one: the next start reads the
journal. A failure before it lets both go on.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable, Collection
from contextlib import ExitStack
from pathlib import Path

from kstreams_repl.engine.commit.failpoints import failpoint
from kstreams_repl.engine.topology.partitions import resolve_partitions
from kstreams_repl.engine.topology.store_builder import StoreKind
from kstreams_repl.host.instance.state.state_directory import application_directory
from kstreams_repl.host.kafka.exact_metadata import OffsetAndMetadata
from kstreams_repl.pictures.wording import counted
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.application.edits.apply import apply, refuse_misreads
from kstreams_repl.repl.session.application.edits.edit import EditPlan, plan_edit
from kstreams_repl.repl.session.application.forks.differences import Difference
from kstreams_repl.repl.session.application.forks.fork_plan import ForkPlan
from kstreams_repl.repl.session.application.forks.fork_record import ForkRecord
from kstreams_repl.repl.session.application.forks.written_since import Side, differences_of
from kstreams_repl.repl.session.application.life.wait import await_stores
from kstreams_repl.system.errors import CallError, IllegalStateError, TopologyError
from kstreams_repl.system.types import TopicPartition

EMIT = ("from-now", "diff")
_WAIT_SECONDS = 0.02
_START_SECONDS = 30.0


def promote_fork(
    parent: ApplicationCore, fork: ApplicationCore, record: ForkRecord, plan: ForkPlan, emit: str, seconds: float
) -> EditPlan:
    """Promote a fork, as `Fork.promote`; all but dropping it."""
    # 1. Reject.
    edit = _checked(parent, fork, record, plan, emit)
    deadline = time.monotonic() + seconds
    work = (
        application_directory(Path(record.state), record.id) / f"promotion-{uuid.uuid4().hex[:8]}"
    )  # goes with the fork in any case
    with ExitStack() as undo:
        undo.callback(shutil.rmtree, work, ignore_errors=True)
        theirs, mine = Side(parent), Side(fork)
        differences = differences_of(parent, fork, record, plan, work, outputs=emit == "diff")
        _make_topics(parent, edit)
        # 2. Read so far.
        for difference in differences:
            difference.read()
        runs = parent.status == "running"
        if fork.status not in ("running", "starting"):
            fork.resume()
        if runs:
            _await_close(theirs, mine, deadline)
            for difference in differences:
                difference.read()
        # 3. Pause the parent.
        undo.callback(_go_on, parent if runs else None, fork)
        if runs:
            parent.pause()
        failpoint("K7")
        _drain(theirs, deadline)
        # 4. The fork is at the same offsets.
        _await(lambda: _follows(theirs, mine), deadline, f"the fork {record.id} to reach the offsets of {parent.name}")
        fork.pause()
        # 5. Read the rest.
        for difference in differences:
            difference.settle()
        _refuse_versions(plan, differences)
        # 6. and 7.
        applied = apply(parent, edit, rows=differences, offsets=_new_offsets(theirs, mine), promoted=record.name)
        undo.pop_all()
        if runs:
            parent.resume()
            await_stores(parent, _START_SECONDS)  # before the fork is dropped, which would compete with the new instances
    return applied


def _checked(parent: ApplicationCore, fork: ApplicationCore, record: ForkRecord, plan: ForkPlan, emit: str) -> EditPlan:
    if emit not in EMIT:
        raise CallError(
            f"emit must be 'from-now' or 'diff', got {emit!r}", hint="'diff' also corrects what was written since the fork"
        )
    if parent.detached or parent.run_of_another_kernel() is not None:
        raise IllegalStateError(
            f"{parent.name} is driven by another process",
            hint="promote in the process that drives it; or app.edit(…) without its rows",
        )
    if parent.status not in ("running", "paused", "stopped", "starting"):
        raise IllegalStateError(f"{parent.name} is {parent.status}", hint="start it again, or drop the fork")
    parent.finish_start()
    if fork.status == "failed":
        raise IllegalStateError(f"the fork {record.id} has failed: {fork.error}", hint="drop it: fork.drop()")
    if parent.versions[-1].number != record.base_version:
        raise IllegalStateError(
            f"{parent.name} runs version {parent.versions[-1].number}, fork {record.name!r} was made from version {record.base_version}",
            hint="drop the fork and make another: app.fork(…)",
        )
    if len(fork.versions) > 1:
        raise IllegalStateError(
            f"the fork {record.id} was edited since", hint="drop it, and fork with the topology that it has now"
        )
    edit = plan_edit(parent, plan.edit.topology, plan.edit.definition, config=plan.edit.config, program=plan.edit.program)
    if edit.diff.refused:
        store = edit.diff.refused[0]
        raise TopologyError(
            f"store {store.name!r} of the fork has other rows than that of {parent.name}, and both have one changelog: {store.reason}",
            hint="give the store a new name, and fork again",
            store=store.name,
            plan=str(edit.diff),
        )
    refuse_misreads(edit)
    return edit


# ---- at the same offsets


def _await(condition: Callable[[], bool], deadline: float, what: str) -> None:
    while not condition():
        if time.monotonic() > deadline:
            raise IllegalStateError(f"waited for {what}", hint="promote again with a longer timeout=; nothing was changed")
        time.sleep(_WAIT_SECONDS)


def _go_on(*apps: ApplicationCore | None) -> None:
    for app in apps:
        if app is not None and app.status in ("paused", "stopped"):
            app.resume()


def _await_close(parent: Side, fork: Side, deadline: float) -> None:
    """Wait until the fork is less than a second behind.

    Raises:
        IllegalStateError: it was not in time.
    """
    while (behind := fork.behind(parent)) > max(1000, parent.app.counts_reader.read().per_second):
        if time.monotonic() > deadline:
            raise IllegalStateError(
                f"the fork {fork.app.name} is {counted(behind, 'record')} behind {parent.app.name} and does not catch up; "
                "nothing was changed",
                hint="promote again with a longer timeout=, or pause the application first: it waits then while the fork catches up",
            )
        time.sleep(_WAIT_SECONDS)


def _follows(parent: Side, fork: Side) -> bool:
    if fork.app.status == "failed":
        raise IllegalStateError(
            f"the fork {fork.app.name} has failed: {fork.app.error}", hint="nothing was changed; drop it: fork.drop()"
        )
    return fork.has_reached({at: found.offset for at, found in parent.committed().items()})


def _drain(parent: Side, deadline: float) -> None:
    """Let the parent at rest process what its tasks have written to each other, and what waits in asynchronous nodes, and no more."""
    if parent.has_reached({}):
        return
    from kstreams_repl.host.spark.deployment import Deployment

    deployment = parent.app.deployment
    assert isinstance(deployment, Deployment)
    stops = {at: found.offset for at, found in parent.committed().items() if at not in parent.between}
    ended: list[bool] = []
    parent.app.run(lambda: ended.append(deployment.run_to(stops, max(1.0, deadline - time.monotonic()))))
    if not ended[0]:
        raise IllegalStateError(
            f"waited for {parent.app.name} to process what its tasks have written to each other",
            hint="promote again with a longer timeout=",
        )


def _make_topics(parent: ApplicationCore, edit: EditPlan) -> None:
    """Create the internal topics of the new version: the transaction writes to changelogs of new stores."""
    from kstreams_repl.host.spark.planning.plan_builder import create_internal_topics

    resolved = resolve_partitions(
        edit.topology, parent.name, parent.client.admin.topics(), grouper=edit.config["partition.grouper"],
        topic_configs=edit.config.topic_configs,
    )  # fmt: skip
    create_internal_topics(parent.client.admin, resolved, edit.config)


def _new_offsets(parent: Side, fork: Side) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the fork's offsets of inputs that its parent does not read yet."""
    new = [at for at in fork.inputs if at not in parent.inputs and at not in fork.between]
    found = fork.committed() if new else {}
    return {at: (found[at].offset, found[at].metadata) for at in new if at in found}


def _refuse_versions(plan: ForkPlan, differences: Collection[Difference]) -> None:
    """A versioned store keeps what was replaced: one record cannot take back another one's version."""
    for difference in differences:
        store = plan.topology.stores.get(difference.store)
        if store is not None and store.kind is StoreKind.VERSIONED and difference.theirs is not None and difference.records:
            raise TopologyError(
                f"versioned store {store.name!r} of the fork has other versions than that of its parent, which cannot be taken back",
                hint="give the store a new name, and fork again",
                store=store.name,
            )
