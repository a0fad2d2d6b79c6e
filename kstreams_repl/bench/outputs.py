"""The output of a run in a form in which two systems can be compared: the last value of each key if the output is a table's
changes (their number depends on caches and commits), otherwise every record, in any order.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kstreams_repl.bench.testbed import Testbed
from kstreams_repl.kafka.reading import ranges_of, read_ranges

TABLES = ("count", "sum", "window")
"""Workloads whose output is a table's changes."""


@dataclass(frozen=True, slots=True)
class Output:
    """All committed records of an output topic.

    Attributes:
        records: number of records.
        last: the last value of each key of a table; empty for a stream.
        fingerprint: for a stream: the sum of the hashes of its records, independent of their order; comparable within one process
            only.
    """

    records: int
    last: dict[bytes | None, bytes | None] = field(default_factory=dict, repr=False)
    fingerprint: int = 0

    def differences(self, other: Output) -> int:
        """Return the number of keys whose last value differs; for streams 0 if they are equal, else 1."""
        if self.last or other.last:
            return len(self.last.items() ^ other.last.items())
        return int((self.records, self.fingerprint) != (other.records, other.fingerprint))


def read_output(testbed: Testbed, topic: str, workload: str) -> Output:
    """Read an output topic to its end, committed records only."""
    records, fingerprint = 0, 0
    last: dict[bytes | None, bytes | None] = {}
    table = workload in TABLES
    for _, batch in read_ranges(testbed.settings, ranges_of(testbed.admin, topic, settled=True)):
        records += len(batch)
        if table:
            last.update(zip(batch.keys, batch.values, strict=True))
        else:
            fingerprint += sum(map(hash, zip(batch.keys, batch.values, strict=True)))
    return Output(records, last, fingerprint)
