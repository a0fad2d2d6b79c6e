"""The stores of an application that are on this host, for queries: which tasks are here, in which directory, and whether they may be read.

Any process of the host can use it, with the application's topology and settings: it reads the instances' files (`task_view`) and
contacts no other process. Thread-safe. What it knows about directories and owners is at most `task_view.CHECK_SECONDS` old.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from kstreams_repl.engine import serdes
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.stores.engine.failures import RawError
from kstreams_repl.engine.stores.log.log_serdes import with_log_serdes
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind, in_application
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.control.file_channel import Lease, read_lease, reports_in
from kstreams_repl.host.instance.process.executor_directory import PREFIX
from kstreams_repl.host.instance.state.owner_token import generation_of
from kstreams_repl.host.instance.state.state_directory import application_directory, control_directory, state_root
from kstreams_repl.host.instance.store_catalogue import NOTE, StoreCatalogue
from kstreams_repl.serving.queries.task_view import CHECK_SECONDS, TaskReader, TaskView, migrated
from kstreams_repl.system.errors import (
    InvalidStateStoreError,
    InvalidStateStorePartitionError,
    StateStoreError,
    StateStoreNotAvailableError,
    StreamsNotStartedError,
    StreamsRebalancingError,
    UnknownStateStoreError,
    did_you_mean,
)
from kstreams_repl.system.process_info import start_time
from kstreams_repl.system.types import TaskId

DRIVER = "driver"
_GENERATED = re.compile(r"(KSTREAM|KTABLE)-.*[0-9]{10}.*")
_PRIVATE = frozenset({StoreKind.OUTER_JOIN, StoreKind.SUPPRESS_BUFFER, StoreKind.JOIN_GRACE_BUFFER, StoreKind.SUBSCRIPTION})


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """Whether a task's files on this host may answer.

    Attributes:
        active: they are those of a running (or stopped) task; else of a standby task, or of one that is restored or taken over.
        why: why it is not active, for people.
    """

    active: bool
    why: str = ""


ACTIVE = TaskStatus(True)


class LocalStores:
    """The stores of one application on this host.

    Args:
        topology: the application's, or the catalogue of its stores.
        config: its settings.
        directory_of: returns the executor directory (``driver``: the driver's own) of each active task, as the journal has it; None: the
            directory here with the task's latest owner.
        partitions: returns the number of partitions of a store; None: unknown, as many as are here.
    """

    def __init__(
        self,
        topology: Topology | StoreCatalogue,
        config: StreamsConfig,
        *,
        directory_of: Callable[[], Mapping[TaskId, str]] | None = None,
        partitions: Callable[[str], int] | None = None,
    ) -> None:
        self.application_id: str = config["application.id"]
        self._config = config
        self._directory_of = directory_of
        self._partitions = partitions
        self._defaults = (serdes.resolve(config["default.key.serde"]), serdes.resolve(config["default.value.serde"]))
        self._root = state_root(config)
        self._base = application_directory(self._root, self.application_id)
        self._control = control_directory(self._root, self.application_id)
        self._readers: dict[Path, TaskReader] = {}
        self._lock = threading.Lock()
        self._found: tuple[float, dict[TaskId, dict[str, Path]]] = (-1.0, {})
        self._lease: tuple[float, Lease | None] = (-1.0, None)
        self._status: dict[Path, tuple[float, TaskStatus]] = {}
        self.global_stores: frozenset[str] = frozenset()
        self._builders: dict[str, StoreBuilder] = {}
        stores, rows = config["default.dsl.store"], config["dsl.store.format"]
        self._subtopologies: dict[str, int] = {}
        for part in topology.subtopologies():
            for builder in part.stores:
                own = in_application(builder, stores, rows)
                self._builders[builder.name] = with_log_serdes(own, config, internal_topics=topology.internal_topics)
            if part.global_:
                self.global_stores |= {builder.name for builder in part.stores}
            else:
                self._subtopologies |= {builder.name: part.id for builder in part.stores}

    # ---- what there is

    @property
    def notes(self) -> list[str]:
        """What is not known of the stores, for people."""
        return [f"{builder.name}: {builder.options[NOTE]}" for builder in self._builders.values() if NOTE in builder.options]

    @property
    def names(self) -> list[str]:
        """The stores that can be queried: those with a name of their own."""
        return sorted(name for name, builder in self._builders.items() if _is_queryable(builder))

    def builder(self, store: str) -> StoreBuilder:
        """Return the description of a store that can be queried.

        Raises:
            UnknownStateStoreError: there is none, or it has no name of its own.
        """
        builder = self._builders.get(store)
        if builder is None:
            hint = did_you_mean(store, self.names) or f"the stores are {self.names}"
            raise UnknownStateStoreError(f"application {self.application_id!r} has no store {store!r}", hint=hint, store=store)
        if not _is_queryable(builder):
            raise UnknownStateStoreError(
                f"store {store!r} cannot be queried: only stores with a name of their own can",
                hint="give the operator a name for its store: store='...'",
                store=store,
            )
        return builder

    def key_serde(self, builder: StoreBuilder) -> serdes.Serde:
        """Return the serde of a store's keys."""
        return serdes.resolve(builder.key_serde, self._config["default.key.serde"])

    def partitions(self, store: str, *, stale: bool = True) -> list[int]:
        """Return the partitions of a store whose files are on this host.

        Args:
            stale: False: without those whose task is active on another host, according to the journal.
        """
        active = {} if stale or self._directory_of is None else self._directory_of()
        return [task.partition for task, places in self._tasks(store).items() if active.get(task) in (None, *places)]

    def partition_count(self, store: str) -> int | None:
        """Return the number of partitions of a store on all hosts; None when it is not known."""
        return None if self._partitions is None else self._partitions(store)

    def _tasks(self, store: str) -> dict[TaskId, dict[str, Path]]:
        sub = self._subtopologies.get(store)
        return {task: places for task, places in self._directories().items() if task.subtopology == sub}

    def _directories(self) -> dict[TaskId, dict[str, Path]]:
        """Return the directories of each task by the executor directory that holds them."""
        read_at, directories = self._found
        now = time.monotonic()
        if now - read_at <= CHECK_SECONDS:
            return directories
        directories = {}
        lease = self.lease
        on_cluster = lease is not None and lease.remote  # the driver's own files are outdated
        for pattern in (*(() if on_cluster else ("tasks/*/data.mdb",)), f"{PREFIX}*/*/data.mdb"):
            for data in self._base.glob(pattern):
                with suppress(ValueError):
                    held = data.parent.parent.name
                    holder = DRIVER if held == "tasks" else held.removeprefix(PREFIX)
                    directories.setdefault(TaskId.parse(data.parent.name), {})[holder] = data.parent
        directories = dict(sorted(directories.items()))
        self._found = (now, directories)
        return directories

    # ---- views

    @contextmanager
    def view(self, store: str, partition: int, *, stale: bool = False) -> Iterator[TaskView]:
        """A view of one partition of a store at its last commit, for this block.

        Args:
            stale: take a standby copy, or one that is being restored or taken over, if there is nothing better.

        Raises:
            InvalidStateStorePartitionError: it is not on this host.
            StreamsRebalancingError, StateStoreNotAvailableError, StateStoreMigratedError: not now; asking again helps.
        """
        reader, view = self.take(store, partition, stale=stale)
        try:
            yield view
        except RawError as error:
            raise migrated(reader.task) from error
        finally:
            reader.give(view)

    def take(self, store: str, partition: int, *, stale: bool = False) -> tuple[TaskReader, TaskView]:
        """Return a view as `view` does, to be given back to its reader."""
        task = TaskId(self._subtopologies.get(store, -1), partition)
        last: InvalidStateStoreError | None = None
        for path in self._candidates(task, store):
            try:
                reader = self._reader(task, path)
                view = reader.take()
            except StateStoreError as error:
                last = error if isinstance(error, InvalidStateStoreError) else self._not_available(store, str(error))
                continue
            try:
                status = self._status_of(path, view)
                if status.active or stale:
                    return reader, view
            except RawError:
                last = migrated(task)
            reader.give(view)
            if last is None or not isinstance(last, StreamsRebalancingError):
                last = _rebalancing(store, task, status.why)
        raise last or self._missing(store, partition)

    def _candidates(self, task: TaskId, store: str) -> list[Path]:
        """Return the directories that may have the task, the best first."""
        self.refuse_memory(store)
        places = self._directories().get(task, {})
        if len(places) < 2:
            return list(places.values())
        active = None if self._directory_of is None else self._directory_of().get(task)
        return [places[place] for place in sorted(places, key=lambda place: (place != active, -self._generation(task, places[place])))]

    def refuse_memory(self, store: str) -> None:
        """Raise for a store that instances keep in their memory."""
        if store in self.global_stores or not self._builders[store].on_disk(self._config["default.dsl.store"]):
            raise StateStoreNotAvailableError(
                f"store {store!r} is kept in memory, which other processes cannot read; asking again does not help",
                hint="keep it on disk (Stores.persistent_key_value_store), or read its rows from its topic: app.sql, /sql",
                store=store,
                retriable=False,
            )

    def _generation(self, task: TaskId, path: Path) -> int:
        with suppress(StateStoreError, RawError, ValueError):
            reader = self._reader(task, path)
            view = reader.take()
            try:
                return generation_of(view.owner or "0")
            finally:
                reader.give(view)
        return -1

    def _reader(self, task: TaskId, path: Path) -> TaskReader:
        reader = self._readers.get(path)
        if reader is not None and not reader.outdated:
            return reader
        with self._lock:
            reader = self._readers.get(path)
            if reader is None or reader.outdated:
                reader = self._readers[path] = TaskReader(task, path, self._defaults)
                self._status.pop(path, None)
            return reader

    def _status_of(self, path: Path, view: TaskView) -> TaskStatus:
        now = time.monotonic()
        kept = self._status.get(path)
        if kept is None or now - kept[0] > CHECK_SECONDS:
            kept = self._status[path] = (now, self._judge(path, view))
        return kept[1]

    def _judge(self, path: Path, view: TaskView) -> TaskStatus:
        """Return whether the files are those of an active task whose owner is in force."""
        task, owner, held = view.reader.task, view.owner, path.parent.name
        holder = DRIVER if held == "tasks" else held.removeprefix(PREFIX)
        active = None if self._directory_of is None else self._directory_of().get(task)
        if active is not None and active != holder:
            return TaskStatus(False, f"it is active in {active}, not here")
        lease = self.lease
        if not view.is_active:
            return TaskStatus(False, "it is a standby copy, or is being restored")
        if lease is None or lease.signal is not Signal.RUN or owner is None:
            return ACTIVE  # at rest: the files are those of its last commit
        if generation_of(owner) < lease.generation:
            return TaskStatus(False, f"generation {lease.generation} is taking it over")
        if not view.is_closed and not _runs(owner):
            return TaskStatus(False, "its worker died")
        return ACTIVE

    @property
    def lease(self) -> Lease | None:
        """The last command to the instances, from the driver on this host; None if there is none."""
        read_at, lease = self._lease
        now = time.monotonic()
        if now - read_at > CHECK_SECONDS:
            lease = read_lease(self._control)
            self._lease = (now, lease)
        return lease

    def last_report_ms(self) -> int | None:
        """Return when an instance on this host last reported, in milliseconds since 1970; None: none has, under the last command."""
        lease = self.lease
        reports = {} if lease is None else reports_in(self._control, lease.generation)
        return max((int(report["at_ms"]) for report in reports.values()), default=None)

    # ---- errors

    def _missing(self, store: str, partition: int) -> InvalidStateStoreError:
        if not self._directories() and self.lease is None:
            return StreamsNotStartedError(
                f"application {self.application_id!r} has no state on this host: it was never started here",
                hint="start it, and ask again: app.start()",
                store=store,
            )
        count = self.partition_count(store)
        if count is not None and not 0 <= partition < count:
            return InvalidStateStorePartitionError(
                f"store {store!r} has no partition {partition}: it has {count}; asking again does not help",
                hint=f"expected a partition from 0 to {count - 1}",
                store=store,
                partition=partition,
            )
        if self._tasks(store) or self._directory_of is not None:
            return InvalidStateStorePartitionError(
                f"partition {partition} of store {store!r} is not on this host; asking again here does not help",
                hint="ask the host that has it: app.query_metadata_for_key(...)",
                store=store,
                partition=partition,
            )
        return self._not_available(store, "it has no commit yet")

    def _not_available(self, store: str, why: str) -> StateStoreNotAvailableError:
        return StateStoreNotAvailableError(
            f"store {store!r} cannot be read yet: {why}", hint="ask again: it appears with the first commit", store=store
        )

    def expect_any(self, store: str, *, stale: bool = False) -> list[int]:
        """Return the partitions of a store on this host, as `partitions` does.

        Raises:
            InvalidStateStoreError: there is none.
        """
        partitions = self.partitions(store, stale=stale)
        if not partitions:
            self.refuse_memory(store)
            raise self._missing(store, 0)
        return partitions

    def close(self) -> None:
        """Close all files. The next query opens them again."""
        with self._lock:
            readers, self._readers = list(self._readers.values()), {}
        for reader in readers:
            reader.close()

    def __del__(self) -> None:
        self.close()

    def __enter__(self) -> LocalStores:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"LocalStores({self.application_id!r}, {self.names})"


def _is_queryable(builder: StoreBuilder) -> bool:
    return builder.kind not in _PRIVATE and _GENERATED.fullmatch(builder.name) is None


def _runs(owner: str) -> bool:
    """Return whether the process of an owner's token is alive."""
    parts = owner.split("/")
    return len(parts) < 5 or start_time(int(parts[2])) == parts[3]


def _rebalancing(store: str, task: TaskId, why: str) -> StreamsRebalancingError:
    return StreamsRebalancingError(
        f"task {task} of store {store!r} cannot be queried now: {why}",
        hint="ask again, or allow stale stores: .enable_stale_stores()",
        store=store,
        task=str(task),
    )
