"""How many instances an application has if `num.stream.threads` is not given: as many as its machine and its partitions allow.

It is one where more would not help, or would take what belongs to others: on a cluster, whose executors are shared; behind a repartition,
where tasks advance together in event time (`alignment_rules`) and several instances wait for each other's commits over history; with a
Parquet table on an object store, which has one writer. Pure functions, but for what they read of the machine.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.topology.nodes import SinkNode
from kstreams_repl.engine.topology.table_files import TableFiles
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.instance.alignment_rules import alignment_rules
from kstreams_repl.system.types import TaskId

SETTING = "num.stream.threads"
_CGROUP = Path("/sys/fs/cgroup")
_INSTANCE_BYTES = 1 << 30
"""The machine's memory for each instance: one needs less than half of it at full speed, and driver, broker and page cache the rest."""


@dataclass(frozen=True, slots=True)
class InstanceCount:
    """A number of instances, and why it is not larger."""

    count: int
    why: str

    def __str__(self) -> str:
        return f"{self.count} instance{'s' * (self.count > 1)} ({SETTING}: {self.why})"


def default_instances(
    topology: Topology, config: StreamsConfig, tasks: Iterable[TaskId], free_slots: int | None
) -> InstanceCount | None:
    """Return the number of instances; None: one, as in Kafka Streams, because the setting is given, or nothing allows more.

    Args:
        free_slots: of a local Spark; half of them remain for other applications. None: on a cluster.
    """
    if SETTING in config.given or free_slots is None:
        return None
    partitions = max(Counter(task.subtopology for task in tasks).values(), default=1)
    machine, memory = processors(), max(1, memory_bytes() // _INSTANCE_BYTES)
    limits = {f"{machine} processors": machine, f"{partitions} partitions": partitions}
    for name, limit in ((f"{memory} GB of memory", memory), (f"{free_slots} free Spark slots", free_slots // 2)):
        if limit < min(limits.values()):
            limits[name] = limit
    count = min(limits.values())
    if count < 2:
        return None
    if alignment_rules(topology.subtopologies(), config):
        return InstanceCount(1, "with more, windows behind a repartition wait for each other's commits over history")
    if any(isinstance(node, SinkNode) and node.table is not None and _has_one_writer(node.table) for node in topology.nodes.values()):
        return InstanceCount(1, "a Parquet table on an object store has one writer")
    return InstanceCount(count, ", ".join(limits))


def _has_one_writer(table: TableFiles) -> bool:
    return table.format == "parquet" and "://" in table.path and not table.path.startswith("file://")


def processors() -> int:
    """Return the number of processors that this process may use, at least one: those of its affinity and of its container's quota."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, _, period = _limit("cpu.max").partition(" ")
    return max(1, min(usable, int(quota) // int(period))) if quota.isdecimal() and period.isdecimal() else usable


def memory_bytes() -> int:
    """Return the memory of the machine, or of its container."""
    limit = _limit("memory.max")
    total: int = psutil.virtual_memory().total
    return min(total, int(limit)) if limit.isdecimal() else total


def _limit(name: str) -> str:
    """Return a limit of the container, such as ``200000 100000`` or ``max``; empty if there is none."""
    with suppress(OSError):
        return (_CGROUP / name).read_text(encoding="ascii").strip()
    return ""
