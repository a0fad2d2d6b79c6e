"""The records of the control journal: frozen values, their keys, and a codec that validates everything it reads.

There are two families of keys (guarantees.md, "The journal"): *control* keys are written by the producer with the transactional id
``<application.id>-control``; each of the others has a writer of its own, named in the key: the instance in a slot, the query server of
an executor, the client that gives an order or taps a node. A record is JSON with a ``kind``.
Decoding checks the kind against the key and every field against the dataclass and its bounds, and rejects what does not fit, so that a
decoded record can be used, written again and displayed. Records never contain client settings or secrets. The source text of a version
is for display: its hash identifies a session file, and it is never executed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import orjson
from msgspec import Meta, ValidationError, convert

from kstreams_repl.system.errors import SerializationError
from kstreams_repl.system.types import JsonMapping

DesiredName = Literal["running", "paused", "stopped"]
StopState = Literal["open", "finished", "dropped"]
RetryAction = Literal["retry", "drop"]
InstanceStateName = Literal["starting", "restoring", "running", "recovering", "paused", "stopped", "failed", "superseded"]


Generation = Annotated[int, Meta(ge=0, le=2**53)]
Number = Annotated[int, Meta(ge=0, le=2**53)]
"""Versions, epochs, runs: counters from 0. JSON parsers of every language represent them exactly, also after an increment."""
Slots = Annotated[int, Meta(ge=0, le=100_000)]
Attempt = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Offset = Annotated[int, Meta(ge=0, le=2**63 - 2)]
Quantity = Annotated[int, Meta(ge=-1, le=2**63 - 2)]
"""A number of records; -1 when unknown."""
Millis = Annotated[int, Meta(ge=0, le=253_402_300_799_999)]
"""Epoch milliseconds up to the end of the year 9999, the last one that Python can format as a date."""
Name = Annotated[str, Meta(max_length=4_096)]
Prose = Annotated[str, Meta(max_length=8_000_000)]
TaskName = Annotated[str, Meta(max_length=21, pattern=r"^[0-9]{1,10}_[0-9]{1,10}\Z")]
SlotName = Annotated[str, Meta(max_length=6, pattern=r"^[0-9]+\Z")]
PartitionName = Annotated[str, Meta(max_length=10, pattern=r"^[0-9]+\Z")]
PlaceName = Annotated[str, Meta(max_length=249, pattern=r"^[A-Za-z0-9._-]+\Z")]
HostName = Annotated[str, Meta(max_length=255, pattern=r"^[A-Za-z0-9.:_-]+\Z")]
TapRows = Annotated[int, Meta(ge=1, le=1_000)]
TapRate = Annotated[int, Meta(ge=1, le=10_000)]
OrderId = Annotated[str, Meta(max_length=32, pattern=r"^[0-9a-f]{8,32}\Z")]
TopicName = Annotated[str, Meta(max_length=249, pattern=r"^[A-Za-z0-9._-]+\Z")]


class _Single:
    """A control record of which the journal has one."""

    __slots__ = ()
    kind: ClassVar[str]

    @property
    def key(self) -> str:
        return f"control/{self.kind}"


@dataclass(frozen=True, slots=True)
class DesiredState(_Single):
    """The desired state, generation, version and number of instances of the application. Control key ``desired``."""

    kind: ClassVar[str] = "desired"
    generation: Generation
    state: DesiredName
    version: Number
    instances: Slots
    at_ms: Millis = 0


@dataclass(frozen=True, slots=True)
class Assignment(_Single):
    """The tasks (``0_3``) of each instance slot. Control key ``assignment``.

    Attributes:
        standbys: by slot, the tasks for which it keeps standby copies.
        places: by slot, the executor directory in which it ran last when the assignment was made.
    """

    kind: ClassVar[str] = "assignment"
    generation: Generation
    tasks: dict[SlotName, tuple[TaskName, ...]]
    standbys: dict[SlotName, tuple[TaskName, ...]] = field(default_factory=dict)
    places: dict[SlotName, Name] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """The source text of one version of the topology, its hash, and its ``describe()`` text. Control keys ``version/<n>``.

    Attributes:
        counts: what had passed the application's nodes when it took effect (`engine.commit.committed_counts`), as Base64; "" where nothing
            had.
    """

    kind: ClassVar[str] = "version"
    generation: Generation
    version: Number
    source: Prose
    source_hash: Name
    description: Prose = ""
    at_ms: Millis = 0
    counts: Prose = ""

    @property
    def key(self) -> str:
        return f"control/version/{self.version}"

    @classmethod
    def of(cls, source: str, *, generation: int, version: int, description: str = "", at_ms: int = 0) -> VersionRecord:
        """Create a version with the hash of its source."""
        return cls(generation, version, source, source_hash(source), description, at_ms)


@dataclass(frozen=True, slots=True)
class StopOffsets(_Single):
    """The offsets at which a bounded run stops (KIP-95), fixed once when the run begins. Control key ``stop-offsets``.

    One record holds all of them, so a reader sees all or none; a later generation of the same run reads them again.

    Attributes:
        run: number of the run, from 1.
        state: "open" until every instance has stopped there, then "finished"; "dropped" when the application became a stream before.
        starts: the committed offsets when the run began; partitions without one are left out.
        at_ms: when the run began.
        counts: what had passed the application's nodes by then (`engine.commit.committed_counts`), as Base64.
    """

    kind: ClassVar[str] = "stop-offsets"
    generation: Generation
    run: Number
    offsets: dict[TopicName, dict[PartitionName, Offset]]
    state: StopState = "open"
    starts: dict[TopicName, dict[PartitionName, Offset]] = field(default_factory=dict)
    at_ms: Millis = 0
    counts: Prose = ""


@dataclass(frozen=True, slots=True)
class KeptOffset:
    """A committed offset with its metadata."""

    offset: Offset
    metadata: Prose = ""


@dataclass(frozen=True, slots=True)
class KeptOffsets(_Single):
    """A copy of the group's offsets at a pause or stop, because the broker deletes them after some days. Control key ``kept-offsets``.

    It is empty while the application runs, when the group's own offsets advance.

    Attributes:
        topics: topic ids by name; offsets of a topic that was deleted and recreated under the same name are not used.
    """

    kind: ClassVar[str] = "kept-offsets"
    generation: Generation
    offsets: dict[TopicName, dict[PartitionName, KeptOffset]]
    at_ms: Millis = 0
    topics: dict[TopicName, Name] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TaskHeartbeat:
    """A task as reported by its instance. Positions are by ``topic-partition``; ``lag`` is in unprocessed records, -1 when unknown."""

    state: Name
    positions: dict[Name, Quantity] = field(default_factory=dict)
    lag: Quantity = -1
    records: Number = 0
    commit_id: Quantity = 0
    restore_remaining: Quantity = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why an instance stopped: class and text of the error, the user's line first, and the record being processed."""

    error: Name
    message: Prose
    node: Prose | None = None
    task: Name | None = None
    topic: Name | None = None
    partition: Quantity | None = None
    offset: Quantity | None = None
    trace: Prose = ""


@dataclass(frozen=True, slots=True)
class InstanceHeartbeat:
    """The heartbeat of an instance. Instance key ``host/instance/<slot>``.

    ``owner`` names the process as its claims do; ``done`` is True when the epoch of its claim has ended: what it processed is committed,
    and it runs the slot no more before another claim; ``host`` is the executor's state directory while its stores are open there;
    ``figures`` is the complete report as JSON, for display.
    """

    kind: ClassVar[str] = "instance"
    generation: Generation
    slot: Slots
    owner: Name
    state: InstanceStateName
    at_ms: Millis
    epoch: Number = 0
    version: Number = 0
    tasks: dict[TaskName, TaskHeartbeat] = field(default_factory=dict)
    failure: Failure | None = None
    done: bool = False
    host: Name = ""
    figures: Prose = ""

    @property
    def key(self) -> str:
        return f"instance/{self.slot}"


@dataclass(frozen=True, slots=True)
class Claim:
    """A worker's claim to a slot for one epoch; the first in log order wins. Instance key ``claim/<slot>/<partition>``.

    Attributes:
        owner: the process.
        run: the query to which the epoch belongs; each query counts its epochs from 0.
        partition, attempt: Spark's partition id and attempt number. A later attempt of the same task inherits the claims of earlier ones.
        place: the directory in which the owner keeps its stores.
    """

    kind: ClassVar[str] = "claim"
    generation: Generation
    slot: Slots
    epoch: Number
    owner: Name
    run: Name = ""
    partition: Attempt = 0
    attempt: Number = 0
    place: Name = ""

    @property
    def key(self) -> str:
        return f"claim/{self.slot}/{self.partition}"


@dataclass(frozen=True, slots=True)
class Measured:
    """The latest metrics of an instance (`engine.metrics.metrics_snapshot`) as JSON, for display. Instance key
    ``host/instance/<slot>/metrics``."""

    kind: ClassVar[str] = "measured"
    generation: Generation
    slot: Slots
    snapshot: Prose

    @property
    def key(self) -> str:
        return f"instance/{self.slot}/metrics"


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The query server of one executor. Instance key ``server/<place>``.

    Attributes:
        place: the executor's state directory; ``driver`` on the driver's own host.
        host, port: where it listens; port 0: it has ended.
        tls: whether it expects TLS.
    """

    kind: ClassVar[str] = "server"
    generation: Generation
    place: PlaceName
    host: HostName
    port: Annotated[int, Meta(ge=0, le=65_535)]
    tls: bool = False
    at_ms: Millis = 0

    @property
    def key(self) -> str:
        return f"server/{self.place}"


@dataclass(frozen=True, slots=True)
class RetryOrder:
    """A client's order about records that wait off the main path of an asynchronous node. Instance key ``order/<id>``.

    Attributes:
        rows: numbers of the records in the node, by partition of the task.
        until_ms: when the order expires.
    """

    kind: ClassVar[str] = "order"
    generation: Generation
    id: OrderId
    node: Name
    action: RetryAction
    rows: dict[PartitionName, tuple[Number, ...]]
    until_ms: Millis

    @property
    def key(self) -> str:
        return f"order/{self.id}"

    def in_force(self, now_ms: int) -> bool:
        """Return whether it has not expired."""
        return now_ms < self.until_ms

    @classmethod
    def read(cls, content: JsonMapping) -> RetryOrder | None:
        """Read the fields of an order; return None when they are invalid."""
        try:
            return convert(content, cls)
        except ValidationError:
            return None


@dataclass(frozen=True, slots=True)
class TapRequest:
    """A client's request for the values at a node of the running application (`control.node_taps`). Instance key ``tap/<id>``.

    Attributes:
        node: the node whose output (a sink: whose input) is observed.
        rows: how many of the last records each instance keeps.
        per_second: records beyond this rate are counted, not shown.
        until_ms: end of the lease by the client's clock; the client extends it while it lives. Through the journal, where clocks may
            differ, a lease runs from the arrival of the request.
        last_ms: latest end of the lease after any renewal.
    """

    kind: ClassVar[str] = "tap"
    generation: Generation
    id: OrderId
    node: Name
    rows: TapRows
    per_second: TapRate
    until_ms: Millis
    last_ms: Millis

    @property
    def key(self) -> str:
        return f"tap/{self.id}"

    def in_force(self, now_ms: int) -> bool:
        """Return whether the lease has not expired."""
        return now_ms < min(self.until_ms, self.last_ms)

    @classmethod
    def read(cls, content: JsonMapping) -> TapRequest | None:
        """Read the fields of a request; return None when they are invalid."""
        try:
            return convert(content, cls)
        except ValidationError:
            return None


@dataclass(frozen=True, slots=True)
class TappedValues:
    """The values that passed the tapped nodes of an instance since its last such record, as JSON, for display. Instance key
    ``tapped/<slot>``.
    """

    kind: ClassVar[str] = "tapped"
    generation: Generation
    slot: Slots
    values: Prose

    @property
    def key(self) -> str:
        return f"tapped/{self.slot}"


ControlRecord = DesiredState | Assignment | VersionRecord | StopOffsets | KeptOffsets
InstanceRecord = InstanceHeartbeat | Measured | Claim | ServerAddress | RetryOrder | TapRequest | TappedValues
JournalRecord = ControlRecord | InstanceRecord

CONTROL_KINDS: Mapping[str, type[Any]] = {cls.kind: cls for cls in (DesiredState, Assignment, VersionRecord, StopOffsets, KeptOffsets)}
INSTANCE_KINDS: Mapping[str, type[Any]] = {
    cls.kind: cls for cls in (InstanceHeartbeat, Measured, Claim, ServerAddress, RetryOrder, TapRequest, TappedValues)
}
_INSTANCE_KEYS = ("instance/", "claim/", "server/", "order/", "tap/", "tapped/")


def source_hash(source: str) -> str:
    """Return the SHA-256 of a version's source text; it identifies the session file that ran."""
    return hashlib.sha256(source.encode("utf-8")).hexdigest()


def encode(record: JournalRecord) -> tuple[bytes, bytes]:
    """Return the key and value bytes of a record."""
    return record.key.encode("utf-8"), orjson.dumps({"kind": record.kind, **asdict(record)})


def decode(key: bytes | None, value: bytes | None) -> tuple[str, JournalRecord | None]:
    """Return the key and the record; None for the record of a deleted key.

    Raises:
        SerializationError: the bytes are not a journal record, its kind does not belong to that key, or a field is invalid.
    """
    try:
        name = (key or b"").decode("utf-8")
        family = CONTROL_KINDS if name.startswith("control/") else INSTANCE_KINDS if name.startswith(_INSTANCE_KEYS) else None
        if family is None:
            raise ValueError(f"unknown key {name[:80]!r}")
        if value is None:
            return name, None
        plain = orjson.loads(value)
        if not isinstance(plain, dict):
            raise ValueError("expected a JSON object")
        cls = family.get(str(plain.pop("kind", None)))
        if cls is None:
            raise ValueError("this kind of record does not belong to this key")
        record: JournalRecord = convert(plain, cls)
        if record.key != name:
            raise ValueError(f"the record's own key is {record.key!r}")
        return name, record
    except (ValueError, TypeError, ValidationError) as error:
        raise SerializationError(
            f"invalid journal record: {error}", hint="the record is ignored; check which client writes to the journal topic"
        ) from error
