"""``./kstreams tutorial``: JupyterLab on a copy of the tutorial in the user's folder."""

from __future__ import annotations

import os
from pathlib import Path

import click

import kstreams_repl
from kstreams_repl.cli.checkout import find_checkout
from kstreams_repl.cli.lab import start_lab

FOLDER = "kstreams-tutorial"


def copy_tutorial(folder: Path) -> Path:
    """Write the tutorial into a folder unless it is there already, and return its path: the user's work is never overwritten."""
    root = find_checkout()
    source = Path(kstreams_repl.__file__).parent / "demo" if root is None else root / "notebooks"
    path = folder / "tutorial.ipynb"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("xb") as file:
            file.write((source / path.name).read_bytes())
        if not (settings := folder / "pytest.ini").exists():  # step 8: pytest would take the settings of a checkout above it
            settings.write_text("[pytest]\n", encoding="utf-8")
    except FileExistsError:
        click.echo(f"{os.path.relpath(path)} was there before, and is unchanged")
    return path


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("jupyter_arguments", nargs=-1, type=click.UNPROCESSED)
def main(jupyter_arguments: tuple[str, ...]) -> None:
    """Open the tutorial in JupyterLab: 45 minutes, nine steps, for people who know pandas and have never seen Kafka.

    It is copied to ./kstreams-tutorial, unless it is there. All other arguments go to JupyterLab: ./kstreams tutorial --no-browser
    """
    start_lab(jupyter_arguments, notebook=copy_tutorial(Path(FOLDER).absolute()))
