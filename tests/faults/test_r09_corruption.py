"""R9: damaged files of local state: rebuilt from the changelog or a typed error, never a wrong answer."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment
from kstreams_repl.engine.stores.engine.lmdb_snapshot import LmdbSnapshot
from kstreams_repl.system.errors import TaskCorruptedError
from tests.faults.counts import full, sample
from tests.faults.crew import Crew
from tests.faults.damage import KINDS, damage
from tests.faults.reliability import note

# ---- one environment


def filled(path: Path, dice: random.Random, *, closed: bool) -> dict[str, list[tuple[bytes, bytes]]]:
    """An environment with some history, left as by kill -9 or closed in order; its rows."""
    work = path.with_name("work")
    environment = LmdbEnvironment(work, map_bytes=1 << 30)
    environment.take_ownership("me")
    engines = [environment.engine(name) for name in ("counts", "windows")]
    for commit in range(8):
        for engine in engines:
            for _ in range(dice.choice((5, 100, 400))):
                value = None if dice.random() < 0.2 else dice.randbytes(dice.choice((8, 30, 6_000)))
                engine.put(b"key-%d" % dice.randrange(2_000), value)
        environment.commit({"log-0": commit}, commit)
    rows = {engine.name: list(engine.range()) for engine in engines}
    if closed:
        environment.close()
    shutil.copytree(work, path)
    environment.close()
    shutil.rmtree(work)
    return rows


def read_again(path: Path) -> dict[str, list[tuple[bytes, bytes]]] | None:
    """The rows; None when they are not to be trusted or there are none."""
    try:
        environment = LmdbEnvironment(path, map_bytes=1 << 30)
    except TaskCorruptedError:
        return None
    try:
        environment.take_ownership("you")
        if environment.commit_id < 0:
            return None
        return {name: list(environment.engine(name).range()) for name in ("counts", "windows")}
    finally:
        environment.close()


@pytest.mark.parametrize("closed", [False, True], ids=["killed", "closed"])
def test_a_damaged_environment_is_refused_or_as_it_was(tmp_path: Path, closed: bool) -> None:
    damaged_environments(tmp_path, sample(40, 125), closed=closed)


@pytest.mark.slow
@pytest.mark.parametrize("closed", [False, True], ids=["killed", "closed"])
def test_many_damaged_environments_are_refused_or_as_they_were(tmp_path: Path, closed: bool) -> None:
    damaged_environments(tmp_path, full(125), closed=closed)


def damaged_environments(tmp_path: Path, count: int, *, closed: bool) -> None:
    dice = random.Random(9 + closed)
    found, wrong = 0, []
    rows = filled(tmp_path / "kept", dice, closed=closed)
    for number in range(count):
        path = tmp_path / "e"
        shutil.copytree(tmp_path / "kept", path)
        files = sorted(file for file in path.iterdir() if file.is_file())
        file = path / "data.mdb" if number % 2 else dice.choice(files)
        told = damage(file, KINDS[number % len(KINDS)], dice)
        have = read_again(path)
        found += have is None
        if have not in (None, rows):
            wrong.append(told)
        shutil.rmtree(path)
    note("R9", f"files of one environment damaged, {'closed in order' if closed else 'after kill -9'}", count, len(wrong), refused=found)
    assert not wrong, wrong
    assert found > count // 5


# ---- an application


def local_files(crew: Crew) -> list[Path]:
    return sorted(file for file in (crew.directory / "state").rglob("*") if file.is_file() and file.stat().st_size)


def campaign(crew: Crew, count: int, *, records: int, seed: int) -> tuple[list[str], int]:
    """Damage a file between two runs, again and again, while records come: violations, and how many typed errors there were."""
    dice, refused = random.Random(seed), 0
    crew.write(records)
    crew.deploy(2)
    crew.processed()
    for number in range(count):
        if dice.random() < 0.7:
            for pid in crew.pids.values():
                os.kill(pid, signal.SIGKILL)
            for slot in crew.pids:
                crew.died(slot)
        else:
            crew.stop()
        files = local_files(crew)
        stores = [file for file in files if file.name == "data.mdb"]
        file = dice.choice(stores if number % 2 else files)
        told = damage(file, KINDS[number % len(KINDS)], dice, [other for other in files if other.name == file.name and other != file])
        crew.write(records)
        try:
            crew.deploy(2)
            crew.processed()
        except AssertionError as error:
            if "'error': '" not in str(error):
                return [f"after {told}: {error}"], refused
            refused += 1
            crew.deploy(2)
            crew.processed()
        if number % 10 == 9:
            wrong = crew.violations_after_stop()
            if wrong:
                return [f"after {told}: {wrong}"], refused
    return crew.violations_after_stop(), refused


@pytest.mark.slow
@pytest.mark.kafka
def test_damaged_local_files_change_no_result(crew: Callable[..., Crew]) -> None:
    count = 2
    wrong, refused = campaign(crew(), count, records=300, seed=4)
    note("R9", "a local file damaged between two runs (sample)", count, len(wrong), typed_errors=refused)
    assert not wrong, wrong


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_damaged_local_files_change_no_result(crew: Callable[..., Crew]) -> None:
    count = full(250)
    wrong, refused = campaign(crew(), count, records=200, seed=5)
    note("R9", "a local file damaged between two runs", count, len(wrong), typed_errors=refused)
    assert not wrong, wrong


def test_readers_of_a_file_that_was_cut_off_get_a_typed_error(tmp_path: Path) -> None:
    dice = random.Random(1)
    filled(tmp_path / "e", dice, closed=True)
    data = tmp_path / "e" / "data.mdb"
    data.write_bytes(data.read_bytes()[:10_000])
    with pytest.raises(TaskCorruptedError):
        LmdbEnvironment(tmp_path / "e")
    with pytest.raises(TaskCorruptedError):
        LmdbSnapshot(tmp_path / "e")
