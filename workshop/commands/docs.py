"""``./kstreams docs``: build the documentation as a site, and its generated pictures."""

from __future__ import annotations

import os
import sys

import click

from kstreams_repl.cli.checkout import require_checkout
from kstreams_repl.system.extras import require
from workshop.commands.test import run_to_its_end


@click.command()
@click.option("--pictures", is_flag=True, help="Draw the pictures of packages and of the pages' topologies from the current code.")
@click.option("--try-it", is_flag=True, help="Add the recipes as notebooks that run in a browser tab, with a link on each page.")
@click.pass_context
def main(context: click.Context, pictures: bool, try_it: bool) -> None:
    """Build the documentation into build/docs; fails on a dead link or a page without a menu entry."""
    root = require_checkout("./kstreams docs")
    require("mkdocs", "mkdocstrings", "grimp")
    if pictures:
        from workshop.commands import package_pictures, topology_pictures

        for path, picture in (package_pictures.pictures() | topology_pictures.pictures()).items():
            path.write_text(picture, encoding="utf-8")
            click.echo(f"drawn: {path.relative_to(root)}")
        return
    os.environ |= {"NO_MKDOCS_2_WARNING": "1", "KSTREAMS_TRY_IT": str(try_it)}
    status = run_to_its_end([sys.executable, "-P", "-m", "mkdocs", "build", "--strict"], root)
    if status == 0:
        click.echo(f"built: {root / 'build/docs/index.html'}")
    context.exit(status)
