"""`Session.spark_frame`: topics and stores as Spark DataFrames, for data too large for `Session.sql`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kstreams_repl.engine import serdes
from kstreams_repl.engine.stores.log.log_serdes import with_log_serdes
from kstreams_repl.engine.topology.names import changelog_topic
from kstreams_repl.engine.topology.store_builder import StoreBuilder
from kstreams_repl.host.kafka.reading import OffsetRange, ranges_of, read_ranges
from kstreams_repl.repl.inspection.scan_partitions import planned
from kstreams_repl.repl.inspection.topics import bounded, ends_of
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.repl.session.topics.produce import milliseconds
from kstreams_repl.repl.session.views.stores.store_reader import refuse_what_a_processor_fills
from kstreams_repl.repl.session.views.tables.sql_catalog import SessionTables
from kstreams_repl.system.errors import CallError

if TYPE_CHECKING:
    from kstreams_repl.engine.serdes.serde import Serde
    from kstreams_repl.host.spark.dataframe_reader import DataFrame

SAMPLE = 20_000
"""Records of the requested range from which the columns are inferred: half from its beginning, half from its end."""


def spark_frame(
    client: ClusterClient,
    applications: Mapping[str, ApplicationCore],
    name: str,
    *,
    topic_limit: int | None,
    offsets: Any,
    start: object,
    end: object,
    piece: int,
) -> DataFrame:
    """Return a Spark DataFrame of a topic or of a store of one of the applications, as `Session.spark_frame`."""
    tables = SessionTables(client, applications, {}, {})
    store = tables.store(name)
    if store is not None:
        refuse_bounds(topic_limit, offsets, start, end)
        return store_frame(client, *store)
    topic = tables.topic(name)
    first, last = (None, None) if offsets is None or isinstance(offsets, Mapping) else offsets
    if isinstance(offsets, Mapping):
        first, last = ({at: pair[side] for at, pair in offsets.items() if pair[side] is not None} for side in (0, 1))
    whole = ranges_of(
        client.admin,
        topic,
        partitions=sorted(offsets) if isinstance(offsets, Mapping) else None,
        start=first,
        end=last,
        since_ms=None if start is None else milliseconds(start),
        until_ms=None if end is None else milliseconds(end),
    )
    ranges = bounded(whole, topic_limit)
    key, value = client.serdes_of(topic)
    return _frame(client, topic, ranges, list(_cut(ranges, max(piece, 1))), key, value, None)


def refuse_bounds(*bounds: object) -> None:
    """Raise if a bound is given for a store, which is read as a whole.

    Raises:
        CallError: one is given.
    """
    if any(bound is not None for bound in bounds):
        raise CallError(
            "a store is read as a whole: expected no topic_limit=, offsets=, start= or end=", hint="filter the DataFrame: frame.where(...)"
        )


def store_frame(client: ClusterClient, application: ApplicationCore, builder: StoreBuilder) -> DataFrame:
    """Return a store as a Spark DataFrame, read from its changelog by Spark's workers.

    Raises:
        CallError: it has no changelog.
        InvalidStateStoreError: a processor writes its rows.
    """
    if not builder.logging and builder.source_topic is None:
        raise CallError(
            f"expected a store with a changelog, got {builder.name!r} without one", hint="read it on this machine: session.sql(...)"
        )
    refuse_what_a_processor_fills(builder)
    topic = builder.source_topic or changelog_topic(application.name, builder.name)
    ranges = ranges_of(client.admin, topic, settled=True)
    key = serdes.resolve(builder.key_serde, application.config["default.key.serde"])
    value = serdes.resolve(builder.value_serde, application.config["default.value.serde"])
    store = with_log_serdes(builder, application.config)
    return _frame(client, topic, ranges, [item for item in ranges if item.start < item.end], key, value, store)


def _frame(
    client: ClusterClient,
    topic: str,
    ranges: Iterable[OffsetRange],
    pieces: list[OffsetRange],
    key: Serde | None,
    value: Serde | None,
    store: StoreBuilder | None,
) -> DataFrame:
    from kstreams_repl.host.spark.dataframe_reader import frame_of

    ranges = tuple(ranges)
    sample = list(read_ranges(client.settings, ends_of(ranges, SAMPLE)))
    plan = planned(client.settings, pieces, sample, key_serde=key, value_serde=value, store=store)
    total = sum(item.end - item.start for item in ranges)
    what = f"store {store.name} from topic {topic}" if store is not None else f"topic {topic}"
    client.report(f"{what}: {total:,} offsets of {len(ranges)} partitions, in {len(pieces)} pieces")
    assert plan.schema is not None
    return frame_of(client.spark.session, plan.read, len(pieces), plan.schema)


def _cut(ranges: Iterable[OffsetRange], piece: int) -> Iterator[OffsetRange]:
    for item in ranges:
        for start in range(item.start, item.end, piece):
            yield OffsetRange(item.partition, start, min(start + piece, item.end))
