"""What the two commit protocols ask of a task and of its host. `instance.active_task` and `instance.collector` are the real
ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from kstreams_repl.types import TaskId, TopicPartition

OffsetAndMetadata = tuple[int, str]


class CommittingTask(Protocol):
    """One task of a commit."""

    id: TaskId

    def check_owner(self) -> None:
        """Raise TaskMigratedError when somebody else has taken the stores over."""

    def prepare(self, commit_id: int) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Flush the caches until quiet; returns the input offsets with their metadata."""

    def finish(self, commit_id: int, positions: Mapping[TopicPartition, int]) -> None:
        """Commit the local stores: entries, changelog positions, commit id and owner token in one transaction."""


class SealedOutput(Protocol):
    """The record collector, as the commit sees it."""

    def seal(self) -> None: ...

    def check(self) -> None: ...

    def take_positions(self) -> dict[TopicPartition, int]: ...
