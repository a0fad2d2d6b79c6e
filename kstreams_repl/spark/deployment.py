"""`Deployment`: one application as its driver sees it: start, pause, resume, stop, and what its instances report.

Actors: the *lease* (what is wanted, in which generation), the *query* (epochs of instances in Spark's workers), the *watcher*
(a thread that reads the reports and ends the application when an instance has failed), the journal (the same truth for
whoever attaches later). Invariants: a generation is raised and every earlier instance fenced before a query starts; `pause`
and `stop` return when everything processed is committed and no worker loops any more; each call may be repeated.

Start and resume, numbered: 1. validate, create internal topics, plan · 2. slots · 3. raise the generation (journal, lease) ·
4. fence the instances of every earlier generation · 5. start the query.
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
from kstreams_repl.errors import BrokerUnavailableError, DeployError, IllegalStateTransitionError, KStreamsError
from kstreams_repl.instance.control import LeaseWriter, Signal
from kstreams_repl.instance.plan import ApplicationPlan, client_settings
from kstreams_repl.instance.state_directory import control_directory, state_root
from kstreams_repl.instance.take_over import fence_instances
from kstreams_repl.kafka.admin import Admin
from kstreams_repl.kafka.clients import ClientSettings, ensure_reachable
from kstreams_repl.metrics.snapshot import Metric, Snapshot, merged
from kstreams_repl.spark.client_metrics import client_metrics
from kstreams_repl.spark.closure import Shipment, pack
from kstreams_repl.spark.emptying import delete_changelogs
from kstreams_repl.spark.epoch import RunningQuery, start_query
from kstreams_repl.spark.failures import disk_errors, error_of_end
from kstreams_repl.spark.generations import Generations, VersionText, declare
from kstreams_repl.spark.growth import PartitionWatch, refusal
from kstreams_repl.spark.migrating import Migration, migrate_stores
from kstreams_repl.spark.planning import application_id_of, make_plan
from kstreams_repl.spark.progress import ApplicationReport, read_reports
from kstreams_repl.spark.remote_lease import RemoteLease
from kstreams_repl.spark.session import LOCAL_SLOTS, claim_slots, ensure_alive, get_session, is_cluster, release_slots
from kstreams_repl.spark.shortage import Shortage
from kstreams_repl.spark.status import NEXT
from kstreams_repl.spark.status import Status as Status
from kstreams_repl.spark.waiting import wait_for

_LOG = logging.getLogger("kstreams_repl.spark")
_WATCH_SECONDS, _LOOKS_PER_QUESTION = 0.2, 5
_SETTLE_SECONDS = 30.0
_LOST_SECONDS = 3.0  # for those that run to commit, when others have no slot and will not answer
_IDLE_SECONDS = 2.0
_PROGRESS_SECONDS = 2.0
"""How long a failed epoch may take to come into Spark's own progress before the query is ended."""


class Deployment:
    """A topology deployed, or to be deployed, on Spark.

    Args:
        topology: what to run (`dsl` or Processor API).
        config: a `StreamsConfig` or a mapping; needs ``application.id`` and ``bootstrap.servers``.
        spark: the Spark session; None: the running one or a new local one.
        master: for a new session.
        failpoints: armed in the workers, for tests.

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
        self._ending: threading.Thread | None = None  # of the query that a pause has left
        self._plan: ApplicationPlan | None = None
        self._shipment: Shipment | None = None
        self._growth: PartitionWatch | None = None
        self._session: Any = None
        self._clean = False
        with disk_errors(self.state_root):
            self._lease = LeaseWriter(control_directory(self.state_root, self.application_id))
        self._generations: Generations | None = None
        self.version: VersionText | None = None
        """What the journal is told about the topology with the next generation."""

    def __repr__(self) -> str:
        generation = self._plan.generation if self._plan is not None else 0
        return f"Deployment({self.application_id!r}, {self._status}, generation {generation})"

    # ---- looks

    @property
    def status(self) -> Status:
        return self._status

    @property
    def error(self) -> KStreamsError | None:
        """Why the application failed; None unless it did."""
        return self._error

    @property
    def plan(self) -> ApplicationPlan | None:
        """What runs, or ran last."""
        return self._plan

    @property
    def reports(self) -> ApplicationReport:
        """What the instances told last: state, records, rate, lag and restore progress, per instance and task."""
        plan = self._plan
        return read_reports(self._lease, plan.generation if plan is not None else 0)

    @property
    def metrics(self) -> list[Metric]:
        """What the application measures, under Kafka Streams' names; instances write theirs down once a second, and when they end."""
        told = self._lease.metrics(self._plan.generation if self._plan is not None else 0)
        return merged([client_metrics(self), *(Snapshot.read(told[slot]) for slot in sorted(told))])

    # ---- life

    def start(self) -> Deployment:
        """Deploy; returns as soon as the query is started. Starting a running application does nothing.

        Raises:
            UnknownTopicError: a topic the topology names is not on the broker.
            TopologyError: partitions that cannot be co-partitioned, no source.
            DeployError: too few Spark slots, internal topics that do not fit, functions that cannot be sent.
            BrokerUnavailableError: no broker answers.
            StateStoreError: no room in the state directory.
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
            if remote and not isinstance(self._lease, RemoteLease):
                self._lease = RemoteLease(self._lease.directory, self.settings, self.application_id)
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
                if self._generations.generation == generation:  # else it is that of a successor by now, which is not ours to stop
                    self._lease.write(generation, Signal.STOP)
                raise
        return self

    def resume(self) -> Deployment:
        """Go on after `pause`, `stop` or a failure, from what was committed; as `start`."""
        return self.start()

    def replace(
        self,
        topology: Any,
        *,
        version: VersionText | None = None,
        emptied: Collection[str] = (),
        migrations: Collection[Migration] = (),
    ) -> Deployment:
        """Run another topology, from what was committed: 1. pause at a commit · 2. put the topology in place, delete the changelogs
        of stores that begin empty, convert the rows of others · 3. start a new generation, if it was running. State and offsets stay.
        When that fails the old one is started, and the error raised; what was emptied stays empty. After a conversion
        the new one stays in place.

        Args:
            emptied: changelog topics; the next start makes them anew, and no local copy of the old ones is believed.
            migrations: with a version: it is in force as soon as the rows are converted (`migrating`).
        """
        with self._lock:
            running = self._status is Status.RUNNING
            before, earlier = self.topology, self.version
            number = self._generations.version if self._generations is not None else None
            try:
                # 1. Pause.
                if running:
                    self.pause()
                # 2. Put it in place; what was shipped is of the old one.
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
        """Stop at a commit boundary; returns when every instance has committed and said so. State and offsets stay; `resume`
        goes on.

        Raises:
            DeployError: an instance did not answer in time; it is fenced and loses nothing, but what it had open is repeated.
        """
        return self._halt(Signal.PAUSE, Status.PAUSED)

    def stop(self) -> Deployment:
        """As `pause`, and let go of workers' clients and stores. Topics and local state stay."""
        return self._halt(Signal.STOP, Status.STOPPED)

    def wait(self, seconds: float | None = None, *, until: Callable[[Deployment], bool] | None = None) -> bool:
        """Wait until the application has ended, or until a condition on it holds.

        Args:
            seconds: how long at most; None: for ever.
            until: looked at some times a second; by default: no longer running.

        Returns:
            False when the time was over first.

        Raises:
            ApplicationFailedError: the application failed meanwhile (not with the default condition: then look at `error`).
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
            if self._generations is not None:  # its control id is taken over for the conversion
                self._generations.close()
                self._generations = None
            migrate_stores(migrations, version, *about, timeout_ms=timeout)

    def _go_on(self, generations: Generations, plan: ApplicationPlan, shipment: Shipment) -> bool:
        """Resume after a pause that every instance has confirmed, in the same generation: nobody else can have come in between without
        raising it, so workers that are still there go on warm. False: the hold on the journal is lost (the broker forgets it in a week).
        """
        claim_slots(self._session, self.application_id, plan.instances, self)
        try:
            generations.resume(plan)
            self._lease.clear()
            self._lease.write(plan.generation, Signal.RUN)
            self._begin(plan, shipment, f"generation {plan.generation} resumed")
        except BaseException as error:
            release_slots(self)
            self._lease.write(plan.generation, Signal.PAUSE)
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
            found=lambda grown: self._grow(plan, grown), stay=lambda: self._generations and self._generations.stay(),
        ).start()

    def _check(self, wanted: Status) -> None:
        if wanted not in NEXT[self._status]:
            raise IllegalStateTransitionError(
                f"{self.application_id} is {self._status} and cannot become {wanted}; its story: {', then '.join(self._story[-6:])}"
            )

    def _enter(self, status: Status, why: str) -> None:
        self._check(status)
        self._status = status
        self._story.append(why)
        self._changed.notify_all()

    def abandon(self) -> Deployment:
        """As `stop`, but without waiting for the instances: for when nothing can be committed any more, the broker having ended.

        What was committed stays, and `start` goes on from there.
        """
        with self._lock:
            plan = self._plan
            if self._status is Status.RUNNING and plan is not None:
                self._clean = False
                with suppress(KStreamsError, OSError):
                    self._lease.write(plan.generation, Signal.STOP)
                self._stop_query()
                self._enter(Status.STOPPED, "let go of without a broker")
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
                        hint="its worker was ended; what it had not committed is processed again after resume",
                    )
            else:
                if plan is not None:
                    self._lease.write(plan.generation, signal)
                if plan is not None and self._status is Status.PAUSED:
                    self._write_down(plan, signal)
                self._enter(status, f"{signal} as asked")
            if status is Status.STOPPED and self._generations is not None:
                self._generations.close()
                self._generations = None
        return self

    def _write_down(self, plan: ApplicationPlan, signal: Signal) -> None:
        """Tell the journal, for those who attach later; that it cannot be written (no broker, a successor holds it) undoes nothing."""
        if self._generations is not None:
            try:
                self._generations.tell(plan, signal)
            except KStreamsError as error:
                self._clean = False
                _LOG.warning("the journal of %s was not written: %s", self.application_id, error)

    def _end_query(self, plan: ApplicationPlan, signal: Signal, seconds: float = _SETTLE_SECONDS) -> list[int]:
        """Signal first, wait for the reports, then stop the query, of a pause beside the caller; returns the slots that did not answer."""
        try:
            self._lease.write(plan.generation, signal)
        except (KStreamsError, OSError) as error:  # nobody hears it: Spark ends the workers, which loses what they had not committed
            _LOG.warning("%s cannot be told to be %s: %s", self.application_id, signal, error)
            self._stop_query()
            return list(range(plan.instances))
        ended = {signal.value, "failed", "superseded"}
        deadline = time.monotonic() + seconds
        silent = list(range(plan.instances))
        query = self._query  # none is left when an interrupt came between its end and the new status
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
        """An interrupt in here leaves the query in place for whoever ends it then."""
        if self._growth is not None:
            self._growth.close()
            self._growth = None
        if self._query is not None:
            self._query.stop()
        self._query = None
        release_slots(self)

    def _grow(self, plan: ApplicationPlan, grown: Mapping[str, tuple[int, int]]) -> bool:
        """Inputs have more partitions: pause at a commit and start a generation that reads them; or end, when it cannot. False when the
        broker cannot be asked now.
        """
        with self._lock:
            if self._status is not Status.RUNNING or self._plan is not plan or self._generations is None:
                return True
            try:
                admin, generation = Admin(self.settings), plan.generation + 1
                make_plan(self.topology, self.config, self.settings, admin=admin, generation=generation, state_root=self.state_root)
            except BrokerUnavailableError:
                self._shipment = None  # planned anew with the next start
                return False
            except KStreamsError as error:
                self._fail(plan, refusal(self.application_id, grown, error))
                return True
            try:
                with suppress(DeployError):  # one that did not answer is fenced by the start
                    self.pause()
                self._shipment = None
                self._story.append(f"{', '.join(grown)} grew")
                self.start()
            except KStreamsError as error:
                self._fail(plan, error)
            return True

    def _watch(self, query: RunningQuery, plan: ApplicationPlan) -> None:
        """Ends the application when one of its instances has failed or has no slot any more, or the query has died."""
        shortage = Shortage(self._session, query, self.application_id)
        for look in count(1):
            time.sleep(_WATCH_SECONDS)
            if self._query is not query:
                return
            told = self._lease.reports(plan.generation).values()
            over, lost = any(report.get("state") in ("failed", "superseded") for report in told), None
            if not over:
                if look % _LOOKS_PER_QUESTION:  # to ask the JVM costs more than a look
                    continue
                lost = shortage.look()
                if lost is None and query.active:
                    continue
            with self._lock:
                if self._query is not query:
                    return
                python = self._session.sparkContext.pythonExec
                error, failed = error_of_end(self.application_id, told, query.cause(), self.state_root, python, lost)
                if failed:
                    with suppress(KStreamsError, OSError):
                        self._lease.write(plan.generation, Signal.STOP)
                    query.await_progress(_PROGRESS_SECONDS)
                self._fail(plan, error, _LOST_SECONDS if lost else _SETTLE_SECONDS)
            return

    def _fail(self, plan: ApplicationPlan, error: KStreamsError, seconds: float = _SETTLE_SECONDS) -> None:
        self._error = error
        self._end_query(plan, Signal.STOP, seconds)
        self._write_down(plan, Signal.STOP)
        self._enter(Status.FAILED, f"failed: {error.message.splitlines()[0]}")
