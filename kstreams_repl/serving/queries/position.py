"""`Position`: how far into its inputs a state has come, and `PositionBound`, how far it must have come for a query."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kstreams_repl.system.errors import CallError
from kstreams_repl.system.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Position:
    """The offset of the last record that a state reflects, by topic and partition. A value: every change returns a new one.

    Example:
        >>> import kstreams_repl as ks
        >>> ks.queries.Position.empty_position().with_component("words", 0, 7).merge(ks.queries.Position({"words": {1: 3}}))
        Position(offsets={'words': {0: 7, 1: 3}})
    """

    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    @classmethod
    def empty_position(cls) -> Position:
        """Return the position before every record.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.Position.empty_position()
            Position(offsets={})
        """
        return cls()

    @classmethod
    def of(cls, offsets: Mapping[TopicPartition, int] | Iterable[tuple[TopicPartition, int]]) -> Position:
        """Return the position with these offsets.

        Args:
            offsets: offset of the last record by topic partition.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.Position.of({ks.types.TopicPartition("words", 0): 7})
            Position(offsets={'words': {0: 7}})
        """
        found: dict[str, dict[int, int]] = {}
        for partition, offset in offsets.items() if isinstance(offsets, Mapping) else offsets:
            found.setdefault(partition.topic, {})[partition.partition] = offset
        return cls(found)

    @property
    def topics(self) -> frozenset[str]:
        """The topics with an offset.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.Position({"words": {0: 7}}).topics
            frozenset({'words'})
        """
        return frozenset(self.offsets)

    def partition_positions(self, topic: str) -> Mapping[int, int]:
        """Return the offsets of a topic by partition.

        Args:
            topic: the topic's name.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.Position({"words": {0: 7}}).partition_positions("words")
            {0: 7}
        """
        return self.offsets.get(topic, {})

    def with_component(self, topic: str, partition: int, offset: int) -> Position:
        """Return this position with one more offset; a smaller one than it has changes nothing.

        Args:
            topic, partition: where.
            offset: of the last record.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.Position().with_component("words", 0, 7)
            Position(offsets={'words': {0: 7}})
        """
        return self.merge(Position({topic: {partition: offset}}))

    def merge(self, other: Position) -> Position:
        """Return the larger offset of both for each partition.

        Args:
            other: a position.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.Position({"words": {0: 7}}).merge(ks.queries.Position({"words": {0: 9}}))
            Position(offsets={'words': {0: 9}})
        """
        merged = {topic: dict(offsets) for topic, offsets in self.offsets.items()}
        for topic, offsets in other.offsets.items():
            mine = merged.setdefault(topic, {})
            for partition, offset in offsets.items():
                mine[partition] = max(offset, mine.get(partition, offset))
        return Position(merged)

    def to_json(self) -> str:
        """Return it as JSON.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.Position({"words": {0: 7}}).to_json()
            '{"words":{"0":7}}'
        """
        plain = {topic: {str(part): offset for part, offset in sorted(offsets.items())} for topic, offsets in self.offsets.items()}
        return json.dumps(plain, separators=(",", ":"), sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Position:
        """Return the position of a JSON text.

        Args:
            text: what `to_json` returned.

        Raises:
            CallError: it is not a position.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.Position.from_json('{"words":{"0":7}}')
            Position(offsets={'words': {0: 7}})
        """
        try:
            plain = json.loads(text)
            return cls({str(topic): {_whole(part): _whole(at) for part, at in offsets.items()} for topic, offsets in plain.items()})
        except (ValueError, TypeError, AttributeError) as error:
            raise CallError(
                f"expected a position as JSON, got {str(text)[:80]!r}", hint='for example {"words": {"0": 7}}', argument="text"
            ) from error


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"expected a whole number, got {value!r}")
    return int(value)


@dataclass(frozen=True, slots=True)
class PositionBound:
    """What a state must have reached to answer a query.

    Example:
        >>> import kstreams_repl as ks
        >>> ks.queries.PositionBound.at(ks.queries.Position({"words": {0: 7}})).is_reached_by(ks.queries.Position({"words": {0: 9}}), 0)
        True
    """

    position: Position = field(default_factory=Position)

    @classmethod
    def unbounded(cls) -> PositionBound:
        """Return the bound that every state has reached.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.PositionBound.unbounded().is_unbounded
            True
        """
        return cls()

    @classmethod
    def at(cls, position: Position) -> PositionBound:
        """Return the bound at a position.

        Args:
            position: what must be reflected.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.PositionBound.at(ks.queries.Position({"words": {0: 7}})).is_unbounded
            False
        """
        return cls(position)

    @property
    def is_unbounded(self) -> bool:
        """Whether every state has reached it.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.PositionBound.unbounded().is_unbounded
            True
        """
        return not any(self.position.offsets.values())

    def is_reached_by(self, position: Position, partition: int) -> bool:
        """Return whether the state of one partition has reached it. Bounds of other partitions do not count.

        Args:
            position: the state's position.
            partition: the state's partition.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.PositionBound.at(ks.queries.Position({"words": {0: 7}})).is_reached_by(ks.queries.Position(), 0)
            False
        """
        for topic, bounds in self.position.offsets.items():
            if partition in bounds:
                seen = position.partition_positions(topic).get(partition)
                if seen is None or seen < bounds[partition]:
                    return False
        return True
