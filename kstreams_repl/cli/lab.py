"""``./kstreams lab``: JupyterLab on the example notebooks, with Java and Python for Spark configured for the kernels."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path
from typing import NoReturn

import click

from kstreams_repl.cli.checkout import find_checkout
from kstreams_repl.system.errors import JavaNotFoundError, MissingPackageError
from kstreams_repl.system.java import spark_environment

_ROOT = re.compile(r"--(notebook-dir|ServerApp\.root_dir|ServerApp\.notebook_dir)(=|$)")


def lab_command(arguments: tuple[str, ...], notebook: Path | None = None) -> list[str]:
    """Return the command line of JupyterLab; the user's arguments come last, so that they take precedence. Two root directories are an
    error there, so ours is left out if there is one, and with it what depends on it.

    Checks for updates and news are off: a first start should contact no host but this one.

    Args:
        notebook: opened at the start, with its folder as root; None: JupyterLab opens on the example notebooks.
    """
    root = find_checkout()
    folder = root / "notebooks" if root is not None and (root / "notebooks").is_dir() else Path.cwd()
    if notebook is not None:
        folder = notebook.parent
    root_arguments = [f"--ServerApp.root_dir={folder}"]
    if notebook is not None:  # the address that is printed, opened by hand where there is no browser, as in a container
        root_arguments.append(f"--LabApp.default_url=/lab/tree/{notebook.name}")
    command = [
        sys.executable,
        "-P",
        "-m",
        "jupyterlab",
        *(() if any(_ROOT.match(argument) for argument in arguments) else root_arguments),
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        "--LabApp.news_url=None",
    ]
    if os.geteuid() == 0:
        command.append("--allow-root")
    return [*command, *(() if notebook is None else (str(notebook),)), *arguments]


def lab_environment() -> dict[str, str]:
    """Return the kernels' environment. Without Java the notebooks open, and code that needs Java raises an error."""
    # The environment's own kernels and extensions take precedence over those in the user's home, which belong to other Pythons.
    environment = {**os.environ, "JUPYTER_PREFER_ENV_PATH": "1"}
    try:
        return environment | spark_environment()
    except JavaNotFoundError as error:
        click.echo(f"Warning: {error}", err=True)
        return environment


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("jupyter_arguments", nargs=-1, type=click.UNPROCESSED)
def main(jupyter_arguments: tuple[str, ...]) -> None:
    """Open JupyterLab on the example notebooks.

    All other arguments go to JupyterLab: ./kstreams lab --no-browser --port 8899
    """
    start_lab(jupyter_arguments)


def start_lab(arguments: tuple[str, ...], notebook: Path | None = None) -> NoReturn:
    """Replace this process by JupyterLab.

    Args:
        notebook: as for `lab_command`.

    Raises:
        MissingPackageError: JupyterLab is not installed.
    """
    if importlib.util.find_spec("jupyterlab") is None:
        raise MissingPackageError("JupyterLab is not installed.", hint="pip install 'kstreams-repl[notebook]'")
    command = lab_command(arguments, notebook)
    os.execve(command[0], command, lab_environment())
