"""Creates the virtual environment that ``./kstreams`` runs in. Standard library only: it runs before anything is installed.

The environment depends on three inputs: ``requirements.lock``, ``pyproject.toml`` and the folder of the checkout. It is created
in place (virtual environments cannot be moved) by these steps:

1. Lock: one builder at a time, by an advisory lock on the checkout's folder. The installers inherit the lock, so after a
   builder is killed it is held while its installer still writes.
2. Check again: another call may have finished the work while this one waited.
3. Clear: only a folder that this script created (it contains ``OWNER_MARK``) is ever deleted.
4. Create the environment, copy the lock file into it, and install from that copy, each archive checked against its hash
   (with uv if available, else pip).
5. Copy pyproject.toml likewise and install the project itself, editable, without dependencies.
6. Stamp the root's path. An interrupted build has no stamp and is rebuilt by the next call.

If only ``pyproject.toml`` changed, steps 3 and 4 are skipped.
"""

from __future__ import annotations

import errno
import fcntl
import filecmp
import os
import shutil
import signal
import subprocess
import sys
import time
import venv
from pathlib import Path

OWNER_MARK = "kstreams-made-this"
LOCK_STAMP = "kstreams-lock.stamp"
PROJECT_STAMP = "kstreams-project.stamp"
ROOT_STAMP = "kstreams-root.stamp"
NEEDED_BYTES = 1_700_000_000
"""Disk space that the locked packages need, for the message if there is too little."""


class BootstrapError(Exception):
    """The environment could not be created. The message names the failed step; `hint` is the next action."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


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


def is_fresh(root: Path, environment: Path) -> bool:
    """Return whether there is nothing to do. The same condition as ``is_fresh`` in the shell script."""
    try:
        return has_locked_packages(root, environment) and filecmp.cmp(
            root / "pyproject.toml", environment / PROJECT_STAMP, shallow=False
        )
    except OSError:
        return False


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
    return variables | {"PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def run_installer(command: list[str], lock: int, log: Path, total: int, step: str) -> None:
    """Run one installer command with its output in `log`, and with a count of packages on a terminal.

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
        seen = 0
        try:
            for line in process.stdout:
                sink.write(line)
                lines.append(line.rstrip())
                seen += line.startswith(("Collecting ", " + "))
                if sys.stderr.isatty():
                    counted = f"{min(seen, total)}/{total} packages, " if seen and total > 1 else ""
                    elapsed = f"{time.monotonic() - started:.0f} s"
                    print(f"\r\033[Kkstreams: {step}: {counted}{elapsed}", end="", file=sys.stderr, flush=True)
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
        raise BootstrapError(
            f"{step} failed (exit {status}):\n{tail}",
            f"the whole log is {log}; check the network or your package mirror's settings, then call ./kstreams again",
        )


def make_environment(root: Path, environment: Path, lock: int) -> None:
    """Step 4. Create an empty environment and install the locked packages, without resolving, each archive checked against its
    hash."""
    requirements = environment / LOCK_STAMP
    log = environment / "kstreams-install.log"
    uv = shutil.which("uv")
    say(f"creating {environment} with Python {sys.version.split()[0]} and {'uv' if uv else 'pip'} (once; about a minute)")
    environment.mkdir(parents=True, exist_ok=True)
    (environment / OWNER_MARK).touch()
    shutil.copyfile(root / "requirements.lock", requirements)
    total = sum("==" in line for line in requirements.read_text().splitlines())
    try:
        venv.EnvBuilder(symlinks=True, with_pip=uv is None, prompt=root.name).create(environment)
    except (OSError, subprocess.CalledProcessError) as error:
        if getattr(error, "errno", None) == errno.ENOSPC or shutil.disk_usage(environment).free < 1 << 20:
            raise no_room(environment) from error
        raise BootstrapError(
            f"Python's venv module could not create {environment}: {error}",
            "install it (Debian, Ubuntu: apt-get install python3-venv), free some disk, or install uv",
        ) from error
    python = str(environment / "bin" / "python")
    if uv:
        command = [uv, "pip", "install", "--python", python, "--no-deps", "--require-hashes", "--requirement", str(requirements)]
    else:
        command = [python, "-m", "pip", "install", "--no-deps", "--require-hashes", "--requirement", str(requirements)]
    run_installer(command, lock, log, total, "installing the locked packages")


def install_project(root: Path, environment: Path, lock: int) -> None:
    """Step 5. Install the checkout itself, editable; its build backend is among the locked packages, so nothing is downloaded."""
    shutil.copyfile(root / "pyproject.toml", environment / PROJECT_STAMP)
    python = str(environment / "bin" / "python")
    uv = shutil.which("uv")
    start = [uv, "pip", "install", "--python", python] if uv else [python, "-m", "pip", "install"]
    command = [*start, "--no-deps", "--no-build-isolation", "--no-index", "--editable", str(root)]
    run_installer(command, lock, environment / "kstreams-install.log", 1, "installing the project")


def stamp(root: Path, environment: Path) -> None:
    """Step 6. Mark the environment as complete, atomically."""
    unfinished = environment / f"{ROOT_STAMP}.new"
    unfinished.write_text(f"{root}\n")
    unfinished.replace(environment / ROOT_STAMP)


def bootstrap(root: Path, environment: Path) -> None:
    """Bring the environment up to date; returns at once if it is."""
    lock = acquire_lock(root)  # 1
    try:
        if is_fresh(root, environment):  # 2
            return
        started = time.monotonic()
        if not has_locked_packages(root, environment):
            clear(environment)  # 3
            make_environment(root, environment, lock)  # 4
        (environment / ROOT_STAMP).unlink(missing_ok=True)
        install_project(root, environment, lock)  # 5
        stamp(root, environment)  # 6
        say(f"ready after {time.monotonic() - started:.0f} s")
    finally:
        os.close(lock)


def main(arguments: list[str]) -> int:
    """Run the shell script's call ``bootstrap.py ROOT ENVIRONMENT``."""
    root, environment = (Path(argument) for argument in arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        bootstrap(root, environment)
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
