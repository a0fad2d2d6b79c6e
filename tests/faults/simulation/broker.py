"""A model of what a Kafka broker promises: logs with transactions, coordinators with epochs, group offsets.

As in Kafka with transactions v1 (what the client library speaks): an end-of-transaction request is checked against the producer's
*epoch* only, so a late one ends whatever transaction is open by then; a commit is acknowledged before its markers are in the logs; the
last stable offset stops at the first open transaction; offsets of open transactions are pending. Acknowledged data survives a crash of
the broker process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.faults.simulation.world import World

Place = tuple[str, int]


class Fenced(Exception):
    """The request's epoch is not the current one."""


class Concurrent(Exception):
    """The previous transaction of this id is still being completed; ask again."""


@dataclass(eq=False, slots=True)
class Transaction:
    """One transaction of one producer."""

    started: float
    state: str = "open"
    places: dict[Place, int] = field(default_factory=dict)
    """Partitions with records of it, and the offset of the first."""
    offsets: dict[tuple[str, Place], tuple[int, str]] = field(default_factory=dict)


class Entry(NamedTuple):
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Any
    transaction: Transaction | None
    marker: bool = False


@dataclass(eq=False, slots=True)
class Log:
    entries: list[Entry] = field(default_factory=list)
    start: int = 0
    open: list[Transaction] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.start + len(self.entries)

    def stable_end(self, place: Place) -> int:
        return min((transaction.places[place] for transaction in self.open), default=self.end)


@dataclass(eq=False, slots=True)
class Coordinated:
    """One transactional id at its coordinator."""

    epoch: int = -1
    timeout: float = 10.0
    transaction: Transaction | None = None
    ending: Transaction | None = None
    last: str = ""


class Broker:
    """One broker. Its requests take effect at once; delays and losses are the network's (`clients`)."""

    def __init__(self, world: World, topics: dict[str, int]) -> None:
        self.world = world
        self.topics = topics
        self.topic_ids = {name: f"id-{number}" for number, name in enumerate(sorted(topics))}
        self.logs: dict[Place, Log] = {(topic, number): Log() for topic, count in topics.items() for number in range(count)}
        self.ids: dict[str, Coordinated] = {}
        self.committed: dict[tuple[str, Place], tuple[int, str]] = {}
        self.pending: dict[tuple[str, Place], list[Transaction]] = {}
        self.down_until = 0.0
        self.aborts = 0
        self.changes = 0
        """Rises with everything that a reader could notice."""

    @property
    def up(self) -> bool:
        return self.world.now >= self.down_until

    # ---- producers

    def init(self, name: str, timeout: float) -> int:
        """InitProducerId: a new epoch; what was open is aborted first."""
        found = self.ids.setdefault(name, Coordinated())
        if found.ending is not None:
            raise Concurrent
        if found.transaction is not None:
            found.epoch += 1  # the old holder is refused from now on
            self._end(name, found, "aborted")
            raise Concurrent
        found.epoch += 1
        found.timeout = timeout
        found.last = ""
        self.world.tell(f"{name} has epoch {found.epoch}")
        return found.epoch

    def _current(self, name: str, epoch: int) -> Coordinated:
        found = self.ids[name]
        if epoch != found.epoch:
            raise Fenced
        return found

    def _open(self, name: str, epoch: int) -> Transaction:
        found = self._current(name, epoch)
        if found.ending is not None:
            raise Concurrent
        if found.transaction is None:
            transaction = found.transaction = Transaction(self.world.now)
            self.world.after(found.timeout, lambda: self._time_out(name, transaction))
        return found.transaction

    def _time_out(self, name: str, transaction: Transaction) -> None:
        found = self.ids[name]
        if found.transaction is transaction:
            found.epoch += 1
            self.world.tell(f"transaction of {name} timed out")
            self._end(name, found, "aborted")

    def produce(self, name: str | None, epoch: int, place: Place, rows: list[tuple[Any, ...]]) -> int:
        """Append rows; returns the offset of the first."""
        log = self.logs[place]
        self.changes += 1
        first = log.end
        transaction = None
        if name is not None:
            transaction = self._open(name, epoch)
            if place not in transaction.places:
                transaction.places[place] = first
                log.open.append(transaction)
        log.entries += [Entry(*row, transaction) for row in rows]
        return first

    def add_offsets(self, name: str, epoch: int, group: str, offsets: dict[Place, tuple[int, str]]) -> None:
        transaction = self._open(name, epoch)
        for place, what in offsets.items():
            transaction.offsets[(group, place)] = what
            waiting = self.pending.setdefault((group, place), [])
            if transaction not in waiting:
                waiting.append(transaction)

    def end(self, name: str, epoch: int, outcome: str) -> None:
        """EndTxn: of the transaction that is open *now*."""
        found = self._current(name, epoch)
        if found.ending is not None:
            if found.last == outcome:
                return
            raise Concurrent
        if found.transaction is None:
            if found.last in (outcome, ""):
                return
            raise Fenced
        self._end(name, found, outcome)

    def _end(self, name: str, found: Coordinated, outcome: str) -> None:
        transaction = found.transaction
        assert transaction is not None
        found.transaction, found.ending, found.last = None, transaction, outcome
        transaction.state = outcome
        self.aborts += outcome == "aborted"
        self.world.tell(f"transaction of {name} {outcome}: {len(transaction.places)} partitions")
        left: list[Callable[[], None]] = [
            *(lambda place=place: self._mark(place, transaction) for place in transaction.places),  # type: ignore[misc]
            *(lambda key=key: self._settle(key, transaction) for key in transaction.offsets),  # type: ignore[misc]
        ]
        open_parts = [len(left)]

        def part(work: Callable[[], None]) -> None:
            work()
            open_parts[0] -= 1
            if not open_parts[0]:
                found.ending = None

        if not left:
            found.ending = None
        slow = 1.0 if not self.world.calm and self.world.random.random() < 0.05 else 0.002
        for work in left:
            self.world.after(self.world.random.uniform(0, slow), lambda work=work: part(work))  # type: ignore[misc]

    def _mark(self, place: Place, transaction: Transaction) -> None:
        log = self.logs[place]
        self.changes += 1
        log.open.remove(transaction)
        log.entries.append(Entry(None, None, 0, None, transaction, True))

    def _settle(self, key: tuple[str, Place], transaction: Transaction) -> None:
        self.pending[key].remove(transaction)
        if transaction.state == "committed":
            self.committed[key] = transaction.offsets[key]

    # ---- readers

    def read(self, place: Place, offset: int, count: int, isolation: str) -> tuple[list[tuple[int, Entry]], int]:
        """(records, the next offset to read)."""
        log = self.logs[place]
        committed = isolation == "read_committed"
        end = log.stable_end(place) if committed else log.end
        found: list[tuple[int, Entry]] = []
        while offset < end and len(found) < count:
            entry = log.entries[offset - log.start]
            aborted = committed and entry.transaction is not None and entry.transaction.state == "aborted"
            if not entry.marker and not aborted:
                found.append((offset, entry))
            offset += 1
        return found, offset

    def visible(self, topic: str) -> dict[int, list[Entry]]:
        """All committed records of a topic, by partition."""
        return {
            number: [
                entry for _, entry in self.read((topic, number), self.logs[(topic, number)].start, 1 << 30, "read_committed")[0]
            ]
            for number in range(self.topics[topic])
        }
