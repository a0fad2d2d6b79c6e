"""``./kstreams compact PATH``: rewrite the small data files of a table that `to_table_files` writes."""

from __future__ import annotations

import click

from kstreams_repl.system.errors import KStreamsError


@click.command()
@click.argument("path")
@click.option("--target-mb", type=click.IntRange(1), default=128, show_default=True, help="Size of the new files, at most.")
@click.option("--table", help="Iceberg: the table's identifier in its catalog.")
@click.option("--catalog", "catalog", multiple=True, metavar="NAME=VALUE", help="Iceberg: a property of the catalog; repeatable.")
def main(path: str, target_mb: int, table: str | None, catalog: tuple[str, ...]) -> None:
    """Rewrite data files of the table at PATH that are smaller than half of the target size, in one commit of the table.

    Applications may write to the table meanwhile. Delta and Iceberg keep the old files for older versions until their own
    maintenance removes them.
    """
    from kstreams_repl.table_files.compaction import compact

    if lacking := [entry for entry in catalog if "=" not in entry]:
        raise click.BadParameter(f"expected NAME=VALUE, got {lacking[0]!r}", param_hint="--catalog")
    properties = dict((entry.split("=", 1)[0], entry.split("=", 1)[1]) for entry in catalog) or None
    try:
        done = compact(path, target_file_bytes=target_mb * 1024 * 1024, table=table, catalog=properties)
    except KStreamsError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{path}: {done.removed:,} files became {done.added:,}")
