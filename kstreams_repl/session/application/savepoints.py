"""Savepoints: an application's state and offsets as of one commit, in a directory, and applications that start from one.

A savepoint holds, for each store with a changelog, the last record of each key (of a versioned store: all of them), the records
of repartition topics that were not processed yet, and the committed offsets of all inputs with their metadata. It is taken
between two commits, so the three are consistent. It holds no code. Its topic names omit the application, so it can also start an
application of another name.

Starting from one, numbered: 1. reject an application that has state of its own, and a topology that would read the rows wrongly ·
2. create the internal topics · 3. write records and offsets in **one** transaction of the control id · 4. start as always. Before
the commit of 3 the application has no state; after it, it is at the savepoint, and each later record of its inputs counts once.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from kstreams_repl.config import StreamsConfig
from kstreams_repl.display.table import Table
from kstreams_repl.errors import DeployError, KStreamsError, RecordingError, TopologyError, did_you_mean
from kstreams_repl.kafka.admin import Admin
from kstreams_repl.kafka.exact_metadata import OffsetAndMetadata
from kstreams_repl.kafka.journal import JournalControl, TopicRecord, ensure_journal
from kstreams_repl.kafka.reading import OffsetRange, ranges_of, read_ranges
from kstreams_repl.serdes import resolve
from kstreams_repl.session.application.deploy_preview import check
from kstreams_repl.session.application.journal_lookup import journal_of
from kstreams_repl.session.cleanup import cleanup_of
from kstreams_repl.testing.recording import RecordedRecord, Recording
from kstreams_repl.topology.diff import serde_name
from kstreams_repl.topology.names import validate_name
from kstreams_repl.topology.partitions import ResolvedTopology, resolve_partitions
from kstreams_repl.topology.stores import StoreBuilder, StoreKind
from kstreams_repl.topology.topology import Topology
from kstreams_repl.types import TopicPartition

if TYPE_CHECKING:
    from kstreams_repl.session.application.application import Application
    from kstreams_repl.session.session import Session

FORMAT, VERSION = "kstreams-savepoint", 1
FOLDER = "savepoints"
_MANIFEST, _RECORDS = "savepoint.json", "records.jsonl"
_TRANSACTION_MS = 600_000

Offsets = Mapping[str, Mapping[int, OffsetAndMetadata]]


@dataclass(frozen=True, slots=True)
class Savepoint:
    """State and offsets of an application as of one commit. Get one from `Application.savepoint`; pass it to `Session.deploy`.

    Attributes:
        name, application: its name, and the application it was taken from.
        at: when it was taken (seconds since 1970).
        path: its directory. A copy of it elsewhere works too: ``from_savepoint="/path/of/the/copy"``.
        stores: by name, the settings that decide how its rows are read.
        offsets: of input topics, by topic and partition: offset and metadata.
        internal: of repartition topics, by name without the application: metadata by partition.
        topic_ids: of the input topics.
        records: how many records it holds.
    """

    name: str
    application: str
    at: float
    path: Path
    stores: Mapping[str, Mapping[str, Any]]
    offsets: Offsets
    internal: Mapping[str, Mapping[int, str]]
    topic_ids: Mapping[str, str]
    records: int

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Savepoint:
        """Read a savepoint's description; its records are read when an application starts from it.

        Raises:
            RecordingError: the directory holds no savepoint, or its description was changed.
        """
        place = Path(path)
        try:
            said = orjson.loads((place / _MANIFEST).read_bytes())
            if said["format"] != FORMAT or said["version"] != VERSION:
                raise ValueError(f"not a savepoint of version {VERSION}")
            offsets = {
                topic: {int(n): (_offset(at[0]), str(at[1])) for n, at in of.items()} for topic, of in said["offsets"].items()
            }
            internal = {topic: {int(n): str(text) for n, text in of.items()} for topic, of in said["internal"].items()}
            stores = {str(name): dict(shape) for name, shape in said["stores"].items()}
            ids = {str(topic): str(known) for topic, known in said["topic_ids"].items()}
            name, application = validate_name(said["name"], "savepoint"), validate_name(said["application"], "application")
            return cls(name, application, float(said["at"]), place, stores, offsets, internal, ids, int(said["records"]))
        except (OSError, ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
            raise RecordingError(
                f"{place} is not a savepoint: {error}", hint="session.savepoints() lists those there are", path=str(place)
            ) from error

    def delete(self) -> None:
        """Remove its directory. Deleting twice does nothing."""
        shutil.rmtree(self.path, ignore_errors=True)

    def __repr__(self) -> str:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.at))
        return f"Savepoint({self.name!r} of {self.application}, {at}, {len(self.stores)} stores, {self.records:,} records)"


def take_savepoint(application: Application, name: str) -> Savepoint:
    """Take a savepoint, as `Application.savepoint`."""
    session, folder = application.session, _folder(application.session, application.name)
    place = folder / validate_name(name, "savepoint")
    if place.exists():
        raise KStreamsError(
            f"{application.name} has a savepoint {name!r} already", hint="take another name, or delete it: Savepoint.load(path).delete()"
        )
    if application.status not in ("starting", "running", "paused", "stopped"):
        raise KStreamsError(
            f"{application.name} is {application.status}: what it holds is not known to be as of one commit",
            hint="resume it, or stop it, and take the savepoint then",
        )
    runs = application.status in ("starting", "running")
    if runs:
        application.pause()
    try:
        return _written(session, application, name, place)
    finally:
        if runs:
            application.resume()


def _written(session: Session, application: Application, name: str, place: Path) -> Savepoint:
    topology, config, admin = application.topology, application.config, session.admin
    resolved = check(admin, topology, application.name, config)
    prefix = f"{application.name}-"
    repartition = {topic.name for topic in resolved.repartition_topics}
    inputs = sorted({at for partitions in resolved.tasks.values() for at in partitions})
    committed = _committed(session, application.name, inputs)
    outside = {at: said for at, said in committed.items() if at.topic not in repartition}
    inside = {at: said for at, said in committed.items() if at.topic in repartition}
    records: list[RecordedRecord] = []
    topics: dict[str, int] = {}
    there = admin.topics()
    for topic in resolved.changelog_topics:
        if topic.name not in there:
            continue
        versions = topic.store is not None and topology.stores[topic.store].kind is StoreKind.VERSIONED
        logical = topic.name.removeprefix(prefix)
        topics[logical] = admin.partitions(topic.name)
        records += _read(session, ranges_of(admin, topic.name, settled=True), logical, whole=versions)
    for spec in resolved.repartition_topics:
        if spec.name not in there:
            continue
        logical = spec.name.removeprefix(prefix)
        topics[logical] = admin.partitions(spec.name)
        begins = {at.partition: offset for at, (offset, _) in committed.items() if at.topic == spec.name}
        records += _read(session, ranges_of(admin, spec.name, start=begins, settled=True), logical, whole=True)
    described = {
        "format": FORMAT,
        "version": VERSION,
        "name": name,
        "application": application.name,
        "at": time.time(),
        "stores": {store.name: _shape(store, config) for store in topology.stores.values()},
        "offsets": _by_topic(outside, lambda said: list(said)),
        "internal": {topic.removeprefix(prefix): of for topic, of in _by_topic(inside, lambda said: said[1]).items()},
        "topic_ids": {topic: about.id for topic, about in admin.describe_topics({at.topic for at in outside}).items()},
        "records": len(records),
    }
    new = place.with_name(f".{place.name}.{uuid.uuid4().hex[:8]}")
    new.mkdir(parents=True, mode=0o700)
    try:
        Recording(records, topics, note=f"savepoint {name} of {application.name}").save(new / _RECORDS)
        (new / _MANIFEST).write_bytes(orjson.dumps(described, option=orjson.OPT_INDENT_2))
        new.rename(place)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return Savepoint.load(place)


def _committed(session: Session, name: str, inputs: list[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the group's committed offsets; those that the broker has expired come from the journal."""
    found = {at: (said.offset, said.metadata or "") for at, said in session.admin.committed_offsets(name, inputs).items()}
    lacking = [at for at in inputs if at not in found]
    kept = journal_of(session, name).kept_offsets if lacking else None
    for at in lacking if kept is not None else ():
        said = kept.offsets.get(at.topic, {}).get(str(at.partition)) if kept is not None else None
        if said is not None:
            found[at] = (said.offset, said.metadata)
    return found


def _read(session: Session, ranges: tuple[OffsetRange, ...], topic: str, *, whole: bool) -> list[RecordedRecord]:
    """Return the records of offset ranges; of a changelog, the last record of each key, without tombstones."""
    found: list[RecordedRecord] = []
    for at, batch in read_ranges(session.settings, ranges):
        headers = batch.headers or [None] * len(batch.keys)
        columns = zip(batch.offsets, batch.timestamps, batch.keys, batch.values, headers, strict=True)
        found += [RecordedRecord(topic, at.partition, offset, ts, key, value, list(had or ())) for offset, ts, key, value, had in columns]
    found.sort(key=lambda record: (record.partition, record.offset))
    if whole:
        return found
    last = {(record.partition, record.key): record for record in found}
    return sorted((r for r in last.values() if r.value is not None), key=lambda record: (record.partition, record.offset))


def find_savepoint(session: Session, said: Any, application: str) -> Savepoint:
    """Return a savepoint, given itself, the path of its directory, or its name.

    The name is that of a savepoint of this application, or ``"application/name"``.

    Raises:
        RecordingError: there is none.
    """
    if isinstance(said, Savepoint):
        return said
    text = os.fspath(said)
    if (Path(text) / _MANIFEST).exists():
        return Savepoint.load(text)
    owner, _, name = text.rpartition("/")
    known = {f"{saved.application}/{saved.name}": saved for saved in all_savepoints(session)}
    found = known.get(f"{owner or application}/{name}")
    if found is None:
        hint = did_you_mean(text, [*known, *(k.partition("/")[2] for k in known)]) or "session.savepoints() lists those there are"
        raise RecordingError(f"there is no savepoint {text!r} of {owner or application}", hint=hint, path=text)
    return found


def all_savepoints(session: Session) -> list[Savepoint]:
    """Return the savepoints in the session's directory, by application and time."""
    found = [Savepoint.load(path.parent) for path in sorted((session.directory.path / FOLDER).glob(f"*/[!.]*/{_MANIFEST}"))]
    return sorted(found, key=lambda saved: (saved.application, saved.at))


def savepoints_table(session: Session) -> Table:
    """Return the table of `Session.savepoints`."""
    rows = [
        (s.application, s.name, time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(s.at)), len(s.stores), s.records)
        for s in all_savepoints(session)
    ]
    note = 'session.deploy(builder, name, from_savepoint="application/name") starts from one'
    return Table.of(("application", "savepoint", "taken", "stores", "records"), rows, note=note if rows else "no savepoints")


class Start:
    """The start of one application from a savepoint. The constructor checks (step 1), `write` does steps 2 and 3.

    Raises:
        DeployError: the application has topics, offsets or state of its own.
        TopologyError: the topology would read the savepoint's rows wrongly, or lacks the nodes that its unprocessed records were
            sent to.
        RecordingError: there is no such savepoint, or it was changed.
    """

    def __init__(self, session: Session, said: Any, name: str, topology: Topology, config: StreamsConfig) -> None:
        self.savepoint = find_savepoint(session, said, name)
        self._session, self._name = session, name
        left = cleanup_of(session, name, dry_run=True)
        if left.topics or left.group:
            raise DeployError(
                f"{name} has state of its own, and cannot start from savepoint {self.savepoint.name!r} over it",
                hint=f"session.cleanup({name!r}, dry_run=False) deletes that state; or deploy under another name",
                application=name,
            )
        self._resolved = _resolved(session.admin, topology, name, config)
        self._config = config
        self._refuse_other_rows(topology, config)
        self._records = Recording.load(self.savepoint.path / _RECORDS)
        if len(self._records) != self.savepoint.records:
            place = self.savepoint.path
            raise RecordingError(f"{place} was changed: its records are not those it was taken with", path=str(place))
        self._refuse_other_topics()

    @property
    def inputs(self) -> frozenset[TopicPartition]:
        """The input partitions whose offsets come from the savepoint."""
        return frozenset(TopicPartition(topic, n) for topic, of in self.savepoint.offsets.items() for n in of)

    def write(self) -> None:
        """Write state and offsets to the broker, in one transaction."""
        from kstreams_repl.spark.planning import create_internal_topics

        session, admin, name = self._session, self._session.admin, self._name
        # 2. Internal topics.
        create_internal_topics(admin, self._resolved, self._config)
        ensure_journal(admin, name)
        offsets = {TopicPartition(topic, n): said for topic, of in self.savepoint.offsets.items() for n, said in of.items()}
        there = {f"{name}-{topic}": of for topic, of in self.savepoint.internal.items()}
        offsets |= {TopicPartition(topic, n): (0, text) for topic, of in there.items() if topic in self._own for n, text in of.items()}
        # 3. Records and offsets.
        control = JournalControl(session.settings, name, transaction_timeout_ms=_TRANSACTION_MS)
        try:
            control.write(topic_records=self._rows(), offsets=offsets)
        finally:
            control.close()

    @property
    def _own(self) -> dict[str, int | None]:
        return {topic.name: topic.partitions for topic in (*self._resolved.changelog_topics, *self._resolved.repartition_topics)}

    def _rows(self) -> Iterator[TopicRecord]:
        own = self._own
        for record in self._records:
            topic = f"{self._name}-{record.topic}"
            if topic in own:
                yield topic, record.partition, record.key, record.value, record.timestamp, record.headers

    def _refuse_other_rows(self, topology: Topology, config: StreamsConfig) -> None:
        for name, was in self.savepoint.stores.items():
            store = topology.stores.get(name)
            now = None if store is None else _shape(store, config)
            other = [] if now is None else [key for key in now if now[key] != was.get(key)]
            if now is not None and other:
                raise TopologyError(
                    f"store {name!r} of savepoint {self.savepoint.name!r} cannot be read: its {other[0]} was {was.get(other[0])}, "
                    f"would be {now[other[0]]}",
                    hint="deploy the topology that the savepoint was taken of, and edit it then: app.edit(builder, migrate=…)",
                    store=name,
                )
        left = sorted(self.savepoint.stores.keys() - topology.stores.keys())
        if left:
            self._session.report(f"{self._name} has no store {', '.join(left)}: what the savepoint has of it is left out")

    def _refuse_other_topics(self) -> None:
        own, prefix = self._own, f"{self._name}-"
        unread = {record.topic for record in self._records if record.topic in self.savepoint.internal}
        for topic, partitions in self._records.topics.items():
            count = own.get(prefix + topic)
            if count is None and topic in unread:
                raise TopologyError(
                    f"the savepoint has records on their way through {topic!r}, which this topology does not read",
                    hint="give the operator before it the name it had",
                    topic=topic,
                )
            if count is not None and count != partitions:
                raise TopologyError(
                    f"{prefix}{topic} would have {count} partitions, the savepoint has {partitions}",
                    hint="its inputs have other numbers of partitions than when the savepoint was taken",
                    topic=prefix + topic,
                )
        there = self._session.admin.describe_topics(self.savepoint.topic_ids)
        for topic, known in self.savepoint.topic_ids.items():
            if topic in there and there[topic].id != known:
                raise TopologyError(
                    f"{topic} was deleted and created again since the savepoint was taken: its offsets are other records'",
                    hint="deploy without the savepoint, or with a copy of the topic under its old content",
                    topic=topic,
                )


def _resolved(admin: Admin, topology: Topology, name: str, config: StreamsConfig) -> ResolvedTopology:
    check(admin, topology, name, config)
    counts = admin.topics()
    return resolve_partitions(topology, name, counts, grouper=config["partition.grouper"], topic_configs=config.topic_configs)


def _shape(store: StoreBuilder, config: StreamsConfig) -> dict[str, Any]:
    """Return the settings that decide how rows are read."""
    return {
        "kind": str(store.kind),
        "key serde": serde_name(resolve(store.key_serde, config["default.key.serde"])),
        "value serde": serde_name(resolve(store.value_serde, config["default.value.serde"])),
        "window size": store.window_size_ms,
    }


def _folder(session: Session, application: str) -> Path:
    return session.directory.path / FOLDER / application


def _by_topic(found: Mapping[TopicPartition, OffsetAndMetadata], said: Any) -> dict[str, dict[str, Any]]:
    by: dict[str, dict[str, Any]] = {}
    for at, what in found.items():
        by.setdefault(at.topic, {})[str(at.partition)] = said(what)
    return by


def _offset(said: Any) -> int:
    if not isinstance(said, int) or isinstance(said, bool) or not 0 <= said < 2**63:
        raise ValueError(f"an offset cannot be {str(said)[:40]!r}")
    return said
