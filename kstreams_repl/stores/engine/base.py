"""The floor that every store stands on: named ordered maps of one task which commit together.

Actors: an `Environment` (one per task; many named engines, the changelog positions, the commit id, the owner token, small attributes) and
its `Engine`s. Invariants: a read sees every write made before it, committed or not; a crash or `rollback` loses exactly the writes
since the last `commit`; entries, positions and commit id become durable in one step or not at all. Keys are compared as unsigned bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

Row = tuple[bytes, bytes]


class Engine(Protocol):
    """One named ordered map. `get` and `put` are plain callables and may be bound once."""

    name: str

    def get(self, key: bytes, /) -> bytes | None: ...

    def put(self, key: bytes, value: bytes | None, /) -> None:
        """None deletes."""

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes | None], /) -> None:
        """The same as one `put` after the other."""

    def range(
        self, low: bytes | None = None, high: bytes | None = None, reverse: bool = False, limit: int | None = None
    ) -> Iterator[Row]:
        """Rows with low <= key < high as they are now, at most `limit`: later writes do not show in an iterator that is open."""

    def delete_range(self, low: bytes, high: bytes) -> None: ...

    def approximate_count(self) -> int: ...


class Environment(Protocol):
    """All engines of one task."""

    path: str | None
    closed: bool

    @property
    def positions(self) -> Mapping[str, int]:
        """Committed: ``topic-partition`` of a changelog -> offset of the next record to apply."""

    @property
    def commit_id(self) -> int:
        """Of the last commit; -1 before the first."""

    def engine(self, name: str, *, persistent: bool = True) -> Engine:
        """The engine of that name, made when it is new. Not persistent: lives in memory, empty at every open."""

    def attribute(self, name: str) -> bytes | None:
        """A small value kept beside the rows (a store's observed time, a topic id)."""

    def set_attribute(self, name: str, value: bytes | None) -> None: ...

    def commit(self, positions: Mapping[str, int], commit_id: int) -> None: ...

    def put_off(self) -> None:
        """What was written is committed elsewhere and will be here with the next `commit`; until then a crash or `rollback` loses it, to
        be read again from the changelogs. Engines in memory, which nothing restores to an earlier commit, keep it at once."""

    def rollback(self) -> None:
        """Forget every write since the last commit."""

    def restore(
        self,
        name: str,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        *,
        positions: Mapping[str, int] | None = None,
        persistent: bool = True,
    ) -> None:
        """Write a batch past the uncommitted writes, together with the positions it reaches, in one transaction."""

    def before_commit(self, callback: Callable[[], None]) -> None:
        """Called at the start of each commit, while writes are still taken."""

    def after_rollback(self, callback: Callable[[], None]) -> None: ...

    def take_ownership(self, token: str) -> None: ...

    def recycle(self) -> None:
        """Forget what the stores of a former task left here, so that those of the next may use the environment as it is."""

    def reader_check(self) -> int: ...

    def close(self) -> None: ...


class Hooks:
    """The callbacks of an environment and its uncommitted attributes; shared by both kinds."""

    def __init__(self) -> None:
        self._before_commit: list[Callable[[], None]] = []
        self._after_rollback: list[Callable[[], None]] = []

    def before_commit(self, callback: Callable[[], None]) -> None:
        self._before_commit.append(callback)

    def after_rollback(self, callback: Callable[[], None]) -> None:
        self._after_rollback.append(callback)


def after(key: bytes) -> bytes:
    """The smallest key larger than `key`: turns an inclusive upper bound into an exclusive one."""
    return key + b"\x00"


def after_prefix(prefix: bytes) -> bytes | None:
    """The smallest key larger than every key with this prefix; None when there is none (all 0xff)."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes((stripped[-1] + 1,)) if stripped else None
