"""Topics and stores of a session: create, write, read, record, look at values, query by SQL."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kstreams_repl.engine.call_checks import checked_calls
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.pictures.table import Table
from kstreams_repl.repl.inspection import SqlResult
from kstreams_repl.repl.session.application.life.registry import ApplicationRegistry
from kstreams_repl.repl.session.cleanup import delete_topic
from kstreams_repl.repl.session.cluster_client import DEFAULT_PARTITIONS, ClusterClient
from kstreams_repl.repl.session.progress_messages import progress_view
from kstreams_repl.repl.session.topics.produce import TopicProducer, UntimedRecords, parts_of
from kstreams_repl.repl.session.topics.read import topics_table
from kstreams_repl.repl.session.topics.record import record_topics
from kstreams_repl.repl.session.topics.records import Records
from kstreams_repl.repl.session.topics.schemas import schema_of
from kstreams_repl.repl.session.topics.source_serdes import built_with_serdes
from kstreams_repl.repl.session.views.past import past_of
from kstreams_repl.repl.session.views.stores.store_view import StoreView
from kstreams_repl.repl.session.views.tables.spark_frames import refuse_bounds, spark_frame
from kstreams_repl.repl.session.views.tables.sql_query import run_query
from kstreams_repl.repl.session.views.values.last_values import last_values
from kstreams_repl.repl.session.views.values.sample import Sample
from kstreams_repl.repl.session.views.values.sample_run import sample
from kstreams_repl.system.durations import Seconds, as_seconds
from kstreams_repl.system.errors import CallError, ConfigError
from kstreams_repl.test_driver.recording import Recording

if TYPE_CHECKING:
    from kstreams_repl.engine.serdes.serde import Serde
    from kstreams_repl.host.spark.dataframe_reader import DataFrame
    from kstreams_repl.table_files.table_reader import TableVersion


@checked_calls
class TopicAccess:
    """The topic methods of `Session`."""

    client: ClusterClient
    _applications: ApplicationRegistry

    def topics(self, *, internal: bool = False) -> Table:
        """List topics with their partitions, records and offsets.

        Records are those that a `read_committed` reader sees. They are counted, up to 200,000 new offsets per call; a topic with more
        has None. Transaction markers, aborted and compacted records have offsets, too.

        Args:
            internal: also list changelogs, repartition topics and journals.

        Example:
            >>> session.topics()
        """
        return topics_table(self.client.admin, self.client.counter, internal=internal)

    def schema(self, topic: str) -> Table:
        """Return the columns of a topic in SQL, their types and an example of each, from its last 200 records.

        Example:
            >>> [row[0] for row in session.schema('words').rows]
        """
        return schema_of(self.client, self._applications, topic)

    def create_topic(
        self, topic: str, *, partitions: int = DEFAULT_PARTITIONS, configs: Mapping[str, str] | None = None, exist_ok: bool = True
    ) -> bool:
        """Create a topic. Return False when it exists already.

        On the embedded broker a topic keeps its records without limit unless `configs` says otherwise: Kafka's default deletes
        them after a week.

        Args:
            topic: name of the topic.
            partitions: number of partitions.
            configs: settings of the topic; None: the broker's, except for `retention.ms` on the embedded broker.
            exist_ok: whether a topic that exists already is left as it is; otherwise it raises an error.

        Raises:
            InvalidNameError: Kafka does not allow the name.

        Example:
            >>> session.create_topic('orders', partitions=2)
            True
        """
        return self.client.create_topic(topic, partitions=partitions, configs=configs, exist_ok=exist_ok)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its records, for example to produce corrected ones.

        Args:
            topic: name of the topic.

        Raises:
            UnknownTopicError: there is no such topic.
            TopicInUseError: an application uses it, running or not, or a group has offsets of it.

        Example:
            >>> _ = session.create_topic('misspelt')
            >>> session.delete_topic('misspelt')
        """
        delete_topic(self.client, self._applications, topic)

    def produce(
        self,
        topic: str,
        records: object,
        *,
        key: str | None = None,
        timestamp: str | None = None,
        key_serde: object = None,
        value_serde: object = None,
        partitions: int = DEFAULT_PARTITIONS,
    ) -> int:
        """Write records to a topic, which is created if it does not exist. Return their number once the broker has them all.

        Args:
            records: values, or `(key, value)`, `(key, value, timestamp)` tuples, records that were read, or a dataframe or query
                result whose rows become JSON objects.
            key: the field or column of each value that is also the record's key.
            timestamp: the field or column with the record's time (ms, datetime or ISO text); None: now, which is reported if a field
                looks like the time.
            key_serde, value_serde: None: chosen by the first key and value: text, long, double, bytes, else JSON.
            partitions: of the topic, if it is created.

        Raises:
            SerializationError: its serde cannot write a record.
            ProductionError, BrokerUnavailableError: the broker did not accept the records.

        Example:
            >>> session.produce('orders', [('ada', {'amount': 3}), ('bob', {'amount': 5})])
            2
        """
        client, broker = self.client, self.client.broker
        client.create_topic(topic, partitions=partitions)
        key_serde, value_serde = client.serdes_of(topic, key_serde, value_serde)
        producer = TopicProducer(client.settings, topic, key_serde, value_serde, watch=None if broker is None else broker.check)
        parts = UntimedRecords(parts_of(records, key=key, timestamp=timestamp))
        try:
            count = producer.send_all(parts)
            if note := parts.note(topic):
                client.report(note)
            return count
        finally:
            client.serdes.remember(topic, producer.key_serde, producer.value_serde)

    def produce_table(
        self,
        path: str | Path,
        topic: str,
        *,
        key: str | None = None,
        timestamp: str | None = None,
        format: str | None = None,
        key_serde: object = None,
        value_serde: object = None,
        partitions: int = DEFAULT_PARTITIONS,
        commit_rows: int = 10_000,
        table: str | None = None,
        catalog: Mapping[str, str] | None = None,
        storage_options: Mapping[str, str] | None = None,
        restart: bool = False,
    ) -> int:
        """Write the rows of a table of files to a topic, each once, as JSON objects. Return how many rows this call wrote.

        After an interruption or a crash the same call continues where it stopped, on the version of the table with which it
        began (docs/tasks/tables.md). When all rows are written it writes nothing.

        Args:
            path: a directory or file of Parquet, a Delta or Iceberg table: a local path or URL.
            topic: created if it does not exist.
            key, timestamp: columns, as for `produce`.
            format: "parquet", "delta" or "iceberg"; None: what the path contains.
            key_serde, value_serde: as for `produce`.
            partitions: of the topic, if it is created.
            commit_rows: rows in one transaction.
            table, catalog: identifier of an Iceberg table and the properties of its catalog; None: the one in its directory.
            storage_options: of the file system.
            restart: begin again with all rows of the table as it is now, whatever was written before.

        Raises:
            TableChangedError: plain Parquet files changed since the first rows were written.
            ConfigError: `commit_rows` is below 1, or the format is unknown.
            SerializationError, ProductionError, BrokerUnavailableError: as `produce`; committed rows stay.
            ProducerFencedError: another process feeds the same table into the topic; it continues there.

        Example:
            >>> import pyarrow.parquet
            >>> path = session.directory.path / 'words.parquet'
            >>> pyarrow.parquet.write_table(session.sql('SELECT key, value FROM words').arrow(), path)
            >>> session.produce_table(path, 'words-again', key='key')
            5
            >>> session.produce_table(path, 'words-again', key='key')
            0
        """
        from kstreams_repl.repl.session.topics.produce_table import TableFeed  # brings pyarrow
        from kstreams_repl.table_files.table_reader import open_version

        if commit_rows < 1:
            raise ConfigError(f"commit_rows must be >= 1, got {commit_rows}")
        client, place = self.client, str(path)

        def opened(version: str | None) -> TableVersion:
            return open_version(place, format, version=version, table=table, catalog=catalog, storage_options=storage_options)

        opened(None)  # a wrong path creates no topic
        client.create_topic(topic, partitions=partitions)
        feed = TableFeed(
            client.settings,
            place,
            topic,
            opened,
            key=key,
            timestamp=timestamp,
            serdes=client.serdes_of(topic, key_serde, value_serde),
            commit_rows=commit_rows,
            restart=restart,
            view=progress_view(client.report),
        )
        written = feed.run()
        client.serdes.remember(topic, *feed.serdes)
        return written

    def read(
        self,
        topic: str,
        n: int | None = 10,
        *,
        start: object = None,
        key_serde: object = None,
        value_serde: object = None,
    ) -> Records:
        """Return records of a topic, by time: the last `n`, or the first `n` from `start` on. Never waits for new records.

        Args:
            n: number of records; None: all.
            start: "earliest", an offset (of every partition, an int), or a time (datetime or ISO text).
            key_serde, value_serde: None: those that this session knows for the topic, else those that the bytes suggest.

        Raises:
            UnknownTopicError: there is no such topic.

        Example:
            >>> [record.value for record in session.read('words', n=2)]
            ['not', 'to']
        """
        return self.client.read(topic, n, start=start, key_serde=key_serde, value_serde=value_serde)

    def record(
        self, *topics: str, n: int | None = None, timeout: Seconds | None = None, offsets: Any = None
    ) -> Recording:
        """Return an exact recording of topics: bytes, headers, times and offsets.

        Replay it into a topology, or save it as a test file.

        Args:
            n: the last `n` records of each topic; 1,000 when no bound is given.
            timeout: seconds; record what is written from now on for that long.
            offsets: ``(from, to)`` of every partition (either may be None), or by partition: ``{0: (10, 20)}``.

        Raises UnknownTopicError when there is no such topic.

        Example:
            >>> recording = session.record('words', n=100)
            >>> len(recording)
            5
        """
        seconds = None if timeout is None else as_seconds(timeout, "timeout")
        return record_topics(self.client.admin, topics, n=n, seconds=seconds, offsets=offsets)

    def serdes_of(self, topic: str) -> tuple[Serde | None, Serde | None]:
        """Return (key serde, value serde) of a topic; None for a side that this session does not know.

        Example:
            >>> key_serde, value_serde = session.serdes_of('words')
        """
        return self.client.serdes_of(topic)

    def values(
        self, target: object, n: int = 10, *, timeout: Seconds = 5.0, topology: object = None, config: Mapping[str, object] | None = None
    ) -> Records | Table:
        """Return the last values of a topic, node, stream or table, without deploying anything.

        For a topic these are its last records. For a node they are the values that it forwards when the topology runs in the test
        driver over a bounded sample of its real topics. A builder or topology gives one row for every node.

        Args:
            target: a topic's or node's name, a stream, table, builder, topology or application.
            n: number of values.
            timeout: seconds after which no larger sample is begun.
            topology: the topology that has a node of this name; None: the applications of this session.
            config: settings for the sample run.

        Raises:
            UnknownTopicError, TopologyError: there is no such topic or node.

        Example:
            >>> session.values('words', n=2)
            >>> session.values('long', topology=builder)
        """
        return last_values(
            self.client, self._applications, target, n, seconds=as_seconds(timeout, "timeout"), topology=topology, config=config or {}
        )

    def sample(self, topology: object, *, n: int = 10, timeout: Seconds = 5.0, config: Mapping[str, object] | None = None) -> Sample:
        """Run a topology over a bounded sample of its topics and keep the last `n` values of every node.

        Args:
            topology: a builder, a topology, a stream or a table.
            n: number of values per node.
            timeout: seconds to read for at most.
            config: settings of the topology; None: the session's.

        Example:
            >>> sample = session.sample(builder, n=3)
        """
        seconds = as_seconds(timeout, "timeout")
        built, checked = built_with_serdes(self.client, topology, StreamsConfig({**self.client.config, **(config or {})}))
        return sample(self.client.admin, built, node=None, n=n, seconds=seconds, config=checked)

    def sql(
        self,
        query: str,
        *,
        topic_limit: int | None = None,
        store_limit: int | None = None,
        start: object = None,
        end: object = None,
        as_of: object = None,
        **frames: object,
    ) -> SqlResult:
        """Run one SELECT over topics, stores and dataframes, in DuckDB.

        A topic has ``key``, ``value`` (JSON: its fields), ``partition``, ``"offset"``, ``timestamp`` and ``headers``; a store
        ``key``, ``value``, ``timestamp`` and, for windows, ``window_start`` and ``window_end``. Names with other characters than
        letters, digits and underscores need double quotes.

        Of a topic only the columns that the query uses are decoded, and of conditions that compare ``partition``, ``"offset"`` (from,
        to) and ``timestamp`` (from) with constants only the offsets that can meet them are read; a `LIMIT` without `ORDER BY` or
        aggregates stops early. Of a key-value store ``key = …`` and ``key IN (…)`` look up the keys.

        Args:
            topic_limit: number of records to read of each topic, the last ones; every export of the result then warns
                (`PartialResultWarning`). None: all that the query needs, streamed into DuckDB, whose memory is bounded: it spills the
                rest to disk.
            store_limit: number of rows to read of each store, per task; exports warn as well. None: all that the query needs.
            start, end: read only this time range of topics, `end` excluded (ms, datetime or ISO text); None: no bound.
            as_of: read stores as they were after an earlier commit of each task, and the application's input up to there: a time of the
                broker, ``"10 minutes ago"``, ``"commit 12"``, a record (``"orders-0@17"``: exactly after it), or
                ``"stream time 2026-01-31T12:00"``. Other topics end before their first record of a later time. None: now.
            **frames: dataframes by their names in the query; the caller's own variables are found without it.

        Raises:
            InvalidStateStoreError: the state as of then is not known any more; the hint names the earliest that is.
            SqlError: it is not one SELECT statement, names a table or column that does not exist, or DuckDB rejects it.

        Example:
            >>> session.sql('SELECT value AS word, count(*) AS n FROM words GROUP BY ALL ORDER BY word').fetchall()[0]
            ('be', 1)
        """
        return run_query(
            self.client,
            self._applications,
            query,
            frames=frames,
            topic_limit=topic_limit,
            store_limit=store_limit,
            start=start,
            end=end,
            past=past_of(as_of),
        )

    def spark_frame(
        self,
        name: object,
        *,
        topic_limit: int | None = None,
        offsets: object = None,
        start: object = None,
        end: object = None,
        piece: int = 1_000_000,
    ) -> DataFrame:
        """Return a topic or a store as a Spark DataFrame, with the columns of `sql`. For data too large for `sql`.

        Spark's workers read the records. This call fixes the offsets, so every action reads the same records. A store is read
        from its changelog, the last record of each key. Fields of JSON values are inferred from 20,000 records; a value that does
        not fit them is NULL.

        Args:
            name: a topic, a store of an application of this session, or ``app.store(name)``.
            topic_limit: number of records to read of a topic, the last ones; None: all.
            offsets: ``(from, to)`` of every partition (either may be None), or by partition: ``{0: (10, 20)}``.
            start, end: read only this time range of a topic (ms, datetime or ISO text), `end` excluded.
            piece: how many offsets of a partition one Spark task reads.

        Raises:
            UnknownTopicError: there is no such topic or store.
            CallError: `name` is neither a name nor a store.

        Example:
            >>> frame = session.spark_frame('words')
            >>> frame.count()
            5
        """
        if isinstance(name, StoreView):
            refuse_bounds(topic_limit, offsets, start, end)
            return name.spark_frame()
        if not isinstance(name, str):
            raise CallError(
                f"expected the name of a topic or store, or a store, got a {type(name).__name__}",
                hint='session.spark_frame("flights"), or session.spark_frame(app.store("counts"))',
            )
        return spark_frame(
            self.client, self._applications, name, topic_limit=topic_limit, offsets=offsets, start=start, end=end, piece=piece
        )
