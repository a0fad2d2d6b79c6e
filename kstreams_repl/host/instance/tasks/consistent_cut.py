"""Consistent cuts: whether the local stores of an instance's tasks are all at the same commit of the instance.

An instance commits its tasks together, but each task's stores write the commit in a separate store transaction, one after the
other, and under load they combine several commits. Each store transaction therefore notes the commit of every task of the
instance as it is after the current round: a hash of (task, commit) pairs with the owner's token. A reader that holds a view of
every task takes the note of the task with the highest commit: if the views give the same hash, they show the instance at that
commit; if not, a round is in progress.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

CUT = "instance-cut"
"""Name of the note's attribute in a task's environment."""


@dataclass(frozen=True, slots=True)
class TaskCommit:
    """What a view of a task's stores shows: their owner, their commit, and the note written with it."""

    task: str
    owner: str | None
    commit_id: int
    noted: bytes | None


def cut_of(token: str, commits: Mapping[str, int]) -> bytes:
    """Return the note: the hash of the commit of each task's stores."""
    pairs = ",".join(f"{task}:{commits[task]}" for task in sorted(commits) if commits[task] >= 0)
    return f"{token}|".encode() + hashlib.blake2b(pairs.encode(), digest_size=8).digest()


def at_one_commit(tasks: Iterable[TaskCommit], asked: Collection[str]) -> bool:
    """Return whether the stores of each instance that holds a requested task are at one commit. Tasks that an instance has not
    committed yet are as its predecessor left them; tasks of removed sub-topologies remain with their last owner and are never
    requested.

    Args:
        tasks: all existing tasks; those that never committed are ignored.
        asked: names of the tasks that are read.
    """
    by_owner: dict[str | None, list[TaskCommit]] = {}
    for task in tasks:
        if task.commit_id >= 0:
            by_owner.setdefault(task.owner, []).append(task)
    for owner, held in by_owner.items():
        if not any(task.task in asked for task in held):
            continue
        last = max(held, key=lambda task: task.commit_id)
        if owner is None or last.noted is None or not last.noted.startswith(f"{owner}|".encode()):
            continue
        if last.noted != cut_of(owner, {task.task: task.commit_id for task in held}):
            return False
    return True


def instance_commits(tasks: Iterable[TaskCommit]) -> dict[str, int]:
    """Return the commit of each instance slot that holds any of these tasks."""
    found: dict[str, int] = {}
    for task in tasks:
        parts = (task.owner or "").split("/")
        if len(parts) >= 2:
            found[parts[1]] = max(found.get(parts[1], -1), task.commit_id)
    return dict(sorted(found.items()))
