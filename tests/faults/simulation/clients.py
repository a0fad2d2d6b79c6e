"""The client library's three classes over the model broker, with a network in between that delays, loses and cuts.

Only what the project calls is here, with librdkafka's own outcomes: a transactional call that got no answer raises a retriable
time-out and may be repeated, a fenced producer fails for good, a position moves over markers, the end of a partition is an error
message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientTopicPartition

from kstreams_repl.host.kafka.call_timeout import CallGivenUp
from tests.faults.simulation.broker import Broker, Concurrent, Fenced, Place
from tests.faults.simulation.world import World


def _exception(code: int, text: str, *, fatal: bool = False, retriable: bool = False) -> KafkaException:
    return KafkaException(KafkaError(code, text, fatal, retriable, False))


class Network:
    """Between one world's clients and its broker.

    Args:
        trouble: how often a request of a transaction is delayed, or its answer lost.
    """

    def __init__(self, world: World, broker: Broker, *, trouble: float) -> None:
        self.world = world
        self.broker = broker
        self.trouble = trouble

    def request(self, what: str, effect: Callable[[], Any], seconds: float, *, watched: bool = False) -> Any:
        """Send a request and wait for its answer; `Concurrent` answers are asked again, as the client library does."""
        world, random = self.world, self.world.random
        deadline = world.now + seconds
        if not world.calm and random.random() < self.trouble:
            self._lose(what, effect, seconds, watched)
        while True:
            world.pause(random.uniform(0.0002, 0.001), f"sending {what}")
            if self.broker.up:
                try:
                    answer = effect()
                    break
                except Concurrent:
                    world.pause(0.02, f"asking again: {what}", fragile=False)
            else:
                world.pause(0.2, f"{what}: broker away", fragile=False)
            if world.now >= deadline:
                raise _exception(KafkaError._TIMED_OUT, f"{what}: timed out", retriable=True)
        world.pause(random.uniform(0.0001, 0.0005), f"answer to {what}")
        return answer

    def _lose(self, what: str, effect: Callable[[], Any], seconds: float, watched: bool) -> None:
        world, random = self.world, self.world.random
        kind = random.choice(("late", "late", "answer lost", "request lost", *(("given up",) if watched else ())))
        world.tell(f"{what}: {kind}")

        sender = world.current

        def arrive() -> None:
            try:
                effect()
                world.tell(f"{what} took effect late")
                if what == "commit" and sender is not None and random.random() < 0.5 and not world.calm:
                    world.after(random.uniform(0, 0.02), lambda: world.kill(sender, "soon after"))
            except (Fenced, Concurrent, KafkaException):
                world.tell(f"{what} came late and was refused")

        if kind == "answer lost":
            arrive()
        elif kind in ("late", "given up"):
            world.after(random.choice((0.01, 0.3, 1.5, seconds + 0.05, 2 * seconds)), arrive)
        world.pause(random.choice((0.001, seconds)), f"waiting for {what}")
        if kind == "given up":
            raise CallGivenUp(f"{what}: no answer")
        raise _exception(KafkaError._TIMED_OUT, f"{what}: timed out", retriable=random.random() < 0.3)


class Producer:
    """librdkafka's producer, transactional or plain."""

    def __init__(self, network: Network, properties: Mapping[str, Any]) -> None:
        self._network = network
        self._world = network.world
        self._broker = network.broker
        self._id = properties.get("transactional.id")
        self._timeout = properties.get("transaction.timeout.ms", 10_000) / 1000
        self._epoch = -1
        self._fatal: KafkaException | None = None
        self._untold: KafkaException | None = None
        self._waiting: list[tuple[Place, tuple[Any, ...], Any]] = []
        self._spread = 0

    def produce(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int = -1,
        callback: Any = None,
        on_delivery: Any = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        self._world.check_alive()
        if self._fatal is not None:  # the client does not say here what the matter is
            raise _exception(KafkaError._FATAL, "Unable to produce message: Local: Fatal error")
        if partition < 0:
            from kstreams_repl.engine.partitioning import partitioner

            count = self._broker.topics[topic]
            partition = partitioner(count)(key) if key is not None else 0
        self._waiting.append(((topic, partition), (key, value, timestamp, headers), callback or on_delivery))

    def poll(self, seconds: float = 0) -> int:
        self._world.check_alive()
        if self._waiting and self._world.random.random() < 0.3:
            self._send(self._world.random.randrange(len(self._waiting)) + 1)
        if self._untold is not None and self._world.random.random() < 0.5:
            self._tell()
        return 0

    def _tell(self) -> None:
        """What a client's thread has met comes out of a later call that serves it."""
        untold, self._untold = self._untold, None
        if untold is not None:
            raise untold

    def flush(self, seconds: float = -1) -> int:
        deadline = self._world.now + seconds
        while self._waiting and self._fatal is None:
            if self._broker.up:
                self._world.pause(0.0005, "producing")
                # Not everything at once: a crash may leave any prefix behind.
                self._send(self._world.random.randrange(len(self._waiting)) + 1)
            if self._waiting:
                self._world.pause(0.002, "waiting for acknowledgements")
                if self._world.now >= deadline:
                    break
        self._tell()
        return len(self._waiting)

    def _send(self, count: int) -> None:
        if not self._broker.up or self._fatal is not None:
            return
        rows, self._waiting = self._waiting[:count], self._waiting[count:]
        for index, (place, row, callback) in enumerate(rows):
            try:
                offset = self._broker.produce(self._id, self._epoch, place, [row])
            except Concurrent:
                self._waiting = rows[index:] + self._waiting
                return
            except Fenced:
                self._fenced()
                self._untold = self._fatal
                return
            if callback is not None:
                callback(None, Message(topic=place[0], partition=place[1], offset=offset, key=row[0], value=row[1]))

    def _fenced(self) -> None:
        """The client tells a fatal error by raising it, and never by its ``error_cb``."""
        self._fatal = _exception(KafkaError._FENCED, "a newer producer has fenced this one", fatal=True)

    def _transactional(self, what: str, effect: Callable[[], Any], seconds: float) -> Any:
        if self._fatal is not None:
            raise self._fatal
        try:
            return self._network.request(what, effect, seconds, watched=True)
        except Fenced:
            self._fenced()
            assert self._fatal is not None
            raise self._fatal from None

    def list_topics(self, timeout: float) -> None:
        """Connects it; here it always is."""

    def init_transactions(self, seconds: float) -> None:
        assert self._id is not None
        name = self._id
        self._epoch = self._transactional("init_transactions", lambda: self._broker.init(name, self._timeout), seconds)

    def begin_transaction(self) -> None:
        """Once, as the code does; a second call asks whether the transaction is spoiled, which the simulated broker never does."""
        self._world.check_alive()
        if self._fatal is not None:
            raise self._fatal

    def send_offsets_to_transaction(self, offsets: Iterable[Any], group: Any, seconds: float) -> None:
        listed = {(at.topic, at.partition): (at.offset, at.metadata or "") for at in offsets}
        name, epoch = self._id, self._epoch
        assert name is not None
        self._transactional("send_offsets", lambda: self._broker.add_offsets(name, epoch, group.name, listed), seconds)

    def commit_transaction(self, seconds: float) -> None:
        if self.flush(seconds):
            raise self._fatal or _exception(KafkaError._TIMED_OUT, "commit: flushing timed out", retriable=True)
        name, epoch = self._id, self._epoch
        assert name is not None
        self._transactional("commit", lambda: self._broker.end(name, epoch, "committed"), seconds)

    def purge(self) -> None:
        self._world.check_alive()
        self._waiting.clear()

    def close(self, seconds: float = 0) -> None:
        self._waiting.clear()

    def __len__(self) -> int:
        return len(self._waiting)


class Consumer:
    """librdkafka's consumer under `assign`."""

    def __init__(self, network: Network, properties: Mapping[str, Any]) -> None:
        self._network = network
        self._world = network.world
        self._broker = network.broker
        self._group = properties["group.id"]
        self._isolation = properties["isolation.level"]
        self._tell_ends = bool(properties.get("enable.partition.eof"))
        self._at: dict[Place, int] = {}
        self._told: dict[Place, int] = {}
        self._paused: set[Place] = set()
        self._ends: dict[Place, int] = {}
        self._seen = -1

    def list_topics(self, topic: str, timeout: float) -> None:
        """Connects it; here it always is."""

    def assign(self, partitions: Sequence[Any]) -> None:
        self._at = dict(sorted(((at.topic, at.partition), at.offset) for at in partitions))
        self._told.clear()
        self._seen = -1

    def incremental_assign(self, partitions: Sequence[Any]) -> None:
        for at in partitions:
            place = (at.topic, at.partition)
            assert place not in self._at, f"{place} is assigned already"
            self._at[place] = at.offset
            self._told.pop(place, None)
        self._at = dict(sorted(self._at.items()))
        self._seen = -1

    def incremental_unassign(self, partitions: Sequence[Any]) -> None:
        for at in partitions:
            self._at.pop((at.topic, at.partition), None)

    def pause(self, partitions: Sequence[Any]) -> None:
        self._paused.update((at.topic, at.partition) for at in partitions)

    def resume(self, partitions: Sequence[Any]) -> None:
        self._seen = -1
        self._paused.difference_update((at.topic, at.partition) for at in partitions)

    def consume(self, count: int, seconds: float = 0) -> list[Any]:
        self._world.check_alive()
        found = self._fetch(count)
        if not found and seconds > 0:
            self._world.pause(4 * seconds, "consuming")  # a machine under load; and fewer idle rounds to simulate
            found = self._fetch(count)
        return found

    def poll(self, seconds: float = 0) -> Any:
        found = self.consume(1, seconds)
        return found[0] if found else None

    def _fetch(self, count: int) -> list[Any]:
        found: list[Any] = []
        if not self._broker.up or self._seen == self._broker.changes:
            return found
        self._seen = self._broker.changes
        for place, offset in list(self._at.items()):
            if place in self._paused or len(found) >= count:
                self._seen = -1
                continue
            log = self._broker.logs[place]
            if offset < log.start or offset > log.end:
                self._at[place] = log.end
                error = KafkaError(KafkaError._AUTO_OFFSET_RESET, "out of range")
                found.append(Message(topic=place[0], partition=place[1], offset=offset, error=error))
                continue
            # A fetch rarely brings all there is.
            most = min(count - len(found), self._world.random.choice((3, 20, 1000)))
            rows, following = self._broker.read(place, offset, most, self._isolation)
            for at, entry in rows:
                found.append(
                    Message(
                        topic=place[0],
                        partition=place[1],
                        offset=at,
                        key=entry.key,
                        value=entry.value,
                        headers=list(entry.headers) if entry.headers else None,
                        timestamp=(1, entry.timestamp),
                    )
                )
            self._at[place] = following
            self._ends[place] = log.end
            if len(rows) >= most:
                self._seen = -1  # there may be more
            end = log.stable_end(place) if self._isolation == "read_committed" else log.end
            if self._tell_ends and len(found) < count and following >= end and self._told.get(place) != following:
                self._told[place] = following
                error = KafkaError(KafkaError._PARTITION_EOF, "end of partition")
                found.append(Message(topic=place[0], partition=place[1], offset=following, error=error))
        return found

    def position(self, partitions: Sequence[Any]) -> list[Any]:
        return [
            ClientTopicPartition(at.topic, at.partition, self._at.get((at.topic, at.partition), OFFSET_INVALID))
            for at in partitions
        ]

    def committed(self, partitions: Sequence[Any], timeout: float) -> list[Any]:
        places = [(at.topic, at.partition) for at in partitions]

        def effect() -> list[Any]:
            if self._isolation == "read_committed" and any(self._broker.pending.get((self._group, place)) for place in places):
                raise _exception(KafkaError.UNSTABLE_OFFSET_COMMIT, "offsets of an open transaction", retriable=True)
            answer = []
            for topic, number in places:
                offset, metadata = self._broker.committed.get((self._group, (topic, number)), (OFFSET_INVALID, ""))
                answer.append(ClientTopicPartition(topic, number, offset, metadata))
            return answer

        found: list[Any] = self._network.request("committed", effect, timeout)
        return found

    def get_watermark_offsets(self, at: Any, cached: bool = False) -> tuple[int, int]:
        end = self._ends.get((at.topic, at.partition))
        return (-1001, -1001) if end is None else (0, end)

    def consumer_group_metadata(self) -> Any:
        return SimpleNamespace(name=self._group)

    def close(self) -> None:
        self._world.check_alive()


class AdminClient:
    """The calls of the admin client that instances make."""

    def __init__(self, network: Network, properties: Mapping[str, Any]) -> None:
        self._network = network
        self._broker = network.broker

    def _future(self, what: str, effect: Callable[[], Any], seconds: float) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(self._network.request(what, effect, seconds))
        except (KafkaException, CallGivenUp) as error:
            future.set_exception(error if isinstance(error, KafkaException) else _exception(KafkaError._TIMED_OUT, str(error)))
        return future

    def list_offsets(self, request: Mapping[Any, Any], *, isolation_level: Any, request_timeout: float) -> dict[Any, Future[Any]]:
        committed = isolation_level == IsolationLevel.READ_COMMITTED

        def offset(at: Any, spec: Any) -> Any:
            place = (at.topic, at.partition)
            log = self._broker.logs[place]
            if "arliest" in type(spec).__name__:
                return SimpleNamespace(offset=log.start)
            return SimpleNamespace(offset=log.stable_end(place) if committed else log.end)

        def effect() -> dict[Any, Any]:
            return {at: offset(at, spec) for at, spec in request.items()}

        whole = self._future("list_offsets", effect, request_timeout)
        return {at: _part(whole, at) for at in request}

    def describe_topics(self, topics: Any, *, request_timeout: float) -> dict[str, Future[Any]]:
        names = list(topics.topic_names)

        def effect() -> dict[str, Any]:
            return {
                name: SimpleNamespace(
                    topic_id=self._broker.topic_ids[name], partitions=[None] * self._broker.topics[name], is_internal=False
                )
                for name in names
            }

        whole = self._future("describe_topics", effect, request_timeout)
        return {name: _part(whole, name) for name in names}

    def describe_configs(self, resources: Sequence[Any], *, request_timeout: float) -> dict[Any, Future[Any]]:
        whole = self._future("describe_configs", lambda: {resource: {} for resource in resources}, request_timeout)
        return {resource: _part(whole, resource) for resource in resources}

    def list_topics(self, timeout: float = 0) -> Any:
        return SimpleNamespace(
            topics={
                name: SimpleNamespace(error=None, partitions={number: SimpleNamespace(leader=1) for number in range(count)})
                for name, count in self._broker.topics.items()
            }
        )

    def delete_records(self, requests: Sequence[Any], *, request_timeout: float) -> dict[Any, Future[Any]]:
        def effect() -> dict[Any, Any]:
            for at in requests:
                log = self._broker.logs[(at.topic, at.partition)]
                keep = max(0, min(at.offset, log.stable_end((at.topic, at.partition))) - log.start)
                del log.entries[:keep]
                log.start += keep
            return dict.fromkeys(requests)

        whole = self._future("delete_records", effect, request_timeout)
        return {at: _part(whole, at) for at in requests}


def _part(whole: Future[Any], key: Any) -> Future[Any]:
    error = whole.exception()
    part: Future[Any] = Future()
    if error is not None:
        part.set_exception(error)
    else:
        part.set_result(whole.result()[key])
    return part
