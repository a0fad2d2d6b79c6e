"""`./kstreams` itself, on small checkouts: the real script, a real virtual environment, pip without any network."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.disks import SmallDisk, small_disk
from workshop import bootstrap
from workshop.bootstrap import LOCK_STAMP, OWNER_MARK, PROJECT_STAMP, ROOT_STAMP, TOOLS_STAMP

__all__ = ["small_disk"]

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ("kstreams", "workshop/bootstrap.py")

# An in-tree build backend of the standard library alone: an editable wheel is a .pth file and three lines of metadata.
BACKEND = '''
import os, time, zipfile

def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    time.sleep(float(os.environ.get("SLOW_BUILD", "0")))
    name, info = "small-1.0-py3-none-any.whl", "small-1.0.dist-info"
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w") as wheel:
        wheel.writestr("small.pth", os.getcwd() + "\\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: small\\nVersion: 1.0\\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/RECORD", "")
    return name
'''
PROJECT = """[project]
name = "small"
version = "1.0"

[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
COMMAND = "import sys\nprint(sys.prefix, *sys.argv[1:], sep='|')\n"

pytestmark = pytest.mark.integration


class Checkout:
    """A checkout with the real bootstrap and a command line of two lines."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for source in SOURCES:
            (root / source).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / source, root / source)
        (root / "kstreams_repl/cli").mkdir(parents=True)
        (root / "kstreams_repl/__init__.py").touch()
        (root / "kstreams_repl/cli/__init__.py").touch()
        (root / "kstreams_repl/cli/__main__.py").write_text(COMMAND)
        (root / "backend.py").write_text(BACKEND)
        (root / "pyproject.toml").write_text(PROJECT)
        (root / "requirements.lock").write_text("")
        (root / "requirements-test.lock").write_text("")
        self.home = root.parent / "home"
        self.home.mkdir(exist_ok=True)

    @property
    def venv(self) -> Path:
        return self.root / ".venv"

    def environment(self, **extra: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON", "VIRTUAL_ENV", "KSTREAMS_"))}
        kept |= {name: value for name, value in os.environ.items() if name == "KSTREAMS_TEST_RUN"}
        # No uv here: these tests are about the way that needs nothing but Python.
        return kept | {"HOME": str(self.home), "PATH": "/usr/bin:/bin", "KSTREAMS_PYTHON": sys.executable} | extra

    def start(self, *arguments: str, script: Path | None = None, cwd: Path | None = None, **extra: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [script or self.root / "kstreams", *arguments],
            cwd=cwd or self.root,
            env=self.environment(**extra),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str, script: Path | None = None, cwd: Path | None = None, **extra: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments, script=script, cwd=cwd, **extra)
        out, err = process.communicate()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "my check out")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout after its first call; tests that use it change nothing."""
    checkout = Checkout(tmp_path_factory.mktemp("built") / "check out")
    done = checkout.run("hello")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{checkout.venv}|hello\n"
    return checkout


@pytest.mark.slow
def test_later_calls_run_at_once(built: Checkout) -> None:
    done = built.run("demo", "--json", "a b")
    assert (done.stdout, done.stderr) == (f"{built.venv}|demo|--json|a b\n", "")


@pytest.mark.slow
def test_it_runs_from_anywhere_and_through_a_link(built: Checkout, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(built.root / "kstreams")
    (tmp_path / "second").symlink_to("link")
    done = built.run("x", script=tmp_path / "second", cwd=tmp_path)
    assert (done.stdout, done.stderr) == (f"{built.venv}|x\n", "")


@pytest.mark.slow
def test_a_module_in_the_callers_folder_is_not_taken_for_ours(built: Checkout, tmp_path: Path) -> None:
    (tmp_path / "kstreams_repl").mkdir()
    (tmp_path / "kstreams_repl" / "__init__.py").write_text("raise SystemExit('the wrong one')")
    assert built.run("x", cwd=tmp_path).returncode == 0


@pytest.mark.slow
def test_the_test_tools_come_with_the_first_command_that_needs_them(checkout: Checkout) -> None:
    first = checkout.run("demo", "test")
    assert "about 0 packages, 830 MB to download" in first.stderr and "test tools" not in first.stderr
    added = checkout.run("--debug", "test", "x")
    assert added.stdout == f"{checkout.venv}|--debug|test|x\n"
    assert "adding the test tools" in added.stderr and "creating" not in added.stderr
    for command in ("test", "docs", "demo"):
        assert checkout.run(command).stderr == ""
    (checkout.venv / TOOLS_STAMP).unlink()  # as after an interruption, or with an environment from before
    assert checkout.run("demo").stderr == ""
    assert "adding the test tools" in checkout.run("docs").stderr


class Installed:
    """An environment whose pip and uv are recorded instead of run; `failing` is a word of the command that fails."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, lock: str, failing: str = "") -> None:
        self.folder, self.commands = folder, list[list[str]]()
        self.failing = failing
        (folder / "bin").mkdir()
        for tool in ("pip", "python"):
            self.add(tool)
        (folder / LOCK_STAMP).write_text(lock)
        monkeypatch.setattr(bootstrap, "run_installer", self.run)
        monkeypatch.setenv("PATH", str(folder / "nowhere"))

    def add(self, tool: str) -> None:
        (self.folder / "bin" / tool).write_text("#!/bin/sh\n")
        (self.folder / "bin" / tool).chmod(0o755)

    def run(self, command: list[str], lock: int, log: Path, step: str) -> None:
        self.commands.append(command)
        if self.failing and any(self.failing in word for word in command):
            raise bootstrap.InstallerError(f"{step} failed (exit 1):\n    no mirror", "none")
        if "kstreams-uv.txt" in command[-1]:
            self.add("uv")

    def install(self) -> list[str]:
        """Return which tool each command was run with."""
        bootstrap.install_uv(self.folder, 0)
        bootstrap.install_locked(self.folder, 0, self.folder / LOCK_STAMP, "installing the locked packages")
        return ["uv" if command[0].endswith("/uv") else "pip" for command in self.commands]


LOCKED_UV = """\
urllib3==2 \\
    --hash=sha256:11
uv==0.9 \\
    --hash=sha256:22 \\
    --hash=sha256:33
uvicorn==1 \\
    --hash=sha256:44
"""


def test_pip_installs_the_locked_uv_which_installs_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Installed(tmp_path, monkeypatch, LOCKED_UV).install() == ["pip", "uv"]
    lines = (tmp_path / "kstreams-uv.txt").read_text().splitlines()
    assert lines == ["uv==0.9 \\", "    --hash=sha256:22 \\", "    --hash=sha256:33"]


@pytest.mark.parametrize(("failing", "tools"), [("kstreams-uv.txt", ["pip", "pip"]), ("bin/uv", ["pip", "uv", "pip"])])
def test_pip_installs_all_where_uv_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, tools: list[str]) -> None:
    environment = Installed(tmp_path, monkeypatch, LOCKED_UV, failing)
    assert environment.install() == tools
    assert all("--require-hashes" in command for command in environment.commands)


def test_pip_that_fails_too_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(bootstrap.InstallerError, match="no mirror"):
        Installed(tmp_path, monkeypatch, "", failing="pip").install()


def test_uv_gets_the_mirror_and_the_certificates_that_pip_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SSL_CERT_FILE", "UV_DEFAULT_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CERT", "/certificates.pem")
    monkeypatch.setenv("PIP_INDEX_URL", "http://mirror/simple")
    variables = bootstrap.installer_environment()
    assert (variables["SSL_CERT_FILE"], variables["UV_DEFAULT_INDEX"]) == ("/certificates.pem", "http://mirror/simple")


@pytest.mark.slow
def test_an_environment_with_test_tools_keeps_them_when_the_lock_changes(checkout: Checkout) -> None:
    checkout.run("test")
    (checkout.venv / "bin" / "pytest").touch()
    (checkout.root / "requirements.lock").write_text("# another pin\n")
    assert "adding the test tools" in checkout.run("demo").stderr
    assert (checkout.venv / TOOLS_STAMP).exists()


@pytest.mark.slow
def test_a_changed_lock_of_the_test_tools_makes_the_environment_anew_for_tests_only(checkout: Checkout) -> None:
    checkout.run("test")
    (checkout.root / "requirements-test.lock").write_text("# another pin\n")
    assert checkout.run("demo").stderr == ""
    assert "creating" in checkout.run("test").stderr


@pytest.mark.slow
def test_a_changed_lock_makes_the_environment_anew(checkout: Checkout) -> None:
    checkout.run()
    (checkout.venv / "left-over").touch()
    (checkout.root / "requirements.lock").write_text("# another pin\n")
    done = checkout.run("x")
    assert done.stdout == f"{checkout.venv}|x\n"
    assert not (checkout.venv / "left-over").exists()
    assert (checkout.venv / LOCK_STAMP).read_text() == "# another pin\n"


@pytest.mark.slow
def test_a_changed_project_file_installs_only_the_project(checkout: Checkout) -> None:
    checkout.run()
    (checkout.venv / "left-over").touch()
    (checkout.root / "pyproject.toml").write_text(PROJECT + "# changed\n")
    assert "installing the locked packages" not in checkout.run("x").stderr
    assert (checkout.venv / "left-over").exists()
    assert checkout.run("x").stderr == ""


@pytest.mark.slow
def test_a_first_call_that_was_killed_is_taken_up_by_the_next(checkout: Checkout) -> None:
    killed = checkout.start(SLOW_BUILD="60")
    while not (checkout.venv / PROJECT_STAMP).exists():
        assert killed.poll() is None
        time.sleep(0.01)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert not (checkout.venv / ROOT_STAMP).exists()
    assert checkout.run("x").stdout == f"{checkout.venv}|x\n"


def test_a_first_call_that_was_interrupted_ends_quietly_and_leaves_no_stamp(checkout: Checkout) -> None:
    interrupted = checkout.start(SLOW_BUILD="60")
    while not (checkout.venv / LOCK_STAMP).exists():
        assert interrupted.poll() is None
        time.sleep(0.01)
    os.killpg(interrupted.pid, signal.SIGINT)
    _, err = interrupted.communicate()
    assert interrupted.returncode in (130, -signal.SIGINT)  # some shells end by the signal itself; both read as 130
    assert "Traceback" not in err
    assert not (checkout.venv / ROOT_STAMP).exists()


@pytest.mark.slow
def test_first_calls_at_the_same_time_make_one_environment(checkout: Checkout) -> None:
    calls = [checkout.start(str(number)) for number in range(3)]
    ended = [call.communicate() for call in calls]
    assert [out for out, _ in ended] == [f"{checkout.venv}|{number}\n" for number in range(3)]
    assert sum("ready after" in err for _, err in ended) == 1


@pytest.mark.slow
def test_a_moved_checkout_gets_an_environment_of_its_own(checkout: Checkout, tmp_path: Path) -> None:
    checkout.run()
    checkout.root.rename(tmp_path / "moved")
    done = subprocess.run(
        [tmp_path / "moved" / "kstreams", "x"], env=checkout.environment(), capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.stdout == f"{tmp_path / 'moved' / '.venv'}|x\n"


def test_somebody_elses_environment_is_not_touched(checkout: Checkout) -> None:
    checkout.venv.mkdir()
    (checkout.venv / "precious").touch()
    done = checkout.run()
    assert done.returncode == 1
    assert "was not created by ./kstreams" in done.stderr
    assert "Hint: " in done.stderr
    assert os.listdir(checkout.venv) == ["precious"]


@pytest.mark.slow
def test_the_environment_may_be_elsewhere(checkout: Checkout, tmp_path: Path) -> None:
    done = checkout.run("x", KSTREAMS_VENV=str(tmp_path / "other"))
    assert done.stdout == f"{tmp_path / 'other'}|x\n"
    assert not checkout.venv.exists()


@pytest.mark.slow
def test_a_failed_installation_tells_where_its_log_is(checkout: Checkout) -> None:
    (checkout.root / "requirements.lock").write_text("no-such-package==1.0 --hash=sha256:" + "0" * 64 + "\n")
    done = checkout.run(PIP_NO_INDEX="1")
    assert done.returncode == 1
    assert "Error: installing the locked packages failed" in done.stderr
    assert "no-such-package" in done.stderr
    log = checkout.venv / "kstreams-install.log"
    assert f"Hint: the whole log is {log}" in done.stderr
    assert "no-such-package" in log.read_text()
    assert (checkout.venv / OWNER_MARK).exists()


def test_without_a_usable_python_it_says_so(checkout: Checkout) -> None:
    done = checkout.run(KSTREAMS_PYTHON="/nowhere/python3")
    assert done.returncode == 1
    assert done.stderr.startswith("Error: no Python 3.11 or newer")
    assert "\nHint: " in done.stderr


@pytest.mark.slow
def test_a_disk_without_room_is_told_with_what_is_needed_and_the_next_call_starts_over(
    checkout: Checkout, small_disk: Callable[[int], SmallDisk]
) -> None:
    disk = small_disk(4)
    done = checkout.run("x", KSTREAMS_VENV=str(disk.path / "venv"))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    errors = [line for line in done.stderr.splitlines() if not line.startswith("kstreams: ")]
    assert re.fullmatch(rf"Error: not enough disk space for {disk.path}/venv: \d MB free, about 3,200 MB needed", errors[0])
    assert errors[1].startswith("Hint: free some space on that disk") and len(errors) == 2
    disk.make_room(200)
    done = checkout.run("x", KSTREAMS_VENV=str(disk.path / "venv"))
    assert done.stdout == f"{disk.path}/venv|x\n", done.stderr


def test_the_doctor_is_told_whether_an_environment_is_that_of_the_lock_files(tmp_path: Path) -> None:
    root, environment = tmp_path / "root", tmp_path / "venv"
    root.mkdir()
    assert bootstrap.status(root, environment) == f"{environment}, not created from the lock file"
    stamps = {"requirements.lock": LOCK_STAMP, "pyproject.toml": PROJECT_STAMP, "requirements-test.lock": TOOLS_STAMP}
    (environment / "bin").mkdir(parents=True)
    for name in (OWNER_MARK, "bin/python", *stamps.values()):
        (environment / name).touch()
    for name in stamps:
        (root / name).touch()
    assert bootstrap.status(root, environment) == f"{environment} does not match requirements.lock"
    (environment / ROOT_STAMP).write_text(f"{root}\n")
    assert bootstrap.status(root, environment) == f"{environment} matches requirements.lock"
    (environment / TOOLS_STAMP).write_text("other tools")
    assert bootstrap.status(root, environment).endswith("; the first kstreams test adds the test tools")
