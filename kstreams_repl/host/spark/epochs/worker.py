"""The code that runs in a Spark Python worker: one slot of an application for one epoch. An importable module, so that its state
outlives the closure.

The worker process keeps the last plan unpickled and its instances warm. Spark schedules its tasks again in every epoch; a *claim*
(`host.instance.control`) keeps a slot where its clients and stores are: of the free slots of an epoch a worker prefers the one it holds
warm, then one without an owner.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from kstreams_repl.engine.commit import failpoints
from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.instance.control.channel import EpochTask
from kstreams_repl.host.instance.control.open_channel import claim_slot
from kstreams_repl.host.instance.epochs.epoch_handover import IdleEpochLimit
from kstreams_repl.host.instance.epochs.instance_cache import InstanceCache
from kstreams_repl.host.instance.epochs.instance_runner import run_instance
from kstreams_repl.host.instance.process.executor_directory import executor_process
from kstreams_repl.host.instance.process.gc_tuning import relax_collector
from kstreams_repl.host.spark.epochs.epoch_rows import report_batch
from kstreams_repl.host.spark.planning.plan_serialization import Shipment, unpack
from kstreams_repl.host.telemetry import exported_logs
from kstreams_repl.system.errors import BrokerUnavailableError
from kstreams_repl.system.log_context import write_to_stderr
from kstreams_repl.system.processes import ProcessMark

if TYPE_CHECKING:
    import pyarrow as pa

_BROKER_SECONDS = 1.0
_plans: dict[str, tuple[str, ApplicationPlan]] = {}
_cache = InstanceCache()
_armed = ""
_exported = ExitStack()


def run_epoch(
    shipment: Shipment, application_id: str, batches: Iterator[pa.RecordBatch], *, executor: str | None = None
) -> Iterator[pa.RecordBatch]:
    """Run one slot until the epoch's deadline or a signal, and report a row per task."""
    from pyspark import TaskContext

    for _ in batches:  # the epoch's clock: one row, or none
        pass
    context = TaskContext.get()
    assert context is not None
    plan = _plan(shipment, application_id)
    until = time.monotonic() + plan.config["repl.epoch.ms"] / 1000
    task = EpochTask(
        run=str(context.getLocalProperty("sql.streaming.queryId") or ""),
        epoch=int(context.getLocalProperty("streaming.sql.batchId") or 0),
        partition=context.partitionId(),
        attempt=context.taskAttemptId(),
        held=_cache.held(application_id, plan.generation),
    )
    try:
        with claim_slot(plan, task) as claimed:
            if claimed is None:
                return
            over = claimed.epoch_over
            with _server_kept(plan, shipment, executor or claimed.executor, claimed.state_directory):
                outcome = run_instance(
                    replace(plan, state_directory=claimed.state_directory),
                    claimed.control.slot,
                    until=until,
                    control=claimed.control,
                    executor=executor or claimed.executor,
                    cache=_cache,
                    own_process=True,
                    idle_limit=None if over is None else IdleEpochLimit(time.monotonic() + plan.config["repl.epoch.idle.ms"] / 1000, over),
                )
    except BrokerUnavailableError as away:  # no claim is possible: the next epoch tries again
        logging.getLogger("kstreams_repl.host.spark").warning("skipping an epoch: %s", away, extra={"application": application_id})
        time.sleep(max(0.0, min(_BROKER_SECONDS, until - time.monotonic())))
        return
    yield report_batch(outcome)


def _plan(shipment: Shipment, application_id: str) -> ApplicationPlan:
    """Return the plan, unpickled once per worker and version."""
    global _armed
    kept = _plans.get(application_id)
    if kept is not None and kept[0] == shipment.digest:
        return kept[1]
    logging.getLogger("kstreams_repl").addHandler(logging.NullHandler())
    plan = unpack(shipment)
    write_to_stderr(plan.config["repl.log.level"])
    _exported.close()
    _exported.enter_context(exported_logs(plan.config["repl.otlp.endpoint"], application_id, plan.config["repl.log.level"]))
    if plan.failpoints != _armed:
        _armed = plan.failpoints
        failpoints.arm(_armed)
    _plans[application_id] = (shipment.digest, plan)
    relax_collector()
    return plan


def _server_kept(plan: ApplicationPlan, shipment: Shipment, place: str, state_directory: str) -> AbstractContextManager[None]:
    """Keep the query server of this executor running, if there is to be one; it ends with the executor, or with the application."""
    if plan.query_tokens is None:
        return nullcontext()
    from kstreams_repl.host.instance.metadata import HostInfo
    from kstreams_repl.host.spark.query_server_process import ServeRequest, server_kept

    owner = ProcessMark.of(executor_process())
    return server_kept(
        ServeRequest(
            shipment,
            plan.application_id,
            place,
            state_directory,
            HostInfo.build_from_endpoint(plan.config["application.server"]),
            owner=owner,
            with_application=True,
            version=f"{plan.version}/{owner.pid}",
            certfile=plan.config["repl.server.certfile"],
            keyfile=plan.config["repl.server.keyfile"],
            insecure=plan.config["repl.server.insecure"],
        )
    )
