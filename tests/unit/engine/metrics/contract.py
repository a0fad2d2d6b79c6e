"""What Kafka Streams' metrics oblige the catalogue to: the tags of each group, and a reason for each metric that does not exist here."""

from __future__ import annotations

from collections.abc import Mapping

from kstreams_repl.engine.metrics.catalogue import (
    ASYNC,
    CLIENT,
    CLIENT_ID,
    NODE,
    NODE_ID,
    STATE,
    STATE_ID,
    TASK,
    TASK_ID,
    THREAD,
    THREAD_ID,
    TOPIC,
    TOPIC_NAME,
    UPDATER,
)  # fmt: skip

CACHE = "stream-record-cache-metrics"

TAGS: Mapping[str, tuple[str, ...]] = {
    CLIENT: (CLIENT_ID,),
    THREAD: (THREAD_ID,),
    TASK: (THREAD_ID, TASK_ID),
    NODE: (THREAD_ID, TASK_ID, NODE_ID),
    TOPIC: (THREAD_ID, TASK_ID, NODE_ID, TOPIC_NAME),
    STATE: (THREAD_ID, TASK_ID, STATE_ID),
    UPDATER: (THREAD_ID,),
    ASYNC: (THREAD_ID, NODE_ID),
}

_ROCKSDB = (
    "background-errors", "block-cache-capacity", "block-cache-data-hit-ratio", "block-cache-filter-hit-ratio",
    "block-cache-index-hit-ratio", "block-cache-pinned-usage", "block-cache-usage", "bytes-read-compaction-rate",
    "bytes-read-rate", "bytes-read-total", "bytes-written-compaction-rate", "bytes-written-rate", "bytes-written-total",
    "compaction-pending", "compaction-time-avg", "compaction-time-max", "compaction-time-min", "cur-size-active-mem-table",
    "cur-size-all-mem-tables", "estimate-pending-compaction-bytes", "estimate-table-readers-mem", "live-sst-files-size",
    "mem-table-flush-pending", "memtable-bytes-flushed-rate", "memtable-bytes-flushed-total", "memtable-flush-time-avg",
    "memtable-flush-time-max", "memtable-flush-time-min", "memtable-hit-ratio", "num-deletes-active-mem-table",
    "num-deletes-imm-mem-tables", "num-entries-active-mem-table", "num-entries-imm-mem-tables", "num-immutable-mem-table",
    "num-live-versions", "num-running-compactions", "num-running-flushes", "number-file-errors-total", "number-open-files",
    "size-all-mem-tables", "total-sst-files-size", "write-stall-duration-avg", "write-stall-duration-total",
)  # fmt: skip


def _all(group: str, stem: str, kinds: tuple[str, ...], why: str) -> dict[tuple[str, str], str]:
    return {(group, f"{stem}-{kind}"): why for kind in kinds}


ABSENT: Mapping[tuple[str, str], str] = {
    (CLIENT, "commit-id"): "the package has no build id; `version` names the release",
    (THREAD, "thread-state"): "the state as a number; instances have other states than stream threads: see the thread's state",
    **_all(
        THREAD,
        "tasks",
        tuple(f"{what}-latency-{kind}" for what in ("revoked", "assigned", "lost") for kind in ("avg", "max")),
        "the driver assigns tasks: there is no rebalance listener to time",
    ),
    **_all(NODE, "idempotent-update-skip", ("rate", "total"), "source tables of this engine do not skip idempotent updates"),
    **_all(
        NODE,
        "window-aggregate-final-emit-latency",
        ("avg", "max"),
        "an emit is part of the record that closes the window: see process-latency",
    ),
    **_all(
        STATE,
        "commit",
        ("rate", "latency-avg", "latency-max"),
        "all stores of a task commit in one transaction: see the thread's metrics of that name",
    ),
    **_all(
        STATE,
        "restore",
        ("rate", "latency-avg", "latency-max"),
        "stores are restored a task's worth at a time: see the task's restore-rate",
    ),
    **dict.fromkeys(
        (
            (STATE, name)
            for name in ("num-open-iterators", "iterator-duration-avg", "iterator-duration-max", "oldest-iterator-open-since-ms")
        ),
        "iterators are Python generators, which end with their last reference",
    ),
    **{(STATE, name): "of RocksDB; the engine is LMDB" for name in _ROCKSDB},
    **_all(
        CACHE,
        "hit-ratio",
        ("avg", "min", "max"),
        "the deployed cache keeps objects, not hit counts: counting would be work per record",
    ),
    (STATE, "uncommitted-bytes"): "since 4.4, of stores with transactions; rows that wait here for the commit are not counted in bytes",
    (UPDATER, "standby-paused-tasks"): "a pause ends the updates from changelogs; the standby tasks are kept",
    (UPDATER, "standby-update-ratio"): "standby tasks are updated by a separate thread, which mostly waits",
    (UPDATER, "active-paused-tasks"): "a pause ends the restore; it continues from its position after resume",
    (UPDATER, "idle-ratio"): "a restore runs until it is done and then ends; it never idles",
    (UPDATER, "active-restore-ratio"): "a restore runs until it is done and then ends; it never idles",
    (UPDATER, "checkpoint-ratio"): "positions are written in the transaction of the rows; there is no checkpoint to write",
}
"""Metrics of Kafka Streams 4.4.0 that do not exist here, and why. Of RocksDB's (KIP-471, KIP-607) only `estimate-num-keys` exists.
Those of KIP-1331, `streams-group-topology-description-…`, are of the broker's group coordinator, for groups that this engine does not join.
"""
