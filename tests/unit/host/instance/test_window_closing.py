"""Which tasks may close their windows at the end of a bounded run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import kstreams_repl as ks
from kstreams_repl.host.instance.polling.window_closing import ClosingOrder
from kstreams_repl.host.instance.reports.run_progress import RunProgress
from kstreams_repl.system.types import TaskId, TopicPartition
from tests.faults.batch_topologies import TOPOLOGIES


def _order(topology: str) -> ClosingOrder:
    from kstreams_repl.engine.runtime.task import TaskSpec
    from kstreams_repl.engine.topology.partitions import resolve_partitions
    from kstreams_repl.host.instance.application_plan import ApplicationPlan
    from kstreams_repl.host.kafka.clients import ClientSettings

    built: Any = TOPOLOGIES[topology]("t")
    config = ks.StreamsConfig({"application.id": "app"})
    resolved = resolve_partitions(built, "app", {"t-in": 2, "t-side": 2, "t-out": 1})
    parts = {part.id: part for part in built.subtopologies()}
    specs = tuple(
        TaskSpec("app", parts[task.subtopology], task, dict.fromkeys(inputs, "source"), config) for task, inputs in resolved.tasks.items()
    )
    plan = ApplicationPlan("app", 1, config, ClientSettings("localhost:1"), (specs,), "", "")
    return ClosingOrder(replace(plan, stops={TopicPartition(topic, number): 0 for topic in ("t-in", "t-side") for number in range(2)}))


def _next(order: ClosingOrder, closed: set[TaskId], left: tuple[TopicPartition, ...] = ()) -> set[int]:
    return {task.subtopology for task in order.may_close(RunProgress(dict.fromkeys(left, 1), 9), closed)}


def test_stages_close_one_after_the_other() -> None:
    order = _order("diamond")
    closed: set[TaskId] = set()
    stages = []
    while len(closed) < len(order.tasks):
        stages.append(_next(order, closed))
        closed |= {task for task in order.tasks if task.subtopology in stages[-1]}
    assert stages == [{0}, {1}, {2}]
    assert _next(order, closed) == set()


def test_a_stage_waits_for_its_input_and_for_every_task_upstream() -> None:
    order = _order("two")
    source = TopicPartition("t-in", 1)
    assert _next(order, set(), (source,)) == set()
    first = {task for task in order.tasks if task.subtopology == 0}
    assert _next(order, first - {TaskId(0, 1)}) == {0}
    assert _next(order, first) == {1}
    assert _next(order, first, (source,)) == set(), "a record upstream may still arrive here"


def test_a_stage_waits_for_the_calls_upstream_and_for_its_own() -> None:
    order = _order("two")
    first = {task for task in order.tasks if task.subtopology == 0}
    waiting = RunProgress({}, 9, {TaskId(0, 1): 3})
    assert order.may_close(waiting, set()) == set()
    assert order.may_close(waiting, first) == set(), "its calls began when the windows upstream were closed"
    assert {task.subtopology for task in order.may_close(RunProgress({}, 9), first)} == {1}


def test_a_circle_closes_together() -> None:
    order = _order("foreign")
    assert len({task.subtopology for task in order.tasks}) > 1
    assert _next(order, set()) == {task.subtopology for task in order.tasks}
