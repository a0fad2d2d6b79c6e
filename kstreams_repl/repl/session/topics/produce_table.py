"""Feed a table into a topic, each row once, from where an interrupted feed stopped (`Session.produce_table`).

Actors: one version of the table (`table_files.table_reader`), a transactional producer whose id follows from topic and path, and the
offsets of a group of the same name: the "offset" of partition 0 is the number of rows written, its metadata name the version.

Numbered: 1. take the transactional id over, which fences another feed and ends its open transaction · 2. read the progress and open that
version of the table · 3. write the next rows in a transaction (*P1*) · 4. add the progress to it and commit (*P2*) · 5. repeat 3 up to
the last row. After a transaction in doubt, back to 1: the progress tells whether it was committed.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from kstreams_repl.engine.commit.failpoints import failpoint
from kstreams_repl.engine.serdes import Serde
from kstreams_repl.host.kafka.clients import ClientSettings, make_consumer
from kstreams_repl.host.kafka.failures import kafka_errors, translate
from kstreams_repl.host.kafka.group_admin import committed_by
from kstreams_repl.host.kafka.transactional import TransactionalProducer, TransactionDoubtError
from kstreams_repl.repl.session.progress_messages import ProgressView
from kstreams_repl.repl.session.topics.produce import parts_of, serialized
from kstreams_repl.system.errors import BrokerUnavailableError, TableChangedError
from kstreams_repl.system.types import TopicPartition
from kstreams_repl.table_files.table_reader import TableVersion

if TYPE_CHECKING:
    from kstreams_repl.host.kafka.clients import Producer

_SECONDS = 30.0
_TIMEOUT_MS = 60_000
_ATTEMPTS = 5


def feed_name(topic: str, path: str) -> str:
    """Return the transactional id and group of the feed of a table into a topic."""
    return f"{topic}-table-{hashlib.blake2b(path.encode(), digest_size=6).hexdigest()}"


class TableFeed:
    """One call of `Session.produce_table`.

    Args:
        open_version: opens the version of the table with that name; None: the present one.
        key, timestamp: columns.
        commit_rows: rows per transaction.
        restart: begin at the first row of the present version, whatever was written before.
    """

    def __init__(
        self,
        settings: ClientSettings,
        path: str,
        topic: str,
        open_version: Callable[[str | None], TableVersion],
        *,
        key: str | None,
        timestamp: str | None,
        serdes: tuple[Serde | None, Serde | None],
        commit_rows: int,
        restart: bool,
        view: ProgressView,
    ) -> None:
        self._settings = settings
        self._path, self._topic = path, topic
        self._open_version = open_version
        self._key, self._timestamp = key, timestamp
        self.serdes = serdes
        self._commit_rows = commit_rows
        self._restart = restart
        self._view = view
        self._name = feed_name(topic, path)
        self._written = 0
        self._failed: list[object] = []
        self._began = time.monotonic()
        self._next_report = self._began + view.seconds

    def run(self) -> int:
        """Write the rows that the topic does not have; return how many this call wrote."""
        for attempt in range(_ATTEMPTS):
            try:
                return self._run()
            except (TransactionDoubtError, BrokerUnavailableError):
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    def _run(self) -> int:
        self._failed.clear()
        progress_at = TopicPartition(self._topic, 0)
        producer = TransactionalProducer(
            self._settings,
            self._name,
            timeout_ms=_TIMEOUT_MS,
            on_delivery_error=lambda error, message: self._failed.append(error),
        )
        consumer = make_consumer(self._settings, group_id=self._name)
        try:
            # 1. Take over.
            producer.initialise()
            # 2. Progress and version.
            known = committed_by(consumer, [progress_at], seconds=_SECONDS).get(progress_at)
            done, version = self._begin(0 if known is None else known.offset, "" if known is None else known.metadata)
            total = version.rows
            for batch in version.batches(done):
                for start in range(0, batch.num_rows, self._commit_rows):
                    rows = batch.slice(start, self._commit_rows)
                    # 3. Write.
                    producer.begin()
                    self._send(producer.client, rows, done)
                    producer.flush(self._check)
                    self._check()
                    failpoint("P1")
                    # 4. Commit.
                    done += rows.num_rows
                    metadata = json.dumps({"version": version.name, "rows": total})
                    producer.send_offsets({progress_at: (done, metadata)}, consumer.consumer_group_metadata())
                    producer.commit()
                    self._restart = False
                    self._written += rows.num_rows
                    failpoint("P2")
                    self._tell(done, total)
            return self._written
        finally:
            producer.close()
            consumer.close()

    def _begin(self, done: int, metadata: str) -> tuple[int, TableVersion]:
        if self._restart or not metadata:
            return 0, self._open_version(None)
        pinned = json.loads(metadata)
        version = self._open_version(pinned["version"])
        if version.name != pinned["version"] or version.rows != pinned["rows"]:
            raise TableChangedError(
                f"the table {self._path} has changed since {done:,} of its {pinned['rows']:,} rows were written to {self._topic!r}: "
                f"it was {pinned['version']} and is {version.name}",
                hint="plain Parquet has no versions: put the files back, or begin again with restart=True, which writes all rows once more",
                path=self._path,
                topic=self._topic,
                written=done,
            )
        return done, version

    def _send(self, client: Producer, rows: pa.RecordBatch, done: int) -> None:
        for number, record in enumerate(parts_of(rows, key=self._key, timestamp=self._timestamp), done):
            what = f"row {number} of {self._path}"
            sent, key_serde, value_serde = serialized(record, *self.serdes, what=what, topic=self._topic, path=self._path)
            self.serdes = key_serde, value_serde
            while True:
                try:
                    with kafka_errors(f"producing to {self._topic!r}", topic=self._topic):
                        client.produce(self._topic, **sent)
                    break
                except BufferError:
                    client.poll(0.05)
                    self._check()

    def _check(self) -> None:
        if self._failed:
            raise translate(
                self._failed[0], f"producing to {self._topic!r}", bootstrap_servers=self._settings.bootstrap_servers, topic=self._topic
            )

    def _tell(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now >= self._next_report or done == total:
            self._next_report = now + self._view.seconds
            rate = self._written / max(now - self._began, 0.001)
            text = f"{self._topic}: {done:,} of {total:,} rows, {rate:,.0f}/s, {(total - done) / rate:.0f} s left"
            self._view.show(done, total, text)
