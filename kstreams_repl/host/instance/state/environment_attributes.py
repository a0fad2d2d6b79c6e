"""What an environment records in addition to its rows and positions: its task, the time of its rows, topic ids, and input offsets."""

from __future__ import annotations

import struct
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from kstreams_repl.engine.stores.engine.environment import Environment
from kstreams_repl.host.instance.state.changelogs import ChangelogPartition
from kstreams_repl.system.types import TopicPartition

AS_OF = "as-of"
"""Attribute: the time (ms since 1970) as of which the rows were up to date: they include all deletions before that time."""
TOPIC_ID = "topic-id:"
"""Prefix of attributes: the id of a changelog's or an input's topic."""
IN_MEMORY = b"in memory"
"""Replaces the id of a changelog whose store is now in memory: the rows that it left here get older, however recent the others
are.
"""
OWNING_TASK = "whose"
"""Attribute: the application and task that the rows belong to."""
INPUT = "input:"
"""Prefix of input partitions' names among an environment's positions: the store's commit holds their offsets too (guarantees.md,
take-over step 4).
"""
RECREATED = -2
"""Replaces an input's offset after its topic was deleted and recreated since the last commit; it begins like a new one."""
_LONG = struct.Struct(">q")


def is_empty(environment: Environment) -> bool:
    """Return whether nothing was ever committed."""
    return environment.commit_id < 0 and not environment.positions


def age_seconds(environment: Environment) -> float:
    """Return the seconds since the rows were known to be up to date with the changelogs."""
    as_of = environment.attribute(AS_OF)
    return 0.0 if as_of is None else time.time() - _LONG.unpack(as_of)[0] / 1000


def set_as_of(environment: Environment, seconds: float) -> None:
    """Record, with the next commit, that the rows are up to date as of `seconds` since 1970."""
    environment.set_attribute(AS_OF, _LONG.pack(int(seconds * 1000)))


def written_at(path: Path) -> float | None:
    """Return when an environment was last written (seconds since 1970); call before it is opened."""
    try:
        return (path / "data.mdb").stat().st_mtime
    except OSError:
        return None


def set_missing_as_of(environment: Environment, written: float | None) -> None:
    """Date rows of an earlier release, which stored no time, by their file's time before it was opened (`written_at`)."""
    if environment.attribute(AS_OF) is None and written is not None and not is_empty(environment):
        set_as_of(environment, written)
        environment.commit({}, environment.commit_id)


def remember_topics(environment: Environment, logs: Sequence[ChangelogPartition], topic_ids: Mapping[str, str]) -> None:
    """Store the topic ids with the rows' next commit. The age of rows that begin now counts from now."""
    if environment.attribute(AS_OF) is None:
        set_as_of(environment, time.time())
    for log in logs:
        topic_id = topic_ids.get(log.partition.topic)
        if topic_id is not None:
            on_disk = log.store.persistent or log.is_source
            environment.set_attribute(TOPIC_ID + log.partition.topic, topic_id.encode() if on_disk else IN_MEMORY)


def remember_inputs(
    environment: Environment, inputs: Collection[TopicPartition], topic_ids: Mapping[str, str], before: Mapping[str, str]
) -> None:
    """Store the topic ids of a task's inputs, too. If an input's topic was deleted and recreated, the last commit's offset here
    belongs to other records: it is dropped at once, as the broker dropped the group's with the topic.

    Args:
        before: the ids stored here before, if the environment had to be rebuilt.
    """
    if environment.path is None:
        return
    known = input_topic_ids(environment, inputs) | dict(before)
    recreated = {topic for topic, topic_id in topic_ids.items() if known.get(topic, topic_id) != topic_id}
    dropped = {f"{INPUT}{partition}": RECREATED for partition in inputs if partition.topic in recreated}
    for partition in inputs:
        if partition.topic in topic_ids:
            environment.set_attribute(TOPIC_ID + partition.topic, topic_ids[partition.topic].encode())
    if dropped:
        environment.commit(dropped, environment.commit_id)


def input_topic_ids(environment: Environment, inputs: Collection[TopicPartition]) -> dict[str, str]:
    """Return the stored ids of the inputs' topics."""
    stored = {partition.topic: environment.attribute(TOPIC_ID + partition.topic) for partition in inputs}
    return {topic: topic_id.decode() for topic, topic_id in stored.items() if topic_id is not None}


def forget_inputs(environment: Environment) -> None:
    """Drop the input offsets of the task's last commit: the stores advance without their task, so these offsets no longer match.
    """
    stale = {name: -1 for name, offset in environment.positions.items() if name.startswith(INPUT) and offset >= 0}
    if stale:
        environment.commit(stale, environment.commit_id)


def has_forgotten_inputs(environment: Environment) -> bool:
    """Return whether the rows are ahead of the task's last commit (`forget_inputs`), so that they are of none until it commits again."""
    return any(name.startswith(INPUT) and offset < 0 for name, offset in environment.positions.items())
