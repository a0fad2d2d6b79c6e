"""Assignment of tasks and standby copies to instances. Pure and sticky functions: a task that moves must move its state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kstreams_repl.engine.runtime.task import TaskSpec
from kstreams_repl.system.types import TaskId


def assign_tasks(
    tasks: Sequence[TaskId],
    instances: int,
    previous: Mapping[TaskId, int] | None = None,
    standbys: Mapping[TaskId, Sequence[int]] | None = None,
) -> list[list[TaskId]]:
    """Distribute tasks over instances, evenly per sub-topology, and equal partition numbers of several sub-topologies over different
    instances, because a partition with frequent keys is often a busy one downstream too.

    A task stays where it was as long as the assignment is balanced. A task that must move goes to an instance with a standby copy of it
    that has room, else to the least loaded one.

    Example:
        >>> assign_tasks([TaskId(0, 0), TaskId(0, 1), TaskId(0, 2)], 2)
        [[TaskId(subtopology=0, partition=0), TaskId(subtopology=0, partition=2)], [TaskId(subtopology=0, partition=1)]]
    """
    slots: list[list[TaskId]] = [[] for _ in range(instances)]
    if not instances:
        return slots
    left = sorted(tasks)
    for sub in sorted({task.subtopology for task in left}):
        mine = [task for task in left if task.subtopology == sub]
        room = -(-len(mine) // instances)
        counts = [0] * instances
        homeless = []
        for task in mine:
            at = (previous or {}).get(task)
            if at is not None and at < instances and counts[at] < room:
                counts[at] += 1
                slots[at].append(task)
            else:
                homeless.append(task)
        for task in homeless:
            copies = [slot for slot in (standbys or {}).get(task, ()) if slot < instances and counts[slot] < room]
            alike = [sum(other.partition == task.partition for other in slot) for slot in slots]
            at = min(copies or range(instances), key=lambda slot: (counts[slot], len(slots[slot]), alike[slot], slot))
            counts[at] += 1
            slots[at].append(task)
    return [sorted(slot) for slot in slots]


def assign_standbys(
    active: Sequence[Sequence[TaskId]],
    stateful: Sequence[TaskId],
    replicas: int,
    *,
    places: Sequence[str | None] = (),
    previous: Mapping[TaskId, Sequence[int]] | None = None,
) -> list[list[TaskId]]:
    """Assign up to `replicas` standby copies of each stateful task, none to the instance of the task itself.

    Where it is known which instances share an executor, a copy goes to another executor than the task; if there is none, to
    any other instance, which may later run elsewhere. Existing copies stay where they are.

    Args:
        active: tasks by slot.
        places: executors by slot; None where unknown.
    """
    slots: list[list[TaskId]] = [[] for _ in active]
    at = {task: slot for slot, tasks in enumerate(active) for task in tasks}

    def host_of(slot: int) -> str | None:
        return places[slot] if slot < len(places) else None

    for task in sorted(stateful):
        before = tuple((previous or {}).get(task, ()))
        taken = {at[task]}
        for _ in range(min(replicas, len(active) - 1)):
            used = {host_of(slot) for slot in taken} - {None}
            free = [slot for slot in range(len(active)) if slot not in taken]
            chosen = min(free, key=lambda slot: (host_of(slot) in used, slot not in before, len(slots[slot]), slot))
            slots[chosen].append(task)
            taken.add(chosen)
    return slots


def needs_copies(spec: TaskSpec) -> bool:
    """Return whether a task has persistent stores with their own changelog, which standby tasks can follow."""
    return any(store.persistent and store.logging and store.source_topic is None for store in spec.subtopology.stores)
