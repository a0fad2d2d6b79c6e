"""``./kstreams test``: style, types, then the tests; pytest's closing line is the last thing printed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click

from kstreams_repl.cli.checkout import require_checkout

CHECKS: dict[str, list[str]] = {
    "ruff": ["ruff", "check", "--quiet", "--output-format", "concise", "."],
    "mypy": ["mypy", "--no-error-summary"],
}


def run_to_its_end(command: list[str], root: Path) -> int:
    """Runs a command and returns its exit code. Ctrl-C reaches it too, and it may clean up first: only then are we interrupted.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed, and the command has ended.
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
    """Runs one checker over the checkout, prints its findings and a line with its result."""
    command = [sys.executable, "-P", "-m", *CHECKS[name]]
    status = run_to_its_end(command, root)
    click.echo(f"{name}: {'ok' if status == 0 else 'failed'}")
    sys.stdout.flush()
    return status == 0


def pytest_command(everything: bool, arguments: tuple[str, ...]) -> list[str]:
    """pytest's command line; the project's configuration leaves out the marker ``slow``, which an empty expression brings back."""
    return [sys.executable, "-P", "-m", "pytest", *(["-m", ""] if everything else []), *arguments]


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--all", "everything", is_flag=True, help="Also the slow tests: many repetitions, full fault counts.")
@click.argument("pytest_arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def main(context: click.Context, everything: bool, pytest_arguments: tuple[str, ...]) -> None:
    """Run the checks and tests of this checkout.

    Everything else on the line goes to pytest, which runs at the checkout's root: ./kstreams test -k murmur tests/unit
    """
    root = require_checkout("./kstreams test")
    passed = [run_check(name, root) for name in CHECKS]
    status = run_to_its_end(pytest_command(everything, pytest_arguments), root)
    if status == 0 and not all(passed):
        failed = [name for name, ok in zip(CHECKS, passed, strict=True) if not ok]
        click.echo(f"failed before the tests: {', '.join(failed)} (see above)", err=True)
        status = 1
    context.exit(status)
