"""Discovery: which host has which store partition, folded from the application's journal.

Actors: the driver, which writes the assignment of tasks and standby copies to slots; workers, whose claims and reports say in which
executor directory a slot runs now; the query server of each executor, which writes its address; and `Discovery`, which follows the
journal on a thread of its own and answers from memory. No question contacts the broker.

A slot is, in this order: where its last claim in this generation is · with the server on the driver's host, if that has reported in
this generation · where its last report is from · where the assignment expected it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.operators.user_functions import takes_headers
from kstreams_repl.engine.partitioning import partition_for_key, partitions_for_keys
from kstreams_repl.engine.stores.log.log_serdes import with_log_serdes
from kstreams_repl.engine.topology.names import internal_topic
from kstreams_repl.engine.topology.store_builder import StoreBuilder
from kstreams_repl.engine.topology.subtopologies import Subtopology
from kstreams_repl.host.instance.metadata import HostInfo, KeyQueryMetadata, StreamsMetadata
from kstreams_repl.host.instance.store_catalogue import SubtopologyStores
from kstreams_repl.host.journal.journal_state import JournalState
from kstreams_repl.system.errors import UnknownStateStoreError, did_you_mean
from kstreams_repl.system.types import StreamPartitioner, TaskId, TopicPartition

DRIVER = "driver"


@dataclass(frozen=True, slots=True)
class Placement:
    """Where tasks and their copies are, as of one position of the journal.

    Attributes:
        active: executor directory of each task.
        standbys: executor directories of each task's standby copies.
        promoted: tasks that run where their standby copy is.
        servers: query server of each executor directory.
        states: last reported state of each task's slot.
        partitions: number of tasks of each subtopology.
        running: whether the application is to run.
    """

    generation: int = 0
    active: Mapping[TaskId, str] = field(default_factory=dict)
    standbys: Mapping[TaskId, tuple[str, ...]] = field(default_factory=dict)
    servers: Mapping[str, HostInfo] = field(default_factory=dict)
    states: Mapping[TaskId, str] = field(default_factory=dict)
    running: bool = False
    partitions: Mapping[int, int] = field(default_factory=dict)
    promoted: frozenset[TaskId] = frozenset()


def placement_of(state: JournalState) -> Placement:
    """Return where everything is according to a journal.

    Example:
        >>> placement_of(JournalState()).active
        {}
    """
    assignment, desired = state.assignment, state.desired
    servers = {place: HostInfo(address.host, address.port, address.tls) for place, address in list(state.servers.items())}
    if assignment is None or desired is None:
        return Placement(state.generation, servers=servers)
    at_driver = state.servers.get(DRIVER)
    reports = dict(state.reports)
    on_driver = at_driver is not None and at_driver.generation == state.generation

    def directory_of(slot: int) -> str:
        home = state.home_of(slot) or (DRIVER if on_driver else None)
        reported = reports[slot].host if slot in reports else ""
        return home or reported or assignment.places.get(str(slot)) or DRIVER

    active: dict[TaskId, str] = {}
    states: dict[TaskId, str] = {}
    standbys: dict[TaskId, tuple[str, ...]] = {}
    promoted: set[TaskId] = set()
    for slot, tasks in assignment.tasks.items():
        for task in map(TaskId.parse, tasks):
            active[task] = directory_of(int(slot))
            if int(slot) in reports:
                states[task] = reports[int(slot)].state
    for slot, tasks in assignment.standbys.items():
        for task in map(TaskId.parse, tasks):
            place = directory_of(int(slot))
            if place != active.get(task):
                standbys[task] = (*standbys.get(task, ()), place)
            else:
                promoted.add(task)
    partitions = Counter(task.subtopology for task in active)
    running = desired.state == "running"
    return Placement(state.generation, active, standbys, servers, states, running, partitions, frozenset(promoted))


class Discovery:
    """Answers from the journal as followed so far. Thread-safe.

    Args:
        state: returns the journal's present state.
    """

    def __init__(
        self,
        application_id: str,
        subtopologies: Iterable[Subtopology | SubtopologyStores],
        internal_topics: Collection[str],
        config: StreamsConfig,
        state: Callable[[], JournalState],
    ) -> None:
        self._state = state
        self._config = config
        self._cached: tuple[int, Placement] = (-1, Placement())
        self._subtopology_of: dict[str, int] = {}
        self._sources: dict[int, tuple[str, ...]] = {}
        self.stores: dict[str, StoreBuilder] = {}
        self.global_stores: frozenset[str] = frozenset()
        for part in subtopologies:
            self.stores |= {
                builder.name: with_log_serdes(builder, config, internal_topics=internal_topics) for builder in part.stores
            }
            if part.global_:
                self.global_stores |= {builder.name for builder in part.stores}
                continue
            self._subtopology_of |= {builder.name: part.id for builder in part.stores}
            self._sources[part.id] = tuple(
                internal_topic(application_id, topic) if topic in internal_topics else topic for topic in part.source_topics
            )

    @property
    def placement(self) -> Placement:
        """Where everything is now."""
        state = self._state()
        position, cached = self._cached
        if state.position != position:
            position = state.position
            cached = placement_of(state)
            self._cached = (position, cached)
        return cached

    def metadata_for_all_clients(self) -> list[StreamsMetadata]:
        """Return what each host holds. Hosts without a query server have the address `StreamsMetadata.UNKNOWN`."""
        now = self.placement
        places = {*now.active.values(), *(place for copies in now.standbys.values() for place in copies)}
        return [self._host(now, place) for place in sorted(places)]

    def streams_metadata_for_store(self, store: str) -> list[StreamsMetadata]:
        """Return the hosts that hold partitions of a store; every host, for a global store.

        Raises:
            UnknownStateStoreError: the application has no such store.
        """
        self.builder(store)
        everywhere = store in self.global_stores
        return [host for host in self.metadata_for_all_clients() if everywhere or store in host.state_store_names]

    def query_metadata_for_key(
        self, store: str, key: object, *, serializer: object = None, partitioner: StreamPartitioner | None = None
    ) -> KeyQueryMetadata:
        """Return the hosts that have the row of a key.

        Args:
            serializer: serde of the key; None: the store's own.
            partitioner: function (topic, key, value, partitions) by which the store's input is partitioned; None: Kafka's default.

        Raises:
            UnknownStateStoreError: the application has no such store.
        """
        builder = self.builder(store)
        if store in self.global_stores:
            hosts = sorted(self.placement.servers.values())
            return KeyQueryMetadata(hosts[0], frozenset(hosts[1:]), -1) if hosts else KeyQueryMetadata.NOT_AVAILABLE
        count = self.partitions_of(store)
        if not count:
            return KeyQueryMetadata.NOT_AVAILABLE
        if partitioner is not None:
            topic = next(iter(self._sources[self._subtopology_of[store]]), None)
            chosen = partitioner(topic, key, None, [], count) if takes_headers(partitioner) else partitioner(topic, key, None, count)
            partition = int(next(iter(chosen)) if isinstance(chosen, set | frozenset | list | tuple) else chosen)
        else:
            if serializer is not None:
                builder = with_log_serdes(replace(builder, key_serde=serializer), self._config)
            partition = partition_for_key(builder.key_serde.serialize(key) or b"", count)
        return self.metadata_for_partition(store, partition)

    def keys_by_partition(self, store: str, keys: Iterable[object]) -> dict[int, list[object]]:
        """Return the keys of a store grouped by their partitions, by Kafka's default partitioner.

        Raises:
            UnknownStateStoreError: the application has no such store.
        """
        builder, count = self.builder(store), self.partitions_of(store)
        if store in self.global_stores or count < 2:
            return {0: list(keys)}
        serialize = builder.key_serde.serialize
        groups: dict[int, list[object]] = {}
        listed = list(keys)
        for key, partition in zip(listed, partitions_for_keys([serialize(key) or b"" for key in listed], count), strict=True):
            groups.setdefault(partition, []).append(key)
        return groups

    def metadata_for_partition(self, store: str, partition: int) -> KeyQueryMetadata:
        """Return the hosts that have a partition of a store."""
        now, task = self.placement, TaskId(self._subtopology_of[store], partition)
        copies = frozenset(now.servers[place] for place in now.standbys.get(task, ()) if place in now.servers)
        active = now.servers.get(now.active.get(task, ""))
        return KeyQueryMetadata(StreamsMetadata.UNKNOWN if active is None else active, copies, partition)

    def partitions_of(self, store: str) -> int:
        """Return the number of partitions of a store; 0 before the application's first assignment."""
        return self.placement.partitions.get(self._subtopology_of.get(store, -1), 0)

    def task_of(self, store: str, partition: int) -> TaskId:
        """Return the task that writes a partition of a store."""
        return TaskId(self._subtopology_of[store], partition)

    def builder(self, store: str) -> StoreBuilder:
        """Return the description of a store.

        Raises:
            UnknownStateStoreError: the application has no such store.
        """
        store_builder = self.stores.get(store)
        if store_builder is None:
            raise UnknownStateStoreError(
                f"there is no store {store!r}",
                hint=did_you_mean(store, self.stores) or f"the stores are {sorted(self.stores)}",
                store=store,
            )
        return store_builder

    def _host(self, now: Placement, place: str) -> StreamsMetadata:
        own = [task for task, at in now.active.items() if at == place]
        copies = [task for task, at in now.standbys.items() if place in at]
        return StreamsMetadata(
            now.servers.get(place, StreamsMetadata.UNKNOWN),
            frozenset(self._stores(own)) | self.global_stores,
            frozenset(self._partitions(own)),
            frozenset(self._stores(copies)),
            frozenset(self._partitions(copies)),
            place,
        )

    def _stores(self, tasks: list[TaskId]) -> set[str]:
        subs = {task.subtopology for task in tasks}
        return {name for name, sub in self._subtopology_of.items() if sub in subs}

    def _partitions(self, tasks: list[TaskId]) -> set[TopicPartition]:
        return {TopicPartition(topic, task.partition) for task in tasks for topic in self._sources.get(task.subtopology, ())}
