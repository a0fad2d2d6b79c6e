from __future__ import annotations

import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest
from click.testing import CliRunner

from kstreams_repl.system.errors import KStreamsError
from workshop.bench import python_peers
from workshop.bench.peers.python import counter
from workshop.bench.peers.python_peer import PEERS, peers_of
from workshop.bench.rig.deployed import Settings

COUNTING = """
import sys
from counter import ProcessCounter
one = ProcessCounter(sys.argv[1])
for _ in range(int(sys.argv[2])):
    one.tick()
"""


def test_the_counts_of_several_processes_add_up_to_the_last_step(tmp_path: Path) -> None:
    scripts = Path(str(files("workshop.bench.peers") / "python"))
    for records in (1, 501, 1400):
        subprocess.run([sys.executable, "-c", COUNTING, str(tmp_path), str(records)], cwd=scripts, check=True, timeout=60)
    assert counter.total(tmp_path) == 1 + 501 + 1001


def test_a_folder_without_counts_counts_nothing(tmp_path: Path) -> None:
    assert counter.total(tmp_path) == 0


def test_every_peer_has_its_script() -> None:
    for peer in PEERS.values():
        assert (files("workshop.bench.peers") / "python" / peer.script).is_file()


def test_an_interpreter_without_a_peer_offers_none() -> None:
    assert peers_of(Path(sys.executable)) == []


def test_an_interpreter_that_does_not_run_is_a_typed_error(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o700)
    with pytest.raises(KStreamsError, match="does not run"):
        peers_of(broken)


def test_without_any_peer_the_command_says_how_to_get_one() -> None:
    result = CliRunner().invoke(python_peers.main, ["--python", sys.executable])
    assert isinstance(result.exception, KStreamsError)
    assert "pip install quixstreams" in str(result.exception.hint)


def test_a_peer_that_is_done_before_its_clock_starts_is_told_and_not_measured(tmp_path: Path) -> None:
    (tmp_path / "peer.log").touch()
    scripts = Path(str(files("workshop.bench.peers") / "python"))
    subprocess.run([sys.executable, "-c", COUNTING, str(tmp_path), "1"], cwd=scripts, check=True, timeout=60)
    with pytest.raises(KStreamsError, match="before its clock could start"):
        PEERS["faust"]._measure([], tmp_path, 1, Settings())
