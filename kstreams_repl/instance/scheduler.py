"""Which task is processed next. Pluggable: `repl.task.scheduler` may be any callable of the shape of `most_buffered`.

A scheduler orders; it locks nothing and starts nothing. With processing threads it is called with the task manager's lock held, inline
(`instance.turns`) before each turn, so it should be quick.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kstreams_repl.types import TaskId


@dataclass(frozen=True, slots=True)
class Candidate:
    """A task that nobody holds and that may have something to do.

    Attributes:
        buffered: records that wait for it. waited: seconds since it was processed last.
    """

    id: TaskId
    buffered: int
    waited: float


Scheduler = Callable[[Sequence[Candidate]], Candidate]
"""Chooses one of at least one candidates."""


def most_buffered(candidates: Sequence[Candidate]) -> Candidate:
    """The task with the most records waiting; of equals the one that waited longest.

    Example:
        >>> most_buffered([Candidate(TaskId(0, 0), 5, 0.1), Candidate(TaskId(0, 1), 9, 0.0), Candidate(TaskId(0, 2), 9, 0.5)]).id
        TaskId(subtopology=0, partition=2)
    """
    return max(candidates, key=lambda candidate: (candidate.buffered, candidate.waited))


def longest_waiting(candidates: Sequence[Candidate]) -> Candidate:
    """In turn: the task that no thread has had for the longest time."""
    return max(candidates, key=lambda candidate: candidate.waited)


SCHEDULERS: dict[str, Scheduler] = {"most-buffered": most_buffered, "longest-waiting": longest_waiting}


def scheduler_of(chosen: Scheduler | str) -> Scheduler:
    """What `repl.task.scheduler` names, or is."""
    return SCHEDULERS[chosen] if isinstance(chosen, str) else chosen
