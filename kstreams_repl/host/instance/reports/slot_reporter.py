"""What a runner says about its slot: its states in the log, reports for the driver, metrics, and the result of each epoch."""

from __future__ import annotations

import time
from collections.abc import Mapping

from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.instance.control.channel import InstanceControl
from kstreams_repl.host.instance.epochs.lifecycle import RunnerLifecycle, RunnerState
from kstreams_repl.host.instance.instance import Instance, wall_clock
from kstreams_repl.host.instance.metrics.instance_metrics import InstanceMetrics
from kstreams_repl.host.instance.metrics.report_metrics import ReportMetrics
from kstreams_repl.host.instance.polling.background_threads import CLEANUP_THREAD, METRICS_THREAD, SENDING_THREAD
from kstreams_repl.host.instance.reports.epoch_result import EpochResult, TaskResult, TaskWork
from kstreams_repl.host.instance.state.changelog_reader import RestoreProgress
from kstreams_repl.host.instance.state.state_cleanup import clean_application
from kstreams_repl.system.types import JsonMapping, JsonObject

_CLEANUP_LEAST_SECONDS = 1.0
_AT_REST_SECONDS = 5.0
"""Without a record for this long an instance is reported once a second, not several times: most of its processor time went into that."""
_REST_REPORT_SECONDS = 1.0


class SlotReporter:
    """The reports of one slot in one run.

    Args:
        carried: work of its tasks that no epoch has reported yet.

    Attributes:
        error: why the slot is recovering; None otherwise.
    """

    def __init__(
        self,
        plan: ApplicationPlan,
        slot: int,
        control: InstanceControl,
        executor: str,
        life: RunnerLifecycle,
        carried: Mapping[str, TaskResult],
    ) -> None:
        self._plan = plan
        self._slot = slot
        self._control = control
        self._executor = executor
        self._life = life
        self.error: str | None = None
        self._work = TaskWork(carried)
        self._began = time.monotonic()
        self._figures = ReportMetrics()
        self._metrics: InstanceMetrics | None = None
        self._progress: RestoreProgress | None = None
        self._restored: dict[str, int] = {}
        """Reported changelog records of the restore in progress."""
        self._work_seen: object = None
        self._worked_at = self._reported_at = 0.0

    # ---- an instance

    def opening(self) -> None:
        """Begin to measure and report an instance that is being opened."""
        self._measure(InstanceMetrics(self._plan, self._slot))
        self.report(RunnerState.RESTORING, None)
        self._restored = {}

    def opened(self, instance: Instance) -> None:
        """Follow an instance that was opened or kept between epochs."""
        if instance.metrics is None:  # just opened
            instance.metrics = self._metrics
            if instance.updater is not None:
                instance.updater.reported = self._restored
        else:
            self._measure(instance.metrics)
            self._restored = {} if instance.updater is None else instance.updater.reported
        assert self._metrics is not None
        self._metrics.attach(instance)
        self._work.begin(instance.tasks)
        self._figures.begin(instance)

    def closing(self, instance: Instance | None, *, orderly: bool = False) -> None:
        """Take the work of an instance that ends, or is kept, and stop measuring.

        Args:
            orderly: write its exact final figures.
        """
        metrics, self._metrics = self._metrics, None
        if instance is not None:
            self._work.add(instance.tasks, instance.input.lags() if orderly else {})
        if metrics is not None:
            METRICS_THREAD.forget(metrics)
            SENDING_THREAD.forget((self._plan.application_id, self._slot), keep_turn=True)
            CLEANUP_THREAD.forget((self._plan.application_id, self._slot), keep_turn=True)
            if orderly:
                metrics.fold(final=True)
                self._control.metrics(metrics.snapshot().plain())

    def _measure(self, metrics: InstanceMetrics) -> None:
        self._metrics = metrics
        config, control = self._plan.config, self._control
        METRICS_THREAD.watch(
            metrics, config["repl.metrics.interval.ms"] / 1000, lambda: control.metrics(metrics.snapshot().plain())
        )
        if metrics.sender is not None:
            SENDING_THREAD.watch((self._plan.application_id, self._slot), config["repl.otlp.interval.ms"] / 1000, metrics.send)
        delay = max(config["state.cleanup.delay.ms"] / 1000, _CLEANUP_LEAST_SECONDS)
        plan, slot, executor = self._plan, self._slot, self._executor
        CLEANUP_THREAD.watch((plan.application_id, slot), delay, lambda: clean_application(plan, slot, executor))

    # ---- reports

    def figures(self, instance: Instance | None, *, nodes: bool = False) -> JsonObject:
        """Return the figures of an instance for a report; empty without one."""
        return {} if instance is None else self._figures.of(instance, nodes=nodes)

    def report(self, state: RunnerState, instance: Instance | None) -> None:
        """Enter a state and report it with the instance's figures."""
        self.write(state, {"trouble": self.error, **self.figures(instance, nodes=state is RunnerState.RUNNING)})

    def write(self, state: RunnerState, content: JsonMapping, why: str = "", *, soon: bool = False) -> None:
        """Enter a state and report it with this content, with `soon` without waiting for the disk."""
        self._life.enter(state, why)
        self._control.report({"state": state.value, **content}, soon=soon)

    def report_running(self, instance: Instance) -> None:
        """Serve taps and orders, fold the metrics and report; called by the poll loop a few times a second."""
        assert instance.taps is not None and instance.retries is not None
        instance.taps.serve([task.task for task in instance.tasks])
        if instance.calls is not None:
            instance.retries.serve([task.task for task in instance.tasks], wall_clock())
        if self._may_wait(instance):
            return
        if self._metrics is not None:
            self._metrics.fold()
        if instance.updater is not None:
            self.add_progress(instance.updater.progress, instance)
        self.write(running_state(instance), {"trouble": self.error, **self.figures(instance, nodes=True)}, soon=True)

    def _may_wait(self, instance: Instance) -> bool:
        """Return whether nothing has happened for a while, and the last report is not old."""
        counters, now = instance.counters, time.monotonic()
        work = (counters.started_ms, counters.records, counters.poll_records.total, counters.commits, self.error)
        helpers = (instance.updater, instance.standbys, instance.snapshotter, instance.calls)
        if work != self._work_seen or any(helper is not None for helper in helpers):
            self._work_seen, self._worked_at = work, now
        if now - self._worked_at >= _AT_REST_SECONDS and now - self._reported_at < _REST_REPORT_SECONDS:
            return True
        self._reported_at = now
        return False

    def report_stage(self, name: str) -> None:
        """Report the step of the take-over that begins."""
        self._control.report({"state": RunnerState.RESTORING.value, "trouble": self.error, "stage": name})

    def report_restoring(self, progress: RestoreProgress) -> None:
        """Report the progress of a restore during the take-over."""
        self.add_progress(progress, None)
        self._control.report({
            "state": RunnerState.RESTORING.value, "restored": progress.records, "restore_remaining": progress.remaining,
        })  # fmt: skip

    def add_progress(self, progress: RestoreProgress, instance: Instance | None) -> None:
        """Take the progress of a restore."""
        if progress is self._progress:
            return
        self._progress = progress
        if instance is not None:
            instance.take_over.restored = progress.records
        if self._metrics is not None:
            self._metrics.restoring(progress)
        counts = {name: done for name, (done, _) in progress.tasks.items()}
        self._work.add_restored({name: done - self._restored.get(name, 0) for name, done in counts.items()})
        self._restored.update(counts)

    # ---- results

    def take_result(self, instance: Instance) -> EpochResult:
        """Return the result of an epoch after which the instance continues; the next epoch begins."""
        self._work.add(instance.tasks, instance.input.lags())
        result = self.result(RunnerState.RUNNING, warm=instance.warm)
        self._work.reset()
        self._began, instance.warm = time.monotonic(), True
        return result

    def result(self, state: RunnerState, *, failure: JsonObject | None = None, warm: bool = False) -> EpochResult:
        """Return the result of this epoch."""
        return EpochResult(self._slot, state.value, self._work.by_task(), failure, warm, time.monotonic() - self._began)


def running_state(instance: Instance) -> RunnerState:
    """Return the state of an instance that polls: RESTORING while some of its tasks restore, as in Kafka Streams."""
    return RunnerState.RUNNING if instance.updater is None else RunnerState.RESTORING
