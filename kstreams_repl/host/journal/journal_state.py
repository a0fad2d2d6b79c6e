"""The state of the journal as a pure fold over its records, without a broker.

Rules: records of a lower generation than the desired state's are ignored (except versions, which are history). Invalid records, and a
desired state too many generations ahead, are ignored, counted and logged. Of several claims to one slot in one epoch the first wins.
Otherwise a later record replaces the earlier one with the same key, except that a report without figures keeps the earlier figures and
host.

Between two epochs no worker runs a slot, and none reports. Which slots a pause found so follows from the order of the log: a slot
is at rest if its last claim before the command has ended, because a worker that claims it later reads the command before it runs it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from kstreams_repl.host.journal.journal_records import (
    Assignment,
    Claim,
    DesiredState,
    InstanceHeartbeat,
    KeptOffsets,
    Measured,
    RetryOrder,
    ServerAddress,
    StopOffsets,
    TappedValues,
    TapRequest,
    VersionRecord,
    decode,
)
from kstreams_repl.system.errors import SerializationError

_LOG = logging.getLogger("kstreams_repl.host.kafka")
_ENDED = frozenset({"paused", "stopped", "failed", "superseded"})
_MOST_TAPPED = 1_000
LARGEST_LEAP = 2**32
"""The highest accepted increase of the generation. Generations increase by one, so a larger step is not from this project, and
accepting it could leave no room for the next one.
"""


class JournalState:
    """The journal's content up to `position`. Fold records in with `apply`; read the attributes."""

    def __init__(self) -> None:
        self.position = 0
        """The offset after the last record folded in."""
        self.ignored = 0
        """Number of records that were invalid or of an earlier generation."""
        self.desired: DesiredState | None = None
        self.assignment: Assignment | None = None
        self.stop_offsets: StopOffsets | None = None
        self.kept_offsets: KeptOffsets | None = None
        self._versions: dict[int, VersionRecord] = {}
        self._reports: dict[int, InstanceHeartbeat] = {}
        self._measured: dict[int, Measured] = {}
        self._claims: dict[tuple[str, int], Claim] = {}
        """By run and slot: the winning claim of the latest epoch."""
        self._homes: dict[int, str] = {}
        """By slot: the executor directory of its latest claim."""
        self._working: dict[tuple[str, int], str] = {}
        """By run and slot: the owner of the latest claim, until its epoch has ended."""
        self._servers: dict[str, ServerAddress] = {}
        """By executor directory: the address of its query server. It stays over generations: the server does, too."""
        self._orders: dict[str, RetryOrder] = {}
        """Clients' orders by id, until the client removes them or the generation ends."""
        self._taps: dict[str, TapRequest] = {}
        """Clients' requests for values at nodes by id, until the client or an instance removes them or the generation ends."""
        self.tapped: deque[TappedValues] = deque(maxlen=_MOST_TAPPED)
        """Values at nodes in the order of their arrival. The reader that asked for them takes them; all others skip their records."""
        self._busy: frozenset[int] | None = None
        """The slots with a claim in progress when the application was ordered to pause or stop; None while it is to run."""
        self._reports_at_command: dict[int, InstanceHeartbeat] = {}
        """The reports at that time: they do not answer the command."""

    def __repr__(self) -> str:
        state = f"{self.desired.state}, version {self.desired.version}" if self.desired else "empty"
        return f"JournalState(generation {self.generation}, {state}, {len(self._reports)} instances reported)"

    @property
    def generation(self) -> int:
        """The current generation; 0 before the first desired state. Each deploy, resume or edit takes the next one."""
        return self.desired.generation if self.desired else 0

    @property
    def versions(self) -> Mapping[int, VersionRecord]:
        """All versions by number."""
        return MappingProxyType(self._versions)

    @property
    def reports(self) -> Mapping[int, InstanceHeartbeat]:
        """The latest report of each slot in the current generation."""
        return MappingProxyType(self._reports)

    @property
    def measured(self) -> Mapping[int, Measured]:
        """The latest metrics of each slot in the current generation."""
        return MappingProxyType(self._measured)

    @property
    def servers(self) -> Mapping[str, ServerAddress]:
        """The query servers by executor directory, without those that have ended."""
        return MappingProxyType(self._servers)

    @property
    def orders(self) -> Mapping[str, RetryOrder]:
        """Clients' orders in the current generation by id, including those that have expired."""
        return MappingProxyType(self._orders)

    @property
    def taps(self) -> Mapping[str, TapRequest]:
        """Clients' requests for values at nodes by id, including those whose lease has expired."""
        return MappingProxyType(self._taps)

    def claim_of(self, slot: int, epoch: int, run: str = "") -> Claim | None:
        """Return the claim that holds a slot in an epoch."""
        claim = self._claims.get((run, slot))
        return claim if claim is not None and claim.epoch == epoch else None

    def claimed_by(self, partition: int, epoch: int, run: str = "") -> Claim | None:
        """Return the claim of an earlier attempt of a Spark task in an epoch."""
        return next(
            (claim for (of, _), claim in self._claims.items() if (of, claim.epoch, claim.partition) == (run, epoch, partition)), None
        )

    def last_claim(self, slot: int, run: str = "") -> Claim | None:
        """Return the claim that holds a slot in the latest epoch in which it was claimed."""
        return self._claims.get((run, slot))

    def home_of(self, slot: int) -> str | None:
        """Return the executor directory that a slot was last claimed for in this generation, by any query of it; None: none yet."""
        return self._homes.get(slot)

    @property
    def has_claims(self) -> bool:
        """Whether executors have claimed slots in this generation: its instances run on a cluster."""
        return bool(self._homes)

    @property
    def working(self) -> frozenset[int]:
        """The slots with a claim in progress: its epoch has not ended."""
        return frozenset(slot for _, slot in list(self._working))

    def is_at_rest(self, slot: int) -> bool:
        """Return whether no worker runs the slot since the application was ordered to pause or stop: none did then, or its instance has
        reported since that it is at rest.
        """
        busy, report = self._busy, self._reports.get(slot)
        if busy is None or slot not in busy:
            return busy is not None
        return report is not None and report is not self._reports_at_command.get(slot) and report.state in _ENDED

    def apply(self, key: bytes | None, value: bytes | None, offset: int) -> bool:
        """Fold one record in.

        Returns:
            Whether the state changed.
        """
        self.position = offset + 1
        try:
            name, record = decode(key, value)
        except SerializationError as error:
            self._refuse(offset, error.message)
            return False
        if record is None:
            return self._forget(name)
        if not isinstance(record, VersionRecord) and record.generation < self.generation:
            self.ignored += 1
            return False
        match record:
            case DesiredState():
                if self.desired is not None and record.generation > self.generation + LARGEST_LEAP:
                    self._refuse(offset, f"generation {record.generation} is too far ahead of generation {self.generation}")
                    return False
                if record.generation > self.generation:
                    self._enter_generation(record.generation)
                if record.state == "running":
                    self._busy = None
                elif self._busy is None:
                    self._busy, self._reports_at_command = self.working, dict(self._reports)
                self.desired = record
            case Assignment():
                self.assignment = record
            case StopOffsets():
                self.stop_offsets = record
            case KeptOffsets():
                self.kept_offsets = record
            case VersionRecord():
                self._versions[record.version] = record
            case InstanceHeartbeat():
                before = self._reports.get(record.slot)
                if not record.figures and before is not None and before.generation == record.generation:
                    record = replace(record, figures=before.figures, host=record.host or before.host)
                self._reports[record.slot] = record
                if record.done or record.state in _ENDED:
                    over = [at for at, owner in self._working.items() if at[1] == record.slot and owner == record.owner]
                    for at in over:
                        del self._working[at]
            case Measured():
                self._measured[record.slot] = record
            case ServerAddress():
                self._servers[record.place] = record
                if not record.port:
                    del self._servers[record.place]
            case RetryOrder():
                self._orders[record.id] = record
            case TapRequest():
                self._taps[record.id] = record
            case TappedValues():
                self.tapped.append(record)
            case Claim():
                held = self._claims.get((record.run, record.slot))
                if held is not None and not _passes(record, held):
                    return False
                self._claims[(record.run, record.slot)] = record
                self._working[(record.run, record.slot)] = record.owner
                self._homes[record.slot] = record.place
        return True

    def _refuse(self, offset: int, why: str) -> None:
        self.ignored += 1
        _LOG.warning("ignoring the journal record at offset %d: %s", offset, why)

    def _enter_generation(self, generation: int) -> None:
        """Drop what instances of earlier generations reported; kept offsets and stop offsets stay until the controller replaces them."""
        self._reports = {slot: report for slot, report in self._reports.items() if report.generation >= generation}
        self._measured = {slot: measured for slot, measured in self._measured.items() if measured.generation >= generation}
        self._claims = {key: claim for key, claim in self._claims.items() if claim.generation >= generation}
        self._orders = {name: order for name, order in self._orders.items() if order.generation >= generation}
        self._taps = {name: tap for name, tap in self._taps.items() if tap.generation >= generation}
        self._working, self._homes, self._busy = {}, {}, None
        if self.assignment is not None and self.assignment.generation < generation:
            self.assignment = None

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
        elif family == "server":
            return self._servers.pop(rest, None) is not None
        elif family == "order":
            return self._orders.pop(rest, None) is not None
        elif family == "tap":
            return self._taps.pop(rest, None) is not None
        elif family == "claim":
            gone = [key for key, claim in self._claims.items() if claim.key == name]
            for key in gone:
                del self._claims[key]
            return bool(gone)
        else:
            return False
        return True


def _passes(claim: Claim, held: Claim) -> bool:
    """Return whether a claim replaces the current one: it is of a later epoch, or a later attempt of the same task."""
    if (claim.generation, claim.epoch) != (held.generation, held.epoch):
        return (claim.generation, claim.epoch) > (held.generation, held.epoch)
    return claim.partition == held.partition and claim.attempt > held.attempt
