"""What a run put on its output topic, in a form that two systems can be compared by: the last value of each key where
the output is a table's changes (how many changes there are depends on caches and commits), else every record, in any
order.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kstreams_repl.bench.site import Site
from kstreams_repl.kafka.reading import ranges_of, read_ranges

TABLES = ("count", "sum", "window")
"""Workloads whose output is a table's changes."""


@dataclass(frozen=True, slots=True)
class Output:
    """Everything committed on an output topic.

    Attributes:
        records: how many there are.
        last: the last value of each key of a table; else empty.
        fingerprint: of a stream: the sum of the hashes of its records, which no order changes; comparable within one process only.
    """

    records: int
    last: dict[bytes | None, bytes | None] = field(default_factory=dict, repr=False)
    fingerprint: int = 0

    def differences(self, other: Output) -> int:
        """Keys whose last value differs; of streams 0 or 1 for equal or not."""
        if self.last or other.last:
            return len(self.last.items() ^ other.last.items())
        return int((self.records, self.fingerprint) != (other.records, other.fingerprint))


def read_output(site: Site, topic: str, workload: str) -> Output:
    """Read an output topic to its end, committed records only."""
    records, fingerprint = 0, 0
    last: dict[bytes | None, bytes | None] = {}
    table = workload in TABLES
    for _, batch in read_ranges(site.settings, ranges_of(site.admin, topic, settled=True)):
        records += len(batch)
        if table:
            last.update(zip(batch.keys, batch.values, strict=True))
        else:
            fingerprint += sum(map(hash, zip(batch.keys, batch.values, strict=True)))
    return Output(records, last, fingerprint)
