"""The journal read so far, as a value: a pure fold of its records, without a broker.

Rules: a record of a lower generation than the desired state's says nothing any more and is ignored (versions excepted: they are history);
a record that does not validate is ignored and counted; of several claims to one slot in one epoch the first wins; whatever comes later
under a key replaces what came before.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kstreams_repl.errors import SerializationError
from kstreams_repl.kafka.journal_records import (
    Assignment,
    Claim,
    DesiredState,
    InstanceReport,
    KeptOffsets,
    StopOffsets,
    Version,
    decode,
)


class JournalState:
    """What the journal says up to `position`. Fold records in with `apply`; read the attributes."""

    def __init__(self) -> None:
        self.position = 0
        """The offset after the last record folded in."""
        self.ignored = 0
        """Records that did not validate or were of a passed generation."""
        self.desired: DesiredState | None = None
        self.assignment: Assignment | None = None
        self.stop_offsets: StopOffsets | None = None
        self.kept_offsets: KeptOffsets | None = None
        self._versions: dict[int, Version] = {}
        self._reports: dict[int, InstanceReport] = {}
        self._claims: dict[int, Claim] = {}

    def __repr__(self) -> str:
        state = f"{self.desired.state}, version {self.desired.version}" if self.desired else "empty"
        return f"JournalState(generation {self.generation}, {state}, {len(self._reports)} instances reported)"

    @property
    def generation(self) -> int:
        """The generation in force; 0 before the first desired state. A new deploy, resume or edit takes the next one."""
        return self.desired.generation if self.desired else 0

    @property
    def versions(self) -> Mapping[int, Version]:
        """All versions by number."""
        return MappingProxyType(self._versions)

    @property
    def reports(self) -> Mapping[int, InstanceReport]:
        """The last report of each slot in the generation in force."""
        return MappingProxyType(self._reports)

    @property
    def failures(self) -> Mapping[int, InstanceReport]:
        """The reports that tell a failure, by slot."""
        return {slot: report for slot, report in self._reports.items() if report.failure is not None}

    def owner_of(self, slot: int, epoch: int) -> str | None:
        """Who claimed a slot first in an epoch; None when nobody has yet."""
        claim = self._claims.get(slot)
        return claim.owner if claim is not None and claim.epoch == epoch else None

    def all_report(self, state: str) -> bool:
        """Whether every instance of the desired state has reported ``state`` in its generation."""
        wanted = self.desired.instances if self.desired else 0
        return wanted > 0 and all(slot in self._reports and self._reports[slot].state == state for slot in range(wanted))

    def apply(self, key: bytes | None, value: bytes | None, offset: int) -> bool:
        """Folds one record in.

        Returns:
            Whether anything changed.
        """
        self.position = offset + 1
        try:
            name, record = decode(key, value)
        except SerializationError:
            self.ignored += 1
            return False
        if record is None:
            return self._forget(name)
        if not isinstance(record, Version) and record.generation < self.generation:
            self.ignored += 1
            return False
        match record:
            case DesiredState():
                if record.generation > self.generation:
                    self._enter_generation(record.generation)
                self.desired = record
            case Assignment():
                self.assignment = record
            case StopOffsets():
                self.stop_offsets = record
            case KeptOffsets():
                self.kept_offsets = record
            case Version():
                self._versions[record.version] = record
            case InstanceReport():
                self._reports[record.slot] = record
            case Claim():
                held = self._claims.get(record.slot)
                if held is not None and (held.generation, held.epoch) >= (record.generation, record.epoch):
                    return False
                self._claims[record.slot] = record
        return True

    def _enter_generation(self, generation: int) -> None:
        """What instances of earlier generations said is over; kept offsets stay, for the new generation starts from them."""
        self._reports = {slot: report for slot, report in self._reports.items() if report.generation >= generation}
        self._claims = {slot: claim for slot, claim in self._claims.items() if claim.generation >= generation}
        if self.assignment is not None and self.assignment.generation < generation:
            self.assignment = None
        if self.stop_offsets is not None and self.stop_offsets.generation < generation:
            self.stop_offsets = None

    def _forget(self, name: str) -> bool:
        family, _, rest = name.partition("/")
        if name == "control/desired":
            self.desired = None
        elif name == "control/assignment":
            self.assignment = None
        elif name == "control/stop-offsets":
            self.stop_offsets = None
        elif name == "control/kept-offsets":
            self.kept_offsets = None
        elif rest.startswith("version/") and rest[8:].isdigit():
            return self._versions.pop(int(rest[8:]), None) is not None
        elif rest.isdigit():
            slot = int(rest)
            return (self._reports.pop(slot, None) if family == "instance" else self._claims.pop(slot, None)) is not None
        else:
            return False
        return True
