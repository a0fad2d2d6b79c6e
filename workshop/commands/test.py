"""``./kstreams test``: style, types, then the tests; pytest's summary is the last line printed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from kstreams_repl.cli.checkout import require_checkout

CHECKS: dict[str, list[str]] = {
    "ruff": ["ruff", "check", "--quiet", "--output-format", "concise", "."],
    "mypy": ["mypy", "--no-error-summary"],
}


def run_to_its_end(command: list[str], root: Path) -> int:
    """Run a command and return its exit code. Ctrl-C reaches the command too; it can clean up before this process is interrupted.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed; the command has ended.
    """
    interrupted = False
    with subprocess.Popen(command, cwd=root, stdin=subprocess.DEVNULL) as process:
        while True:
            try:
                status = process.wait()
                break
            except KeyboardInterrupt:
                interrupted = True
    if interrupted:
        raise KeyboardInterrupt
    return status


def run_check(name: str, root: Path) -> bool:
    """Run one checker over the checkout, and print its findings and a line with its result."""
    command = [sys.executable, "-P", "-m", *CHECKS[name]]
    status = run_to_its_end(command, root)
    click.echo(f"{name}: {'ok' if status == 0 else 'failed'}")
    sys.stdout.flush()
    return status == 0


PROCESSES = ["-n", "3"]
"""For two cores, as the tests wait often. One process runs the folders that start a broker, Spark or a browser, the others run everything
else first (`tests/by_file.py`)."""


FILES_OF_ONE_PROCESS = 20
NEAREST = 16
"""Of the test files that a change can break, ``--changed`` runs so many: an answer within a minute."""


def pytest_command(everything: bool, arguments: tuple[str, ...], chosen: Sequence[str] = ()) -> list[str]:
    """Return pytest's command line; the project's configuration excludes the marker ``slow``, and an empty expression includes
    it."""
    many = not arguments and (not chosen or len(chosen) > FILES_OF_ONE_PROCESS)
    spread = PROCESSES if many and importlib.util.find_spec("xdist") is not None else []
    return [sys.executable, "-P", "-m", "pytest", *spread, *(["-m", ""] if everything else []), *arguments, *chosen]


@contextmanager
def collected_ahead(root: Path, *, needed: bool) -> Iterator[None]:
    """Collect the tests on another core during this block, for the compiled files that leaves: each process would compile all of them."""
    if not needed:
        yield
        return
    command = [sys.executable, "-P", "-m", "pytest", "--collect-only", "-q", "tests"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    nowhere = subprocess.DEVNULL
    with subprocess.Popen(command, cwd=root, env=environment, stdin=nowhere, stdout=nowhere, stderr=nowhere) as process:
        try:
            yield
        except BaseException:
            process.terminate()
            raise


def choose_changed(root: Path, since: str | None) -> list[str]:
    """Report what changed and return the test files that it can break; see `workshop.commands.changed`."""
    from workshop.commands.changed import Checkout, changed_files

    files = changed_files(root, since)
    tests = Checkout.read(root).choose(files)
    chosen = tests if since else tests[:NEAREST]
    click.echo(f"changed: {', '.join(files[:5]) or 'nothing'}{f' and {len(files) - 5} more' if len(files) > 5 else ''}")
    left = "" if len(chosen) == len(tests) else f" of {len(tests)}, the nearest to the change; --since HEAD runs all of them"
    click.echo(f"chosen: {len(chosen)} test files{left}")
    sys.stdout.flush()
    return chosen


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--all", "everything", is_flag=True, help="Include the slow tests: many repetitions, full fault counts.")
@click.option("--changed", is_flag=True, help="Only the nearest tests that your changes can break: an answer in a minute.")
@click.option("--since", metavar="COMMIT", help="All tests that the changes since this commit can break.")
@click.argument("pytest_arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def main(context: click.Context, everything: bool, changed: bool, since: str | None, pytest_arguments: tuple[str, ...]) -> None:
    """Run the checks and tests of this checkout.

    All other arguments go to pytest, which runs in the checkout's root: ./kstreams test -k murmur tests/unit
    """
    root = require_checkout("./kstreams test")
    chosen = choose_changed(root, since) if changed or since else []
    if (changed or since) and not chosen:
        return
    with collected_ahead(root, needed=not pytest_arguments and not chosen):
        passed = [run_check(name, root) for name in CHECKS]
    status = run_to_its_end(pytest_command(everything, pytest_arguments, chosen), root)
    if status == 0 and not all(passed):
        failed = [name for name, ok in zip(CHECKS, passed, strict=True) if not ok]
        click.echo(f"failed before the tests: {', '.join(failed)} (see above)", err=True)
        status = 1
    context.exit(status)
