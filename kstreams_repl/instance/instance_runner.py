"""`run_instance`: one slot for one stretch of time. The same function for an epoch of the Spark host, a bounded batch job and
tests.

Actors: the *bridge*, when the runner of the last stretch continues and this one only attends it; the *warm* instance that this
process kept; the take-over when there is none or its state has changed; the loop. Four kinds of errors: a user's error ends the
application (FAILED); being fenced while this generation is in force, or a commit with unknown result, means to close everything
and take the tasks over again; a higher generation means to leave at once; an unavailable broker is waited for.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kstreams_repl.errors import (
    BrokerUnavailableError,
    KStreamsError,
    OutputRetryError,
    ProducerFencedError,
    TaskMigratedError,
    is_interrupt,
)
from kstreams_repl.instance import lifecycle
from kstreams_repl.instance.application_plan import ApplicationPlan
from kstreams_repl.instance.background_threads import CLEANUP_THREAD, METRICS_THREAD
from kstreams_repl.instance.control.channel import InstanceControl, Signal
from kstreams_repl.instance.control.node_taps import TapBoard
from kstreams_repl.instance.epoch_handover import Attendance, Bridge, Patience
from kstreams_repl.instance.epoch_result import Done, Outcome
from kstreams_repl.instance.failures.crash_watchdog import CrashWatch
from kstreams_repl.instance.failures.rejected_records import Refusals
from kstreams_repl.instance.gc_tuning import free_closed
from kstreams_repl.instance.instance import Instance
from kstreams_repl.instance.instance_cache import WarmInstances
from kstreams_repl.instance.log_throttle import Complaints
from kstreams_repl.instance.metrics.instance_metrics import InstanceMeter
from kstreams_repl.instance.metrics.report_metrics import Figures
from kstreams_repl.instance.polling.poll_loop import Ending, Loop, failure_of
from kstreams_repl.instance.polling.processing_threads import ThreadedLoop
from kstreams_repl.instance.state.changelog_reader import RestoreProgress
from kstreams_repl.instance.state.state_cleanup import clean_application
from kstreams_repl.instance.tasks.task_activation import admit
from kstreams_repl.instance.tasks.task_initialization import Interrupted, open_instance
from kstreams_repl.kafka.delivery_errors import ClientError, end_of_client
from kstreams_repl.kafka.transactional import TransactionDoubtError
from kstreams_repl.log_context import about

_LOG = logging.getLogger("kstreams_repl.instance")
_AGAIN = (TransactionDoubtError, BrokerUnavailableError, ProducerFencedError, TaskMigratedError, OutputRetryError)
_MOST_RETRIES = 10
"""Maximum retries after errors that are not known to be transient, without a commit in between."""
_COMPLAINTS = Complaints()
"""Of the whole process: a runner ends with its epoch, while a broker may be unavailable for many epochs."""
_CLEANUP_LEAST_SECONDS = 1.0
_BACKOFF_SECONDS = 0.1
_BACKOFF_MOST_SECONDS = 2.0


_CLOSED = frozenset({"stopped", "superseded", "failed"})
_REST = {Signal.PAUSE: "paused", Signal.STOP: "stopped"}
_STATES = {Ending.DEADLINE: "running", Ending.PAUSED: "paused", Ending.STOPPED: "stopped", Ending.SUPERSEDED: "superseded"}


def run_instance(
    plan: ApplicationPlan,
    slot: int,
    *,
    until: float,
    control: InstanceControl,
    executor: str = "driver",
    warm: WarmInstances | None = None,
    own_process: bool = False,
    patience: Patience | None = None,
) -> Outcome:
    """Run the slot's tasks until the monotonic time `until` or a signal.

    Args:
        warm: cache of instances between stretches, running or idle; None closes the instance at the end.
        own_process: this process is dedicated to the slot and restarted when it dies: user code that does not return may end it,
            and the death of the previous process is examined (`crash_watchdog`).
        patience: for an epoch without records, where the runner continues between epochs; None: it ends at its deadline.

    Returns:
        The outcome; a user's error is part of it and is never raised.
    """

    def runner(attendance: Attendance) -> _Runner:
        watch = CrashWatch(plan, slot, executor) if own_process else None
        return _Runner(plan, slot, control, executor, warm, attendance, watch)

    def run(attendance: Attendance) -> Outcome:
        outcome = runner(attendance).run()
        if outcome.state in _CLOSED:
            free_closed()
        return outcome

    lock = None if warm is None or plan.config["num.processing.threads"] > 1 else control.loop_lock()
    if warm is None or lock is None:
        return run(Attendance(until))
    former = warm.bridge(plan, slot)
    if former is not None:
        outcome = former.attend(until, patience)
        if outcome is not None:
            return outcome
    end_holder = not plan.config.exactly_once
    bridge = Bridge(plan.generation, slot, until, run, lock=lock, end_holder=end_holder, former=former, patience=patience)
    warm.run(plan, bridge)
    return bridge.begin()


class _Runner:
    def __init__(
        self,
        plan: ApplicationPlan,
        slot: int,
        control: InstanceControl,
        executor: str,
        warm: WarmInstances | None,
        attendance: Attendance,
        watch: CrashWatch | None,
    ) -> None:
        self.plan = plan
        self.slot = slot
        self.control = control
        self.executor = executor
        self.keep = warm
        self.instance: Instance | None = None
        self._attendance = attendance
        self._loop: Loop | None = None
        self._done = Done(attendance.carried)
        self._began = time.monotonic()
        self._figures = Figures()
        self._restored: dict[str, int] = {}
        """Reported changelog records of the restore in progress."""
        self._restore_told: RestoreProgress | None = None
        self._trouble: str | None = None
        self._retries = 0
        self._meter: InstanceMeter | None = None
        self._watch = watch

    @property
    def _refusals(self) -> Refusals:
        return self._attendance.refusals

    def run(self) -> Outcome:
        """Run the stretch. Never raises a user's error: it is part of the outcome."""
        about(self.plan.application_id, self.slot)
        try:
            return self._run()
        except BaseException as error:  # including sys.exit() in user code outside of any task
            if is_interrupt(error):
                raise
            self.drop()
            failure = failure_of(error)
            self._enter("failed", f"{type(error).__name__}: {error}")
            self.control.report({"state": "failed", "failure": failure, **self.figures()})
            return self.outcome("failed", failure=failure)
        finally:
            if self._watch is not None:
                self._watch.rest()

    def _run(self) -> Outcome:
        attendance = self._attendance
        backoff = _BACKOFF_SECONDS
        looked = False
        while True:
            try:
                if not looked:
                    signal = self.control.signal()
                    if signal is not Signal.RUN:
                        return self._at_rest(signal)
                    looked = True
                self._open()
                assert self.instance is not None
                inline = self.plan.config["num.processing.threads"] == 1 or self._watch is not None and self._watch.careful
                kind = Loop if inline else ThreadedLoop
                self._loop = kind(self.instance, signal=self._look, report=self._report)
                try:
                    ending = self._loop.run(self._bound())
                finally:
                    self._loop = None
                if ending is Ending.DEADLINE:
                    self._admit()
                if ending is Ending.DEADLINE and attendance.lasts():
                    if self._calm():
                        self.drop()
                    continue
                return self._finish(ending)
            except Interrupted:
                self.drop()
                return self._ended(self._wanted())
            except (KStreamsError, ClientError) as raised:
                error = raised if isinstance(raised, KStreamsError) else end_of_client(raised)
                if error is None:
                    raise
                if self._refusals.goes_on(error):
                    _LOG.warning("reprocessing the open commit record by record to find the rejected output: %s", error)
                    self.drop()
                    if attendance.leaves():
                        return self.outcome("running")
                    continue
                if not isinstance(error, _AGAIN) and (type(error) is not KStreamsError or self._retries >= _MOST_RETRIES):
                    raise
                self._retries += 1
                self.drop()
                signal = self._wanted(error)
                if signal is not Signal.RUN:
                    return self._ended(signal)
                if attendance.leaves() or not attendance.lasts():
                    return self.outcome("running")
                self._trouble = str(error)
                self._complain(error)
                self._tell("recovering")
                time.sleep(min(backoff, max(0.0, attendance.until - time.monotonic())))
                backoff = min(2 * backoff, _BACKOFF_MOST_SECONDS)

    def _wanted(self, error: KStreamsError | None = None) -> Signal:
        """Return the current signal. On a cluster it cannot be read while the broker is unavailable; then the last command holds.
        """
        fenced, control = isinstance(error, ProducerFencedError | OutputRetryError), self.control
        try:
            return control.signal_when_fenced() if fenced else control.signal()
        except BrokerUnavailableError:
            return self.control.signal(now=time.monotonic())

    def _complain(self, error: KStreamsError) -> None:
        name, cause = self.plan.application_id, type(error).__name__
        times = _COMPLAINTS.due((name, self.slot, cause), time.monotonic())
        if times is not None:
            often = "" if times == 1 else f" ({cause}: {times} times since it was last told)"
            what = "fenced by a newer owner" if isinstance(error, ProducerFencedError | TaskMigratedError) else cause
            _LOG.warning("%s, retry %d: re-initializing the tasks%s: %s", what, self._retries, often, error)

    def drop(self) -> None:
        """Close the instance in whatever state it is; the cause is known already."""
        instance, self.instance = self.instance, None
        self._measured()
        if instance is not None:
            self._done.count(instance.tasks, {})
            with suppress(Exception):
                instance.close()

    def outcome(self, state: str, *, failure: dict[str, Any] | None = None, warm: bool = False) -> Outcome:
        """Return the result of this stretch."""
        return Outcome(self.slot, state, self._done.by_task(), failure, warm, time.monotonic() - self._began)

    # ---- steps

    def _look(self, now: float) -> Signal:
        """Check in every round of the loop whether an epoch is over or a new one has come; return the signal."""
        attendance, instance = self._attendance, self.instance
        assert self._loop is not None and instance is not None
        attendance.look(now, self._turn, instance.totals.records + instance.restored)
        self._loop.until = self._bound()
        return self.control.signal(now=now)

    def _admit(self) -> None:
        """Admit the tasks that have been restored since. Call at a commit."""
        instance = self.instance
        assert instance is not None
        if instance.updater is not None and instance.updater.due:
            self._restore_progress(instance.updater.progress)
            admit(instance)

    def _bound(self) -> float:
        """Return when the loop must end (monotonic): a careful or traced stretch is short, and restored tasks wait for a commit.
        """
        if self.instance is not None and self.instance.updater is not None and self.instance.updater.due:
            return 0.0
        watch, refusals, attendance = self._watch, self._refusals, self._attendance
        attendance.careful = refusals.careful or watch is not None and watch.careful
        until = refusals.bound(attendance.bound())
        return until if watch is None else watch.bound(until)

    def _turn(self) -> Outcome:
        """Return the result of an epoch after which the instance continues."""
        instance = self.instance
        assert instance is not None
        self._done.count(instance.tasks, instance.lags())
        outcome = self.outcome("running", warm=instance.warm)
        self._done.told()
        self._began, instance.warm = time.monotonic(), True
        return outcome

    def _open(self) -> None:
        if self.instance is not None:
            return
        kept = None if self.keep is None else self.keep.take(self.plan, self.slot, lambda: self._in_force(time.monotonic()))
        if kept is not None:
            self.instance = kept
            self._measure(kept.meter)
            self._restored = {} if kept.updater is None else kept.updater.told
            self._attendance.refusals = kept.collector.refusals
            self._watch = kept.watch
            if self._watch is not None:
                self._watch.arm()
        else:
            if self._watch is not None:
                self._watch.begin()
            self._measure(InstanceMeter(self.plan, self.slot))
            self._tell("restoring")
            self._restored = {}
            self.instance = open_instance(
                self.plan,
                self.slot,
                in_force=self._in_force,
                executor=self.executor,
                progress=self._restoring,
                stage=self._stage,
                refusals=self._refusals,
                go_on=lambda: self._in_force(time.monotonic()),
                spares={} if self.keep is None else self.keep.take_spares(self.plan.application_id),
                watch=self._watch,
                beside=not (self._refusals.careful or self._watch is not None and self._watch.careful),
            )
            if self.instance.updater is not None:
                self.instance.updater.told = self._restored
        if self.instance.taps is None:
            self.instance.taps = TapBoard(self.control.taps, self.control.generation, self.slot)
        assert self._meter is not None
        self.instance.meter = self._meter
        self._meter.attach(self.instance)
        self._done.begin(self.instance.tasks)
        self._figures.begin(self.instance)

    def _calm(self) -> bool:
        """Return whether a careful or traced period is over."""
        over = self._refusals.calm()
        return (self._watch is not None and self._watch.calm()) or over

    def _in_force(self, now: float | None = None) -> bool:
        signal = self.control.signal(now=now)
        if signal is Signal.SUPERSEDED:
            return False
        if signal is not Signal.RUN:
            raise Interrupted("the application is to pause or stop")
        return True

    def _finish(self, ending: Ending) -> Outcome:
        instance = self.instance
        assert instance is not None
        self._done.count(instance.tasks, instance.lags())
        self._measured(instance)
        was_warm = instance.warm
        state = _STATES[ending]
        if ending in (Ending.DEADLINE, Ending.PAUSED) and self.keep is not None:
            self.keep.put(instance)
            self._tell(self._running() if ending is Ending.DEADLINE else state)
            self.instance = None
        else:
            figures = self.figures()
            self.instance = None
            with suppress(
                TaskMigratedError, ProducerFencedError
            ):  # there is a successor already: no part of this instance needs an orderly close
                instance.close()
            self._enter(state)
            self.control.report({"state": state, **figures})
        return self.outcome(state, warm=was_warm)

    def _at_rest(self, signal: Signal) -> Outcome:
        """End an epoch that begins while the application is to rest: Spark starts one more before the driver has stopped the
        query.
        """
        if signal is not Signal.PAUSE and self.keep is not None:
            self.keep.close_resting(self.plan.application_id)
        state = _REST.get(signal, "superseded")
        if not self.control.told(state):
            self._tell(state)
        return self.outcome(state)

    def _ended(self, signal: Signal) -> Outcome:
        state = _REST.get(signal, "superseded")
        self._tell(state)
        return self.outcome(state)

    # ---- metrics

    def _measure(self, meter: InstanceMeter) -> None:
        self._meter = meter
        config, control = self.plan.config, self.control
        METRICS_THREAD.watch(
            meter, config["repl.metrics.interval.ms"] / 1000, lambda: control.metrics(meter.snapshot().plain())
        )
        delay = config["state.cleanup.delay.ms"] / 1000
        plan, slot, executor = self.plan, self.slot, self.executor
        CLEANUP_THREAD.watch(
            (plan.application_id, slot), max(delay, _CLEANUP_LEAST_SECONDS), lambda: clean_application(plan, slot, executor)
        )

    def _measured(self, instance: Instance | None = None) -> None:
        """Stop measuring in this stretch; an instance that ended in order writes its exact final figures."""
        meter, self._meter = self._meter, None
        if meter is not None:
            METRICS_THREAD.forget(meter)
            CLEANUP_THREAD.forget((self.plan.application_id, self.slot), keep_turn=True)
            if instance is not None:
                meter.fold(final=True)
                self.control.metrics(meter.snapshot().plain())

    # ---- reports

    def figures(self, *, nodes: bool = False) -> dict[str, Any]:
        """Return the figures of the open instance for a report; empty without one."""
        return {} if self.instance is None else self._figures.of(self.instance, nodes=nodes)

    def _report(self, instance: Instance) -> None:
        if self._trouble is not None and instance.totals.commits:
            self._trouble, self._retries = None, 0
        assert instance.taps is not None
        instance.taps.serve([task.task for task in instance.tasks])
        if self._meter is not None:
            self._meter.fold()
        if instance.updater is not None:
            self._restore_progress(instance.updater.progress)
        self._enter(self._running())
        self.control.report({"state": self._running(), "trouble": self._trouble, **self.figures(nodes=True)})

    def _enter(self, state: str, why: str = "") -> None:
        lifecycle.enter(self.plan.application_id, self.slot, state, why or f"generation {self.plan.generation}")

    def _tell(self, state: str) -> None:
        self._enter(state)
        self.control.report({"state": state, "trouble": self._trouble, **self.figures(nodes=state == "running")})

    def _stage(self, name: str) -> None:
        self.control.report({"state": "restoring", "trouble": self._trouble, "stage": name})

    def _running(self) -> str:
        """Return the state of a running instance: RESTORING while some of its tasks restore, as in Kafka Streams."""
        return "running" if self.instance is None or self.instance.updater is None else "restoring"

    def _restoring(self, progress: RestoreProgress) -> None:
        self._restore_progress(progress)
        self.control.report({"state": "restoring", "restored": progress.records, "restore_remaining": progress.remaining})

    def _restore_progress(self, progress: RestoreProgress) -> None:
        if progress is self._restore_told:
            return
        self._restore_told = progress
        if self.instance is not None:
            self.instance.restored = progress.records
        if self._meter is not None:
            self._meter.restoring(progress)
        counts = {name: done for name, (done, _) in progress.tasks.items()}
        self._done.restored({name: done - self._restored.get(name, 0) for name, done in counts.items()})
        self._restored.update(counts)


Run = Callable[..., Outcome]
