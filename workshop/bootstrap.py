"""Creates the virtual environment that ``./kstreams`` runs in. Standard library only: it runs before anything is installed.

The environment depends on three inputs: ``requirements.lock``, ``pyproject.toml`` and the folder of the checkout; for ``./kstreams
test`` and ``docs`` on ``requirements-test.lock`` too. It is created in place (virtual environments cannot be moved) by these steps:

1. Lock: one builder at a time, by an advisory lock on the checkout's folder. The installers inherit the lock, so after a
   builder is killed it is held while its installer still writes.
2. Check again: another call may have finished the work while this one waited.
3. Clear: only a folder that this script created (it contains ``OWNER_MARK``) is ever deleted.
4. Create the environment, copy the lock file into it, and install from that copy, each archive checked against its hash: with uv,
   which is on PATH or is installed first by pip, as locked; with pip if that fails.
5. Copy pyproject.toml likewise and install the project itself, editable, without dependencies.
6. Stamp the root's path. An interrupted build has no stamp and is rebuilt by the next call.
7. Add the test tools if the command needs them or the environment had them. Their lock file is copied last and is their stamp.

If only ``pyproject.toml`` changed, steps 3 and 4 are skipped.
"""

from __future__ import annotations

import errno
import fcntl
import filecmp
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import venv
from pathlib import Path

OWNER_MARK = "kstreams-made-this"
LOCK_STAMP = "kstreams-lock.stamp"
TOOLS_STAMP = "kstreams-test-lock.stamp"
PROJECT_STAMP = "kstreams-project.stamp"
ROOT_STAMP = "kstreams-root.stamp"
INSTALL_LOG = "kstreams-install.log"
NEEDED_BYTES = 3_200_000_000
"""Disk space that the locked packages need with the installer's cache, for the message if there is too little."""
DOWNLOADED_MEGABYTES = {"requirements.lock": 830, "requirements-test.lock": 100}
"""On Linux x86 with an empty cache; more than half of the first is Spark."""
STORED = "--config-settings=--build-option=--compression=stored"
"""Spark is published as source only: without this its jars are compressed again, into a wheel, which takes longer than its download."""


class BootstrapError(Exception):
    """The environment could not be created. The message names the failed step; `hint` is the next action."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class InstallerError(BootstrapError):
    """pip or uv ended with an error, other than that of a full disk."""


def no_room(environment: Path) -> BootstrapError:
    """Return the error for a disk that is too small for the environment."""
    where = environment
    while not where.exists():
        where = where.parent
    free = shutil.disk_usage(where).free
    return BootstrapError(
        f"not enough disk space for {environment}: {free / 1e6:,.0f} MB free, about {NEEDED_BYTES / 1e6:,.0f} MB needed",
        "free some space on that disk, or choose another folder: KSTREAMS_VENV=/path/to/folder ./kstreams",
    )


def has_locked_packages(root: Path, environment: Path) -> bool:
    """Return whether the environment has exactly the packages in this checkout's lock file."""
    try:
        return (
            (environment / "bin" / "python").exists()
            and (environment / ROOT_STAMP).read_text() == f"{root}\n"
            and filecmp.cmp(root / "requirements.lock", environment / LOCK_STAMP, shallow=False)
        )
    except OSError:
        return False


def has_tools(root: Path, environment: Path) -> bool:
    """Return whether the environment has exactly the test tools in this checkout's second lock file."""
    try:
        return filecmp.cmp(root / "requirements-test.lock", environment / TOOLS_STAMP, shallow=False)
    except OSError:
        return False


def is_fresh(root: Path, environment: Path, tools: bool = False) -> bool:
    """Return whether there is nothing to do. The same condition as ``is_fresh`` in the shell script."""
    try:
        return (
            has_locked_packages(root, environment)
            and filecmp.cmp(root / "pyproject.toml", environment / PROJECT_STAMP, shallow=False)
            and (not tools or has_tools(root, environment))
        )
    except OSError:
        return False


def status(root: Path, environment: Path) -> str:
    """Return what ``kstreams doctor`` shows of an environment."""
    if not (environment / OWNER_MARK).is_file():
        return f"{environment}, not created from the lock file"
    if not is_fresh(root, environment):
        return f"{environment} does not match requirements.lock"
    tools = "" if has_tools(root, environment) else "; the first kstreams test adds the test tools"
    return f"{environment} matches requirements.lock{tools}"


def say(text: str) -> None:
    """Print a line of progress on stderr, because stdout belongs to the command that runs afterwards."""
    print(f"kstreams: {text}", file=sys.stderr, flush=True)


def acquire_lock(root: Path) -> int:
    """Step 1. Wait for the checkout's lock and return its file descriptor; closing it (or the process's end) releases it."""
    descriptor = os.open(root, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("another ./kstreams is creating the environment; waiting for it")
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def clear(environment: Path) -> None:
    """Step 3. Delete an environment that this script created.

    Raises:
        BootstrapError: the folder was not created by this script.
    """
    if not environment.exists() and not environment.is_symlink():
        return
    if environment.is_dir() and not any(environment.iterdir()):
        return
    if not (environment / OWNER_MARK).is_file():
        raise BootstrapError(
            f"{environment} exists, but was not created by ./kstreams, so it is left unchanged.",
            "move it away, or choose another folder: KSTREAMS_VENV=/path/to/folder ./kstreams",
        )
    (environment / ROOT_STAMP).unlink(missing_ok=True)
    for entry in environment.iterdir():
        if entry.name != OWNER_MARK:  # deleted last, so that an interrupted deletion can be continued
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    shutil.rmtree(environment)


def installer_environment() -> dict[str, str]:
    """Return the caller's variables (mirrors, certificates, proxies), without those that change the installation's target."""
    misleading = {"PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_REQUIRE_VIRTUALENV", "PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV"}
    variables = {name: value for name, value in os.environ.items() if name not in misleading}
    for pip_name, uv_name in (("PIP_CERT", "SSL_CERT_FILE"), ("PIP_INDEX_URL", "UV_DEFAULT_INDEX")):  # uv does not read pip's
        if pip_name in variables:
            variables.setdefault(uv_name, variables[pip_name])
    return variables | {"PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def run_installer(command: list[str], lock: int, log: Path, step: str) -> None:
    """Run one installer command with its output in `log`, and with the last line of it on a terminal.

    Raises:
        BootstrapError: the command failed; the message contains the end of its output.
    """
    started = time.monotonic()
    with log.open("a", encoding="utf-8") as sink:
        sink.write("$ " + " ".join(command) + "\n")
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=installer_environment(),
            pass_fds=(lock,),
        )
        assert process.stdout is not None
        lines: list[str] = []
        try:
            for line in process.stdout:
                sink.write(line)
                lines.append(line.rstrip())
                if sys.stderr.isatty():
                    shown = f"kstreams: {step}, {time.monotonic() - started:.0f} s: {line.strip()}"
                    print(f"\r\033[K{shown[: shutil.get_terminal_size().columns - 1]}", end="", file=sys.stderr, flush=True)
            status = process.wait()
        except BaseException:
            process.send_signal(signal.SIGTERM)
            process.wait()
            raise
        finally:
            if sys.stderr.isatty():
                print("\r\033[K", end="", file=sys.stderr, flush=True)
    if status != 0 and any("No space left on device" in line or "os error 28" in line for line in lines):
        raise no_room(log.parent)
    if status != 0:
        tail = "\n".join(f"    {line}" for line in lines[-12:])
        raise InstallerError(
            f"{step} failed (exit {status}):\n{tail}",
            f"the whole log is {log}; check the network or your package mirror's settings, then call ./kstreams again",
        )


def find_uv(environment: Path) -> str | None:
    """Return a uv that runs: the environment's own, else that on PATH, which may be a version manager's link to nothing."""
    for uv in (str(environment / "bin" / "uv"), shutil.which("uv")):
        try:
            if uv and subprocess.run([uv, "--version"], capture_output=True, stdin=subprocess.DEVNULL).returncode == 0:
                return uv
        except OSError:
            continue
    return None


def installer(environment: Path) -> list[str]:
    """Return the start of the command that installs into the environment: of uv if there is one, else of pip."""
    python = str(environment / "bin" / "python")
    uv = find_uv(environment)
    if uv:
        built_with = str(environment / LOCK_STAMP)
        return [uv, "pip", "install", "--python", python, "--no-deps", STORED, "--build-constraints", built_with]
    return [python, "-m", "pip", "install", "--no-compile", "--no-deps"]


def install_uv(environment: Path, lock: int) -> None:
    """Let pip install the locked uv, so that all else is downloaded in parallel."""
    pinned = re.search(r"^uv==.*(?:\n .*)*", (environment / LOCK_STAMP).read_text(), re.MULTILINE)
    if pinned is None:
        return
    requirement = environment / "kstreams-uv.txt"
    requirement.write_text(pinned[0] + "\n")
    try:
        command = [*installer(environment), "--require-hashes", "--requirement", str(requirement)]
        run_installer(command, lock, environment / INSTALL_LOG, "installing uv")
    except InstallerError as error:
        say(f"{str(error).splitlines()[0]}; going on with pip alone, which takes longer")


def install_locked(environment: Path, lock: int, requirements: Path, step: str) -> None:
    """Install what a lock file names, without resolving, each archive checked against its hash. Where pip installed uv, and uv fails
    (it does not read pip's settings of mirrors), pip does it all."""
    uv = environment / "bin" / "uv"
    options = ["--require-hashes", "--requirement", str(requirements)]
    try:
        run_installer([*installer(environment), *options], lock, environment / INSTALL_LOG, step)
    except InstallerError as error:
        if not uv.exists() or not (environment / "bin" / "pip").exists():
            raise
        say(f"{str(error).splitlines()[0]} with uv; once more with pip, which takes longer")
        uv.unlink()
        run_installer([*installer(environment), *options], lock, environment / INSTALL_LOG, step)


def describe(lock_file: Path) -> str:
    """Return how much a lock file makes an installer download."""
    names = {line.partition("==")[0] for line in lock_file.read_text().splitlines() if "==" in line}
    return f"about {len(names)} packages, {DOWNLOADED_MEGABYTES[lock_file.name]} MB to download unless cached"


def make_environment(root: Path, environment: Path, lock: int) -> None:
    """Step 4. Create an empty environment and install the locked packages."""
    say(f"creating {environment} with Python {sys.version.split()[0]}, once: {describe(root / 'requirements.lock')}")
    environment.mkdir(parents=True, exist_ok=True)
    (environment / OWNER_MARK).touch()
    shutil.copyfile(root / "requirements.lock", environment / LOCK_STAMP)
    uv = find_uv(environment)
    try:
        venv.EnvBuilder(symlinks=True, with_pip=uv is None, prompt=root.name).create(environment)
    except (OSError, subprocess.CalledProcessError) as error:
        if getattr(error, "errno", None) == errno.ENOSPC or shutil.disk_usage(environment).free < 1 << 20:
            raise no_room(environment) from error
        raise BootstrapError(
            f"Python's venv module could not create {environment}: {error}",
            "install it (Debian, Ubuntu: apt-get install python3-venv), free some disk, or install uv",
        ) from error
    if uv is None:
        install_uv(environment, lock)
    install_locked(environment, lock, environment / LOCK_STAMP, "installing the locked packages")


def install_project(root: Path, environment: Path, lock: int) -> None:
    """Step 5. Install the checkout itself, editable; its build backend is among the locked packages, so nothing is downloaded."""
    shutil.copyfile(root / "pyproject.toml", environment / PROJECT_STAMP)
    command = [*installer(environment), "--no-build-isolation", "--no-index", "--editable", str(root)]
    run_installer(command, lock, environment / INSTALL_LOG, "installing the project")


def install_tools(root: Path, environment: Path, lock: int) -> None:
    """Step 7. Add what only tests and documentation need. The rest of the environment is in use, and stays valid if this fails."""
    say(f"adding the test tools, once: {describe(root / 'requirements-test.lock')}")
    unfinished = environment / f"{TOOLS_STAMP}.new"
    shutil.copyfile(root / "requirements-test.lock", unfinished)
    install_locked(environment, lock, unfinished, "installing the test tools")
    unfinished.replace(environment / TOOLS_STAMP)


def stamp(root: Path, environment: Path) -> None:
    """Step 6. Mark the environment as complete, atomically."""
    unfinished = environment / f"{ROOT_STAMP}.new"
    unfinished.write_text(f"{root}\n")
    unfinished.replace(environment / ROOT_STAMP)


def bootstrap(root: Path, environment: Path, tools: bool = False) -> None:
    """Bring the environment up to date; returns at once if it is."""
    lock = acquire_lock(root)  # 1
    try:
        if is_fresh(root, environment, tools):  # 2
            return
        started = time.monotonic()
        stale_tools = tools and (environment / TOOLS_STAMP).exists() and not has_tools(root, environment)
        if stale_tools or not has_locked_packages(root, environment):
            tools = tools or (environment / "bin" / "pytest").exists()  # a developer's environment stays one
            clear(environment)  # 3
            make_environment(root, environment, lock)  # 4
        if not is_fresh(root, environment):
            (environment / ROOT_STAMP).unlink(missing_ok=True)
            install_project(root, environment, lock)  # 5
            stamp(root, environment)  # 6
        if tools and not has_tools(root, environment):
            install_tools(root, environment, lock)  # 7
        say(f"ready after {time.monotonic() - started:.0f} s")
    finally:
        os.close(lock)


def main(arguments: list[str]) -> int:
    """Run the shell script's call ``bootstrap.py ROOT ENVIRONMENT [test]``, or with ``status`` the doctor's."""
    root, environment = (Path(argument) for argument in arguments[:2])
    if arguments[2:] == ["status"]:
        print(status(root, environment))
        return 0
    tools = arguments[2:] == ["test"]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        bootstrap(root, environment, tools)
    except KeyboardInterrupt:
        say("interrupted; the next call starts over")
        return 130
    except BootstrapError as error:
        print(f"Error: {error}\nHint: {error.hint}", file=sys.stderr)
        return 1
    except OSError as error:
        if error.errno == errno.ENOSPC:
            full = no_room(environment)
            print(f"Error: {full}\nHint: {full.hint}", file=sys.stderr)
            return 1
        print(f"Error: the environment could not be created: {error}", file=sys.stderr)
        print(f"Hint: check the disk and the permissions of {root}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
