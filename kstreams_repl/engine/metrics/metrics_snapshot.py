"""The metrics of an instance at one time, in the form sent to the driver, and those of an application as rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import ValidationError, convert

from kstreams_repl.system.types import JsonMapping, JsonObject

Value = float | int | str | None
"""None means that the window has no event, which Kafka shows as NaN."""


MetricGroup = tuple[str, Mapping[str, str], Mapping[str, Value]]
"""(group, tags, values by name)."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of an application: its value and the time of its measurement (epoch ms)."""

    name: str
    group: str
    tags: Mapping[str, str]
    value: Value
    at_ms: int

    def matches(self, name: str | None, group: str | None, tags: Mapping[str, str]) -> bool:
        """Return whether the metric has this name, group and tags.

        Args:
            name: None: any name.
            group: None: any group.
            tags: tags that it must have, with their values; others are ignored.

        Example:
            >>> import kstreams_repl as ks
            >>> metric = ks.reports.Metric("commit-total", "stream-thread-metrics", {"thread-id": "counts-StreamThread-1"}, 7, 0)
            >>> metric.matches("commit-total", None, {})
            True
        """
        return (
            (name is None or self.name == name)
            and (group is None or self.group == group)
            and all(self.tags.get(tag) == text for tag, text in tags.items())
        )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """(group, tags, values by name) for each group and set of tags of one instance."""

    at_ms: int
    groups: list[MetricGroup]

    def plain(self) -> JsonObject:
        """Return a JSON-serializable form."""
        return {"at_ms": self.at_ms, "groups": [list(group) for group in self.groups]}

    @classmethod
    def read(cls, plain: JsonMapping) -> Snapshot:
        return cls(int(plain["at_ms"]), [(group, tags, values) for group, tags, values in plain["groups"]])

    def __iter__(self) -> Iterator[Metric]:
        for group, tags, values in self.groups:
            for name, value in values.items():
                yield Metric(name, group, tags, value, self.at_ms)


def validated(text: Any) -> JsonObject | None:
    """Return valid input of `Snapshot.read`, from JSON or decoded JSON; None if it is invalid, since it comes from a topic or a file."""
    try:
        plain = json.loads(text) if isinstance(text, str) else text
        convert(plain, Snapshot)
    except (ValueError, RecursionError, ValidationError):
        return None
    return dict(plain)


def merged(snapshots: Iterable[Snapshot]) -> list[Metric]:
    """Return all metrics of an application's instances. Their tags differ, so nothing is aggregated."""
    return [metric for snapshot in snapshots for metric in snapshot]
