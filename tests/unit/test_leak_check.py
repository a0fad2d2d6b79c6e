"""The leak check of the tests notices what it is there for."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from typing import Any

import pytest

TakePicture = Callable[[], Any]
SLEEP = "import time; time.sleep(600)"
# Leaves its parent and its session, as a daemon does, after telling its process id.
DAEMON = f"""
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {SLEEP!r}], start_new_session=True, stdin=-3, stdout=-3, stderr=-3)
print(child.pid)
os._exit(0)
"""


def test_a_child_process_is_noticed(surroundings: TakePicture) -> None:
    before = surroundings()
    child = subprocess.Popen([sys.executable, "-c", SLEEP])
    try:
        assert any(f"process {child.pid}" in leak for leak in before.leaks(surroundings()))
    finally:
        child.kill()
        child.wait()
    assert before.leaks(surroundings()) == []


def test_a_process_that_left_its_parent_is_noticed(surroundings: TakePicture) -> None:
    before = surroundings()
    pid = int(subprocess.run([sys.executable, "-c", DAEMON], capture_output=True, text=True, check=True).stdout)
    try:
        assert any(f"process {pid}" in leak for leak in before.leaks(surroundings()))
    finally:
        os.kill(pid, 9)


def test_a_child_of_what_lived_before_is_adopted(surroundings: TakePicture) -> None:
    code = "import subprocess, sys; input(); c = subprocess.Popen([sys.executable, '-c', 'input()']); print(flush=True); c.wait()"
    owner = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert owner.stdin is not None and owner.stdout is not None
    before = surroundings()
    owner.stdin.write("go\n")
    owner.stdin.flush()
    owner.stdout.readline()
    try:
        assert before.leaks(surroundings()) == []
    finally:
        owner.communicate("end\n")


def test_a_thread_is_noticed(surroundings: TakePicture) -> None:
    before, release = surroundings(), threading.Event()
    thread = threading.Thread(target=release.wait, name="forgotten")
    thread.start()
    try:
        assert [leak for leak in before.leaks(surroundings()) if leak.startswith("thread forgotten")]
    finally:
        release.set()
        thread.join()
    assert before.leaks(surroundings()) == []


def test_a_listening_port_is_noticed(surroundings: TakePicture) -> None:
    before = surroundings()
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert before.leaks(surroundings()) == [f"listening port {server.getsockname()[1]}"]
    assert before.leaks(surroundings()) == []


def test_a_temporary_folder_is_noticed(surroundings: TakePicture) -> None:
    before = surroundings()
    with tempfile.TemporaryDirectory(prefix="left-") as folder:
        assert before.leaks(surroundings()) == [f"temporary {os.path.basename(folder)}"]


@pytest.mark.integration
def test_a_marked_test_that_leaves_a_folder_fails(pytester_run: Callable[[str], str]) -> None:
    shown = pytester_run("import pytest, tempfile\n@pytest.mark.kafka\ndef test_one():\n    tempfile.mkdtemp(prefix='left-')\n")
    assert "left behind by this test:" in shown
    assert "temporary left-" in shown


@pytest.fixture
def pytester_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Runs a test file of its own under this project's conftest, with a leak's time to go away cut short."""
    folder = tmp_path_factory.mktemp("inner")

    def run(source: str) -> str:
        shared = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "conftest.py")
        with open(shared, encoding="utf-8") as stream:
            (folder / "conftest.py").write_text(stream.read().replace("SECONDS_TO_GO_AWAY = 30.0", "SECONDS_TO_GO_AWAY = 0.0"))
        (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    kafka: for a test\n")
        (folder / "test_inner.py").write_text(source)
        done = subprocess.run([sys.executable, "-m", "pytest", "-q"], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 1
        return done.stdout

    return run
