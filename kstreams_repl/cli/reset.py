"""``./kstreams reset APP``: Kafka Streams' application reset tool. What changes is listed first; nothing may be running."""

from __future__ import annotations

from dataclasses import replace

import click


@click.command()
@click.argument("application")
@click.option("--broker", required=True, help="host:port.")
@click.option("--directory", help="Where its state is kept; default: .kstreams here.")
@click.option("--input-topics", help="Comma separated; default: all that it has offsets of.")
@click.option("--to-earliest", is_flag=True, help="Begin at the first record (the default).")
@click.option("--to-latest", is_flag=True, help="Begin at the present end.")
@click.option("--to-datetime", help="Begin at the first record of this time or later: ISO text, UTC if it has no zone.")
@click.option("--to-offset", type=int, help="Begin at this offset in each partition.")
@click.option("--shift-by", type=int, help="Move each offset by so many, forward or (negative) back.")
@click.option("--delete-stopoffsets", is_flag=True, help="Drop the stop offsets of an open bounded run; alone it changes nothing else.")
@click.option("--dry-run", is_flag=True, help="Only list what would change.")
def main(
    application: str,
    broker: str,
    directory: str | None,
    input_topics: str | None,
    to_earliest: bool,
    to_latest: bool,
    to_datetime: str | None,
    to_offset: int | None,
    shift_by: int | None,
    delete_stopoffsets: bool,
    dry_run: bool,
) -> None:
    """Let APPLICATION begin again, with empty state: delete its repartition and changelog topics and local state, set its offsets."""
    from kstreams_repl import connect

    places: dict[str, object] = {
        "--to-earliest": "earliest" if to_earliest else None,
        "--to-latest": "latest" if to_latest else None,
        "--to-datetime": to_datetime,
        "--to-offset": to_offset,
    }
    given = {option: value for option, value in places.items() if value is not None}
    if len(given) + (shift_by is not None) > 1:
        several = [*given, *(["--shift-by"] if shift_by is not None else [])]
        raise click.UsageError(f"expected one place to begin at, got {', '.join(several)}")
    with connect(broker, directory=directory, prestart=False) as session:
        found = session.reset(
            application,
            input_topics=None if input_topics is None else [topic.strip() for topic in input_topics.split(",")],
            to=next(iter(given.values()), None),
            shift_by=shift_by,
            delete_stop_offsets=delete_stopoffsets,
            dry_run=True,
        )
        shown = found.table()
        if found:  # its note names the call of a session
            shown = replace(shown, note="nothing is changed; the command without --dry-run does this" if dry_run else "")
        click.echo(shown.text())
        if not dry_run and found:
            found.apply()
            click.echo(f"{application} is reset")
