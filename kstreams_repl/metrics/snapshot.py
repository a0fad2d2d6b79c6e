"""What an instance measured at one time, in the form in which it travels, and all of an application's as rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Value = float | int | str | None
"""None stands for "no event in the window", which Kafka shows as NaN."""


Place = tuple[str, Mapping[str, str], Mapping[str, Value]]
"""(group, tags, values by name)."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of an application: its value when it was measured (ms since 1970)."""

    name: str
    group: str
    tags: Mapping[str, str]
    value: Value
    at_ms: int

    def matches(self, name: str | None, group: str | None, tags: Mapping[str, str]) -> bool:
        return (
            (name is None or self.name == name)
            and (group is None or self.group == group)
            and all(self.tags.get(tag) == wanted for tag, wanted in tags.items())
        )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """(group, tags, values by name) for each place of one instance."""

    at_ms: int
    places: list[Place] = field(default_factory=list)

    def plain(self) -> dict[str, Any]:
        """The form in which it is written down (JSON)."""
        return {"at_ms": self.at_ms, "places": [list(place) for place in self.places]}

    @classmethod
    def read(cls, plain: Mapping[str, Any]) -> Snapshot:
        return cls(int(plain["at_ms"]), [(group, tags, values) for group, tags, values in plain["places"]])

    def __iter__(self) -> Iterator[Metric]:
        for group, tags, values in self.places:
            for name, value in values.items():
                yield Metric(name, group, tags, value, self.at_ms)


def sound(said: Any) -> dict[str, Any] | None:
    """What `Snapshot.read` takes, as JSON or read already; None for anything else: it comes from a topic or a file."""
    try:
        plain = json.loads(said) if isinstance(said, str) else said
        snapshot = Snapshot.read(plain)
        figures = [value for _, _, values in snapshot.places for value in values.values()]
        texts = [text for group, tags, _ in snapshot.places for text in (group, *tags, *tags.values())]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    fits = all(value is None or isinstance(value, int | float | str) for value in figures) and all(isinstance(text, str) for text in texts)
    return dict(plain) if fits else None


def merged(snapshots: Iterable[Snapshot]) -> list[Metric]:
    """All metrics of an application's instances; they differ in their tags, so nothing is added up."""
    return [metric for snapshot in snapshots for metric in snapshot]
