"""`Session.spark_frame`: topics and stores as Spark DataFrames, for data too large for `Session.sql`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kstreams_repl import serdes
from kstreams_repl.errors import KStreamsError
from kstreams_repl.inspection.scan_partitions import planned
from kstreams_repl.inspection.topics import bounded
from kstreams_repl.kafka.reading import OffsetRange, ranges_of, read_ranges
from kstreams_repl.session.topics.produce import milliseconds
from kstreams_repl.session.views.sql_catalog import SessionTables
from kstreams_repl.session.views.store_reader import refuse_what_a_processor_fills
from kstreams_repl.session.views.store_view import StoreView
from kstreams_repl.topology.names import changelog_topic
from kstreams_repl.topology.stores import StoreBuilder

if TYPE_CHECKING:
    from kstreams_repl.config import StreamsConfig
    from kstreams_repl.session.session import Session

SAMPLE = 20_000
"""Records of the requested range from which the columns are inferred: half from its beginning, half from its end."""


def spark_frame(
    session: Session, name: Any, *, records: int | None, offsets: Any, start: Any, end: Any, piece: int
) -> Any:
    """Return a Spark DataFrame, as `Session.spark_frame`."""
    store = _store(session, name)
    if store is not None:
        if any(bound is not None for bound in (records, offsets, start, end)):
            raise KStreamsError("a store is read as a whole", hint="filter the DataFrame: frame.where(...)")
        return _of_store(session, *store)
    topic = SessionTables(session, {}, {}).topic(str(name))
    first, last = (None, None) if offsets is None or isinstance(offsets, Mapping) else offsets
    if isinstance(offsets, Mapping):
        first, last = ({at: pair[side] for at, pair in offsets.items() if pair[side] is not None} for side in (0, 1))
    whole = ranges_of(
        session.admin,
        topic,
        partitions=sorted(offsets) if isinstance(offsets, Mapping) else None,
        start=first,
        end=last,
        since_ms=None if start is None else milliseconds(start),
        until_ms=None if end is None else milliseconds(end),
    )
    ranges = bounded(whole, records)
    key, value = session.serdes_of(topic)
    return _frame(session, topic, ranges, list(_cut(ranges, max(piece, 1))), key, value, None)


def _of_store(session: Session, application: str, config: StreamsConfig, builder: StoreBuilder) -> Any:
    if not builder.logging and builder.source_topic is None:
        raise KStreamsError(
            f"store {builder.name!r} has no changelog that a worker could read", hint="session.sql reads it on this machine"
        )
    refuse_what_a_processor_fills(builder)
    topic = builder.source_topic or changelog_topic(application, builder.name)
    ranges = ranges_of(session.admin, topic, settled=True)
    key = serdes.resolve(builder.key_serde, config["default.key.serde"])
    value = serdes.resolve(builder.value_serde, config["default.value.serde"])
    return _frame(session, topic, ranges, [item for item in ranges if item.start < item.end], key, value, builder)


def _frame(
    session: Session, topic: str, ranges: Iterable[OffsetRange], pieces: list[OffsetRange], key: Any, value: Any, store: Any
) -> Any:
    from kstreams_repl.spark.dataframe_reader import frame_of

    ranges = tuple(ranges)
    sample = list(read_ranges(session.settings, _sample(ranges)))
    plan = planned(session.settings, pieces, sample, key_serde=key, value_serde=value, store=store)
    total = sum(item.end - item.start for item in ranges)
    what = f"store {store.name} from topic {topic}" if store is not None else f"topic {topic}"
    session.report(f"{what}: {total:,} offsets of {len(ranges)} partitions, in {len(pieces)} pieces")
    assert plan.schema is not None
    return frame_of(session.spark, plan.read, len(pieces), plan.schema)


def _sample(ranges: tuple[OffsetRange, ...]) -> list[OffsetRange]:
    """Return the beginning and the end of each offset range."""
    each = max(SAMPLE // (2 * max(len(ranges), 1)), 1)
    found = []
    for item in ranges:
        if item.end - item.start <= 2 * each:
            found.append(item)
        else:
            found += [
                OffsetRange(item.partition, item.start, item.start + each),
                OffsetRange(item.partition, item.end - each, item.end),
            ]
    return found


def _cut(ranges: Iterable[OffsetRange], piece: int) -> Iterator[OffsetRange]:
    for item in ranges:
        for start in range(item.start, item.end, piece):
            yield OffsetRange(item.partition, start, min(start + piece, item.end))


def _store(session: Session, name: Any) -> tuple[str, StreamsConfig, StoreBuilder] | None:
    if isinstance(name, StoreView):
        return name.place
    if not isinstance(name, str):
        raise KStreamsError(f"a {type(name).__name__} is no topic or store", hint='session.spark_frame("flights"), or app.store("counts")')
    found = SessionTables(session, {}, {}).store(name)
    return None if found is None else (found[0].name, found[0].config, found[1])
