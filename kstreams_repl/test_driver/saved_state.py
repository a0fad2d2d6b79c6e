"""`SavedState`: what a task knew before a record, so that a test begins there instead of replaying all earlier input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kstreams_repl.engine.runtime.task import StreamTask, TaskSpec
from kstreams_repl.engine.stores.engine.environment import Environment
from kstreams_repl.engine.topology.store_builder import HISTORY_SUFFIX


@dataclass(frozen=True, slots=True)
class SavedState:
    r"""The stores, times and positions with which a `TopologyTestDriver` of one task begins.

    `Debugger.save_test` writes it. Rows are as they are on disk, because only that form holds every kind of store: window stores, buffers
    and history included; a store that is not named begins empty.

    Attributes:
        rows: by store, the stored bytes of each row by its physical key.
        attributes: what stores keep besides rows, such as their observed stream time.
        offsets: the offset of the next record, by input topic.
        times: the partition time (ms), by input topic.
        stream_time: the task's stream time in ms; -1: no record before.
        metadata: processor metadata (the operators' own stream times).

    Example:
        >>> import kstreams_repl as ks
        >>> builder = ks.StreamsBuilder()
        >>> words = builder.stream("words", key_serde="string", value_serde="string", name="words")
        >>> words.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("counted", name="sink")
        >>> state = ks.testing.SavedState(rows={"counts": {b"to": bytes(15) + b"\x05"}}, stream_time=1000)
        >>> with ks.testing.TopologyTestDriver(builder.build(), state=state) as driver:
        ...     driver.create_input_topic("words", "string", "string").pipe_input("to", "to", timestamp=1000)
        ...     driver.state_store("counts").get("to").value
        6
    """

    rows: Mapping[str, Mapping[bytes, bytes]] = field(default_factory=dict)
    attributes: Mapping[str, bytes] = field(default_factory=dict)
    offsets: Mapping[str, int] = field(default_factory=dict)
    times: Mapping[str, int] = field(default_factory=dict)
    stream_time: int = -1
    metadata: Mapping[str, int] = field(default_factory=dict)


def fill_stores(state: SavedState, environment: Environment, spec: TaskSpec) -> None:
    """Write the rows into an empty environment; call it before the task opens its stores."""
    on_disk = {builder.name: builder.persistent for builder in spec.subtopology.stores}
    for name, rows in state.rows.items():
        persistent = on_disk.get(name.removesuffix(HISTORY_SUFFIX), True)
        environment.engine(name, persistent=persistent).put_many(list(rows), list(rows.values()))
    for name, value in state.attributes.items():
        environment.set_attribute(name, value)
    environment.commit({}, 0)


def restore_times(state: SavedState, task: StreamTask) -> None:
    """Set the task's times and metadata; call it before `StreamTask.initialize`."""
    for partition in task.queues:
        task.set_partition_time(partition, state.times.get(partition.topic, -1), state.stream_time)
    task.set_metadata(state.metadata)
