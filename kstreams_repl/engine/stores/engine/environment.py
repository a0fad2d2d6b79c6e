"""The storage interface under every store: named ordered maps of one task that commit together.

Actors: an `Environment` (one per task; named engines, changelog positions, commit id, owner token, small attributes) and its
`Engine`s. Invariants: a read sees every earlier write, committed or not; a crash or `rollback` loses exactly the writes since the
last `commit`; entries, positions and commit id become durable in one step or not at all. Keys compare as unsigned bytes.
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
        """Put a value; None deletes the key."""

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes | None], /) -> None:
        """Put columns of rows; equivalent to one `put` after the other."""

    def range(
        self, low: bytes | None = None, high: bytes | None = None, reverse: bool = False, limit: int | None = None
    ) -> Iterator[Row]:
        """Iterate over rows with low <= key < high, at most `limit` of them, as of now: later writes do not show in an open
        iterator."""

    def delete_range(self, low: bytes, high: bytes) -> None: ...

    def approximate_count(self) -> int: ...


class Environment(Protocol):
    """All engines of one task."""

    path: str | None
    closed: bool

    @property
    def positions(self) -> Mapping[str, int]:
        """The committed positions: ``topic-partition`` of a changelog -> offset of the next record to apply."""

    @property
    def commit_id(self) -> int:
        """The id of the last commit; -1 before the first."""

    def engine(self, name: str, *, persistent: bool = True) -> Engine:
        """Return the engine with this name, created if necessary. One that is not persistent lives in memory and is empty at each open."""

    def attribute(self, name: str) -> bytes | None:
        """Return a small value stored along with the rows (a store's observed time, a topic id)."""

    def set_attribute(self, name: str, value: bytes | None) -> None: ...

    def commit(self, positions: Mapping[str, int], commit_id: int) -> None: ...

    def put_off(self) -> None:
        """Defer the writes so far to the next `commit`: they are already committed in Kafka. Until then a crash or `rollback` loses them
        and they are restored from the changelogs. In-memory engines, which nothing restores to an earlier commit, keep them
        immediately."""

    def rollback(self) -> None:
        """Discard every write since the last commit."""

    def restore(
        self,
        name: str,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        *,
        positions: Mapping[str, int] | None = None,
        persistent: bool = True,
    ) -> None:
        """Write a batch that bypasses the uncommitted writes, together with the positions it reaches, in one transaction."""

    def before_commit(self, callback: Callable[[], None]) -> None:
        """Register a callback for the start of each commit; it may still write."""

    def after_rollback(self, callback: Callable[[], None]) -> None: ...

    def take_ownership(self, token: str) -> None: ...

    def recycle(self) -> None:
        """Discard what the stores of the previous task left in memory, so that the next task can use the open environment."""

    def reader_check(self) -> int: ...

    def close(self) -> None: ...


class Hooks:
    """The callbacks of an environment and its uncommitted attributes; shared by both implementations."""

    def __init__(self) -> None:
        self._before_commit: list[Callable[[], None]] = []
        self._after_rollback: list[Callable[[], None]] = []

    def before_commit(self, callback: Callable[[], None]) -> None:
        self._before_commit.append(callback)

    def after_rollback(self, callback: Callable[[], None]) -> None:
        self._after_rollback.append(callback)


def after(key: bytes) -> bytes:
    """Return the smallest key larger than `key`: turns an inclusive upper bound into an exclusive one."""
    return key + b"\x00"


def after_prefix(prefix: bytes) -> bytes | None:
    """Return the smallest key larger than every key with this prefix; None when there is none (all 0xff)."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes((stripped[-1] + 1,)) if stripped else None
