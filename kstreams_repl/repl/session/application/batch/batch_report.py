"""`BatchReport`: what a bounded run did, per partition and in records, from the journal and the committed counts."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field

from kstreams_repl.engine.commit import offset_metadata
from kstreams_repl.engine.commit.committed_counts import committed_counts, merged_counts
from kstreams_repl.engine.config import shown_address
from kstreams_repl.engine.runtime.nodes.node_counts import NodeCounts
from kstreams_repl.engine.topology.nodes import SinkNode
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.batch.stop_offsets import by_partition
from kstreams_repl.host.journal.journal_records import StopOffsets
from kstreams_repl.host.kafka.internal_topics import journal_topic_name
from kstreams_repl.pictures.frames import Frames
from kstreams_repl.pictures.table import Table
from kstreams_repl.repl.session.application.starting.journal_lookup import journal_of
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.repl.session.views.counts.record_counts import LATE, input_sources
from kstreams_repl.system.types import JsonObject


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """What a run read of one partition: offsets from `start` to before `end`; nothing if they are equal."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class WrittenTable:
    """What a run added to the table of one sink: data files, their rows and their size in bytes."""

    node: str
    path: str
    format: str
    files: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class BatchReport(Frames):
    """What a bounded run did.

    Attributes:
        application: its name.
        run: number of the run, from 1; 0 before the first.
        state: "finished", or "nothing new" when there was no input and nothing was started.
        partitions: offsets read, by input partition.
        records_in: records that the sources read from topics that are not the application's own.
        records_out: records that the sinks sent to such topics, or wrote to tables.
        late: records dropped because their window was closed; part of `dropped`.
        dropped: dropped records by reason.
        seconds: duration of this call; of a run that was continued after a failure, of its last part.
        tables: what it added to tables of files, read from the tables' own logs; a table that cannot be read here is left out.

    Example:
        >>> import kstreams_repl as ks
        >>> report = ks.reports.BatchReport("daily", 3, "finished", (ks.reports.PartitionRange("flights", 0, 100, 250),), 150, 12)
        >>> report.records_in, report.as_dict()["partitions"]
        (150, ({'topic': 'flights', 'partition': 0, 'start': 100, 'end': 250},))
    """

    application: str
    run: int
    state: str
    partitions: tuple[PartitionRange, ...] = ()
    records_in: int = 0
    records_out: int = 0
    late: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    tables: tuple[WrittenTable, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there was no input.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.reports.BatchReport("daily", 3, "nothing new").is_empty
            True
        """
        return all(part.start == part.end for part in self.partitions)

    def as_dict(self) -> JsonObject:
        """Return it as plain values.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.reports.BatchReport("daily", 3, "nothing new").as_dict()["state"]
            'nothing new'
        """
        return {**asdict(self), "dropped": dict(self.dropped)}

    def json(self) -> str:
        """Return it as a JSON text.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.reports.BatchReport("daily", 3, "nothing new").json()[:22]
            '{"application": "daily'
        """
        return json.dumps(self.as_dict())

    def table(self) -> Table:
        """Return one row for each partition that was read.

        Example:
            >>> import kstreams_repl as ks
            >>> report = ks.reports.BatchReport("daily", 3, "finished", (ks.reports.PartitionRange("flights", 0, 100, 250),), 150, 12)
            >>> report.table().rows
            (('flights', 0, 100, 250),)
        """
        rows = [(part.topic, part.partition, part.start, part.end) for part in self.partitions if part.start != part.end]
        return Table.of(("topic", "partition", "from", "to"), rows, note=repr(self))

    def __repr__(self) -> str:
        if self.state != "finished":
            return f"{self.application}: {self.state} ({self.seconds:.1f} s)"
        dropped = f", {sum(self.dropped.values()):,} dropped ({self.late:,} late)" if self.dropped else ""
        count = sum(table.files for table in self.tables)
        files = f", {count:,} file{'' if count == 1 else 's'}" if self.tables else ""
        return (
            f"{self.application}, run {self.run}: {self.records_in:,} records in, {self.records_out:,} out{dropped}{files}, "
            f"{self.seconds:.1f} s"
        )

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return self.table()._repr_mimebundle_()


def last_run(client: ClusterClient, name: str) -> StopOffsets | None:
    """Return the journal's record of the last bounded run; None if there was none."""
    return journal_of(client, name).stop_offsets if journal_topic_name(name) in client.admin.topics() else None


def report_of(client: ClusterClient, topology: Topology, name: str, record: StopOffsets, seconds: float) -> BatchReport:
    """Return the report of a finished run."""
    admin = client.admin
    starts, ends = by_partition(record.starts), by_partition(record.offsets)
    first = admin.beginning_offsets(at for at in ends if at not in starts)
    ranges = tuple(PartitionRange(at.topic, at.partition, min(starts.get(at, first.get(at, 0)), to), to) for at, to in ends.items())
    committed = admin.committed_offsets(name, stable=False)
    nodes = list(topology.nodes)
    before = committed_counts(base64.b64decode(record.counts), nodes)
    after = committed_counts(merged_counts(offset_metadata.decode(at.metadata).counts for at in committed.values()), nodes)
    sinks = [node.name for node in topology.nodes.values() if isinstance(node, SinkNode) and node.topic not in topology.internal_topics]
    dropped: dict[str, int] = {}
    for node, count in after.items():
        for reason, number in count.dropped.items():
            more = number - (before[node].dropped.get(reason, 0) if node in before else 0)
            if more > 0:
                dropped[reason] = dropped.get(reason, 0) + more
    return BatchReport(
        name,
        record.run,
        "finished",
        ranges,
        sum(_more(after, before, source, "taken") for source in input_sources(topology)),
        sum(_more(after, before, sink, "given") for sink in sinks),
        sum(number for reason, number in dropped.items() if reason in LATE),
        dropped,
        round(seconds, 3),
        written_tables(topology, name, record, client.report),
    )


def written_tables(topology: Topology, name: str, record: StopOffsets, report: Callable[[str], None]) -> tuple[WrittenTable, ...]:
    """Return what a finished run added to tables.

    Args:
        report: called with a line for each table that cannot be read.
    """
    starts = {str(partition): offset for partition, offset in by_partition(record.starts).items()}
    tables = []
    for node in topology.nodes.values():
        if isinstance(node, SinkNode) and node.table is not None:
            from kstreams_repl.table_files.formats import open_log  # pyarrow is loaded only for applications with tables
            from kstreams_repl.table_files.table_log import added_since

            table = node.table
            try:
                added = added_since(open_log(table), f"{name}/{node.name}", starts, record.at_ms)
            except Exception as error:  # the run has ended well: its instances wrote the table, perhaps with rights of their own
                report(f"the report has no files of {node.name}: the table cannot be read here: {type(error).__name__}: {error}")
                continue
            tables.append(WrittenTable(node.name, shown_address(table.path), table.format, added.files, added.rows, added.bytes))
    return tuple(tables)


def _more(after: NodeCounts, before: NodeCounts, node: str, what: str) -> int:
    """Return the difference; all of it if the count has begun again since."""
    now = getattr(after[node], what) if node in after else 0
    earlier = getattr(before[node], what) if node in before else 0
    return now - earlier if now >= earlier else now
