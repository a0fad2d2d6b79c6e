"""Nexmark's three topics with schemas: the same events as Avro or Protobuf, with schema ids of a Schema Registry in front.

Times are numbers, so that a value is the same dict in each format.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from kstreams_repl import serdes
from workshop.bench.rig import record_schemas
from workshop.bench.rig.nexmark_events import rows_of
from workshop.bench.rig.testbed import Testbed
from workshop.bench.rig.workloads import Row

JSON = "json"
FORMATS = (JSON, *record_schemas.FORMATS)
_FIELDS: Mapping[str, str] = {
    "person": "id:long name emailAddress creditCard city state dateTime:long extra",
    "auction": "id:long itemName description initialBid:long reserve:long dateTime:long expires:long seller:long category:long extra",
    "bid": "auction:long bidder:long price:long channel url dateTime:long extra",
}


@dataclass(frozen=True, slots=True)
class Values:
    """The format of the topics' values, and the address of the registry; called, the serde of a topic (`query_cases.ValueSerdes`)."""

    format: str = JSON
    registry: str = ""

    def __call__(self, kind: str) -> serdes.Serde:
        if self.format == JSON or kind not in _FIELDS:
            return serdes.json
        return record_schemas.record_serde(self.format, kind.capitalize(), _FIELDS[kind], registry=self.registry)

    def encoded(self, kind: str, topic: str, rows: Iterable[Row]) -> Iterator[Row]:
        """Iterate over JSON rows of a topic in this format."""
        if self.format == JSON or kind not in _FIELDS:
            yield from rows
            return
        write = self(kind).for_topic(topic).serialize
        for key, value, at_ms in rows:
            yield key, write(json.loads(value)) or b"", at_ms


@contextmanager
def opened(format: str, testbed: Testbed) -> Iterator[tuple[Values, Testbed]]:
    """Yield the values of a format; with a Schema Registry if they need one, whose schemas are kept where the topics are."""
    if format == JSON:
        yield Values(), testbed
        return
    from kstreams_repl.host.kafka.embedded.registry import EmbeddedRegistry

    with EmbeddedRegistry(testbed.scratch / "registry") as registry:
        values = Values(format, registry.url)
        for kind in _FIELDS:  # always in this order: a cluster's topics, with the ids of an earlier registry, fit this one
            next(values.encoded(kind, f"nexmark-{format}-{kind}", rows_of(kind, 10, first_ms=0)))
        yield values, replace(testbed, registry_pid=registry.pid)
