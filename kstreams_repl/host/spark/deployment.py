"""`Deployment`: one application as its driver sees it: start, pause, resume, stop, and the reports of its instances.

Actors: the application's state (`application_state`), the driver's control of lease and journal (`driver_control`), the generation that
runs (`generation_run`: a query whose epochs run the instances in Spark's workers), and two threads that watch it: one ends the application
when an instance has failed (`instance_watcher`), one starts another generation when input topics change (`partition_watcher`).

Invariants: the generation is raised and every earlier instance fenced before a query starts; `pause` and `stop` return when everything
processed is committed and no worker runs its loop any more; each call may be repeated.

The numbered steps of start and resume: 1. validate, create internal topics, plan · 2. reserve slots · 3. raise the generation (journal,
lease) · 4. fence the instances of every earlier generation · 5. start the query.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.metrics.metrics_snapshot import Metric, Snapshot, merged
from kstreams_repl.host.batch.completion import CompletionWatch
from kstreams_repl.host.batch.stop_offsets import AUTOSTOP, ON_END, bounded_plan, by_topic
from kstreams_repl.host.instance.application_plan import ApplicationPlan, client_settings
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.reports.run_progress import RunProgress
from kstreams_repl.host.instance.state.state_directory import control_directory, state_root
from kstreams_repl.host.instance.store_catalogue import write_catalogue
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, ensure_reachable
from kstreams_repl.host.kafka.exact_metadata import OffsetAndMetadata
from kstreams_repl.host.spark.application_state import ApplicationLife, Status
from kstreams_repl.host.spark.client_metrics import client_metrics
from kstreams_repl.host.spark.epochs.generation_run import SETTLE_SECONDS, GenerationRun
from kstreams_repl.host.spark.failures.failure_translation import disk_errors, error_of_end, failure_from, has_failed
from kstreams_repl.host.spark.failures.instance_watcher import watch_instances
from kstreams_repl.host.spark.failures.partition_watcher import PartitionWatch, loss, refusal
from kstreams_repl.host.spark.failures.worker_restarts import WorkerRestarts, is_death
from kstreams_repl.host.spark.fencing.driver_control import DriverControl
from kstreams_repl.host.spark.fencing.generation_fencing import VersionText
from kstreams_repl.host.spark.fencing.state_migration import NewRows
from kstreams_repl.host.spark.instance_reports import ApplicationReport, read_reports
from kstreams_repl.host.spark.lineage import Lineage
from kstreams_repl.host.spark.planning.plan_builder import application_id_of, make_plan, with_queries
from kstreams_repl.host.spark.planning.plan_serialization import pack
from kstreams_repl.host.spark.slots.spark_slots import LOCAL_SLOTS, free_slots, is_cluster
from kstreams_repl.host.spark.startup.spark_session import ensure_alive, get_session
from kstreams_repl.system.errors import (
    ApplicationFailedError,
    BrokerUnavailableError,
    DeployError,
    KStreamsError,
    TaskMigratedError,
)
from kstreams_repl.system.forks import OwnLock
from kstreams_repl.system.types import JsonMapping, SparkMaster, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOST_SECONDS = 3.0  # for the running instances to commit, when others have no slot and cannot answer
_PROGRESS_SECONDS = 5.0
"""Seconds until a failed epoch must be in Spark's progress; then the query is ended."""
_WAIT_SECONDS = 0.01


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
        config: StreamsConfig | Mapping[str, object],
        *,
        spark: SparkSession | None = None,
        master: SparkMaster = None,
        slots: int = LOCAL_SLOTS,
        settings: ClientSettings | None = None,
        failpoints: str = "",
    ) -> None:
        self.config = config if isinstance(config, StreamsConfig) else StreamsConfig(config)
        self.application_id = application_id_of(self.config)
        self.topology = topology
        self.settings = client_settings(self.config, settings)
        self.state_root = state_root(self.config)
        self.version: VersionText | None = None
        """The version that the next generation writes to the journal."""
        self.restarts = WorkerRestarts()
        self._spark = partial(get_session, master, slots=slots) if spark is None else partial(ensure_alive, spark)
        self._failpoints = failpoints
        self._lock = OwnLock(f"application {self.application_id}")
        self._lineage = None if self.config["repl.openlineage.url"] is None else Lineage(self.config)
        self._life = ApplicationLife(self.application_id, self._entered)
        self._error: KStreamsError | None = None
        self._run: GenerationRun | None = None
        with disk_errors(self.state_root):
            directory = control_directory(self.state_root, self.application_id)
            timeout_ms = self.config["transaction.timeout.ms"]
            self._control = DriverControl(self.settings, self.application_id, directory, timeout_ms=timeout_ms)

    def __repr__(self) -> str:
        return f"Deployment({self.application_id!r}, {self.status}, generation {self._generation})"

    # ---- state and reports

    @property
    def status(self) -> Status:
        """The state; RUNNING while the application is restarted."""
        state = self._life.state
        return Status.RUNNING if state is Status.RESTARTING else state

    def _is_running(self) -> bool:
        return self.status is Status.RUNNING

    @property
    def error(self) -> KStreamsError | None:
        """The reason why the application failed; None if it did not."""
        return self._error

    @property
    def plan(self) -> ApplicationPlan | None:
        """The plan that runs, or ran last."""
        return None if self._run is None else self._run.plan

    @property
    def completion(self) -> RunProgress | None:
        """How far the bounded run is, or was last; None: nothing is known yet, or the application runs as a stream."""
        watch = None if self._run is None else self._run.completion
        return None if watch is None else watch.progress

    @property
    def _generation(self) -> int:
        return 0 if self._run is None else self._run.plan.generation

    @property
    def reports(self) -> ApplicationReport:
        """The latest reports of the instances: state, records, rate, lag and restore progress, per instance and task."""
        return read_reports(self._control.lease, self._generation)

    @property
    def metrics(self) -> list[Metric]:
        """The application's metrics under Kafka Streams' names; instances write them once a second and when they end."""
        config = self.config if self._run is None else self._run.plan.config
        own = client_metrics(self.application_id, self.topology, config, status=self.status, reports=self.reports)
        snapshots = self._control.lease.metrics(self._generation)
        return merged([own, *(Snapshot.read(snapshots[slot]) for slot in sorted(snapshots))])

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
            if self._life.state is Status.RUNNING:
                return self
            self._life.check(Status.RUNNING)
            if self._run is not None:
                self._run.await_end()
            if not self._resume_generation():
                self._start_generation()
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
        migrations: Collection[NewRows] = (),
        offsets: Mapping[TopicPartition, OffsetAndMetadata] = MappingProxyType({}),
    ) -> Deployment:
        """Run another topology from the last commit: 1. pause at a commit · 2. replace the topology, delete the changelogs of stores that
        are reset, convert the rows of others · 3. start a new generation, if it was running. State and offsets are kept.
        If that fails the old topology is started and the error raised; reset stores stay empty. After a conversion the new topology
        stays in place.

        Args:
            emptied: changelog topics of reset stores; the next start recreates them and does not use local copies of the old ones.
            migrations: with a version: it takes effect as soon as the rows are written (`state_migration`).
            offsets: of inputs, which take effect with the rows.
        """
        with self._lock:
            running = self._life.state is Status.RUNNING
            before, earlier = self.topology, self.version
            number = None if self._control.generations is None else self._control.generations.version
            try:
                # 1. Pause.
                if running:
                    self.pause()
                # 2. Replace it.
                self._control.delete_changelogs(emptied)
                if (migrations or offsets) and version is not None:
                    self._control.migrate(migrations, version, offsets)
                self._take(topology, version)
                # 3. Start.
                if running:
                    self.start()
                elif version is not None:
                    self._control.declare(version)
            except BaseException:
                if self.topology is topology and (migrations or offsets):
                    raise
                self._take(before, earlier)
                if self._control.generations is not None and number is not None:
                    self._control.generations.go_back(number)
                if running and self._life.state is not Status.RUNNING:
                    self.start()
                raise
        return self

    def run_to(self, offsets: Mapping[TopicPartition, int], seconds: float) -> bool:
        """Process the input of an application at rest exactly up to these offsets, and all that its tasks write to each other; it is
        stopped then. Return False if that takes longer.

        Raises:
            ApplicationFailedError: it failed.
            KStreamsError: as `start`.
        """
        config = self.config
        with self._lock:
            self.config = config.with_(**{AUTOSTOP: by_topic(offsets), "repl.autostop.through": "own", ON_END: "keep"})
            if self._run is not None:
                self._run.outdated = True
            try:
                self.start()
            finally:
                self.config = config
        ended = self.wait(seconds, until=lambda deployment: deployment.status is Status.STOPPED)
        if self._run is not None:
            self._run.outdated = True
        return ended

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
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            if until is not None and until(self):
                return True
            if not self._is_running():
                with self._lock:  # an edit may be between two generations
                    if not self._is_running():
                        break
            elif deadline is not None and time.monotonic() >= deadline:
                return False
            else:
                time.sleep(_WAIT_SECONDS)
        if until is None or self._error is None:
            return until is None
        raise ApplicationFailedError(
            f"{self.application_id} failed: {self._error.message}", hint=self._error.hint, **self._error.fields
        ) from self._error

    def is_taken_over(self) -> bool:
        """Return whether another program has taken over the application, which has failed then."""
        with self._lock:
            if self._life.state is Status.RUNNING and self._run is not None and (error := self._control.successor()) is not None:
                self._fail(self._run, error, _LOST_SECONDS)
        return isinstance(self._error, TaskMigratedError)

    def abandon(self) -> Deployment:
        """Stop without waiting for the instances: for when nothing can be committed any more because the broker has ended.

        Committed data are kept, and `start` continues from there.
        """
        with self._lock:
            run = self._run
            if self._life.state is Status.RUNNING and run is not None:
                with suppress(KStreamsError, OSError):
                    run.lease.signal(run.plan.generation, Signal.STOP)
                run.stop()
                self._life.enter(Status.STOPPED, "abandoned, no broker")
            self._control.close()
        return self

    def __enter__(self) -> Deployment:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        if self._lock.is_own:
            self.stop()

    # ---- transitions, called with the lock held

    def _entered(self, state: Status) -> None:
        if self._lineage is not None:
            self._lineage.entered(state, self.topology, self._error)

    def _start_generation(self) -> None:
        ensure_reachable(self.settings)
        admin = Admin(self.settings)
        session = self._spark()
        remote = is_cluster(session)
        generations = self._control.open(admin, remote=remote)
        # 1. Validate, create internal topics, plan.
        plan = make_plan(
            self.topology,
            self.config,
            self.settings,
            admin=admin,
            generation=generations.next(),
            state_root=self.state_root,
            previous=generations.previous,
            remote=remote,
            journal_start=generations.end(),
            failpoints=self._failpoints,
            version=generations.version if self.version is None else self.version.number,
            free_slots=free_slots(self.application_id, str(session.sparkContext.master)),
        )
        plan, bounded = bounded_plan(admin, self.topology, plan, generations.run)
        if self.config["application.server"]:
            plan = with_queries(plan, self.topology)
        run = GenerationRun(session, plan, pack(plan), self._control.lease)
        # 2. Reserve slots.
        run.reserve_slots()
        try:
            # 3. Raise the generation.
            before = generations.raise_to(plan, self.version, bounded=bounded)
            run.lease.clear()
            write_catalogue(self.state_root, plan.application_id, self.topology, self.config)
            # 4. Fence the instances of every earlier generation.
            self._control.fence(range(before))
            # 5. Start the query.
            self._error = None
            self._begin(run, f"generation {plan.generation} started")
        except BaseException:
            run.release_slots()
            if generations.generation == plan.generation:  # else a newer generation is running, which must not be stopped
                run.lease.signal(plan.generation, Signal.STOP)
            raise

    def _resume_generation(self) -> bool:
        """Resume in the same generation after a pause, so that existing workers continue warm. Return False if a new generation is needed:
        also when the control id has expired on the broker (after a week).
        """
        generations = self._control.generations
        if self._life.state is not Status.PAUSED or self._run is None or not self._run.resumable or generations is None:
            return False
        paused, run = self._run, self._run.again()
        run.reserve_slots()
        try:
            generations.resume(run.plan)
            run.lease.clear()
            run.lease.signal(run.plan.generation, Signal.RUN)
            self._begin(run, f"generation {run.plan.generation} resumed")
        except BaseException as error:
            run.release_slots()
            self._run = paused
            run.lease.signal(run.plan.generation, Signal.PAUSE)
            if not isinstance(error, KStreamsError) or not generations.is_broken:
                raise
            return False
        return True

    def _begin(self, run: GenerationRun, why: str) -> None:
        """Start the query and its watchers."""
        self._run = run
        run.start()
        self._life.enter(Status.RUNNING, why)
        self._control.join({at.topic for specs in run.plan.assignment for spec in specs for at in spec.partitions})
        watch_instances(run, self._control.successor, self._ended)
        run.partitions = PartitionWatch(
            Admin(self.settings),
            self.topology,
            run.plan,
            seconds=self.config["repl.partitions.check.ms"] / 1000,
            found=partial(self._partitions_changed, run),
            stay=self._control.keep_alive,
        ).start()
        if run.plan.stops is not None:
            run.completion = CompletionWatch(Admin(self.settings), run.plan, partial(self._run_is_over, run)).start()

    def _take(self, topology: Any, version: VersionText | None) -> None:
        self.topology, self.version = topology, version
        if self._run is not None:
            self._run.outdated = True

    def _halt(self, signal: Signal, status: Status) -> Deployment:
        with self._lock:
            if self._life.state is status or (status is Status.PAUSED and self._life.state is not Status.RUNNING):
                return self
            run = self._run
            silent: list[int] = []
            if run is not None:
                run.await_end()
                if self._life.state is Status.RUNNING:
                    silent = self._end(run, signal)
                else:
                    run.lease.signal(run.plan.generation, signal)
                    if self._life.state is Status.PAUSED:
                        self._control.record(run.plan, signal)
            self._life.enter(status, "requested")
            if status is Status.STOPPED:
                self._control.close()
            if silent:
                raise DeployError(
                    f"expected every instance of {self.application_id} to commit and report within {SETTLE_SECONDS:.0f} s, got no answer "
                    f"from instance {', '.join(map(str, silent))}",
                    hint="its worker was ended; resume() processes its uncommitted records again",
                )
        return self

    def _end(self, run: GenerationRun, signal: Signal, seconds: float = SETTLE_SECONDS, *, finished: bool = False) -> list[int]:
        """End a generation and write that to the journal; return the slots of the instances that did not answer."""
        silent = run.end(signal, seconds)
        recorded = self._control.record(run.plan, signal, finished=finished)
        run.confirmed = recorded and not silent
        return silent

    def _restart(self, run: GenerationRun, why: str) -> KStreamsError | None:
        """End a generation and start the next one; return the error if it cannot be started now."""
        self._life.enter(Status.RESTARTING, why)
        self._end(run, Signal.PAUSE)  # the start fences an instance that did not answer
        run.outdated = True
        try:
            self.start()
        except Exception as error:
            return failure_from(self.application_id, error)
        except BaseException:
            self._life.enter(Status.PAUSED, "the next generation did not start")
            raise
        return None

    def _fail(self, run: GenerationRun, error: KStreamsError, seconds: float = SETTLE_SECONDS) -> None:
        self._error = error
        self._end(run, Signal.STOP, seconds)
        self._life.enter(Status.FAILED, f"failed: {error.message.splitlines()[0]}")

    # ---- called by the watchers

    def _ended(
        self, run: GenerationRun, reports: Collection[JsonMapping], cause: str | None, lost: KStreamsError | None
    ) -> None:
        """End or restart the application after its generation has ended by itself."""
        with self._lock:
            if run.query is None:
                return
            error: KStreamsError | None
            failed = False
            if lost is None and not has_failed(reports) and cause is not None and is_death(cause):
                error = self.restarts.record(run.plan, cause, self.reports) or self._restart(run, "worker processes died")
                if error is None:
                    return
            else:
                python = run.session.sparkContext.pythonExec
                error, failed = error_of_end(self.application_id, reports, cause, self.state_root, python, lost)
            if failed:
                with suppress(KStreamsError, OSError):
                    run.lease.signal(run.plan.generation, Signal.STOP)
                run.query.await_progress(_PROGRESS_SECONDS)
            self._fail(run, error, SETTLE_SECONDS if lost is None else _LOST_SECONDS)

    def _run_is_over(self, run: GenerationRun) -> None:
        """End a bounded run: everything up to its stop offsets is committed, also if an instance does not answer any more."""
        with self._lock:
            if run.query is None:
                return
            self._end(run, Signal.STOP, finished=True)
            self._life.enter(Status.STOPPED, "the bounded run is over")
            self._control.close()

    def _partitions_changed(self, run: GenerationRun, grown: Mapping[str, tuple[int, int]], lost: Collection[str]) -> bool:
        """Handle new or lost input partitions: pause at a commit and start a generation that reads the new ones, or end when that is
        impossible or some are lost. Return False if the broker cannot be reached now."""
        with self._lock:
            if run.query is None or self._control.generations is None:
                return True
            if lost:
                self._fail(run, loss(self.application_id, lost))
                return True
            if run.plan.stops is not None:  # the next run reads them
                return False
            try:
                make_plan(
                    self.topology,
                    self.config,
                    self.settings,
                    admin=Admin(self.settings),
                    generation=run.plan.generation + 1,
                    state_root=self.state_root,
                )
            except BrokerUnavailableError:
                run.outdated = True
                return False
            except KStreamsError as error:
                self._fail(run, refusal(self.application_id, grown, error))
                return True
            not_started = self._restart(run, f"{', '.join(grown)} grew")
            if not_started is not None:
                self._fail(run, not_started)
            return True
