"""`Deployment`: one application as its driver sees it: start, pause, resume, stop, and the reports of its instances.

Actors: the *lease* (the desired state and generation), the *query* (epochs of instances in Spark's workers), the *watcher*
(a thread that reads the reports and ends the application when an instance has failed), the journal (the same state for
drivers that attach later). Invariants: the generation is raised and every earlier instance fenced before a query starts; `pause`
and `stop` return when everything processed is committed and no worker runs its loop any more; each call may be repeated.

The numbered steps of start and resume: 1. validate, create internal topics, plan · 2. slots · 3. raise the generation (journal,
lease) · 4. fence the instances of every earlier generation · 5. start the query.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from itertools import count
from typing import Any

from kstreams_repl.config import StreamsConfig
from kstreams_repl.errors import BrokerUnavailableError, DeployError, KStreamsError
from kstreams_repl.instance.application_plan import ApplicationPlan, client_settings
from kstreams_repl.instance.control.channel import Signal
from kstreams_repl.instance.control.open_channel import open_channel
from kstreams_repl.instance.initialization.task_initialization import fence_instances
from kstreams_repl.instance.state.state_directory import control_directory, state_root
from kstreams_repl.kafka.admin import Admin
from kstreams_repl.kafka.clients import ClientSettings, ensure_reachable
from kstreams_repl.metrics.snapshot import Metric, Snapshot, merged
from kstreams_repl.spark.changelog_reset import delete_changelogs
from kstreams_repl.spark.client_metrics import client_metrics
from kstreams_repl.spark.deployment_state import Status as Status
from kstreams_repl.spark.deployment_state import check_step
from kstreams_repl.spark.deployment_wait import wait_for
from kstreams_repl.spark.epoch import RunningQuery, start_query
from kstreams_repl.spark.failure_translation import disk_errors
from kstreams_repl.spark.generation_fencing import Generations, VersionText, declare
from kstreams_repl.spark.instance_reports import ApplicationReport, read_reports
from kstreams_repl.spark.missing_executors import Shortage
from kstreams_repl.spark.partition_watcher import PartitionWatch, loss, refusal
from kstreams_repl.spark.plan_serialization import Shipment, pack
from kstreams_repl.spark.planning import application_id_of, make_plan
from kstreams_repl.spark.spark_session import LOCAL_SLOTS, claim_slots, ensure_alive, get_session, is_cluster, release_slots
from kstreams_repl.spark.state_migration import Migration, migrate_stores
from kstreams_repl.spark.worker_restarts import Restarts, start_again

_LOG = logging.getLogger("kstreams_repl.spark")
_WATCH_SECONDS, _LOOKS_PER_QUESTION = 0.2, 5
_SETTLE_SECONDS = 30.0
_LOST_SECONDS = 3.0  # for the running instances to commit, when others have no slot and cannot answer
_IDLE_SECONDS = 2.0
_PROGRESS_SECONDS = 2.0
"""Seconds until a failed epoch must be in Spark's progress; then the query is ended."""


class Deployment:
    """A topology deployed, or to be deployed, on Spark.

    Args:
        topology: the topology to run (`dsl` or Processor API).
        config: a `StreamsConfig` or a mapping; needs ``application.id`` and ``bootstrap.servers``.
        spark: the Spark session; None uses the running one or starts a local one.
        master: Spark master of a new session.
        failpoints: failpoints to arm in the workers, for tests.

    Example:
        >>> deployment = Deployment(topology, {"application.id": "counts", "bootstrap.servers": "..."})  # doctest: +SKIP
        >>> deployment.start()                                                                         # doctest: +SKIP
        >>> deployment.pause(); deployment.resume(); deployment.stop()                                  # doctest: +SKIP
    """

    def __init__(
        self,
        topology: Any,
        config: StreamsConfig | Mapping[str, Any],
        *,
        spark: Any = None,
        master: str | None = None,
        slots: int = LOCAL_SLOTS,
        settings: ClientSettings | None = None,
        failpoints: str = "",
    ) -> None:
        self.config = config if isinstance(config, StreamsConfig) else StreamsConfig(config)
        self.application_id = application_id_of(self.config)
        self.topology = topology
        self.settings = client_settings(self.config, settings)
        self.state_root = state_root(self.config)
        self._spark = spark
        self._master = master
        self._slots = slots
        self._failpoints = failpoints
        self._status = Status.CREATED
        self._story = ["created"]
        self._error: KStreamsError | None = None
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._query: RunningQuery | None = None
        self._ending: threading.Thread | None = None  # ends the query after a pause
        self._plan: ApplicationPlan | None = None
        self._shipment: Shipment | None = None
        self._growth: PartitionWatch | None = None
        self._session: Any = None
        self._clean = False
        self._restarting, self.restarts = False, Restarts()
        with disk_errors(self.state_root):
            self._lease = open_channel(control_directory(self.state_root, self.application_id), self.settings, self.application_id)
        self._generations: Generations | None = None
        self.version: VersionText | None = None
        """The version that the next generation writes to the journal."""

    def __repr__(self) -> str:
        generation = self._plan.generation if self._plan is not None else 0
        return f"Deployment({self.application_id!r}, {self._status}, generation {generation})"

    # ---- looks

    @property
    def status(self) -> Status:
        return Status.RUNNING if self._restarting else self._status

    @property
    def error(self) -> KStreamsError | None:
        """The reason why the application failed; None if it did not."""
        return self._error

    @property
    def plan(self) -> ApplicationPlan | None:
        """The plan that runs, or ran last."""
        return self._plan

    @property
    def reports(self) -> ApplicationReport:
        """The latest reports of the instances: state, records, rate, lag and restore progress, per instance and task."""
        plan = self._plan
        return read_reports(self._lease, plan.generation if plan is not None else 0)

    @property
    def metrics(self) -> list[Metric]:
        """The application's metrics under Kafka Streams' names; instances write them once a second and when they end."""
        told = self._lease.metrics(self._plan.generation if self._plan is not None else 0)
        return merged([client_metrics(self), *(Snapshot.read(told[slot]) for slot in sorted(told))])

    # ---- life

    def start(self) -> Deployment:
        """Deploy the topology and return as soon as the query is started. Do nothing if the application is running.

        Raises:
            UnknownTopicError: a topic of the topology does not exist.
            TopologyError: topics are not co-partitioned, or the topology has no source.
            DeployError: too few Spark slots, internal topics that do not fit, functions that cannot be pickled.
            BrokerUnavailableError: no broker answered.
            StateStoreError: the disk of the state directory is full.
        """
        with self._lock, disk_errors(self.state_root):
            if self._status is Status.RUNNING:
                return self
            self._check(Status.RUNNING)
            self._await_end()
            if self._status is Status.PAUSED and self._clean and self._plan and self._shipment and self._generations:
                if self._go_on(self._generations, self._plan, self._shipment):
                    return self
            ensure_reachable(self.settings)
            admin = Admin(self.settings)
            session = get_session(self._master, slots=self._slots) if self._spark is None else ensure_alive(self._spark)
            remote = is_cluster(session)
            if remote and not self._lease.remote:
                self._lease = open_channel(self._lease.directory, self.settings, self.application_id, remote=True)
            if self._generations is None or self._generations.is_broken:
                self._generations = Generations(self.settings, admin, self.application_id, self._lease)
            # 1. Validate, create internal topics, plan.
            generation = self._generations.next()
            plan = make_plan(
                self.topology,
                self.config,
                self.settings,
                admin=admin,
                generation=generation,
                state_root=self.state_root,
                previous=self._generations.previous,
                remote=remote,
                journal_start=self._generations.end(),
                failpoints=self._failpoints,
            )
            shipment = pack(plan)
            # 2. Slots.
            claim_slots(session, self.application_id, plan.instances, self)
            try:
                # 3. Raise the generation.
                before = self._generations.raise_to(plan, self.version)
                self._lease.clear()
                # 4. Fence the instances of every earlier generation.
                fence_instances(self.settings, self.application_id, range(before), timeout_ms=self.config["transaction.timeout.ms"])
                # 5. Start the query.
                self._plan, self._error = plan, None
                self._shipment, self._session = shipment, session
                self._begin(plan, shipment, f"generation {generation} started")
            except BaseException:
                release_slots(self)
                if self._generations.generation == generation:  # else a newer generation is running, which must not be stopped
                    self._lease.signal(generation, Signal.STOP)
                raise
        return self

    def resume(self) -> Deployment:
        """Continue from the last commit after `pause`, `stop` or a failure; raises as `start` does."""
        return self.start()

    def replace(
        self,
        topology: Any,
        *,
        version: VersionText | None = None,
        emptied: Collection[str] = (),
        migrations: Collection[Migration] = (),
    ) -> Deployment:
        """Run another topology from the last commit: 1. pause at a commit · 2. replace the topology, delete the changelogs of stores that
        are reset, convert the rows of others · 3. start a new generation, if it was running. State and offsets are kept.
        If that fails the old topology is started and the error raised; reset stores stay empty. After a conversion the new topology
        stays in place.

        Args:
            emptied: changelog topics of reset stores; the next start recreates them and does not use local copies of the old ones.
            migrations: with a version: it takes effect as soon as the rows are converted (`state_migration`).
        """
        with self._lock:
            running = self._status is Status.RUNNING
            before, earlier = self.topology, self.version
            number = self._generations.version if self._generations is not None else None
            try:
                # 1. Pause.
                if running:
                    self.pause()
                # 2. Replace it; the existing shipment contains the old one.
                self._rewrite(emptied, migrations, version)
                self.topology, self._shipment, self.version = topology, None, version
                # 3. Start.
                if running:
                    self.start()
                elif version is not None:
                    declare(self._generations, version, self.settings, self.application_id, self._lease)
            except BaseException:
                if self.topology is topology and migrations:
                    raise
                self.topology, self._shipment, self.version = before, None, earlier
                if self._generations is not None and number is not None:
                    self._generations.go_back(number)
                if running and self._status is not Status.RUNNING:
                    self.start()
                raise
        return self

    def pause(self) -> Deployment:
        """Stop at a commit boundary and return when every instance has reported its commit. State and offsets are kept.

        Raises:
            DeployError: an instance did not answer in time; it is fenced. No committed data are lost, its uncommitted records are
                processed again.
        """
        return self._halt(Signal.PAUSE, Status.PAUSED)

    def stop(self) -> Deployment:
        """Do as `pause`, and close the workers' clients and stores. Topics and local state are kept."""
        return self._halt(Signal.STOP, Status.STOPPED)

    def wait(self, seconds: float | None = None, *, until: Callable[[Deployment], bool] | None = None) -> bool:
        """Wait until the application has ended, or until a condition holds.

        Args:
            seconds: the timeout; None waits forever.
                until: the condition, checked several times a second; by default: no longer running.

        Returns:
            False on timeout.

        Raises:
            ApplicationFailedError: the application failed (not with the default condition: then read `error`).
        """
        return wait_for(self, self._lock, seconds, until)

    def __enter__(self) -> Deployment:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    # ---- inside

    def _rewrite(self, emptied: Collection[str], migrations: Collection[Migration], version: VersionText | None) -> None:
        about, timeout = (self.settings, self.application_id, self._lease), self.config["transaction.timeout.ms"]
        delete_changelogs(emptied, self._generations, *about, timeout_ms=timeout)
        if migrations and version is not None:
            if self._generations is not None:  # the conversion uses its control id
                self._generations.close()
                self._generations = None
            migrate_stores(migrations, version, *about, timeout_ms=timeout)

    def _go_on(self, generations: Generations, plan: ApplicationPlan, shipment: Shipment) -> bool:
        """Resume in the same generation after a pause that every instance has confirmed. No other driver can have run the application in
        between without raising it, so existing workers continue warm. False: the control id has expired on the broker (after a week).
        """
        claim_slots(self._session, self.application_id, plan.instances, self)
        try:
            generations.resume(plan)
            self._lease.clear()
            self._lease.signal(plan.generation, Signal.RUN)
            self._begin(plan, shipment, f"generation {plan.generation} resumed")
        except BaseException as error:
            release_slots(self)
            self._lease.signal(plan.generation, Signal.PAUSE)
            if not isinstance(error, KStreamsError) or not generations.is_broken:
                raise
            return False
        return True

    def _begin(self, plan: ApplicationPlan, shipment: Shipment, why: str) -> None:
        """Start the query and its watcher."""
        self._query = start_query(
            self._session,
            shipment,
            self._lease.directory,
            application_id=self.application_id,
            instances=plan.instances,
            generation=plan.generation,
            tasks=[str(spec.task_id) for tasks in plan.assignment for spec in tasks],
            holder=self,
            shared_pool=self.config["repl.worker.pool"] == "shared",
        )
        self._enter(Status.RUNNING, why)
        threading.Thread(target=self._watch, args=(self._query, plan), name=f"watch-{plan.application_id}", daemon=True).start()
        self._growth = PartitionWatch(
            Admin(self.settings), self.topology, plan,
            seconds=self.config["repl.partitions.check.ms"] / 1000,
            found=lambda grown, lost: self._grow(plan, grown, lost), stay=lambda: self._generations and self._generations.stay(),
        ).start()

    def _check(self, wanted: Status) -> None:
        check_step(self.application_id, self._status, wanted, self._story)

    def _enter(self, status: Status, why: str) -> None:
        self._check(status)
        _LOG.info("%s -> %s (%s)", self._status.value, status.value, why, extra={"application": self.application_id})
        self._status = status
        self._story.append(why)
        self._changed.notify_all()

    def abandon(self) -> Deployment:
        """Stop without waiting for the instances: for when nothing can be committed any more because the broker has ended.

        Committed data are kept, and `start` continues from there.
        """
        with self._lock:
            plan = self._plan
            if self._status is Status.RUNNING and plan is not None:
                self._clean = False
                with suppress(KStreamsError, OSError):
                    self._lease.signal(plan.generation, Signal.STOP)
                self._stop_query()
                self._enter(Status.STOPPED, "abandoned, no broker")
            if self._generations is not None:
                self._generations.close()
                self._generations = None
        return self

    def _halt(self, signal: Signal, status: Status) -> Deployment:
        with self._lock:
            if self._status is status or (status is Status.PAUSED and self._status is not Status.RUNNING):
                return self
            self._await_end()
            plan = self._plan
            if self._status is Status.RUNNING and plan is not None:
                silent = self._end_query(plan, signal)
                self._clean = not silent
                self._write_down(plan, signal)
                self._enter(status, f"{signal} as asked")
                if silent:
                    raise DeployError(
                        f"instance {', '.join(map(str, silent))} of {self.application_id} did not answer within {_SETTLE_SECONDS:.0f} s",
                        hint="its worker was ended; its uncommitted records are processed again after resume",
                    )
            else:
                if plan is not None:
                    self._lease.signal(plan.generation, signal)
                if plan is not None and self._status is Status.PAUSED:
                    self._write_down(plan, signal)
                self._enter(status, f"{signal} as asked")
            if status is Status.STOPPED and self._generations is not None:
                self._generations.close()
                self._generations = None
        return self

    def _write_down(self, plan: ApplicationPlan, signal: Signal) -> None:
        """Write the state to the journal, for drivers that attach later. A failure (no broker, fenced by a successor) is only logged."""
        if self._generations is not None:
            try:
                self._generations.tell(plan, signal)
            except KStreamsError as error:
                self._clean = False
                _LOG.warning("the journal was not written: %s", error, extra={"application": self.application_id})

    def _end_query(self, plan: ApplicationPlan, signal: Signal, seconds: float = _SETTLE_SECONDS) -> list[int]:
        """Signal, wait for the reports, then stop the query (after a pause in the background); return the slots that did not answer."""
        try:
            self._lease.signal(plan.generation, signal)
        except (KStreamsError, OSError) as error:  # no signal reaches the workers: Spark ends them, and their uncommitted work is repeated
            _LOG.warning("the instances of %s cannot receive the signal %s: %s", self.application_id, signal, error)
            self._stop_query()
            return list(range(plan.instances))
        ended = {signal.value, "failed", "superseded"}
        deadline = time.monotonic() + seconds
        silent = list(range(plan.instances))
        query = self._query  # None after an interrupt between its end and the new status
        while silent and time.monotonic() < deadline:
            told = self._lease.reports(plan.generation)
            silent = [slot for slot in silent if told.get(slot, {}).get("state") not in ended]
            if query is None or not query.active:
                break
            time.sleep(0.005 if silent else 0)
        if query is not None and signal is Signal.PAUSE and not silent:
            self._ending, self._query = query.end_later(_IDLE_SECONDS), None
        elif query is not None:
            query.await_idle(_IDLE_SECONDS)
        self._stop_query()
        return silent if time.monotonic() >= deadline else []

    def _await_end(self) -> None:
        if self._ending is not None:
            self._ending.join()
            self._ending = None

    def _stop_query(self) -> None:
        """Stop the query. An interrupt leaves it in place, so that the next caller can stop it."""
        if self._growth is not None:
            self._growth.close()
        if self._query is not None:
            self._query.stop()
        self._query = None
        release_slots(self)

    def _grow(self, plan: ApplicationPlan, grown: Mapping[str, tuple[int, int]], lost: Collection[str]) -> bool:
        """Handle new or lost input partitions: pause at a commit and start a generation that reads the new ones, or end when that is
        impossible or some are lost. Return False if the broker cannot be reached now."""
        with self._lock:
            if self._status is not Status.RUNNING or self._plan is not plan or self._generations is None:
                return True
            try:
                if lost:
                    raise loss(self.application_id, lost)
                admin, generation = Admin(self.settings), plan.generation + 1
                make_plan(self.topology, self.config, self.settings, admin=admin, generation=generation, state_root=self.state_root)
            except BrokerUnavailableError:
                self._shipment = None  # the next start creates a new plan
                return False
            except KStreamsError as error:
                self._fail(plan, error if lost else refusal(self.application_id, grown, error))
                return True
            try:
                start_again(self, f"{', '.join(grown)} grew")
            except KStreamsError as error:
                self._fail(plan, error)
            return True

    def _watch(self, query: RunningQuery, plan: ApplicationPlan) -> None:
        """End the application when one of its instances has failed or lost its slot, or the query has ended."""
        shortage = Shortage(self._session, query, self.application_id)
        for look in count(1):
            time.sleep(_WATCH_SECONDS)
            if self._query is not query:
                return
            told = self._lease.reports(plan.generation).values()
            over, lost = any(report.get("state") in ("failed", "superseded") for report in told), None
            if not over:
                if look % _LOOKS_PER_QUESTION:  # a call to the JVM costs more than reading the reports
                    continue
                lost = shortage.look()
                if lost is None and query.active:
                    continue
            with self._lock:
                if self._query is not query:
                    return
                ended = self.restarts.after_end(self, plan, told, query.cause(), lost)
                if ended is None:
                    return
                error, failed = ended
                if failed:
                    with suppress(KStreamsError, OSError):
                        self._lease.signal(plan.generation, Signal.STOP)
                    query.await_progress(_PROGRESS_SECONDS)
                self._fail(plan, error, _LOST_SECONDS if lost else _SETTLE_SECONDS)
            return

    def _fail(self, plan: ApplicationPlan, error: KStreamsError, seconds: float = _SETTLE_SECONDS) -> None:
        self._error = error
        self._end_query(plan, Signal.STOP, seconds)
        self._write_down(plan, Signal.STOP)
        self._enter(Status.FAILED, f"failed: {error.message.splitlines()[0]}")
