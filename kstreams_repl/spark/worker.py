"""What runs inside a Spark Python worker: one slot of an application for one epoch. An importable module, so that its state
outlives the closure.

The worker process keeps the last plan unpickled and its instances warm. Which slot a worker runs is a *claim*: of the slots
that are free in this epoch it prefers the one it holds warm, then one that nobody holds; a flock per slot makes sure that no
two run one. On executors that share no file system the slot is the partition id.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from kstreams_repl.commit import failpoints
from kstreams_repl.instance.control import Control
from kstreams_repl.instance.garbage import relax_collector
from kstreams_repl.instance.plan import ApplicationPlan
from kstreams_repl.instance.run import run_instance
from kstreams_repl.instance.warm import WarmInstances
from kstreams_repl.spark.closure import Shipment, unpack

REPORT_DDL = "slot int, task string, state string, records long, warm boolean, error string"
REPORT_SCHEMA = pa.schema(
    [
        ("slot", pa.int32()),
        ("task", pa.string()),
        ("state", pa.string()),
        ("records", pa.int64()),
        ("warm", pa.bool_()),
        ("error", pa.string()),
    ]
)

_plans: dict[str, tuple[str, ApplicationPlan]] = {}
_warm = WarmInstances()
_armed = ""


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
    epoch = str(context.getLocalProperty("streaming.sql.batchId") or "0")
    until = time.monotonic() + plan.config["repl.epoch.ms"] / 1000
    held = _warm.held(application_id, plan.generation)
    with _Claim(plan, context.partitionId(), epoch, held) as slot:
        if slot is None:
            return
        control = Control(plan.control_directory, plan.generation, slot, parent=os.getppid())
        outcome = run_instance(plan, slot, until=until, control=control, executor=executor or "driver", warm=_warm)
    rows = outcome.records or {"": 0}
    count = len(rows)
    error = None if outcome.failure is None else json.dumps(outcome.failure)
    yield pa.record_batch(
        [
            pa.array([slot] * count, pa.int32()),
            pa.array(list(rows), pa.string()),
            pa.array([outcome.state] * count, pa.string()),
            pa.array(list(rows.values()), pa.int64()),
            pa.array([outcome.warm] * count, pa.bool_()),
            pa.array([error] * count, pa.string()),
        ],
        schema=REPORT_SCHEMA,
    )


def _plan(shipment: Shipment, application_id: str) -> ApplicationPlan:
    """The plan, unpickled once per worker and version."""
    global _armed
    kept = _plans.get(application_id)
    if kept is not None and kept[0] == shipment.digest:
        return kept[1]
    logging.getLogger("kstreams_repl").addHandler(logging.NullHandler())
    plan = unpack(shipment)
    if plan.failpoints != _armed:
        _armed = plan.failpoints
        failpoints.arm(_armed)
    _plans[application_id] = (shipment.digest, plan)
    relax_collector()
    return plan


class _Claim:
    """Holds one slot of an epoch, as a context manager that gives the slot; None when all slots of the epoch are done
    already.
    """

    def __init__(self, plan: ApplicationPlan, partition: int, epoch: str, held: tuple[int, ...]) -> None:
        self._directory = plan.control_directory
        self._generation = plan.generation
        self._epoch = epoch
        count = plan.instances
        rest = [slot for slot in range(partition, partition + count)]
        self._order = [*held, *(slot % count for slot in rest if slot % count not in held)]
        self._file: int | None = None
        self._pid = os.getpid()

    def __enter__(self) -> int | None:
        deadline = time.monotonic() + 30.0
        while True:
            busy = False
            for patient in (False, True):
                for slot in self._order:
                    taken = self._try(slot, patient)
                    if taken is None:
                        busy = True
                    elif taken:
                        return slot
            if not busy or time.monotonic() > deadline:
                return None
            time.sleep(0.01)

    def _try(self, slot: int, patient: bool) -> bool | None:
        """True: taken. False: done in this epoch, or better left to the worker that holds it warm. None: somebody runs it
        now.
        """
        file = os.open(os.path.join(self._directory, f"claim-{self._generation}-{slot}"), os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return None
        epoch, _, owner = os.pread(file, 200, 0).decode().partition(" ")
        others = owner.isdigit() and int(owner) != self._pid and os.path.exists(f"/proc/{owner}")
        if epoch == self._epoch or (others and not patient):
            os.close(file)
            return False
        self._file = file
        return True

    def __exit__(self, *exc: object) -> None:
        if self._file is None:
            return
        if exc[0] is None:
            os.pwrite(self._file, f"{self._epoch} {self._pid}".encode().ljust(100), 0)
        os.close(self._file)


def worker_state() -> dict[str, Any]:
    """What this worker holds, for tests."""
    return {"pid": os.getpid(), "plans": sorted(_plans)}
