"""Choice of the task that is processed next. `repl.task.scheduler` may be any callable with the signature of `most_buffered`.

A scheduler only orders candidates; it takes no locks and starts no threads. It is called with the task manager's lock held
(processing threads) or before each turn (inline, `host.instance.polling.scheduling_round`), so it must be quick.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kstreams_repl.system.types import TaskId


@dataclass(frozen=True, slots=True)
class Candidate:
    """A task that no thread holds and that may have records to process.

    Attributes:
        buffered: records that wait for it. waited: seconds since it was last processed.
    """

    id: TaskId
    buffered: int
    waited: float


Scheduler = Callable[[Sequence[Candidate]], Candidate]
"""Chooses one of the candidates; there is at least one."""


def most_buffered(candidates: Sequence[Candidate]) -> Candidate:
    """Return the task with the most buffered records; among equals, the one that has waited longest.

    Example:
        >>> most_buffered([Candidate(TaskId(0, 0), 5, 0.1), Candidate(TaskId(0, 1), 9, 0.0), Candidate(TaskId(0, 2), 9, 0.5)]).id
        TaskId(subtopology=0, partition=2)
    """
    return max(candidates, key=lambda candidate: (candidate.buffered, candidate.waited))


def longest_waiting(candidates: Sequence[Candidate]) -> Candidate:
    """Return the task that was last processed the longest time ago (round robin)."""
    return max(candidates, key=lambda candidate: candidate.waited)


SCHEDULERS: dict[str, Scheduler] = {"most-buffered": most_buffered, "longest-waiting": longest_waiting}


def scheduler_of(chosen: Scheduler | str) -> Scheduler:
    """Return the scheduler that `repl.task.scheduler` names, or the given callable."""
    return SCHEDULERS[chosen] if isinstance(chosen, str) else chosen
