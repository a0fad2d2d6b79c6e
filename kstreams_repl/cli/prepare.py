"""``./kstreams prepare``: download the broker's jars and write the class archives with which both JVMs start faster."""

from __future__ import annotations

import os
import tempfile

import click

from kstreams_repl.system.class_archives import MAKE_VARIABLE, archive_directory, forget_old_archives


@click.command()
def main() -> None:
    """Speed up the first result: download the broker's jars, and write class archives for the JVMs of Kafka and Spark.

    Runs a small application once, for half a minute. Repeat it when Java, Spark or the broker changes. It is optional: without it
    everything works, but starts more slowly.
    """
    archive_directory().mkdir(parents=True, exist_ok=True, mode=0o700)
    os.environ[MAKE_VARIABLE] = "1"
    try:
        _run_an_application()
    finally:
        del os.environ[MAKE_VARIABLE]
    forget_old_archives()
    for path in sorted(archive_directory().glob("*.jsa")):
        click.echo(f"{path} ({path.stat().st_size / 1e6:,.0f} MB)")


def _run_an_application() -> None:
    import kstreams_repl as ks

    with tempfile.TemporaryDirectory(prefix="kstreams-prepare-") as directory, ks.connect(directory=directory, prestart=False) as session:
        session.produce("words", ["to be or not to be"] * 100)
        builder = ks.StreamsBuilder()
        words = builder.stream("words", value_serde=ks.serdes.string).flat_map_values(str.split)
        counts = words.group_by(lambda key, word: word, key_serde=ks.serdes.string, value_serde=ks.serdes.string).count(store="counts")
        counts.to_stream().map_values(str).to("counted", value_serde=ks.serdes.string)
        session.create_topic("counted")
        app = session.deploy(builder, "prepare", processing_guarantee="exactly_once_v2")
        app.wait(120)
        app.pause()
        app.resume()
        app.stop()
