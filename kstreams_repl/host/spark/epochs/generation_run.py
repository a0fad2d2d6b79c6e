"""One generation of an application on Spark: its query from the start to the end, and its slots."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from kstreams_repl.host.batch.completion import CompletionWatch
from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.instance.control.channel import ControlChannel, Signal
from kstreams_repl.host.spark.epochs.streaming_query import RunningQuery, start_query
from kstreams_repl.host.spark.failures.partition_watcher import PartitionWatch
from kstreams_repl.host.spark.planning.plan_serialization import Shipment
from kstreams_repl.host.spark.slots.spark_slots import release_slots, reserve_slots
from kstreams_repl.host.spark.slots.worker_pools import release_pool
from kstreams_repl.system.errors import KStreamsError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTLE_SECONDS = 30.0
"""How long instances may take to commit and report after a signal."""
_IDLE_SECONDS = 2.0
_LOG = logging.getLogger("kstreams_repl.host.spark")


class GenerationRun:
    """A generation from its start until its instances are at rest. It holds the slots and the worker pool of the application.

    Args:
        lease: carries the signals and reports.

    Attributes:
        query: None before the start and after the end.
        confirmed: every instance has confirmed the pause, and it is in the journal.
        outdated: topology or input topics have changed since; the next start needs another plan.
        partitions: the watch of the input topics, closed with the query.
        completion: the watch of a bounded run, closed with the query.
    """

    def __init__(self, session: SparkSession, plan: ApplicationPlan, shipment: Shipment, lease: ControlChannel) -> None:
        self.session = session
        self.plan = plan
        self.shipment = shipment
        self.lease = lease
        self.query: RunningQuery | None = None
        self.confirmed = self.outdated = False
        self.partitions: PartitionWatch | None = None
        self.completion: CompletionWatch | None = None
        self._ending: threading.Thread | None = None  # ends the query after a pause

    @property
    def resumable(self) -> bool:
        """Whether the same generation can continue: no driver can have run the application since without raising the generation."""
        return self.confirmed and not self.outdated

    def again(self) -> GenerationRun:
        """Return the run that continues this generation after a pause."""
        return GenerationRun(self.session, self.plan, self.shipment, self.lease)

    def reserve_slots(self) -> None:
        """Reserve Spark slots for the instances; raise DeployError if too few are free."""
        reserve_slots(self.session, self.plan.application_id, self.plan.instances, self)

    def release_slots(self) -> None:
        """Release the slots and the worker pool."""
        release_slots(self)
        release_pool(self)

    def start(self) -> RunningQuery:
        """Start the query."""
        plan = self.plan
        self.query = start_query(
            self.session,
            self.shipment,
            self.lease.directory,
            application_id=plan.application_id,
            instances=plan.instances,
            generation=plan.generation,
            tasks=[str(spec.task_id) for tasks in plan.assignment for spec in tasks],
            holder=self,
            pool=plan.config["repl.worker.pool"],
        )
        return self.query

    def end(self, signal: Signal, seconds: float = SETTLE_SECONDS) -> list[int]:
        """Send the signal, wait for the reports, then stop the query (after a pause on a thread).

        Returns:
            The slots of the instances that did not answer in time.
        """
        plan, query = self.plan, self.query  # no query after an interrupt between its end and the new status
        silent = list(range(plan.instances))
        try:
            self.lease.signal(plan.generation, signal)
        except (KStreamsError, OSError) as error:  # no signal reaches the workers: Spark ends them, and their uncommitted work is repeated
            _LOG.warning("the instances of %s cannot receive the signal %s: %s", plan.application_id, signal, error)
            self.stop()
            return silent
        ended = {signal.value, "failed", "superseded"}
        deadline = time.monotonic() + seconds
        while silent and time.monotonic() < deadline:
            reports = self.lease.reports(plan.generation)
            silent = [slot for slot in silent if reports.get(slot, {}).get("state") not in ended]
            if query is None or not query.active:
                break
            time.sleep(0.005 if silent else 0)
        if query is not None and signal is Signal.PAUSE and not silent:
            self._ending, self.query = query.end_later(_IDLE_SECONDS), None
        elif query is not None:
            query.await_idle(_IDLE_SECONDS)
        self.stop()
        return silent if time.monotonic() >= deadline else []

    def await_end(self) -> None:
        """Wait until the query has ended after a pause."""
        if self._ending is not None:
            self._ending.join()
            self._ending = None

    def stop(self) -> None:
        """Stop the query whatever its instances do. An interrupt leaves it in place, so that the next caller can stop it."""
        if self.partitions is not None:
            self.partitions.close()
        if self.completion is not None:
            self.completion.close()
        if self.query is not None:
            self.query.stop()
        self.query = None
        self.release_slots()
