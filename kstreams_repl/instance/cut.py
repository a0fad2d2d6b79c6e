"""Whether the local stores of an instance's tasks are at one commit: what each task writes down beside its rows, and who compares.

An instance commits its tasks together, but each task's stores take the commit in a store transaction of their own, one after the other, and
under load only every so often. So each of them notes, in that same transaction, at which commits all stores of the instance are when this
round is over: a hash of (task, commit) pairs, with the owner's token. A reader that holds a view of every task believes the note of the
task with the highest commit: if the views give the same hash, they are the instance at that commit; if not, a round is on its way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

CUT = "instance-cut"
"""The attribute of a task's environment."""


@dataclass(frozen=True, slots=True)
class TaskCommit:
    """What a view of a task's stores tells: who holds them, at which commit they are, what was noted with it."""

    task: str
    owner: str | None
    commit_id: int
    noted: bytes | None


def cut_of(token: str, commits: Mapping[str, int]) -> bytes:
    """The note: which task's stores are at which commit."""
    pairs = ",".join(f"{task}:{commits[task]}" for task in sorted(commits) if commits[task] >= 0)
    return f"{token}|".encode() + hashlib.blake2b(pairs.encode(), digest_size=8).digest()


def at_one_commit(tasks: Iterable[TaskCommit], asked: Collection[str]) -> bool:
    """Whether the stores of each instance that holds a task asked for are at one commit. What an instance has not committed to yet is as
    its predecessor left it; what no topology has any more lies there with its last owner, and nobody asks for it.

    Args:
        tasks: all there are; those that never committed do not count.
        asked: names of those that are read.
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
    """The commit of each instance slot that holds any of these."""
    found: dict[str, int] = {}
    for task in tasks:
        parts = (task.owner or "").split("/")
        if len(parts) >= 2:
            found[parts[1]] = max(found.get(parts[1], -1), task.commit_id)
    return dict(sorted(found.items()))
