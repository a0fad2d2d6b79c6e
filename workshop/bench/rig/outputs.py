"""The output of a run in a form in which two systems can be compared: the last value of each key if the output is a table's
changes (their number depends on caches and commits), otherwise every record, in any order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from kstreams_repl.host.kafka.reading import ranges_of, read_ranges
from workshop.bench.rig.testbed import Testbed

TABLES = ("count", "sum", "window")
"""Workloads whose output is a table's changes."""


_WINDOW_START = 8


class Compared(Enum):
    """How two outputs are compared: all records in any order, or only their keys; the last value of each key, or its sum over the
    windows of a key."""

    RECORDS = "records"
    KEYS = "keys"
    TABLE = "table"
    SUMS = "sums"


@dataclass(frozen=True, slots=True)
class Output:
    """All committed records of an output topic.

    Attributes:
        records: number of records.
        last: the last value of each key of a table, without deleted rows: which rows exist for a while depends on the order in which
            partitions are read; empty for a stream.
        fingerprint: for a stream: the sum of the hashes of its records, or of their keys, independent of their order; comparable
            within one process only.
    """

    records: int
    last: dict[bytes | None, bytes | None] = field(default_factory=dict, repr=False)
    fingerprint: int = 0

    def differences(self, other: Output) -> int:
        """Return the number of keys whose last value differs; for streams 0 if they are equal, else 1."""
        if self.last or other.last:
            return len(self.last.items() ^ other.last.items())
        return int((self.records, self.fingerprint) != (other.records, other.fingerprint))

    def summed(self) -> Output:
        """Return the sums of a table's windowed counts by key: windows of processing time differ from run to run."""
        sums: dict[bytes | None, int] = {}
        for windowed, count in self.last.items():
            key = (windowed or b"")[:-_WINDOW_START]
            sums[key] = sums.get(key, 0) + int.from_bytes(count or b"", "big")
        return Output(self.records, {key: total.to_bytes(8, "big") for key, total in sums.items()})


def read_output(testbed: Testbed, topic: str, compared: Compared) -> Output:
    """Read an output topic to its end, committed records only, in the form in which it is compared."""
    records, fingerprint = 0, 0
    last: dict[bytes | None, bytes | None] = {}
    for _, batch in read_ranges(testbed.settings, ranges_of(testbed.admin, topic, settled=True)):
        records += len(batch)
        if compared is Compared.RECORDS:
            fingerprint += sum(map(hash, zip(batch.keys, batch.values, strict=True)))
        elif compared is Compared.KEYS:
            fingerprint += sum(map(hash, batch.keys))
        else:
            last.update(zip(batch.keys, batch.values, strict=True))
    found = Output(records, {key: value for key, value in last.items() if value is not None}, fingerprint)
    return found.summed() if compared is Compared.SUMS else found
