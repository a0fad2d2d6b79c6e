"""The report of an instance, a few times a second: totals, and counts, rates and lag of each task and node."""

from __future__ import annotations

import time
from collections.abc import Mapping

from kstreams_repl.engine.operators.own_copy import UNCOPIED
from kstreams_repl.engine.runtime.nodes.node_counts import NodeCounts, added
from kstreams_repl.host.instance.initialization.task_activation import counts_before
from kstreams_repl.host.instance.instance import Instance
from kstreams_repl.host.instance.metrics.slow_tasks import SlowTasks
from kstreams_repl.system.types import JsonObject, TopicPartition

_LEAST_SECONDS = 0.5
"""Shortest period of a rate: over less, it would fluctuate."""


class ReportMetrics:
    """The figures of one instance, from `begin` on. Rates cover the period between the last two measurements."""

    def __init__(self) -> None:
        self._at = time.monotonic()
        self._counts: dict[str, int] = {}
        self._rates: dict[str, float] = {}
        self._slow = SlowTasks()

    def begin(self, instance: Instance) -> None:
        """Start with a running instance; one kept between epochs has counts already."""
        self._at, self._counts = time.monotonic(), _counts_of(instance, _node_counts(instance))

    def of(self, instance: Instance, *, nodes: bool) -> JsonObject:
        """Return the report.

        Args:
            nodes: include the counts of nodes; a report at rest leaves them out, because the commit has them.
        """
        counted = _node_counts(instance)
        now = time.monotonic()
        if now - self._at >= _LEAST_SECONDS:
            counts = _counts_of(instance, counted)
            self._rates = {name: (count - self._counts.get(name, count)) / (now - self._at) for name, count in counts.items()}
            self._at, self._counts = now, counts
        rates, lags, partition_lags = self._rates, instance.input.lags(), instance.input.partition_lags()
        restoring = {} if instance.updater is None else instance.updater.restoring
        return {
            "commits": instance.counters.commits,
            "commit_id": instance.committer.commit_id,
            "records": instance.counters.records,
            "rate": round(rates.get("", 0.0), 1),
            "warm": instance.warm,
            "restored": instance.take_over.restored,
            "restore_remaining": 0 if instance.updater is None else instance.updater.progress.remaining,
            "recycled": instance.take_over.recycled,
            "from_snapshots": instance.take_over.from_snapshots,
            "skipped": instance.take_over.skipped,
            "snapshots": {} if instance.snapshotter is None else instance.snapshotter.taken,
            "snapshot_trouble": _snapshot_error(instance),
            "uncopied": [list(shared) for shared in sorted(UNCOPIED)],
            "calls": _calls(instance),
            "standbys": {} if instance.standbys is None else instance.standbys.lags(),
            "first_at": instance.counters.first_at,
            "committed_at": instance.counters.committed_at,
            "tasks": {
                str(task.id): {
                    "records": task.records,
                    "rate": round(rates.get(f"task {task.id}", 0.0), 1),
                    "lag": lags[task.id],
                    "lags": {str(partition): partition_lags[partition] for partition in task.committed},
                    "buffered": task.task.buffered,
                    "slow_ms": self._slow.of(str(task.id), task.counters.process),
                    "stream_time": task.task.stream_time,
                    "dropped": dict(task.task.dropped),
                    "committed": {str(partition): offset for partition, offset in task.committed.items()},
                }
                for task in instance.tasks
            }
            | {name: _restoring(task.offsets) for name, task in restoring.items()},
            **({"nodes": _plain(counted, rates), "global_nodes": _plain(_global_counts(instance), {})} if nodes else {}),
        }


def _node_counts(instance: Instance) -> NodeCounts:
    """Return the counts of all tasks; those of a restoring task are the committed ones."""
    restoring = () if instance.updater is None else tuple(instance.updater.restoring.values())
    return added([*(task.task.counts.read() for task in instance.tasks), *map(counts_before, restoring)])


def _global_counts(instance: Instance) -> NodeCounts:
    return {} if instance.globals is None else instance.globals.task.counts.read()


def _counts_of(instance: Instance, counted: NodeCounts) -> dict[str, int]:
    """Return the counts that rates are computed from, by name: "" for the instance, else "task …" or "node …"."""
    tasks = {f"task {task.id}": task.records for task in instance.tasks}
    return {"": instance.counters.records, **tasks, **{f"node {node}": count.taken for node, count in counted.items()}}


def _plain(counts: NodeCounts, rates: Mapping[str, float]) -> dict[str, list[object]]:
    """Return for each node: records taken, records given, records taken per second, dropped records by reason, and the grace with which
    none would have been late.
    """
    return {
        node: [count.taken, count.given, round(rates.get(f"node {node}", 0.0), 1), dict(count.dropped), count.needed_grace_ms]
        for node, count in counts.items()
    }


def _restoring(offsets: Mapping[TopicPartition, int]) -> JsonObject:
    """Return the report of a task that does not run yet; its lag is unknown."""
    committed = {str(partition): offset for partition, offset in offsets.items()}
    return {"records": 0, "rate": 0.0, "lag": -1, "buffered": 0, "stream_time": -1, "dropped": {}, "committed": committed}


def _calls(instance: Instance) -> JsonObject:
    if instance.calls is None:
        return {}
    from kstreams_repl.host.instance.metrics.call_metrics import call_figures  # brings asyncio

    return call_figures(instance)


def _snapshot_error(instance: Instance) -> str | None:
    taking = None if instance.snapshotter is None else instance.snapshotter.error
    return taking or instance.take_over.snapshot_error
