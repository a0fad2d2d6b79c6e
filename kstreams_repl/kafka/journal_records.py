"""What the control journal says: its records as frozen values, their keys, and a codec that trusts nothing it reads.

Two families of keys, each with one writer (guarantees.md, "The journal"): *control* keys are written by the holder of the transactional id
``<application.id>-control``, *instance* keys by the instance whose slot is in the key. A record is JSON with a ``kind``; reading checks the
kind against the key, every field against the dataclass, and refuses what does not fit. Client settings and secrets have no place here,
and the source text of a version is for display: its hash confirms a session file, nothing of it is ever run.
"""

from __future__ import annotations

import hashlib
import types
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

import orjson

from kstreams_repl.errors import SerializationError

DesiredName = Literal["running", "paused", "stopped"]
InstanceStateName = Literal["starting", "restoring", "running", "recovering", "paused", "stopped", "failed", "superseded"]


@dataclass(frozen=True, slots=True)
class DesiredState:
    """What the application should do now, in which generation and version, on how many instances. Control key ``desired``."""

    kind: ClassVar[str] = "desired"
    generation: int
    state: DesiredName
    version: int
    instances: int
    at_ms: int = 0

    @property
    def key(self) -> str:
        return "control/desired"


@dataclass(frozen=True, slots=True)
class Assignment:
    """Which tasks (``0_3``) each instance slot runs. Control key ``assignment``.

    Attributes:
        standbys: by slot, the tasks whose stores it keeps a copy of.
        places: by slot, the executor's directory where it ran last, when the assignment was made.
    """

    kind: ClassVar[str] = "assignment"
    generation: int
    tasks: dict[str, tuple[str, ...]]
    standbys: dict[str, tuple[str, ...]] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return "control/assignment"


@dataclass(frozen=True, slots=True)
class Version:
    """The source text of one version of the topology, its hash, and its ``describe()`` text. Control keys ``version/<n>``."""

    kind: ClassVar[str] = "version"
    generation: int
    version: int
    source: str
    source_hash: str
    description: str = ""
    at_ms: int = 0

    @property
    def key(self) -> str:
        return f"control/version/{self.version}"

    @classmethod
    def of(cls, source: str, *, generation: int, version: int, description: str = "", at_ms: int = 0) -> Version:
        """A version with the hash of its source filled in."""
        return cls(generation, version, source, source_hash(source), description, at_ms)


@dataclass(frozen=True, slots=True)
class StopOffsets:
    """Where a bounded run stops: the end of each partition at its start (KIP-95), by topic and partition. Control key ``stop-offsets``."""

    kind: ClassVar[str] = "stop-offsets"
    generation: int
    run: int
    offsets: dict[str, dict[str, int]]

    @property
    def key(self) -> str:
        return "control/stop-offsets"


@dataclass(frozen=True, slots=True)
class KeptOffset:
    """One committed position with its metadata."""

    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class KeptOffsets:
    """The group's offsets at a pause or stop, because the broker forgets them after some days; empty once the application has been put
    to work again, for then the group's own move on. Control key ``kept-offsets``.

    Attributes:
        topics: the id of each topic; the offsets are not of another one of the same name.
    """

    kind: ClassVar[str] = "kept-offsets"
    generation: int
    offsets: dict[str, dict[str, KeptOffset]]
    at_ms: int = 0
    topics: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return "control/kept-offsets"


@dataclass(frozen=True, slots=True)
class TaskReport:
    """One task as its instance sees it. Positions are by ``topic-partition``; ``lag`` is records not yet processed, -1 when unknown."""

    state: str
    positions: dict[str, int] = field(default_factory=dict)
    lag: int = -1
    records: int = 0
    commit_id: int = 0
    restore_remaining: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an instance stopped: the error's class and text, the user's line first, and the record it was at."""

    error: str
    message: str
    node: str | None = None
    task: str | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    trace: str = ""


@dataclass(frozen=True, slots=True)
class InstanceReport:
    """An instance's heartbeat. Instance key ``instance/<slot>``.

    ``owner`` names the process (host, pid, start); ``done`` tells that a bounded run has reached its stop offsets; ``host`` is the place
    its stores are at, if it was opened there; ``figures`` is the whole report as JSON, for display.
    """

    kind: ClassVar[str] = "instance"
    generation: int
    slot: int
    owner: str
    state: InstanceStateName
    at_ms: int
    epoch: int = 0
    version: int = 0
    tasks: dict[str, TaskReport] = field(default_factory=dict)
    failure: Failure | None = None
    done: bool = False
    host: str = ""
    figures: str = ""

    @property
    def key(self) -> str:
        return f"instance/{self.slot}"


@dataclass(frozen=True, slots=True)
class Claim:
    """A worker's claim to a slot for one epoch; the first in log order wins. Instance key ``claim/<slot>/<partition>``.

    Attributes:
        owner: the process.
        run: which query the epoch is of; epochs count from 0 in each.
        partition, attempt: Spark's task. A later attempt of the same task inherits what an earlier one claimed.
        place: where the owner keeps its stores.
    """

    kind: ClassVar[str] = "claim"
    generation: int
    slot: int
    epoch: int
    owner: str
    run: str = ""
    partition: int = 0
    attempt: int = 0
    place: str = ""

    @property
    def key(self) -> str:
        return f"claim/{self.slot}/{self.partition}"


@dataclass(frozen=True, slots=True)
class Measured:
    """What an instance measured last (`metrics.snapshot`), as JSON, for display. Instance key ``instance/<slot>/metrics``."""

    kind: ClassVar[str] = "measured"
    generation: int
    slot: int
    snapshot: str

    @property
    def key(self) -> str:
        return f"instance/{self.slot}/metrics"


ControlRecord = DesiredState | Assignment | Version | StopOffsets | KeptOffsets
InstanceRecord = InstanceReport | Measured | Claim
JournalRecord = ControlRecord | InstanceRecord

CONTROL_KINDS: Mapping[str, type[Any]] = {cls.kind: cls for cls in (DesiredState, Assignment, Version, StopOffsets, KeptOffsets)}
INSTANCE_KINDS: Mapping[str, type[Any]] = {cls.kind: cls for cls in (InstanceReport, Measured, Claim)}


def source_hash(source: str) -> str:
    """The sha256 of a version's source text, by which a session file is known to be the one that ran."""
    return hashlib.sha256(source.encode("utf-8")).hexdigest()


def encode(record: JournalRecord) -> tuple[bytes, bytes]:
    """Key and value bytes of a record."""
    return record.key.encode("utf-8"), orjson.dumps({"kind": record.kind, **asdict(record)})


def decode(key: bytes | None, value: bytes | None) -> tuple[str, JournalRecord | None]:
    """The key and what it says; None for a deleted key.

    Raises:
        SerializationError: the bytes are no journal record, their kind does not belong under that key, or a field does not fit.
    """
    try:
        name = (key or b"").decode("utf-8")
        family = CONTROL_KINDS if name.startswith("control/") else INSTANCE_KINDS if name.startswith(("instance/", "claim/")) else None
        if family is None:
            raise ValueError(f"unknown key {name[:80]!r}")
        if value is None:
            return name, None
        said = orjson.loads(value)
        if not isinstance(said, dict):
            raise ValueError("not an object")
        cls = family.get(str(said.pop("kind", None)))
        if cls is None:
            raise ValueError("a kind that may not stand under this key")
        record: JournalRecord = _read(cls, said, cls.__name__)
        if record.key != name:
            raise ValueError(f"the record belongs under {record.key!r}")
        return name, record
    except (ValueError, TypeError) as error:
        raise SerializationError(
            f"a journal record is not valid: {error}", hint="it is ignored; look who writes to the journal topic"
        ) from error


_HINTS: dict[type[Any], dict[str, Any]] = {}


def _read(hint: Any, said: Any, where: str) -> Any:
    """``said`` as the type of ``hint``; ValueError when it is not."""
    origin = get_origin(hint)
    if hasattr(hint, "__dataclass_fields__"):
        return _read_fields(hint, said, where)
    if origin is Literal:
        if said in get_args(hint):
            return said
    elif origin in (Union, types.UnionType):
        inner = [option for option in get_args(hint) if option is not type(None)]
        return None if said is None else _read(inner[0], said, where)
    elif origin is tuple:
        if isinstance(said, list):
            return tuple(_read(get_args(hint)[0], item, where) for item in said)
    elif origin is dict:
        if isinstance(said, dict):
            return {str(name): _read(get_args(hint)[1], item, f"{where}.{name}") for name, item in said.items()}
    elif hint is int:
        if isinstance(said, int) and not isinstance(said, bool):
            return said
    elif isinstance(said, hint):
        return said
    raise ValueError(f"{where} cannot be {str(said)[:60]!r}")


def _read_fields(cls: type[Any], said: Any, where: str) -> Any:
    if not isinstance(said, dict):
        raise ValueError(f"{where} is not an object")
    hints = _HINTS.get(cls) or _HINTS.setdefault(cls, get_type_hints(cls))
    given = {}
    for item in fields(cls):
        if item.name in said:
            given[item.name] = _read(hints[item.name], said[item.name], f"{where}.{item.name}")
        elif item.default is MISSING and item.default_factory is MISSING:
            raise ValueError(f"{where} lacks {item.name}")
    return cls(**given)
