"""`Application`: a deployed topology as its user sees it. Start, pause, resume, stop, what it does now, what is in its stores.

Control runs on a thread of its own: the call waits for it, but interrupting the call (Ctrl-C, a kernel's interrupt) only ends the waiting;
what was begun is finished, so the application is in its old state or its new one and never between.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from kstreams_repl.config import StreamsConfig
from kstreams_repl.display.markup import one_line
from kstreams_repl.display.mimebundle import mimebundle, text_of
from kstreams_repl.display.picture import Picture, picture_of
from kstreams_repl.errors import DeployError, KStreamsError, TopologyError
from kstreams_repl.inspection.query import SqlResult
from kstreams_repl.inspection.sandbox import quote_identifier
from kstreams_repl.session.control_calls import CaughtUp, Work
from kstreams_repl.session.driving import refuse_replaced
from kstreams_repl.session.editing import Conversions, EditPlan
from kstreams_repl.session.errors_shown import with_source
from kstreams_repl.session.live_taps import live_peek, live_tail, node_name
from kstreams_repl.session.marks import Rates, marks_of
from kstreams_repl.session.metrics_view import MetricsView
from kstreams_repl.session.node_rates import NodeRate, node_rates
from kstreams_repl.session.planned import check
from kstreams_repl.session.program import Program, program_of
from kstreams_repl.session.progress import Patience
from kstreams_repl.session.records import ReadRecord, Records
from kstreams_repl.session.remaining import remaining_records
from kstreams_repl.session.store_view import StoreView
from kstreams_repl.session.tables import all_stores
from kstreams_repl.session.topologies import topology_of
from kstreams_repl.session.versions import Version, VersionHistory
from kstreams_repl.topology.describe import TopologyDescription
from kstreams_repl.topology.diff import NodeChange, whole_code
from kstreams_repl.topology.topology import Topology

if TYPE_CHECKING:
    from kstreams_repl.session.detached.client import DetachedDeployment
    from kstreams_repl.session.session import Session
    from kstreams_repl.spark.deployment import Deployment
    from kstreams_repl.spark.migrating import Migration
    from kstreams_repl.spark.progress import ApplicationReport

STARTING = "starting"


class Application:
    """A topology under an application id. Get one from `Session.deploy` or `Session.attach`.

    Example:
        >>> app = session.deploy(builder, "word-count")   # doctest: +SKIP
        >>> app.pause(); app.resume(); app.stop()         # doctest: +SKIP
    """

    def __init__(
        self,
        session: Session,
        name: str,
        topology: Topology,
        config: StreamsConfig,
        deployment: Deployment | DetachedDeployment,
        history: VersionHistory,
        *,
        found: str | None = None,
        detached: bool = False,
    ) -> None:
        self.name = name
        self.topology = topology
        self.config = config
        self.session = session
        self.definition: Any = None
        """What it was deployed or edited with, a builder for example: `changes` compares with it."""
        self._rates = Rates()
        self.stale: frozenset[str] = frozenset()
        """Nodes that a cell has changed since; they run as they were."""
        self.ran = whole_code(topology)
        """What its nodes did when they were sent to the workers last: `edit` compares with it."""
        self.detached = detached
        """Whether a process of its own drives it, which goes on when this one ends."""
        self._deployment = deployment
        self._history = history
        self._found = found
        self._control = threading.Lock()
        self._starting: Work | None = None
        self._start_error: BaseException | None = None

    # ---- looks

    @property
    def versions(self) -> list[Version]:
        """What ran so far, the present version last: number, time, source text. Kernels come and go, this stays."""
        return list(self._history.versions)

    @property
    def status(self) -> str:
        """created, starting, running, paused, stopped or failed."""
        work = self._starting
        if work is not None and not work.done:
            return STARTING
        if self._start_error is not None:
            return "failed"
        status = str(self._deployment.status)
        return self._found if status == "created" and self._found is not None else status

    @property
    def standing(self) -> str:
        """The status, and whether it is detached, for people."""
        return f"{self.status}, detached" if self.detached else self.status

    @property
    def log(self) -> Path | None:
        """Where the process writes that drives a detached application; None: this process drives it."""
        apart = self._apart
        return None if apart is None else apart.mailbox.log

    @property
    def outdated(self) -> bool:
        """Whether another kernel has edited this detached application since it was attached here: `Session.attach` then looks anew."""
        apart = self._apart
        return apart is not None and bool(self.versions) and not apart.is_at(self.versions[-1].number)

    @property
    def error(self) -> KStreamsError | None:
        """Why it failed, the user's line first; None unless it did."""
        if isinstance(self._start_error, KStreamsError):
            return self._start_error
        error = self._deployment.error
        return None if error is None else with_source(error)

    @property
    def reports(self) -> ApplicationReport:
        """Records, rate, lag and restore progress of each instance and task, as they told last."""
        return self._deployment.reports

    @property
    def metrics(self) -> MetricsView:
        """What it measures, under Kafka Streams' names (docs/metrics.md); after an orderly end the last figures stay."""
        return MetricsView(self.name, self._deployment.metrics)

    def node_rates(self) -> dict[str, NodeRate]:
        """Records and records per second by node: of every node at ``metrics.recording.level=DEBUG``, else of the sources."""
        return node_rates(self.topology, self._deployment.metrics, self.reports)

    @property
    def bootstrap_servers(self) -> str:
        return self.session.bootstrap_servers

    def describe(self) -> TopologyDescription:
        """The topology as Kafka Streams' ``describe()`` prints it."""
        return self.topology.describe()

    def picture(self) -> Picture:
        """The topology with what is known of its nodes and stores at the moment."""
        return picture_of(self.topology, title=f"{self.name} ({self.status})", marks=marks_of(self, self._rates))

    def store(self, name: str) -> StoreView:
        """A store, for reading; live while the application runs.

        Raises:
            TopologyError: the topology has no store of that name.
        """
        return StoreView(self, self.topology.store(name))

    @property
    def stores(self) -> dict[str, StoreView]:
        """All stores by name."""
        return {builder.name: StoreView(self, builder) for builder in all_stores(self)}

    def sql(self, query: str, **options: Any) -> SqlResult:
        """`Session.sql`; a store's name alone means ``SELECT * FROM`` it."""
        if query.strip() in self.stores:
            query = f"SELECT * FROM {quote_identifier(f'application {self.name}')}.{quote_identifier(query.strip())}"
        return self.session.sql(query, **options)

    def peek(self, node: Any, n: int = 10, *, seconds: float = 5.0) -> Records:
        """The next `n` values that a node puts out (a sink: takes in), from the running tasks; fewer when `seconds` are over first.

        A tap is put on the tasks for that long and taken off again; it is bounded in rows, bytes and rate, and changes nothing else.
        Values come as plain ones (numbers, texts, lists, dicts), others as their text. What does not run is sampled as by `Session.peek`.

        Args:
            node: its name, or the stream or table.

        Raises:
            TopologyError: the application has no such node.

        Example:
            >>> app.peek("kept", n=3)        # doctest: +SKIP
        """
        name = node_name(self, node)
        if self.status != "running":
            found = self.session.peek(name, n, seconds=seconds, topology=self.topology, config=dict(self.config))
            assert isinstance(found, Records)
            return found
        return live_peek(self, name, n, seconds)

    def tail(self, node: Any, *, seconds: float | None = None) -> Iterator[ReadRecord]:
        """Values at a node of the running application, as they pass, until `seconds` are over or it is no longer looked at.

        Example:
            >>> for record in app.tail("kept", seconds=10):   # doctest: +SKIP
            ...     print(record.key, record.value)
        """
        return live_tail(self, node_name(self, node), seconds)

    @property
    def generation(self) -> int:
        """Which start, resume, edit or take-over of the application this is."""
        plan = self._deployment.plan
        return 0 if plan is None else plan.generation

    # ---- life

    def start(self) -> Application:
        """Deploy, or go on from what was committed; returns at once. What can be checked without Spark is checked first.

        Raises:
            UnknownTopicError, TopologyError, BrokerUnavailableError: as `spark.planning` tells.
            DeployError: it was deployed or attached anew, so that the session has another object for it.
        """
        if self.status in (STARTING, "running"):
            return self
        refuse_replaced(self)
        self._check()
        self.session._applications.setdefault(self.name, self)  # after a cleanup it was out of the session's sight
        self._take_what_changed()
        self._start_error = None
        self._starting = Work(self._control, self._deployment.start, name=f"deploy-{self.name}", on_error=self._start_failed)
        return self

    def resume(self) -> Application:
        """Go on after a pause, a stop, or a failure whose cause is mended; returns when the instances are being started.

        Resuming a running application does nothing.
        """
        self.start()
        self._finish_start()
        return self

    def edit(
        self,
        topology: Any,
        *,
        dry_run: bool = False,
        reset_state: Collection[str] = (),
        migrate: Conversions | None = None,
        migrate_rows: Conversions | None = None,
    ) -> EditPlan:
        """Go on with another topology: functions changed, nodes added or taken out. The plan says what that does to nodes and state.

        Applied at a commit boundary: state and offsets are kept, and under exactly once no record is lost or seen twice. An application
        that is paused or stopped takes the new topology when it is resumed.

        Args:
            topology: the builder (changed meanwhile), a topology, a stream or table.
            dry_run: only make the plan.
            reset_state: names of stores that begin empty with this edit; their rows and changelogs are deleted. The tasks that hold
                them read their other stores' changelogs again.
            migrate: by name of a key-value, window or session store, a function of (key, value) that gives each row's new value (None
                deletes it), for the new value serde or shape; the key of a window is a `Windowed`. It runs here, once per row; all rows
                and the version are put in force in one transaction.
            migrate_rows: by name of a key-value store, a function of (key, value) that gives each row's new (key, value), for another key
                serde or shape. A row stays in its partition: a key that belongs to another one is refused.

        Raises:
            TopologyError: rows of a store would be read wrongly, or a store cannot be reset; the plan is in ``plan``, the ways
                out are in the hint.
        """
        built = topology_of(topology, self.config)
        stores = (reset_state,) if isinstance(reset_state, str) else tuple(reset_state)
        plan = EditPlan(self, built, topology, reset_state=stores, migrate=migrate, migrate_rows=migrate_rows)
        if dry_run:
            return plan
        return plan.apply()

    def changes(self) -> EditPlan | None:
        """The edit that would bring what runs to what the notebook's builder says now; None when it says the same, or cannot be built."""
        if self.definition is None:
            return None
        try:
            plan = EditPlan(self, topology_of(self.definition, self.config), self.definition)
        except KStreamsError:  # cells that do not fit together yet: there is nothing to compare with
            return None
        self.stale = frozenset(node.name for node in plan.diff.nodes if node.change not in (NodeChange.UNCHANGED, NodeChange.NEW))
        return None if plan.diff.empty else plan

    def rollback(self, *, migrate: Conversions | None = None, migrate_rows: Conversions | None = None) -> EditPlan:
        """Edit back to the version before this one; the version that is left goes into the history, too.

        Args:
            migrate, migrate_rows: as `edit`: functions that lead back, for stores whose rows this version has converted.

        Raises:
            KStreamsError: this is the first version.
            TopologyError: a converted store has no function that leads back.
        """
        versions = self._history.versions
        if len(versions) < 2:
            raise KStreamsError(f"{self.name} is at its first version", hint="there is nothing to go back to")
        before = versions[-2]
        for store in set(versions[-1].migrated) - {*(migrate or {}), *(migrate_rows or {})}:
            raise TopologyError(
                f"version {versions[-1].number} has converted the rows of store {store!r}, which version {before.number} cannot read",
                hint=f"app.rollback(migrate={{{store!r}: function of key and value}}) converts them back (migrate_rows=, if it were rows)",
                store=store,
            )
        saved = self._history.saved(before.number)
        program = Program("", ("its text",)) if saved is None else Program(saved.text.partition("\n")[2], saved.missing)
        topology = self._history.as_it_ran(before, self.config)
        return EditPlan(self, topology, topology, program, migrate=migrate, migrate_rows=migrate_rows).apply()

    def export(self, folder: str | os.PathLike[str], *, records: int = 200) -> Path:
        """Write a small Python package: ``app.py`` (the topology; ``python app.py`` deploys it) and a test made from a recording.

        The test replays the first `records` records of each source topic and compares with what the topology makes of them now.

        Raises:
            KStreamsError: the source text of what runs is not complete (`versions`).

        Example:
            >>> app.export("word-count")      # doctest: +SKIP
        """
        from kstreams_repl.session.exporting import export

        return export(self, folder, records=records)

    def pause(self) -> Application:
        """Stop at a commit boundary: returns when everything processed is committed. Pausing twice does nothing."""
        self._finish_start()
        self._run(self._deployment.pause)
        return self

    def stop(self) -> Application:
        """As `pause`, and let go of everything it holds. Its topics, offsets and state stay: `resume` goes on."""
        if self._starting is not None:
            self._starting.wait()
        self._run(self._deployment.stop)
        self._start_error = None
        return self

    def _abandon(self) -> None:
        """Let go of it where no broker is left to commit to."""
        if self._starting is not None:
            self._starting.wait()
        self._run(self._deployment.abandon)

    def wait(self, seconds: float | None = None, *, until: Callable[[Application], bool] | None = None) -> bool:
        """Wait until a condition holds; without one, until everything that is on its topics has been processed and committed. A start
        that takes longer than a second is reported.

        Returns:
            False when the time was over first, or the application was paused or stopped.

        Raises:
            ApplicationFailedError and others: the application failed; the error is its own.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        condition = until or CaughtUp()
        progress = Patience(self.session.report, f"{self.name} starts, and Spark if it does not run yet", f"{self.name} runs")
        while True:
            progress.look(self._starting is not None and not self._starting.done)
            if self.status == "failed":
                raise self.error or DeployError(f"{self.name} failed")
            if condition(self):
                return True
            at_rest = self.status in ("paused", "stopped")  # a failure that came meanwhile is raised in the next round
            if at_rest or (deadline is not None and time.monotonic() >= deadline and self.status != "failed"):
                return False
            time.sleep(0.05)

    def remaining(self) -> int:
        """How many records of its topics, repartition topics included, are not processed and committed yet."""
        return remaining_records(self.session.admin, self.name, self.topology)

    # ---- showing

    def __repr__(self) -> str:
        told = self.reports if self.status in ("running", "paused") else None
        lag = "unknown" if told is None or told.lag < 0 else told.lag
        numbers = f", {told.records:,} records, lag {lag}" if told is not None and told.instances else ""
        instances = "" if told is None else f", {len(told.instances)} instances"
        reason = "" if self.error is None else f", {one_line(self.error.message.splitlines()[0], limit=120)}"
        return f"Application({self.name!r}, {self.standing}{instances}{numbers}{reason})"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        note = repr(self) if self.error is None else f"{self!r}\n{self.error}"
        return mimebundle(self.picture(), text_of(self.topology), note=note)

    # ---- inside

    def _check(self) -> None:
        check(self.session.admin, self.topology, self.name, self.config)

    def _take_what_changed(self) -> None:
        """A start that is no resume sends the functions anew, with the notebook's values as they are now: that is another version, for an
        attach or a rollback would bring other ones. A process that drives it has their text only, so it gets them as a version or not.
        """
        apart = self._apart
        if self.status == "paused" or (apart is not None and apart.mailbox.driven is not None):
            return
        code = whole_code(self.topology)
        if code == self.ran:
            return
        program = self._as_defined(code)
        if program is not None:
            self._deployment.version = self._history.keep(program, self.topology, self.config)
        if program is not None or apart is None:
            self.ran = code

    def _as_defined(self, code: Any) -> Program | None:
        """The program of what it was deployed or edited with, if that says what is about to run, and is complete."""
        if self.definition is None:
            return None
        try:
            built = topology_of(self.definition, self.config)
        except KStreamsError:
            return None
        if str(built.describe()) != str(self.topology.describe()) or whole_code(built) != code:
            return None
        program = program_of(self.definition, self.topology, self.session.variables)
        return None if program.missing else program

    def _start_failed(self, error: BaseException) -> None:
        self._start_error = error

    def _finish_start(self) -> None:
        work = self._starting
        if work is not None:
            work.wait()
            if self._start_error is not None:
                raise self._start_error

    @property
    def _apart(self) -> DetachedDeployment | None:
        return cast("DetachedDeployment", self._deployment) if self.detached else None

    def _replace(
        self,
        topology: Topology,
        program: Program,
        emptied: tuple[str, ...] = (),
        migrations: Sequence[Migration] = (),
        *,
        definition: Any = None,
    ) -> None:
        """Step 3 of an edit, all of it on the control thread: what was begun is finished here, too, when the waiting is interrupted.

        Args:
            emptied: changelogs of the stores that are reset.
            migrations: the stores whose rows are converted.
            definition: what the application is from now on compared with; None: as before.
        """
        refuse_replaced(self)
        if self._starting is not None:
            self._starting.wait()
        self._run(lambda: self._put_in_place(topology, program, emptied, migrations, definition))

    def _put_in_place(
        self, topology: Topology, program: Program, emptied: tuple[str, ...], migrations: Sequence[Migration], definition: Any
    ) -> None:
        history, apart = self._history, self._apart
        more = {"migrations": migrations} if migrations else {}
        with nullcontext() if apart is None else apart.editing(history.versions[-1].number):
            count = len(history.versions)
            text = history.keep(program, topology, self.config, migrated=[migration.store for migration in migrations])
            try:
                self._deployment.replace(topology, version=text, emptied=emptied, **more)
            except Exception:
                if (
                    self._deployment.topology is topology
                ):  # its rows are converted: it stays, to be started when what hinders it is mended
                    self.topology = topology
                elif len(history.versions) > count:
                    history.forget_last()
                raise
        self.topology = topology
        self.ran = whole_code(topology)
        self.definition = definition if definition is not None else self.definition
        self.stale = frozenset()
        self._start_error = None
        self.session._learn(self)

    def _run(self, call: Callable[[], Any]) -> None:
        work = Work(self._control, call, name=f"control-{self.name}")
        work.wait()
        if work.error is not None:
            raise work.error
