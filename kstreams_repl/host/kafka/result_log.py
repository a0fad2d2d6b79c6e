"""The log of durable results on the broker: one idempotent producer per instance, outside its transactions.

Actors: the event loop, which appends and waits for acknowledgements by all replicas; a thread that serves the producer's callbacks; the
take-over, which reads a partition up to its end. The producer is made with the first result.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaException, Message, Producer

from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, make_producer
from kstreams_repl.host.kafka.failures import translate
from kstreams_repl.host.kafka.reading import ranges_of, read_ranges
from kstreams_repl.system.log_context import carried
from kstreams_repl.system.types import TopicPartition

_LINGER_MS = 1
_FULL_SECONDS = 0.01
_POLL_SECONDS = 0.1
_FLUSH_SECONDS = 0.2


class BrokerResultLog:
    """`engine.runtime.calls.call_results.ResultLog` on the broker."""

    def __init__(self, settings: ClientSettings, admin: Admin, name: str) -> None:
        self._settings, self._admin, self._name = settings, admin, name
        self._producer: Any = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def read(self, partition: TopicPartition) -> tuple[list[tuple[bytes, bytes, int]], int]:
        """Return the rows (key, value, offset) of a partition, and its end offset.

        Raises:
            BrokerUnavailableError: they could not be read.
        """
        ranges = ranges_of(self._admin, partition.topic, partitions=[partition.partition], isolation="read_uncommitted")
        rows: list[tuple[bytes, bytes, int]] = []
        for _, batch in read_ranges(self._settings, ranges, isolation="read_uncommitted"):
            rows += zip(batch.keys, batch.values, batch.offsets, strict=True)  # type: ignore[arg-type]
        return rows, ranges[0].end

    async def append(self, partition: TopicPartition, key: bytes, value: bytes) -> int:
        """Write a row; return its offset when all replicas have it.

        Raises:
            KStreamsError: it could not be written.
        """
        loop = asyncio.get_running_loop()
        written: asyncio.Future[int] = loop.create_future()

        def delivered(error: object, message: Message) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._settle, written, partition, error, message.offset())

        while True:
            try:
                self._opened().produce(
                    partition.topic, value, key, partition.partition, on_delivery=delivered, timestamp=int(time.time() * 1000)
                )
                return await written
            except BufferError:
                await asyncio.sleep(_FULL_SECONDS)
            except KafkaException as error:
                raise self._error(error.args[0], partition) from error

    def _settle(self, written: asyncio.Future[int], partition: TopicPartition, error: object, offset: int) -> None:
        if written.done():  # its call was cancelled
            return
        if error is None:
            written.set_result(offset)
        else:
            written.set_exception(self._error(error, partition))

    def _error(self, error: object, partition: TopicPartition) -> Exception:
        return translate(error, f"writing to {partition}", topic=partition.topic, bootstrap_servers=self._settings.bootstrap_servers)

    def _opened(self) -> Producer:
        if self._producer is None:
            self._producer = make_producer(self._settings, linger_ms=_LINGER_MS)
            self._thread = threading.Thread(target=carried(self._serve), name=f"results-{self._name}", daemon=True)
            self._thread.start()
        return self._producer

    def _serve(self) -> None:
        while not self._closed:
            self._producer.poll(_POLL_SECONDS)

    def close(self) -> None:
        """Give results that were sent a moment; end the thread and the producer."""
        if self._producer is None:
            return
        self._producer.flush(_FLUSH_SECONDS)
        self._closed = True
        if self._thread is not None:
            self._thread.join()
        self._producer.purge()
        self._producer.close(0)
