"""Close windows at the end of a bounded run (``repl.autostop.on.end=close_windows``), stage by stage.

A task closes its windows once per run, when nothing can reach it any more: the input of its sub-topology and of all upstream ones is
committed to its end, no record waits in their asynchronous nodes, and the tasks upstream have closed theirs. What it emits, its advanced
stream times and the number of the run, in the offsets' metadata, are one commit: after a crash the task has closed, or closes. As in
`host.batch.completion` the committed offsets are read before the ends. Sub-topologies in a circle (a foreign-key join) close together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from kstreams_repl.engine.commit.failpoints import failpoint
from kstreams_repl.engine.topology.names import internal_topic
from kstreams_repl.engine.topology.nodes import SinkNode
from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.instance.reports.run_progress import RunProgress, closed_tasks, input_partitions, progress_since
from kstreams_repl.host.instance.tasks.active_task import ActiveTask
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.system.types import TaskId

_SECONDS = 0.1


class WindowClosing:
    """Closes the windows of one instance's tasks.

    Args:
        run: number of the run (`ApplicationPlan.closes`).
        tasks: the instance's own list, which changes as tasks are activated.
    """

    def __init__(self, plan: ApplicationPlan, run: int, admin: Admin, tasks: Sequence[ActiveTask]) -> None:
        self._plan = plan
        self._run = run
        self._admin = admin
        self._tasks = tasks
        self._order = ClosingOrder(plan)
        self._next = 0.0

    def step(self, now: float) -> None:
        """Close the windows of tasks that may do so now. Call while the instance is idle.

        Args:
            now: monotonic seconds; the broker is asked every 0.1 s.
        """
        still_open = [task for task in self._tasks if task.closed_run != self._run]
        if not still_open or now < self._next:
            return
        self._next = now + _SECONDS
        committed = self._admin.committed_offsets(self._plan.application_id, input_partitions(self._plan), stable=False)
        progress = progress_since(self._admin, self._plan, committed)
        ready = self._order.may_close(progress, closed_tasks(self._order.tasks, committed, self._run))
        for task in still_open:
            if task.id in ready:
                task.close_windows(self._run)
                failpoint("B7")


class ClosingOrder:
    """Which tasks of an application may close their windows.

    Attributes:
        tasks: the input partitions of each task.
    """

    def __init__(self, plan: ApplicationPlan) -> None:
        specs = [spec for slot in plan.assignment for spec in slot]
        self.tasks = {spec.task_id: tuple(spec.partitions) for spec in specs}
        written: dict[str, set[int]] = {}
        for spec in specs:
            for node in spec.subtopology.nodes:
                if isinstance(node, SinkNode) and node.topic is not None:
                    topic = internal_topic(plan.application_id, node.topic) if node.internal else node.topic
                    written.setdefault(topic, set()).add(spec.task_id.subtopology)
        parents: dict[int, set[int]] = {}
        for task, partitions in self.tasks.items():
            writers = [written.get(partition.topic, set()) for partition in partitions if plan.stops is None or partition not in plan.stops]
            parents.setdefault(task.subtopology, set()).update(*writers)
        self._upstream = {number: _reachable(number, parents) for number in parents}

    def may_close(self, progress: RunProgress, closed: Set[TaskId]) -> set[TaskId]:
        """Return the tasks that have not closed their windows and may do so now.

        Args:
            progress, closed: of one read of the committed offsets.
        """
        open_input = {
            task.subtopology
            for task, partitions in self.tasks.items()
            if task in progress.waiting or any(at in progress.left for at in partitions)
        }
        still_open = {task.subtopology for task in self.tasks if task not in closed}
        return {task for task in self.tasks if task not in closed and self._is_next(task.subtopology, open_input, still_open)}

    def _is_next(self, number: int, open_input: Set[int], still_open: Set[int]) -> bool:
        upstream = self._upstream[number]
        return not upstream & open_input and not any(number not in self._upstream[other] for other in upstream & still_open)


def _reachable(start: int, parents: Mapping[int, Set[int]]) -> set[int]:
    found, ahead = {start}, [start]
    while ahead:
        for number in parents.get(ahead.pop(), set()) - found:
            found.add(number)
            ahead.append(number)
    return found
