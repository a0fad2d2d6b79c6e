"""`run_instance`: one slot for one epoch. The same function for an epoch of the Spark host, a bounded batch job and tests.

Actors: the *handover*, when the runner of the last epoch continues and this one only attends it; the instance that this process
*kept*; the take-over when there is none or its state has changed; the poll loop. Four kinds of errors: a user's error ends the
application (FAILED); being fenced while this generation is in force, or a commit with unknown result, means to close everything
and take the tasks over again (RECOVERING); a higher generation means to leave at once (SUPERSEDED); an unavailable broker is
waited for. The states are in `lifecycle.RunnerState`.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress

from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.instance.control.channel import InstanceControl, Signal
from kstreams_repl.host.instance.control.node_taps import TapBoard
from kstreams_repl.host.instance.control.retry_orders import RetryBoard
from kstreams_repl.host.instance.epochs.epoch_handover import Epoch, EpochHandover, IdleEpochLimit
from kstreams_repl.host.instance.epochs.instance_cache import InstanceCache
from kstreams_repl.host.instance.epochs.lifecycle import RunnerLifecycle, RunnerState
from kstreams_repl.host.instance.failures.crash_watchdog import CrashWatchdog
from kstreams_repl.host.instance.failures.failure_report import failure_of
from kstreams_repl.host.instance.failures.retries import SlotRetries
from kstreams_repl.host.instance.initialization.task_activation import activate_restored
from kstreams_repl.host.instance.initialization.task_initialization import Interrupted, open_instance
from kstreams_repl.host.instance.instance import Instance
from kstreams_repl.host.instance.polling.poll_loop import PollLoop
from kstreams_repl.host.instance.polling.processing_threads import ThreadedPollLoop
from kstreams_repl.host.instance.process.gc_tuning import free_closed
from kstreams_repl.host.instance.reports.epoch_result import EpochResult
from kstreams_repl.host.instance.reports.slot_reporter import SlotReporter, running_state
from kstreams_repl.host.kafka.delivery_errors import ClientError, end_of_client
from kstreams_repl.system.errors import (
    BrokerUnavailableError,
    KStreamsError,
    OutputRetryError,
    ProducerFencedError,
    TaskMigratedError,
    is_interrupt,
)
from kstreams_repl.system.log_context import about

_LOG = logging.getLogger("kstreams_repl.host.instance")


def run_instance(
    plan: ApplicationPlan,
    slot: int,
    *,
    until: float,
    control: InstanceControl,
    executor: str = "driver",
    cache: InstanceCache | None = None,
    own_process: bool = False,
    idle_limit: IdleEpochLimit | None = None,
) -> EpochResult:
    """Run the slot's tasks until the monotonic time `until` or a signal.

    Args:
        cache: instances between epochs, running or idle; None closes the instance at the end.
        own_process: this process is dedicated to the slot and restarted when it dies: user code that does not return may end it,
            and the death of the previous process is examined (`crash_watchdog`).
        idle_limit: for an epoch without records, where the runner continues between epochs; None: it ends at its deadline.

    Returns:
        The result; a user's error is part of it and is never raised.
    """

    def runner(epoch: Epoch) -> _Runner:
        watchdog = CrashWatchdog(plan, slot, executor) if own_process else None
        return _Runner(plan, slot, control, executor, cache, epoch, watchdog)

    def run(epoch: Epoch) -> EpochResult:
        result = runner(epoch).run()
        if RunnerState(result.state).is_final:
            free_closed()  # no variable here refers to the runner, which refers to the clients
        return result

    lock = None if cache is None or plan.config["num.processing.threads"] > 1 else control.loop_lock()
    if cache is None or lock is None:
        return run(Epoch(until))
    former = cache.handover(plan, slot)
    if former is not None:
        result = former.attend(until, idle_limit)
        if result is not None:
            return result
    end_holder = not plan.config.exactly_once
    handover = EpochHandover(plan.generation, slot, until, run, lock=lock, end_holder=end_holder, former=former, idle_limit=idle_limit)
    cache.register(plan, handover)
    return handover.begin()


class _Runner:
    """One run of a slot: opens its instance, polls, recovers from errors, and ends with a result."""

    def __init__(
        self,
        plan: ApplicationPlan,
        slot: int,
        control: InstanceControl,
        executor: str,
        cache: InstanceCache | None,
        epoch: Epoch,
        watchdog: CrashWatchdog | None,
    ) -> None:
        self._plan = plan
        self._slot = slot
        self._control = control
        self._executor = executor
        self._cache = cache
        self._epoch = epoch
        self._watchdog = watchdog
        life = RunnerLifecycle(plan.application_id, slot, plan.generation) if cache is None else cache.lifecycle(plan, slot)
        self._reporter = SlotReporter(plan, slot, control, executor, life, epoch.carried)
        self._retries = SlotRetries(plan.application_id, slot)
        self._instance: Instance | None = None
        self._loop: PollLoop | None = None

    def run(self) -> EpochResult:
        """Run until the end of the epoch, or of the handover. Never raises a user's error: it is part of the result."""
        about(self._plan.application_id, self._slot)
        try:
            return self._run()
        except BaseException as error:  # including sys.exit() in user code outside of any task
            if is_interrupt(error):
                raise
            self._drop()
            failure = failure_of(error)
            self._reporter.write(RunnerState.FAILED, {"failure": failure}, f"{type(error).__name__}: {error}")
            return self._reporter.result(RunnerState.FAILED, failure=failure)
        finally:
            if self._watchdog is not None:
                self._watchdog.rest()

    def _run(self) -> EpochResult:
        epoch = self._epoch
        checked = False
        while True:
            try:
                if not checked:
                    signal = self._control.signal()
                    if signal is not Signal.RUN:
                        return self._stay_at_rest(signal)
                    checked = True
                self._open()
                signal = self._poll()
                if signal is Signal.RUN:
                    self._activate_restored()
                    if epoch.may_restart():
                        if self._is_calm():
                            assert self._instance is not None
                            self._instance.collector.tables.finish()  # a stop before it is open again finds no instance to do it
                            self._drop()
                        continue
                return self._finish(signal)
            except Interrupted:
                self._drop()
                return self._end(self._signal())
            except (KStreamsError, ClientError) as raised:
                error = raised if isinstance(raised, KStreamsError) else end_of_client(raised)
                if error is None:
                    raise
                if epoch.rejected.goes_on(error):
                    _LOG.warning("reprocessing the open commit record by record to find the rejected output: %s", error)
                    self._drop()
                    if epoch.must_end():
                        return self._reporter.result(RunnerState.RUNNING)
                    continue
                if not self._retries.allow(error):
                    raise
                self._drop()
                result = self._recover(error)
                if result is not None:
                    return result

    def _recover(self, error: KStreamsError) -> EpochResult | None:
        """Return the result if the run ends with this error; None after a delay if it continues."""
        signal = self._signal(error)
        if signal is not Signal.RUN:
            if signal is not Signal.SUPERSEDED:
                _LOG.warning("%s after an error; the next start completes what it left: %s", signal.value, error)
            return self._end(signal)
        if self._epoch.must_end() or not self._epoch.may_restart():
            return self._reporter.result(RunnerState.RUNNING)
        self._reporter.error = str(error)
        self._retries.log(error)
        self._reporter.report(RunnerState.RECOVERING, None)
        self._retries.wait(self._epoch.until)
        return None

    def _signal(self, error: KStreamsError | None = None) -> Signal:
        """Return the current signal. On a cluster it cannot be read while the broker is unavailable; then the last command holds.
        """
        fenced, control = isinstance(error, ProducerFencedError | OutputRetryError), self._control
        try:
            return control.signal_when_fenced() if fenced else control.signal()
        except BrokerUnavailableError:
            return control.signal(now=time.monotonic())

    # ---- the instance

    def _open(self) -> None:
        if self._instance is not None:
            return
        epoch, cache = self._epoch, self._cache
        instance = None if cache is None else cache.take(self._plan, self._slot, lambda: self._in_force(time.monotonic()))
        if instance is not None:
            epoch.rejected = instance.collector.rejected
            self._watchdog = instance.watchdog
            if self._watchdog is not None:
                self._watchdog.arm()
        else:
            if self._watchdog is not None:
                self._watchdog.begin()
            self._reporter.opening()
            instance = open_instance(
                self._plan,
                self._slot,
                in_force=self._in_force,
                executor=self._executor,
                progress=self._reporter.report_restoring,
                stage=self._reporter.report_stage,
                rejected=epoch.rejected,
                go_on=lambda: self._in_force(time.monotonic()),
                opened={} if cache is None else cache.take_environments(self._plan.application_id),
                watchdog=self._watchdog,
                in_background=not (epoch.rejected.careful or self._is_traced()),
            )
        self._instance = instance
        if instance.taps is None:
            instance.taps = TapBoard(self._control.taps, self._control.generation, self._slot)
            instance.retries = RetryBoard(self._control.orders)
        self._reporter.opened(instance)

    def _poll(self) -> Signal:
        assert self._instance is not None
        inline = self._plan.config["num.processing.threads"] == 1 or self._is_traced() or self._instance.bounds is not None
        aligned, slots = self._instance.alignment, self._plan.instances
        peers = None if aligned is None or slots < 2 else self._control.event_times(slots, aligned.groups)
        loop = PollLoop if inline else ThreadedPollLoop
        self._loop = loop(self._instance, signal=self._check, report=self._report, peers=peers)
        try:
            return self._loop.run(self._deadline())
        finally:
            self._loop = None

    def _activate_restored(self) -> None:
        """Activate the tasks that have been restored since. Call at a commit."""
        instance = self._instance
        assert instance is not None
        if instance.updater is not None and instance.updater.due:
            self._reporter.add_progress(instance.updater.progress, instance)
            activate_restored(instance)

    def _drop(self) -> None:
        """Close the instance in whatever state it is."""
        instance, self._instance = self._instance, None
        self._reporter.closing(instance)
        if instance is not None:
            with suppress(Exception):  # the cause is known already
                instance.close()

    # ---- called in every round of the loop

    def _check(self, now: float) -> Signal:
        """Check whether an epoch is over or a new one has come; return the signal."""
        instance = self._instance
        assert self._loop is not None and instance is not None
        done = instance.counters.records + instance.take_over.restored
        self._epoch.check(now, lambda: self._reporter.take_result(instance), done)
        self._loop.until = self._deadline()
        return self._control.signal(now=now)

    def _deadline(self) -> float:
        """Return when the loop must end (monotonic): a careful or traced run is short, and restored tasks wait for a commit."""
        if self._instance is not None and self._instance.updater is not None and self._instance.updater.due:
            return 0.0
        epoch = self._epoch
        epoch.careful = epoch.rejected.careful or self._is_traced()
        until = epoch.rejected.bound(epoch.deadline())
        return until if self._watchdog is None else self._watchdog.bound(until)

    def _report(self, instance: Instance) -> None:
        if self._reporter.error is not None and instance.counters.commits:
            self._reporter.error = None
            self._retries.reset()
        self._reporter.report_running(instance)
        instance.collector.tables.poll(time.monotonic())

    def _is_traced(self) -> bool:
        return self._watchdog is not None and self._watchdog.careful

    def _is_calm(self) -> bool:
        """Return whether a careful or traced period is over."""
        over = self._epoch.rejected.calm()
        return (self._watchdog is not None and self._watchdog.calm()) or over

    def _in_force(self, now: float | None = None) -> bool:
        signal = self._control.signal(now=now)
        if signal is Signal.SUPERSEDED:
            return False
        if signal is not Signal.RUN:
            raise Interrupted("the application is to pause or stop")
        return True

    # ---- ends

    def _finish(self, signal: Signal) -> EpochResult:
        """End after a regular end of the loop: keep the instance for the next epoch, or close it."""
        instance = self._instance
        assert instance is not None
        self._reporter.closing(instance, orderly=True)
        if signal is not Signal.SUPERSEDED and (signal is not Signal.RUN or self._cache is None):
            instance.collector.tables.finish()
        state, warm = RunnerState(signal.value), instance.warm
        if signal in (Signal.RUN, Signal.PAUSE) and self._cache is not None:
            self._cache.put(instance)
            self._reporter.report(running_state(instance) if signal is Signal.RUN else state, instance)
            self._instance = None
        else:
            figures, self._instance = self._reporter.figures(instance), None
            with suppress(TaskMigratedError, ProducerFencedError):  # a successor owns the tasks: no orderly close is needed
                instance.close()
            self._reporter.write(state, figures)
        return self._reporter.result(state, warm=warm)

    def _stay_at_rest(self, signal: Signal) -> EpochResult:
        """End an epoch that begins while the application is to rest: Spark starts one more before the driver has stopped the
        query. A failure that this generation reported stays: another kernel knows of it by this report alone.
        """
        if signal is not Signal.PAUSE and self._cache is not None:
            self._cache.close_idle(self._plan.application_id)
        state = RunnerState(signal.value)
        return self._reporter.result(state) if self._control.has_reported(state, RunnerState.FAILED) else self._end(signal)

    def _end(self, signal: Signal) -> EpochResult:
        """End without an instance, after a signal; one that was withdrawn meanwhile ends the run all the same."""
        state = RunnerState.SUPERSEDED if signal is Signal.RUN else RunnerState(signal.value)
        self._reporter.report(state, None)
        return self._reporter.result(state)
