"""Write a savepoint: what the broker has of an application between two of its commits."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

import orjson

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.topology.names import validate_name
from kstreams_repl.engine.topology.store_builder import StoreKind
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.kafka.exact_metadata import OffsetAndMetadata
from kstreams_repl.host.kafka.reading import OffsetRange, ranges_of, read_ranges
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.application.savepoints.savepoints import (
    FOLDER,
    FORMAT,
    MANIFEST,
    RECORDS,
    VERSION,
    Savepoint,
    row_format,
)
from kstreams_repl.repl.session.application.starting.deploy_preview import check
from kstreams_repl.repl.session.application.starting.journal_lookup import journal_of
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.system.errors import CallError, IllegalStateError
from kstreams_repl.system.types import JsonObject, TopicPartition
from kstreams_repl.test_driver.recording import RecordedRecord, Recording


def savepoint_path(client: ClusterClient, application: str, name: str) -> Path:
    """Return the directory for a new savepoint.

    Raises:
        CallError: there is a savepoint of that name.
    """
    path = client.directory.path / FOLDER / application / validate_name(name, "savepoint")
    if path.exists():
        raise CallError(
            f"{application} already has a savepoint {name!r}",
            hint=f"choose another name, or delete it: Savepoint.load({str(path)!r}).delete()",
        )
    return path


def take_savepoint(app: ApplicationCore, name: str) -> Savepoint:
    """Take a savepoint, as `Application.savepoint`."""
    path = savepoint_path(app.client, app.name, name)
    if app.status not in ("starting", "running", "paused", "stopped"):
        raise IllegalStateError(
            f"{app.name} is {app.status}: its state and offsets may not be of the same commit",
            hint="resume it or stop it, then take the savepoint",
        )
    runs = app.status in ("starting", "running")
    if runs:
        app.pause()
    try:
        return write_savepoint(app.client, app.name, app.topology, app.config, path)
    finally:
        if runs:
            app.resume()


def write_savepoint(client: ClusterClient, application: str, topology: Topology, config: StreamsConfig, path: Path) -> Savepoint:
    """Write the savepoint of an application that processes nothing meanwhile."""
    admin, name = client.admin, path.name
    resolved = check(admin, topology, application, config)
    prefix = f"{application}-"
    repartition = {topic.name for topic in resolved.repartition_topics}
    inputs = sorted({partition for partitions in resolved.tasks.values() for partition in partitions})
    committed = _committed(client, application, inputs)
    outside = {partition: offset for partition, offset in committed.items() if partition.topic not in repartition}
    inside = {partition: offset for partition, offset in committed.items() if partition.topic in repartition}
    records: list[RecordedRecord] = []
    topics: dict[str, int] = {}
    there = admin.topics()
    for topic in resolved.changelog_topics:
        if topic.name not in there:
            continue
        versions = topic.store is not None and topology.stores[topic.store].kind is StoreKind.VERSIONED
        logical = topic.name.removeprefix(prefix)
        topics[logical] = admin.partitions(topic.name)
        records += _read(client.settings, ranges_of(admin, topic.name, settled=True), logical, whole=versions)
    for spec in resolved.repartition_topics:
        if spec.name not in there:
            continue
        logical = spec.name.removeprefix(prefix)
        topics[logical] = admin.partitions(spec.name)
        begins = {partition.partition: offset for partition, (offset, _) in committed.items() if partition.topic == spec.name}
        records += _read(client.settings, ranges_of(admin, spec.name, start=begins, settled=True), logical, whole=True)
    described = {
        "format": FORMAT,
        "version": VERSION,
        "name": name,
        "application": application,
        "at": time.time(),
        "stores": {store.name: row_format(store, config) for store in topology.stores.values()},
        "offsets": _by_topic(outside, list),
        "internal": {topic.removeprefix(prefix): of for topic, of in _by_topic(inside, lambda offset: offset[1]).items()},
        "topic_ids": {topic: about.id for topic, about in admin.describe_topics({partition.topic for partition in outside}).items()},
        "records": len(records),
    }
    new = path.with_name(f".{name}.{uuid.uuid4().hex[:8]}")
    new.mkdir(parents=True, mode=0o700)
    try:
        Recording(records, topics, note=f"savepoint {name} of {application}").save(new / RECORDS)
        (new / MANIFEST).write_bytes(orjson.dumps(described, option=orjson.OPT_INDENT_2))
        new.rename(path)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return Savepoint.load(path)


def _committed(client: ClusterClient, name: str, inputs: list[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the group's committed offsets; those that the broker has expired come from the journal."""
    offsets = {at: (offset.offset, offset.metadata or "") for at, offset in client.admin.committed_offsets(name, inputs).items()}
    lacking = [at for at in inputs if at not in offsets]
    journaled = journal_of(client, name).kept_offsets if lacking else None
    for at in lacking if journaled is not None else ():
        offset = journaled.offsets.get(at.topic, {}).get(str(at.partition)) if journaled is not None else None
        if offset is not None:
            offsets[at] = (offset.offset, offset.metadata)
    return offsets


def _read(settings: ClientSettings, ranges: tuple[OffsetRange, ...], topic: str, *, whole: bool) -> list[RecordedRecord]:
    """Return the records of offset ranges; of a changelog, the last record of each key, without tombstones."""
    records: list[RecordedRecord] = []
    for at, batch in read_ranges(settings, ranges):
        headers = batch.headers or [None] * len(batch.keys)
        columns = zip(batch.offsets, batch.timestamps, batch.keys, batch.values, headers, strict=True)
        records += [RecordedRecord(topic, at.partition, offset, ts, key, value, list(had or ())) for offset, ts, key, value, had in columns]
    records.sort(key=lambda record: (record.partition, record.offset))
    if whole:
        return records
    last = {(record.partition, record.key): record for record in records}
    return sorted((r for r in last.values() if r.value is not None), key=lambda record: (record.partition, record.offset))


def _by_topic(found: Mapping[TopicPartition, OffsetAndMetadata], part: Callable[[OffsetAndMetadata], object]) -> dict[str, JsonObject]:
    by: dict[str, JsonObject] = {}
    for partition, offset in found.items():
        by.setdefault(partition.topic, {})[str(partition.partition)] = part(offset)
    return by
