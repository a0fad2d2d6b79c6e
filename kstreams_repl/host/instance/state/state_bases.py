"""The base of an application that begins with the stores of another one: a snapshot of each task, from which its instances restore as from
any other (`snapshots`). Its changelogs begin after it: the snapshot's position in each of them is 0.

A task's base is made of the environments of the tasks that had its stores: of one, by giving its stores the new owner; of several, or if
it has not all of the stores, by copying rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from kstreams_repl.engine.runtime.task import TaskSpec
from kstreams_repl.engine.stores.engine.environment import Environment, after
from kstreams_repl.engine.stores.engine.lmdb_snapshot import LmdbSnapshot
from kstreams_repl.engine.stores.kinds.lru import ORDER
from kstreams_repl.engine.stores.layers.row_format import row_format
from kstreams_repl.engine.topology.store_builder import HISTORY_SUFFIX
from kstreams_repl.host.instance.state.changelogs import changelogs_of
from kstreams_repl.host.instance.state.environment_attributes import INPUT, OWNING_TASK, TOPIC_ID, remember_topics
from kstreams_repl.host.instance.state.snapshot_directory import SnapshotDirectory
from kstreams_repl.host.instance.state.snapshots import Manifest, publish_copy
from kstreams_repl.host.instance.state.state_manager import open_lmdb
from kstreams_repl.system.types import TopicPartition

_BATCH = 20_000
_SUFFIXES = ("/observed-time", "/sequence", ORDER)


def publish_base(
    spec: TaskSpec,
    sources: Sequence[tuple[Path, Collection[str]]],
    offsets: Mapping[TopicPartition, int],
    positions: Mapping[TopicPartition, int],
    topic_ids: Mapping[str, str],
    directory: SnapshotDirectory,
    work: Path,
) -> Manifest:
    """Publish the base of one task; its commit id is the highest of those of the sources.

    Args:
        spec: the task of the application that begins.
        sources: closed environments of other tasks, each with the stores that are taken from it. The first one is changed.
        offsets: of the task's inputs, where it begins.
        positions: of its logs that are inputs, too; those that are its own begin at 0.
        topic_ids: of its changelogs and inputs.
        work: an empty directory on this disk.
    """
    path = sources[0][0] if sources else work / "empty"
    with ExitStack() as opened:
        environment = open_lmdb(path)
        opened.callback(environment.close)
        commit_id = environment.commit_id
        taken = sources[0][1] if sources else ()
        with LmdbSnapshot(path) as rows:
            names = rows.names()
        others = {name.removesuffix(HISTORY_SUFFIX) for name in names}.difference(taken)
        environment.begin_anew([name for name in names if name.removesuffix(HISTORY_SUFFIX) in others])
        for attribute in (attribute for store in others for attribute in _attributes(store)):
            environment.set_attribute(attribute, None)
        for source, stores in sources[1:]:
            other = open_lmdb(source)
            opened.callback(other.close)
            commit_id = max(commit_id, other.commit_id)
            for store in stores:
                _copy(other, environment, store)
        environment.set_attribute(OWNING_TASK, f"{spec.application_id}/{spec.task_id}".encode())
        logs = changelogs_of(spec)
        remember_topics(environment, logs, topic_ids)
        for partition in spec.partitions:
            if partition.topic in topic_ids:
                environment.set_attribute(TOPIC_ID + partition.topic, topic_ids[partition.topic].encode())
        begins = {str(log.partition): positions.get(log.partition, 0) for log in logs}
        environment.commit({**begins, **{f"{INPUT}{at}": offset for at, offset in offsets.items()}}, max(commit_id, 0))
    return publish_copy(path, directory, spec.application_id, str(spec.task_id))


def _attributes(store: str) -> list[str]:
    return [*(store + suffix for suffix in _SUFFIXES), row_format(store)]


def _copy(source: Environment, target: Environment, store: str) -> None:
    for name in (store, store + HISTORY_SUFFIX):
        engine, low = source.engine(name), None
        while rows := list(engine.range(low, limit=_BATCH)):
            target.restore(name, [key for key, _ in rows], [value for _, value in rows])
            low = after(rows[-1][0])
    for attribute in _attributes(store):
        target.set_attribute(attribute, source.attribute(attribute))
