"""Fix the stop offsets of a bounded run, once.

Actors: the application's settings say where to stop (`StopAt`), the journal has the record of the last run (`StopOffsets`). An open
record belongs to a run that has not finished: it is used again, whatever was produced since. Otherwise a new run begins, and its
record is written together with the generation that reads it, in one transaction (`Generations.raise_to`): all of it or nothing.

A partition stops at its end when the run begins, or earlier. The end is the last stable offset under exactly once: what an open
transaction writes belongs to a later run. Partitions that the record lacks, because they were created since, are left to the next run.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace

from kstreams_repl.engine.commit import offset_metadata
from kstreams_repl.engine.commit.committed_counts import merged_counts
from kstreams_repl.engine.commit.failpoints import failpoint
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.topology.bounds.stop_at import StopAt
from kstreams_repl.engine.topology.names import internal_topic
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.instance.reports.run_progress import input_partitions
from kstreams_repl.host.journal.journal_records import StopOffsets
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import Isolation
from kstreams_repl.host.kafka.group_admin import CommittedOffset
from kstreams_repl.system.errors import InputOffsetError, TopologyError
from kstreams_repl.system.types import TopicPartition

AUTOSTOP = "autostop.at"
ON_END = "repl.autostop.on.end"


def bounded_partitions(topology: Topology, config: StreamsConfig, inputs: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return the inputs that have stop offsets. The others are intermediate topics, which the application itself writes.

    Raises:
        TopologyError: the topology writes and reads a topic of the user's, and ``repl.autostop.through`` does not say who else writes it.
    """
    name, through = str(config["application.id"]), config["repl.autostop.through"]
    own = {internal_topic(name, topic) for topic in topology.internal_topics}
    written = set(topology.sink_topics()) - set(topology.internal_topics)
    both = sorted({partition.topic for partition in inputs} & written)
    if both and through == "refuse":
        raise TopologyError(
            f"a bounded run of {name} writes and reads {', '.join(map(repr, both))}: it cannot be known who else writes there, and so "
            "not where the run ends",
            hint="use repartition() in place of the topic; or set repl.autostop.through: 'own' if only this application writes it, "
            "'bounded' to leave what this run writes to the next run",
            topic=both[0],
        )
    intermediate = own | (set(both) if through == "own" else set())
    return [partition for partition in inputs if partition.topic not in intermediate]


def stop_offsets(
    admin: Admin, stop: StopAt, bounded: list[TopicPartition], committed: Mapping[TopicPartition, CommittedOffset], isolation: Isolation
) -> dict[TopicPartition, int]:
    """Return where these partitions stop, as of now."""
    ends = admin.end_offsets(bounded, isolation=isolation)
    limits: Mapping[TopicPartition, int | None] = {}
    if stop.time_ms is not None:
        limits = admin.offsets_for_time(dict.fromkeys(bounded, stop.time_ms))
    elif stop.records is not None:
        first = admin.beginning_offsets(bounded)
        limits = {at: stop.records + (committed[at].offset if at in committed else first[at]) for at in bounded}
    elif stop.offsets is not None:
        limits = {at: stop.offsets.get(at.topic, {}).get(at.partition, _committed(committed, at)) for at in bounded}
    return {at: end if (offset := limits.get(at)) is None else min(offset, end) for at, end in ends.items()}


def begin_run(admin: Admin, topology: Topology, plan: ApplicationPlan, last: StopOffsets | None) -> StopOffsets:
    """Return the record of the run that the plan is part of: the open one, or one with new stop offsets.

    Raises:
        InputOffsetError: an input of the open run ends before its stop offset.
        TopologyError: as `bounded_partitions`.
    """
    inputs = input_partitions(plan)
    bounded = bounded_partitions(topology, plan.config, inputs)
    if last is not None and last.state == "open":
        _check_within_reach(admin, plan, stops_of(last, bounded))
        return last
    committed = admin.committed_offsets(plan.application_id, inputs, stable=False)
    stops = stop_offsets(admin, StopAt.parse(plan.config[AUTOSTOP]), bounded, committed, plan.isolation)
    counts = merged_counts(offset_metadata.decode(at.metadata).counts for at in committed.values())
    return StopOffsets(
        plan.generation,
        1 if last is None else last.run + 1,
        by_topic(stops),
        starts=by_topic({at: offset.offset for at, offset in committed.items()}),
        at_ms=time.time_ns() // 1_000_000,
        counts=base64.b64encode(counts).decode("ascii"),
    )


def _check_within_reach(admin: Admin, plan: ApplicationPlan, stops: Mapping[TopicPartition, int]) -> None:
    """A log never becomes shorter, but its topic can be deleted and recreated: the run would wait for records that never come."""
    ends = admin.end_offsets(list(stops), isolation="read_uncommitted")
    for at, stop in stops.items():
        if ends[at] < stop:
            name = plan.application_id
            raise InputOffsetError(
                f"the open run of {name} stops at offset {stop} of {at}, but the log ends at {ends[at]}: the topic was deleted and "
                "recreated since the run began",
                hint=f"./kstreams reset {name} --delete-stopoffsets ends the open run; the next one takes new stop offsets",
                topic=at.topic,
                partition=at.partition,
                offset=stop,
            )


def bounded_plan(
    admin: Admin, topology: Topology, plan: ApplicationPlan, last: StopOffsets | None
) -> tuple[ApplicationPlan, StopOffsets | None]:
    """Return the plan with its stop offsets and the record to write, or the plan as it is if it is to run as a stream.

    Raises:
        InputOffsetError, TopologyError: as `begin_run`.
    """
    if plan.config[AUTOSTOP] is None:
        return plan, None
    record = begin_run(admin, topology, plan, last)
    stops = stops_of(record, bounded_partitions(topology, plan.config, input_partitions(plan)))
    failpoint("B1")
    return replace(plan, stops=stops, closes=record.run if plan.config[ON_END] == "close_windows" else None), record


def stops_of(record: StopOffsets, bounded: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the stop offset of each bounded partition; 0 for one that was created after the run began."""
    return {partition: record.offsets.get(partition.topic, {}).get(str(partition.partition), 0) for partition in bounded}


def by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return offsets as the journal writes them."""
    topics: dict[str, dict[str, int]] = {}
    for partition, offset in sorted(offsets.items()):
        topics.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return topics


def by_partition(offsets: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Return offsets of the journal by partition."""
    return {TopicPartition(topic, int(number)): offset for topic, of in offsets.items() for number, offset in of.items()}


def _committed(committed: Mapping[TopicPartition, CommittedOffset], at: TopicPartition) -> int:
    return committed[at].offset if at in committed else 0
