"""Convert the rows of kept stores with a user's function when an edit changes their meaning: each once, all or none.

Numbered: 1. fence every instance that may still write · 2. read the changelogs to their settled ends and convert: an error of the function
ends the migration without changes · 3. in **one** transaction of the control id, append the converted rows to the changelogs and put the
new version into effect in the journal. Before its commit everything is of the old version, after it everything is of the new one: the next
start reads the journal, and its local stores catch up with their changelogs from their own positions.

A row stays in its partition, because a changelog's partition is its task's: a new key whose records would go to another partition is
refused (`Migration.converted`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from kstreams_repl.engine.commit.failpoints import failpoint
from kstreams_repl.engine.partitioning import partition_for_key
from kstreams_repl.engine.serdes import Serde, session_windowed, time_windowed
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.host.instance.control.channel import ControlChannel
from kstreams_repl.host.instance.initialization.task_initialization import fence_instances
from kstreams_repl.host.journal.journal import JournalControl, JournalReader, TopicRecord
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.kafka.exact_metadata import OffsetAndMetadata
from kstreams_repl.host.kafka.reading import OffsetRange, ranges_of, read_ranges
from kstreams_repl.host.spark.fencing.generation_fencing import Generations, VersionText
from kstreams_repl.system.errors import KStreamsError, SchemaRegistryError, TopologyError
from kstreams_repl.system.types import Deserialize, Headers, KeyValueMapper, TopicPartition

TRANSACTION_MS = 600_000
"""Timeout of the transaction. A driver that dies in it blocks its readers until the next driver takes the control id."""

LastRow = tuple[bytes, int] | tuple[bytes, int, Headers]
"""The last value of a key, its timestamp (epoch ms), and the headers that a store keeps with it."""
LastRows = Mapping[tuple[int, bytes], LastRow]
"""By partition and key of a changelog."""

_SEQUENCE_SIZE = 4


def key_reader(store: StoreBuilder, key: Serde) -> Deserialize:
    """Return a function that makes the user's key from a changelog's key: `Windowed` in window and session stores."""
    if store.kind is StoreKind.SESSION:
        return session_windowed(key).deserialize
    if store.kind in (StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW, StoreKind.TIME_ORDERED_WINDOW):
        windowed = time_windowed(key, store.window_size_ms or 0).deserialize
        return lambda data: windowed(data[:-_SEQUENCE_SIZE])
    return key.deserialize


class Subjects(NamedTuple):
    """What a migration does in the Schema Registry, because the new schema does not fit the versions before.

    Attributes:
        begin: let the store's subjects begin with the new schemas.
        undo: let them begin with the earlier ones again.
    """

    begin: Callable[[], None]
    undo: Callable[[], None]


class NewRows(Protocol):
    """Rows that a version brings along, for one topic: converted ones, or those of a fork.

    Attributes:
        store: whose rows they are; the topic's name if it is not a store's.
        changelog: the topic.
        subjects: what changes in the Schema Registry; None: nothing.
    """

    @property
    def store(self) -> str: ...

    @property
    def changelog(self) -> str: ...

    @property
    def subjects(self) -> Subjects | None: ...

    def rows(self, settings: ClientSettings, admin: Admin) -> Iterator[TopicRecord]:
        """Yield the records to write."""


@dataclass(frozen=True, slots=True)
class Migration:
    """The conversion of one store.

    Attributes:
        read_key, before: deserializers of the existing keys and values.
        after: serializer of the new values.
        function: (key, value) -> the new value; with `new_key`, the new (key, value). None deletes the row.
        new_key: serializer of the new keys; None: keys do not change.
        subjects: what changes in the Schema Registry; None: nothing.
    """

    store: str
    changelog: str
    read_key: Deserialize
    before: Serde
    after: Serde
    function: KeyValueMapper
    new_key: Serde | None = None
    subjects: Subjects | None = None

    def rows(self, settings: ClientSettings, admin: Admin) -> Iterator[TopicRecord]:
        """Yield the last record of each key, converted.

        Raises:
            TopologyError: see `converted` and `check_whole`.
        """
        last: dict[tuple[int, bytes], LastRow] = {}
        ranges = ranges_of(admin, self.changelog, settled=True)
        self.check_whole(ranges)
        for partition, batch in read_ranges(settings, ranges):
            headers = batch.headers or [None] * len(batch)
            for key, value, timestamp, own in zip(batch.keys, batch.values, batch.timestamps, headers, strict=True):
                if key is not None and value is not None:
                    last[partition.partition, key] = (value, timestamp, own) if own else (value, timestamp)
                elif key is not None:
                    last.pop((partition.partition, key), None)
        return self.converted(last, admin.partitions(self.changelog))

    def check_whole(self, ranges: Iterable[OffsetRange]) -> None:
        """Raise if the broker has deleted records of the changelog by age, as it does for window and session stores: local copies may still
        have their rows, which would not be converted.

        Raises:
            TopologyError: names the first such partition.
        """
        for cut in ranges:
            if cut.start > 0:
                raise TopologyError(
                    f"store {self.store!r} cannot be migrated: the broker has deleted the records before offset {cut.start} of "
                    f"{cut.partition} by their age, and local copies may still have their rows",
                    hint=f"nothing was changed; reset the store (reset_state=[{self.store!r}]), or give it a new name",
                    store=self.store,
                    topic=cut.partition.topic,
                    partition=cut.partition.partition,
                )

    def converted(self, last: LastRows, partitions: int) -> Iterator[TopicRecord]:
        """Yield the records to write to the changelog. Time, headers and partition of a row are kept; keys without a row any more are
        deleted.

        Raises:
            TopologyError: the function or a serde raised, a new key belongs to another partition, or two rows have the same new key; it
                names store and key.
        """
        if self.new_key is not None:
            yield from self._with_new_keys(last, partitions, self.new_key)
            return
        for (partition, key), (value, *kept) in last.items():
            new = self._called(key, value)
            yield self.changelog, partition, key, None if new is None else self._written(self.after, key, new), *kept

    def _with_new_keys(self, last: LastRows, partitions: int, new_key: Serde) -> Iterator[TopicRecord]:
        made: dict[tuple[int, bytes], tuple[Any, ...]] = {}
        of: dict[tuple[int, bytes], bytes] = {}
        for (partition, key), (value, *kept) in last.items():
            pair = self._called(key, value)
            if pair is None:
                continue
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise self._refused(
                    key, f"gave {type(pair).__name__} {str(pair)[:80]!r}, not a (key, value)", "nothing was changed"
                )
            data = self._written(new_key, key, pair[0])
            if data is None:
                raise self._refused(
                    key, "got the key None", "nothing was changed; return None in place of the pair to delete the row"
                )
            if partitions > 1:
                self._check_partition(key, data, pair[0], partition, partitions)
            if pair[1] is None:
                continue
            content = self._written(self.after, key, pair[1])
            if content is None:
                continue
            place = partition, data
            if place in made:
                both = f"and the row of key {self._named(of[place])!r} both got the key {str(pair[0])[:80]!r}"
                raise self._refused(key, both, "nothing was changed; give each row a key of its own, or None to delete it")
            made[place], of[place] = (content, *kept), key
        for place, (_, timestamp, *_) in last.items():
            if place not in made:
                yield self.changelog, place[0], place[1], None, timestamp
        for (partition, key), row in made.items():
            yield self.changelog, partition, key, *row

    def _check_partition(self, key: bytes, data: bytes, new: object, partition: int, partitions: int) -> None:
        reset = f"reset the store (reset_state=[{self.store!r}])"
        way_out = f"rows cannot change their task: {reset}, give it a new name, or keep keys that stay in their partition"
        was, would = partition_for_key(key, partitions), partition_for_key(data, partitions)
        if was != partition:
            placed = f"lies in partition {partition}, not where its bytes lead (partition {was}), so the place of new keys is not known"
            raise self._refused(key, placed, f"nothing was changed; {way_out}")
        if would != partition:
            moved = f"would move from partition {partition} to {would} with the key {str(new)[:80]!r}"
            raise self._refused(key, moved, f"nothing was changed; {way_out}")

    def _called(self, key: bytes, value: bytes) -> Any:
        try:
            return self.function(self.read_key(key), self.before.deserialize(value))
        except Exception as error:
            raise self._raised(key, error) from error

    def _written(self, serde: Serde, key: bytes, new: object) -> bytes | None:
        try:
            return serde.serialize(new)
        except Exception as error:
            raise self._raised(key, error) from error

    def _raised(self, key: bytes, error: Exception) -> TopologyError:
        return self._refused(
            key, f"raised {type(error).__name__}: {error}", "nothing was changed; correct the function and edit again"
        )

    def _refused(self, key: bytes, what: str, hint: str) -> TopologyError:
        message = f"store {self.store!r} cannot be migrated: the row of key {self._named(key)!r} {what}"
        return TopologyError(message, hint=hint, store=self.store)

    def _named(self, key: bytes) -> str:
        try:
            return str(self.read_key(key))[:80]
        except Exception:  # the key cannot be deserialized: show its bytes
            return str(key)[:80]


def _undo(subjects: Subjects) -> None:
    with suppress(SchemaRegistryError):  # the error that ended the migration is the one to show
        subjects.undo()


def _took_effect(settings: ClientSettings, application_id: str, version: VersionText) -> bool:
    """Return whether a transaction whose end was not answered was committed; from now on it cannot be any more."""
    JournalControl(settings, application_id).close()
    reader = JournalReader(settings, application_id, reports=False)
    try:
        desired = reader.catch_up(Admin(settings)).desired
    finally:
        reader.close()
    return desired is not None and desired.version == version.number


def migrate_stores(
    migrations: Collection[NewRows],
    version: VersionText,
    settings: ClientSettings,
    application_id: str,
    lease: ControlChannel,
    *,
    timeout_ms: int,
    offsets: Mapping[TopicPartition, OffsetAndMetadata] = MappingProxyType({}),
) -> None:
    """Give an application at rest new rows, and put the version that reads them into effect.

    Args:
        offsets: of inputs, to commit in the same transaction.

    Raises:
        TopologyError: a function raised, or a row would change its partition; nothing was changed.
        SchemaRegistryError: a subject cannot begin with a new schema; nothing was changed.
    """
    admin = Admin(settings)
    generations = Generations(settings, admin, application_id, lease, transaction_timeout_ms=TRANSACTION_MS)
    try:
        # 1. Fence.
        fence_instances(settings, application_id, range(generations.slots), timeout_ms=timeout_ms)
        # 2. Read and convert.
        with ExitStack() as failure:
            for migration in migrations:
                if migration.subjects is not None:
                    failure.callback(_undo, migration.subjects)
                    migration.subjects.begin()
            there = admin.topics()
            rows = [row for migration in migrations if migration.changelog in there for row in migration.rows(settings, admin)]
            # 3. Rows and version in one transaction.
            failpoint("K5")
            try:
                generations.announce(version, topic_records=rows, offsets=offsets)
                failpoint("K6")
            except KStreamsError:
                if not _took_effect(settings, application_id, version):
                    raise
            failure.pop_all()
    finally:
        generations.close()
