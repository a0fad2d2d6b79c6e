"""All metrics with group, tags, recording level, unit and description, and the missing ones of Kafka Streams with the reason.

Names, groups, tags and levels are Kafka Streams' (KIP-444, KIP-471, KIP-613, KIP-761, KIP-869, KIP-1091); additional metrics begin with
``repl-``. The tests compare docs/reference/metrics.md with this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

CLIENT, THREAD, TASK = "stream-metrics", "stream-thread-metrics", "stream-task-metrics"
NODE, TOPIC, STATE = "stream-processor-node-metrics", "stream-topic-metrics", "stream-state-metrics"
ASYNC = "repl-async-node-metrics"
UPDATER = "stream-state-updater-metrics"

CLIENT_ID, THREAD_ID, TASK_ID, NODE_ID, TOPIC_NAME = "client-id", "thread-id", "task-id", "processor-node-id", "topic"
STATE_ID = "state-id"
"""Prefixed with the kind of store: ``lmdb-state-id``, ``in-memory-window-state-id``."""

INFO, DEBUG, TRACE = "INFO", "DEBUG", "TRACE"
LEVELS = (INFO, DEBUG, TRACE)


@dataclass(frozen=True, slots=True)
class Spec:
    """The documentation of one metric."""

    group: str
    name: str
    level: str
    unit: str
    what: str


def _rate_total(group: str, name: str, level: str, what: str) -> list[Spec]:
    return [
        Spec(group, f"{name}-rate", level, "1/s", f"{what}, per second"),
        Spec(group, f"{name}-total", level, "count", what),
    ]


def _extremes(group: str, name: str, level: str, unit: str, what: str, kinds: str = "avg max") -> list[Spec]:
    words = {"avg": "mean", "min": "smallest", "max": "largest"}
    return [Spec(group, f"{name}-{kind}", level, unit, f"{words[kind]} {what}") for kind in kinds.split()]


STORE_CALLS = ("put", "put-if-absent", "put-all", "get", "fetch", "all", "range", "prefix-scan", "flush", "delete", "remove")

_SPECS: list[Spec] = [
    Spec(CLIENT, "version", INFO, "text", "version of this package"),
    Spec(CLIENT, "application-id", INFO, "text", "the application's id"),
    Spec(CLIENT, "topology-description", INFO, "text", "the topology as `describe()` prints it"),
    Spec(CLIENT, "state", INFO, "text", "created, starting, running, paused, stopped or failed"),
    Spec(CLIENT, "client-state", INFO, "0 to 6", "the state as Kafka's number: 0 created, 1 starting, 2 running or paused, 4 stopped, "
         "6 failed"),
    Spec(CLIENT, "recording-level", INFO, "0 to 2", "`metrics.recording.level`: 0 for INFO, 1 for DEBUG, 2 for TRACE"),
    Spec(CLIENT, "alive-stream-threads", INFO, "count", "instances that run, restore or recover"),
    Spec(CLIENT, "failed-stream-threads", INFO, "count", "instances that failed in this generation"),
    Spec(CLIENT, "repl-generation", INFO, "number", "generation in force; rises with every start, edit and change of instances"),
    *_rate_total(THREAD, "commit", INFO, "commits"),
    *_extremes(THREAD, "commit-latency", INFO, "ms", "time of a commit"),
    *_rate_total(THREAD, "poll", INFO, "polls of the main consumer"),
    *_extremes(THREAD, "poll-latency", INFO, "ms", "time of a poll"),
    *_extremes(THREAD, "poll-records", INFO, "records", "number of records of a poll that brought any"),
    *_rate_total(THREAD, "process", INFO, "records processed"),
    *_extremes(THREAD, "process-latency", INFO, "ms", "time per record, as the mean of a round"),
    *_extremes(THREAD, "process-records", INFO, "records", "number of records of a round that processed any"),
    *_rate_total(THREAD, "punctuate", INFO, "rounds in which a punctuation ran, for each task"),
    *_extremes(THREAD, "punctuate-latency", INFO, "ms", "time of a task's punctuations"),
    *_rate_total(THREAD, "task-created", INFO, "tasks taken over"),
    *_rate_total(THREAD, "task-closed", INFO, "tasks closed"),
    Spec(THREAD, "process-ratio", INFO, "0 to 1", "share of the time since the last measurement spent processing"),
    Spec(THREAD, "punctuate-ratio", INFO, "0 to 1", "share spent punctuating"),
    Spec(THREAD, "poll-ratio", INFO, "0 to 1", "share spent polling, waiting for records included"),
    Spec(THREAD, "commit-ratio", INFO, "0 to 1", "share spent committing"),
    Spec(THREAD, "blocked-time-ns-total", INFO, "ns", "time spent waiting for the broker in polls and commits"),
    Spec(THREAD, "state", INFO, "text", "restoring, running, recovering, paused, stopped, failed or superseded, as last reported"),
    Spec(THREAD, "thread-start-time", INFO, "ms", "when the instance initialised its tasks, since 1970"),
    Spec(THREAD, "repl-commit-id", INFO, "number", "id of the last commit"),
    Spec(THREAD, "repl-warm", INFO, "0 or 1", "whether the last epoch began with kept clients and stores"),
    *_rate_total(TASK, "process", DEBUG, "records processed"),
    *_extremes(TASK, "process-latency", DEBUG, "ns", "time per record, as the mean of a slice"),
    *_rate_total(TASK, "punctuate", DEBUG, "rounds in which a punctuation of the task ran"),
    *_extremes(TASK, "punctuate-latency", DEBUG, "ns", "time of the task's punctuations"),
    Spec(TASK, "restore-remaining-records-total", INFO, "records", "changelog records between store and end; 0 after the restore"),
    *_rate_total(TASK, "restore", DEBUG, "changelog records restored"),
    *_rate_total(TASK, "update", DEBUG, "changelog records written into the task's standby task here"),
    *_rate_total(TASK, "enforced-processing", DEBUG, "times the task went on without records of every partition"),
    *_extremes(TASK, "record-lateness", DEBUG, "ms", "lateness of a record against stream time"),
    *_rate_total(TASK, "dropped-records", INFO, "records dropped, for any reason"),
    Spec(TASK, "active-process-ratio", INFO, "0 to 1", "share of the instance's processing time that went into the task"),
    Spec(TASK, "active-buffer-count", DEBUG, "records", "records polled and not processed yet"),
    Spec(TASK, "cache-size-bytes-total", DEBUG, "bytes", "estimated size of the dirty entries in the task's record cache"),
    Spec(TASK, "repl-lag", INFO, "records", "records between the committed offset and the log's end; -1 while unknown"),
    Spec(TASK, "repl-state-size-bytes", INFO, "bytes", "size of the task's stores on disk, all pages in use"),
    *_extremes(TASK, "repl-commit-e2e-latency", INFO, "ms", "age of the newest and oldest sampled record of a commit when it was visible",
               "avg min max"),
    *_rate_total(NODE, "process", DEBUG, "records that entered the node"),
    *_extremes(NODE, "record-e2e-latency", INFO, "ms", "age of a record: at a source when taken, at a terminal node when done",
               "avg min max"),
    *_rate_total(NODE, "suppression-emit", DEBUG, "records emitted from a suppression buffer"),
    *_rate_total(NODE, "window-aggregate-final-emit", DEBUG, "final window results emitted"),
    Spec(TOPIC, "records-consumed-total", INFO, "records", "records read from the topic"),
    Spec(TOPIC, "bytes-consumed-total", DEBUG, "bytes", "bytes of keys and values read from the topic"),
    Spec(TOPIC, "records-produced-total", DEBUG, "records", "records written to the topic"),
    Spec(TOPIC, "bytes-produced-total", DEBUG, "bytes", "bytes of keys and values written to the topic"),
    *(
        spec
        for call in STORE_CALLS
        for spec in (
            Spec(STATE, f"{call}-rate", DEBUG, "1/s", f"calls of {call}, per second"),
            *_extremes(STATE, f"{call}-latency", DEBUG, "ns", f"time of a {call}"),
        )
    ),
    *_extremes(STATE, "suppression-buffer-count", DEBUG, "records", "number of records in a suppression buffer, at each measurement"),
    *_extremes(STATE, "suppression-buffer-size", DEBUG, "bytes", "estimated size of a suppression buffer, at each measurement"),
    *_extremes(STATE, "record-e2e-latency", TRACE, "ms", "age of a record when it is put into the store", "avg min max"),
    Spec(STATE, "estimate-num-keys", INFO, "keys", "rows in the store's engine, committed and not yet committed ones"),
    Spec(STATE, "num-keys", INFO, "keys", "keys of an in-memory key-value store, without new ones that wait in its cache for a commit"),
    Spec(UPDATER, "active-restoring-tasks", INFO, "count", "tasks whose stores are being restored"),
    Spec(UPDATER, "standby-updating-tasks", INFO, "count", "tasks of other instances whose stores are kept up to date here"),
    Spec(ASYNC, "repl-calls-in-flight", INFO, "records", "records whose calls run"),
    Spec(ASYNC, "repl-calls-waiting", INFO, "records", "records in the node that wait for a call, for their key, or for their replay"),
    Spec(ASYNC, "repl-calls-to-retry", INFO, "records", "records that wait off the main path for their next try"),
    Spec(ASYNC, "repl-breaker-state", INFO, "text", "closed, opened or half-opened, of a node with `breaker=`"),
    *_rate_total(ASYNC, "repl-call", INFO, "records whose calls ended"),
    *_extremes(ASYNC, "repl-call-latency", INFO, "ms", "time of a call with its repetitions"),
    *_rate_total(ASYNC, "repl-call-failures", INFO, "attempts that failed"),
    *_rate_total(ASYNC, "repl-call-timeouts", INFO, "attempts that failed by their time limit"),
    *_rate_total(ASYNC, "repl-call-repeats", INFO, "repetitions at once (`retries=`)"),
    *(
        Spec(UPDATER, name, INFO, unit, what)
        for name, unit, what in (
            ("restore-records-rate", "1/s", "changelog records restored, per second"),
            ("restore-call-rate", "1/s", "batches restored, per second"),
        )
    ),
]

SPECS: Mapping[tuple[str, str], Spec] = MappingProxyType({(spec.group, spec.name): spec for spec in _SPECS})

def level_number(level: str) -> int:
    """Return a recording level as the number that `recording-level` reports, the same as in Kafka.

    Example:
        >>> [level_number(level) for level in ("INFO", "DEBUG", "TRACE")]
        [0, 1, 2]
    """
    return LEVELS.index(level)


def is_recorded(group: str, name: str, level: str) -> bool:
    """Return whether a metric is kept at this recording level.

    Example:
        >>> is_recorded(TASK, "process-total", "INFO"), is_recorded(TASK, "process-total", "DEBUG")
        (False, True)
    """
    spec = SPECS[group, name]
    return level_number(spec.level) <= level_number(level)


def description(group: str, name: str) -> str:
    """Return the description of a metric with its unit."""
    spec = SPECS.get((group, name))
    return name if spec is None else f"{spec.what} ({spec.unit})"
