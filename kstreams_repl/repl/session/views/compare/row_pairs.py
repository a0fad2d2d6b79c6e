"""Which records and rows of two sides belong together, and which of them are not equal.

Records belong together if the same input record caused them and they have the same topic and key, in the order in which they were sent;
what is left of one input record, without a partner of the same key, is paired in order if both sides have as many. Rows of stores belong
together by partition and key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import groupby, zip_longest
from typing import Any, NamedTuple, Protocol

from kstreams_repl.engine.topology.names import changelog_topic, internal_topic
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.repl.session.views.compare.side import Sent

OUTPUT, REPARTITION, CHANGELOG = "output", "repartition topic", "changelog"
STORE = "store"


class Channel(NamedTuple):
    """Where rows are: an output, a repartition topic, the changelog of a store, or the store."""

    kind: str
    name: str


SentPair = tuple[Sent | None, Sent | None]
Row = tuple[int, bytes, bytes | None, bytes | None]
"""Partition and key of a row of a store, and its value on both sides."""


class HasRows(Protocol):
    """What has stores, as a `Side` has them."""

    def rows(self, store: str) -> Iterator[tuple[int, Iterator[tuple[bytes, bytes]]]]:
        """Yield the rows of a store in each task, by the order of their keys, with the task's partition."""


@dataclass(slots=True)
class Unequal:
    """What differs between two sides, in bytes.

    Attributes:
        equal: by channel, how many records or rows are equal.
        sent: by channel, the pairs of records that are not.
        rows: by store, the rows that are not.
    """

    equal: dict[Channel, int] = field(default_factory=dict)
    sent: dict[Channel, list[SentPair]] = field(default_factory=dict)
    rows: dict[Channel, list[Row]] = field(default_factory=dict)

    @property
    def channels(self) -> list[Channel]:
        """The outputs, internal topics and stores."""
        return [*self.sent, *self.rows]

    @property
    def in_results(self) -> bool:
        """Whether outputs or stores differ."""
        return any(self.rows.values()) or any(pairs for channel, pairs in self.sent.items() if channel.kind == OUTPUT)

    def add(self, before: Mapping[Channel, Sequence[Sent]], after: Mapping[Channel, Sequence[Sent]]) -> None:
        """Compare what two sides sent for the same input records."""
        for channel in (*before, *(channel for channel in after if channel not in before)):
            one, other = before.get(channel, ()), after.get(channel, ())
            equal, pairs = _pairs(one, other)
            self.equal[channel] = self.equal.get(channel, 0) + equal
            self.sent.setdefault(channel, []).extend(pairs)

    def add_rows(self, store: str, before: HasRows, after: HasRows) -> None:
        """Compare the rows of a store."""
        channel, found, equal = Channel(STORE, store), self.rows.setdefault(Channel(STORE, store), []), 0
        one, other = dict(before.rows(store)), dict(after.rows(store))
        for partition in sorted({*one, *other}):
            for row in _merged(one.get(partition, iter(())), other.get(partition, iter(()))):
                if row is None:
                    equal += 1
                else:
                    found.append((partition, *row))
        self.equal[channel] = equal


class Channels:
    """The channels of a topology's topics."""

    def __init__(self, topology: Topology, application: str) -> None:
        self._own = {internal_topic(application, topic): Channel(REPARTITION, topic) for topic in topology.internal_topics}
        self._own |= {changelog_topic(application, store): Channel(CHANGELOG, store) for store in topology.stores}

    def of(self, topic: str) -> Channel:
        return self._own.get(topic) or Channel(OUTPUT, topic)

    def split(self, sent: Iterable[Sent]) -> dict[Channel, list[Sent]]:
        """Return records by channel, by the order of their tags."""
        by_topic: dict[str, list[Sent]] = {}
        for record in sent:
            by_topic.setdefault(record.topic, []).append(record)
        return {self.of(topic): sorted(own, key=lambda record: record.tag) for topic, own in by_topic.items()}


def _pairs(before: Sequence[Sent], after: Sequence[Sent]) -> tuple[int, list[SentPair]]:
    """Return how many records are equal, and the pairs of those that are not."""
    if before == after or [_of(record) for record in before] == [_of(record) for record in after]:
        return len(before), []
    equal, pairs = 0, list[SentPair]()
    mine = {tag: list(own) for tag, own in groupby(before, key=lambda record: record.tag)}
    others = {tag: list(own) for tag, own in groupby(after, key=lambda record: record.tag)}
    for tag in sorted({*mine, *others}):
        one, other = mine.get(tag, []), others.get(tag, [])
        same, unequal = _pairs_of_one(one, other)
        equal += same
        pairs += unequal
    return equal, pairs


def _of(record: Sent) -> tuple[Any, ...]:
    """Return what is compared: not the name of the topic, which has the application's name."""
    return record.tag, *record[2:]


def _pairs_of_one(before: list[Sent], after: list[Sent]) -> tuple[int, list[SentPair]]:
    """Return the pairs of what one input record caused."""
    equal, pairs = 0, list[SentPair]()
    left: tuple[list[Sent], list[Sent]] = [], []
    for key in dict.fromkeys(_key(record) for record in (*before, *after)):
        one, other = ([record for record in side if _key(record) == key] for side in (before, after))
        if not one or not other:
            left[0].extend(one)
            left[1].extend(other)
            continue
        matcher = SequenceMatcher(
            None, [_identity(record) for record in one], [_identity(record) for record in other], autojunk=False
        )
        for what, start, stop, other_start, other_stop in matcher.get_opcodes():
            if what == "equal":
                equal += stop - start
            else:
                pairs += zip_longest(one[start:stop], other[other_start:other_stop])
    if len(left[0]) == len(left[1]):
        pairs += zip(*left, strict=True)
    else:
        pairs += [(record, None) for record in left[0]]
        pairs += [(None, record) for record in left[1]]
    return equal, pairs


def _key(record: Sent) -> object:
    return record.key if isinstance(record.key, bytes | None) else repr(record.key)


def _identity(record: Sent) -> object:
    return (
        repr(record.value) if not isinstance(record.value, bytes | None) else record.value,
        *record[4:5],
        tuple(record[5]),
        record[6],
    )


def _merged(
    before: Iterator[tuple[bytes, bytes]], after: Iterator[tuple[bytes, bytes]]
) -> Iterator[tuple[bytes, bytes | None, bytes | None] | None]:
    """Yield None for each row that is equal, else its key and both values; both sides are ordered by key."""
    one, other = next(before, None), next(after, None)
    while one is not None or other is not None:
        if one is not None and other is not None and one[0] == other[0]:
            yield None if one[1] == other[1] else (one[0], one[1], other[1])
            one, other = next(before, None), next(after, None)
        elif other is None or (one is not None and one[0] < other[0]):
            assert one is not None
            yield one[0], one[1], None
            one = next(before, None)
        else:
            yield other[0], None, other[1]
            other = next(after, None)
