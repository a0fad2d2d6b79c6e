"""The interfaces of a task and its output that the two commit protocols need.

`host.instance.tasks.active_task` and `host.instance.tasks.record_collector` implement them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from kstreams_repl.system.types import TaskId, TopicPartition

OffsetAndMetadata = tuple[int, str]


class CommittingTask(Protocol):
    """A task that takes part in a commit."""

    id: TaskId

    def check_owner(self) -> None:
        """Raise TaskMigratedError if another owner has taken over the stores."""

    def prepare(self, commit_id: int) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Flush the caches until nothing is left to forward; return the input offsets with their metadata."""

    def with_changelog_ends(self, positions: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return those offsets again whose metadata has the ends of the changelogs, now that all records are acknowledged."""

    def finish(self, commit_id: int, positions: Mapping[TopicPartition, int]) -> None:
        """Commit the local stores: entries, changelog positions, commit id and owner token in one transaction."""


class SealedOutput(Protocol):
    """The record collector as the commit uses it."""

    def seal(self) -> None: ...

    def check(self) -> None: ...

    def take_positions(self) -> dict[TopicPartition, int]:
        """Return the end of each changelog partition written since the last call; `offset_metadata.UNKNOWN` if it was not reported."""


class CommittingProducer(Protocol):
    """The transactional producer as the commit uses it (`host.kafka.transactional`)."""

    def flush(self, check: Callable[[], None]) -> None: ...

    def send_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: object) -> None: ...

    def commit(self, in_flight: Callable[[], None]) -> None: ...
