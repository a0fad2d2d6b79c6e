"""Snapshots of stores: published whole, checked before they are used, pruned."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment
from kstreams_repl.engine.stores.engine.lmdb_snapshot import LmdbSnapshot
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.host.instance.state.changelogs import TOMBSTONE_SECONDS, ChangelogBounds, ChangelogPartition
from kstreams_repl.host.instance.state.environment_attributes import remember_topics
from kstreams_repl.host.instance.state.snapshot_directory import LocalDirectory, snapshot_directory
from kstreams_repl.host.instance.state.snapshots import (
    Manifest,
    Snapshotter,
    fetch_snapshot,
    manifests,
    prune,
    why_refused,
)
from kstreams_repl.system.errors import ConfigError, InvalidNameError, TaskMigratedError
from kstreams_repl.system.types import TaskId, TopicPartition
from tests.unit.host.instance.snapshot_copies import take_snapshot

AT = TopicPartition("app-s-changelog", 0)
LOG = ChangelogPartition(TaskId(0, 0), StoreBuilder("s", StoreKind.KEY_VALUE), AT)


@pytest.fixture
def directory(tmp_path: Path) -> LocalDirectory:
    return LocalDirectory(tmp_path / "remote")


def made(path: Path) -> LmdbEnvironment:
    environment = LmdbEnvironment(path)
    environment.take_ownership("me")
    remember_topics(environment, [LOG], {AT.topic: "id-1"})
    return environment


def commit(environment: LmdbEnvironment, number: int) -> None:
    environment.engine("s").put(b"k", b"%d" % number)
    environment.commit({str(AT): number * 10}, number)


def snapshots(environment: LmdbEnvironment, directory: LocalDirectory, tmp_path: Path, *numbers: int) -> list[Manifest]:
    taken = []
    for number in numbers:
        commit(environment, number)
        taken.append(take_snapshot(environment, directory, "app", "0_0", tmp_path / "work"))
        time.sleep(0.002)
    return taken


def anything(manifest: Manifest) -> None:
    return None


def test_a_snapshot_brings_back_rows_positions_and_commit(directory: LocalDirectory, tmp_path: Path) -> None:
    environment = made(tmp_path / "e")
    (taken,) = snapshots(environment, directory, tmp_path, 3)
    commit(environment, 4)
    environment.close()
    assert fetch_snapshot(directory, "app", "0_0", tmp_path / "new", anything) == taken
    restored = LmdbEnvironment(tmp_path / "new")
    assert restored.engine("s").get(b"k") == b"3" and restored.positions == {str(AT): 30} and restored.commit_id == 3
    restored.close()
    assert not list((tmp_path / "work").iterdir())


def test_a_damaged_snapshot_is_passed_over_for_an_older_one(directory: LocalDirectory, tmp_path: Path) -> None:
    environment = made(tmp_path / "e")
    older, newer = snapshots(environment, directory, tmp_path, 1, 2)
    environment.close()
    data = tmp_path / "remote" / "app" / "0_0" / newer.name / "data.mdb"
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.write_bytes(content)
    assert fetch_snapshot(directory, "app", "0_0", tmp_path / "new", anything) == older
    (tmp_path / "remote" / "app" / "0_0" / older.name / "data.mdb").write_bytes(b"short")
    assert fetch_snapshot(directory, "app", "0_0", tmp_path / "none", anything) is None
    assert not (tmp_path / "none").exists()


def test_without_its_manifest_a_snapshot_does_not_exist(directory: LocalDirectory, tmp_path: Path) -> None:
    environment = made(tmp_path / "e")
    (taken,) = snapshots(environment, directory, tmp_path, 1)
    environment.close()
    (tmp_path / "remote" / "app" / "0_0" / taken.name / "manifest.json").unlink()
    assert manifests(directory, "app", "0_0") == []


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"format": 2}', b"\xff"])
def test_a_manifest_that_is_none_is_left_out(directory: LocalDirectory, tmp_path: Path, content: bytes) -> None:
    directory.publish("app/0_0/0000000000000001-00000000/manifest.json", content)
    assert manifests(directory, "app", "0_0") == []


def test_a_manifest_of_another_task_is_left_out(directory: LocalDirectory, tmp_path: Path) -> None:
    environment = made(tmp_path / "e")
    (taken,) = snapshots(environment, directory, tmp_path, 1)
    environment.close()
    directory.publish(f"app/0_1/{taken.name}/manifest.json", json.dumps(asdict(taken)).encode())
    assert manifests(directory, "app", "0_1") == []


def refused(
    manifest: Manifest,
    *,
    first: int = 0,
    end: int = 10,
    topic_id: str = "id-1",
    later_ms: int = 0,
    log: ChangelogPartition = LOG,
    **config: str,
) -> str | None:
    settings = StreamsConfig({"application.id": "app"} | config)
    now_ms = manifest.at_ms + later_ms
    return why_refused(manifest, [log], ChangelogBounds({AT: first}, {AT: end}, {AT.topic: topic_id}), config=settings, now_ms=now_ms)


def test_a_snapshot_that_does_not_fit_its_changelog_is_refused(directory: LocalDirectory, tmp_path: Path) -> None:
    environment = made(tmp_path / "e")
    (taken,) = snapshots(environment, directory, tmp_path, 1)
    environment.close()
    day = TOMBSTONE_SECONDS * 1000
    assert refused(taken) is None and refused(taken, end=500) is None and refused(taken, later_ms=day + 1) is None
    assert "recreated" in (refused(taken, topic_id="id-2") or "")
    assert "outside" in (refused(taken, first=11, end=20) or "")
    assert "outside" in (refused(taken, end=9) or "")
    assert "deletions" in (refused(taken, end=11, later_ms=day + 1) or "")
    assert "no position in" in (refused(replace(taken, positions={})) or "")


def test_a_snapshot_is_refused_as_soon_as_the_changelog_forgets_deletions(directory: LocalDirectory, tmp_path: Path) -> None:
    """As a local copy is: the application has set how long they are kept, or one of its stores."""
    environment = made(tmp_path / "e")
    (taken,) = snapshots(environment, directory, tmp_path, 1)
    environment.close()
    hour, soon = 3_600_000, {"delete.retention.ms": "3600000"}
    own = ChangelogPartition(TaskId(0, 0), replace(LOG.store, topic_config=soon), AT)
    assert refused(taken, end=11, later_ms=hour + 1) is None
    assert "deletions" in (refused(taken, end=11, later_ms=hour + 1, **{"topic.delete.retention.ms": "3600000"}) or "")
    assert "deletions" in (refused(taken, end=11, later_ms=hour + 1, log=own) or "")


def test_a_snapshot_of_an_input_that_was_made_anew_is_refused(directory: LocalDirectory, tmp_path: Path) -> None:
    """The input is the log of a store of it: rows of the former topic would stay."""
    environment = made(tmp_path / "e")
    (taken,) = snapshots(environment, directory, tmp_path, 1)
    environment.close()
    table = ChangelogPartition(TaskId(0, 0), replace(LOG.store, source_topic=AT.topic), AT)
    assert refused(taken, log=table) is None and refused(replace(taken, positions={}), log=table) is None
    assert "recreated" in (refused(taken, log=table, topic_id="id-2") or "")


def test_only_the_newest_snapshots_are_kept(directory: LocalDirectory, tmp_path: Path) -> None:
    environment = made(tmp_path / "e")
    directory.publish("app/0_0/0000000000000002-ffffffff/data.mdb", b"never finished")
    directory.publish("app/0_0/0000000000000099-ffffffff/data.mdb", b"on its way")
    taken = snapshots(environment, directory, tmp_path, 1, 2, 3, 4)
    prune(directory, "app", "0_0", 2)
    environment.close()
    assert manifests(directory, "app", "0_0") == [taken[3], taken[2]]
    assert directory.children("app/0_0") == sorted([taken[2].name, taken[3].name, "0000000000000099-ffffffff"])


def test_snapshots_are_taken_while_the_task_goes_on(directory: LocalDirectory, tmp_path: Path) -> None:
    environment = made(tmp_path / "e")
    snapshotter = Snapshotter([("0_0", environment)], directory, "app", seconds=0.01, keep=2, work=tmp_path / "work").start()
    number = 0
    while len(manifests(directory, "app", "0_0")) < 2 or number < 20:
        number += 1
        commit(environment, number)
        time.sleep(0.002)
        assert number < 20_000
    snapshotter.close()
    snapshotter._thread.join(20)
    environment.close()
    newest = fetch_snapshot(directory, "app", "0_0", tmp_path / "new", anything)
    assert newest is not None
    restored = LmdbEnvironment(tmp_path / "new")
    assert restored.engine("s").get(b"k") == b"%d" % newest.commit_id and restored.positions == {str(AT): newest.commit_id * 10}
    restored.close()


def test_a_copy_that_another_process_takes_away_ends_no_snapshots(directory: LocalDirectory, tmp_path: Path) -> None:
    environment, work = made(tmp_path / "e"), tmp_path / "work"
    work.mkdir()
    (work / "snapshot-0").symlink_to(work / "gone")
    commit(environment, 1)
    snapshotter = Snapshotter([("0_0", environment)], directory, "app", seconds=0.01, keep=2, work=work).start()
    while not manifests(directory, "app", "0_0"):
        assert snapshotter._thread.is_alive()
        time.sleep(0.002)
    snapshotter.close()
    snapshotter._thread.join(20)
    environment.close()


def test_a_snapshot_that_comes_late_takes_nothing_from_a_successor(directory: LocalDirectory, tmp_path: Path) -> None:
    """Fetching may last for minutes. What a zombie had fetched by then took the place of the stores that its successor had open."""
    environment = made(tmp_path / "e")
    snapshots(environment, directory, tmp_path, 3)
    environment.close()
    successor = made(tmp_path / "new")
    commit(successor, 7)
    with pytest.raises(TaskMigratedError):
        fetch_snapshot(directory, "app", "0_0", tmp_path / "new", anything, in_force=lambda: False)
    with LmdbSnapshot(tmp_path / "new") as there:
        assert there.commit_id == 7
    successor.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e", "new", "remote", "work"]


def test_no_name_leads_out_of_the_directory(directory: LocalDirectory) -> None:
    for name in ("../x", "/etc/passwd", "a/../../x"):
        with pytest.raises(InvalidNameError):
            directory.read(name)


def test_an_address_without_its_file_system_is_told(tmp_path: Path) -> None:
    for address in (f"file://{tmp_path}/a", f"{tmp_path}/b"):
        snapshot_directory(address).publish("it", b"1")
    assert [(tmp_path / name / "it").read_bytes() for name in "ab"] == [b"1", b"1"]
    with pytest.raises(ConfigError, match="cannot store snapshots"):
        snapshot_directory("nowhere://bucket/path")
