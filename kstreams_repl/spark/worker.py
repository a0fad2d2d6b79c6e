"""The code that runs in a Spark Python worker: one slot of an application for one epoch. An importable module, so that its state
outlives the closure.

The worker process keeps the last plan unpickled and its instances warm. The slot of a worker is decided by a *claim* (`slot_assignment`):
of the free slots of an epoch it prefers the one it holds warm, then one without an owner.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from kstreams_repl.commit import failpoints
from kstreams_repl.errors import BrokerUnavailableError
from kstreams_repl.instance.application_plan import ApplicationPlan
from kstreams_repl.instance.control.file_control import Control
from kstreams_repl.instance.control.journal_control import RemoteControl, follow, forget
from kstreams_repl.instance.epoch_handover import Patience
from kstreams_repl.instance.epoch_result import Outcome
from kstreams_repl.instance.executor_directory import executor_process, take_place
from kstreams_repl.instance.gc_tuning import relax_collector
from kstreams_repl.instance.instance_cache import WarmInstances
from kstreams_repl.instance.instance_runner import run_instance
from kstreams_repl.instance.state.state_directory import state_root
from kstreams_repl.kafka.journal import generation_in_force
from kstreams_repl.log_context import write_to_stderr
from kstreams_repl.spark.epoch_rows import report_batch
from kstreams_repl.spark.plan_serialization import Shipment, unpack
from kstreams_repl.spark.slot_assignment import FileClaim, JournalClaim

_BROKER_SECONDS = 1.0
_plans: dict[str, tuple[str, ApplicationPlan]] = {}
_warm = WarmInstances()
_armed = ""


def run_epoch(
    shipment: Shipment, application_id: str, batches: Iterator[Any], *, executor: str | None = None
) -> Iterator[Any]:
    """Run one slot until the epoch's deadline or a signal, and report a row per task."""
    from pyspark import TaskContext

    for _ in batches:  # the epoch's clock: one row, or none
        pass
    context = TaskContext.get()
    assert context is not None
    plan = _plan(shipment, application_id)
    until = time.monotonic() + plan.config["repl.epoch.ms"] / 1000
    held = _warm.held(application_id, plan.generation)
    epoch = str(context.getLocalProperty("streaming.sql.batchId") or "0")
    outcome: Outcome | None
    if plan.remote:
        try:
            outcome = _run_remote(plan, context, int(epoch), until, held)
        except BrokerUnavailableError as away:  # no claim is possible: the next epoch tries again
            logging.getLogger("kstreams_repl.spark").warning("skipping an epoch: %s", away, extra={"application": application_id})
            time.sleep(max(0.0, min(_BROKER_SECONDS, until - time.monotonic())))
            return
    else:
        claim = FileClaim(plan, context.partitionId(), epoch, held)
        with claim as slot:
            if slot is None:
                return
            in_force = partial(generation_in_force, plan.settings, plan.application_id)
            files = Control(plan.control_directory, plan.generation, slot, parent=os.getppid(), in_force=in_force)
            outcome = run_instance(
                plan,
                slot,
                until=until,
                control=files,
                executor=executor or "driver",
                warm=_warm,
                own_process=True,
                patience=Patience(time.monotonic() + plan.config["repl.epoch.idle.ms"] / 1000, claim.epoch_over),
            )
    if outcome is None:
        return
    yield report_batch(outcome)


def _run_remote(plan: ApplicationPlan, context: Any, epoch: int, until: float, held: tuple[int, ...]) -> Outcome | None:
    """Run an epoch on an executor, with its own state directory and the journal for claims, signals and reports."""
    root = state_root(plan.config)
    place = take_place(root, plan.application_id, executor_process())
    follower = follow(plan.settings, plan.application_id, plan.journal_start)
    claim = JournalClaim(
        plan,
        follower,
        place,
        run=str(context.getLocalProperty("sql.streaming.queryId") or ""),
        epoch=epoch,
        partition=context.partitionId(),
        attempt=context.taskAttemptId(),
        held=held,
    )
    with claim as slot:
        if slot is None:
            return None
        control = RemoteControl(
            follower,
            plan.generation,
            slot,
            place=place,
            directory=Path(plan.control_directory),
            claim=claim.held,
            resting=claim.held is None,
            parent=os.getppid(),
        )
        here = replace(plan, state_directory=str(root))
        outcome = run_instance(here, slot, until=until, control=control, executor=place, warm=_warm, own_process=True)
    follower.writer.flush(_BROKER_SECONDS)
    if outcome.state in ("stopped", "failed", "superseded"):
        forget(plan.application_id)
    return outcome


def _plan(shipment: Shipment, application_id: str) -> ApplicationPlan:
    """Return the plan, unpickled once per worker and version."""
    global _armed
    kept = _plans.get(application_id)
    if kept is not None and kept[0] == shipment.digest:
        return kept[1]
    logging.getLogger("kstreams_repl").addHandler(logging.NullHandler())
    plan = unpack(shipment)
    write_to_stderr(plan.config["repl.log.level"])
    if plan.failpoints != _armed:
        _armed = plan.failpoints
        failpoints.arm(_armed)
    _plans[application_id] = (shipment.digest, plan)
    relax_collector()
    return plan


def worker_state() -> dict[str, Any]:
    """Return what this worker holds, for tests."""
    return {"pid": os.getpid(), "plans": sorted(_plans)}
