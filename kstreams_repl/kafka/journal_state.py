"""The journal read so far, as a value: a pure fold of its records, without a broker.

Rules: a record of a lower generation than the desired state's says nothing any more and is ignored (versions excepted: they are history);
a record that does not validate is ignored and counted; of several claims to one slot in one epoch the first wins; whatever comes later
under a key replaces what came before, except that a report without figures keeps those before it, and their place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from kstreams_repl.errors import SerializationError
from kstreams_repl.kafka.journal_records import (
    Assignment,
    Claim,
    DesiredState,
    InstanceReport,
    KeptOffsets,
    Measured,
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
        self._measured: dict[int, Measured] = {}
        self._claims: dict[tuple[str, int], Claim] = {}
        """By run and slot: the winner of the latest epoch."""

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
    def measured(self) -> Mapping[int, Measured]:
        """What each slot measured last in the generation in force."""
        return MappingProxyType(self._measured)

    @property
    def failures(self) -> Mapping[int, InstanceReport]:
        """The reports that tell a failure, by slot."""
        return {slot: report for slot, report in self._reports.items() if report.failure is not None}

    def owner_of(self, slot: int, epoch: int, run: str = "") -> str | None:
        """Who claimed a slot first in an epoch; None when nobody has yet."""
        claim = self.claim_of(slot, epoch, run)
        return None if claim is None else claim.owner

    def claim_of(self, slot: int, epoch: int, run: str = "") -> Claim | None:
        """The claim that holds a slot in an epoch."""
        claim = self._claims.get((run, slot))
        return claim if claim is not None and claim.epoch == epoch else None

    def claimed_by(self, partition: int, epoch: int, run: str = "") -> Claim | None:
        """What an earlier attempt of a Spark task holds in an epoch."""
        return next(
            (claim for (of, _), claim in self._claims.items() if (of, claim.epoch, claim.partition) == (run, epoch, partition)), None
        )

    def last_claim(self, slot: int, run: str = "") -> Claim | None:
        """The claim that holds a slot in the last epoch that somebody claimed it for."""
        return self._claims.get((run, slot))

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
                before = self._reports.get(record.slot)
                if not record.figures and before is not None and before.generation == record.generation:
                    record = replace(record, figures=before.figures, host=record.host or before.host)
                self._reports[record.slot] = record
            case Measured():
                self._measured[record.slot] = record
            case Claim():
                held = self._claims.get((record.run, record.slot))
                if held is not None and not _passes(record, held):
                    return False
                self._claims[(record.run, record.slot)] = record
        return True

    def _enter_generation(self, generation: int) -> None:
        """What instances of earlier generations said is over; kept offsets stay until whoever raises it says that they are used."""
        self._reports = {slot: report for slot, report in self._reports.items() if report.generation >= generation}
        self._measured = {slot: said for slot, said in self._measured.items() if said.generation >= generation}
        self._claims = {at: claim for at, claim in self._claims.items() if claim.generation >= generation}
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
        elif rest.startswith("version/") and rest[8:].isdecimal():
            return self._versions.pop(int(rest[8:]), None) is not None
        elif family == "instance" and rest.isdecimal():
            return self._reports.pop(int(rest), None) is not None
        elif family == "instance" and rest.endswith("/metrics") and rest[:-8].isdecimal():
            return self._measured.pop(int(rest[:-8]), None) is not None
        elif family == "claim":
            gone = [at for at, claim in self._claims.items() if claim.key == name]
            for at in gone:
                del self._claims[at]
            return bool(gone)
        else:
            return False
        return True


def _passes(claim: Claim, held: Claim) -> bool:
    """Whether a claim takes a slot from the one that holds it: in a later epoch, or as a later attempt of the same task."""
    if (claim.generation, claim.epoch) != (held.generation, held.epoch):
        return (claim.generation, claim.epoch) > (held.generation, held.epoch)
    return claim.partition == held.partition and claim.attempt > held.attempt
