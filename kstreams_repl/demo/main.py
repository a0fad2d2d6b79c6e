"""`./kstreams demo`: the main job end to end, which checks itself.

Numbered, so that a resume after any crash finds its place: 1. directory (fresh, or the one of the interrupted run) · 2. broker ·
3. input topics, marked as complete when every record is on the broker · 4. deploy under exactly_once_v2, or go on from what was
committed · 5. wait until all is processed and committed · 6. ask the stores, ask the source files, compare.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from kstreams_repl.demo import data, topology
from kstreams_repl.demo.questions import ask_application, ask_files, mismatches
from kstreams_repl.errors import KStreamsError

APPLICATION = "flights-demo"
_PRODUCED = "produced.json"
_NEAR = 100
"""From this lag on the broker is asked what is left."""
_SHOWN = {
    "airlines by mean departure delay": """
        SELECT value.airline AS airline, value.flights AS flights, round(value.mean_delay, 2) AS mean_delay_minutes
        FROM "airline-delays" ORDER BY mean_delay_minutes DESC""",
    "busiest days per origin": """
        SELECT key AS origin, strftime(window_start, '%Y-%m-%d') AS day, value AS flights
        FROM "flights-per-day" ORDER BY flights DESC, day LIMIT 5""",
    "heaviest delays": """
        SELECT value.airline AS airline, key || ' ' || value.flight AS flight, value.origin || ' → ' || value.dest AS route,
               value.dep_delay AS minutes
        FROM "delayed-flights" ORDER BY minutes DESC LIMIT 5""",
}


@click.command(help="The main job: a year of real departures through a topology on Spark and Kafka, checked number by number.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON line instead of tables.")
@click.option("--keep", is_flag=True, help="Leave broker and application running until Ctrl-C.")
@click.option("--resume", is_flag=True, help="Go on with a run that was interrupted.")
@click.option("--instances", default=2, show_default=True, help="num.stream.threads: Spark Python workers.")
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    default=Path(".kstreams/demo"),
    show_default=True,
    help="Broker data and state.",
)
@click.option("--input", "file", type=click.Path(path_type=Path), help="Your own CSV or JSON-lines file instead of the flights.")
@click.option("--topic", help="With --input: the topic its rows go to.")
@click.option("--key", help="With --input: the column that becomes the key (and is counted by).")
def main(
    as_json: bool,
    keep: bool,
    resume: bool,
    instances: int,
    directory: Path,
    file: Path | None,
    topic: str | None,
    key: str | None,
) -> None:
    """Exit status 1 when a number is wrong."""
    if (file is None) != (topic is None):
        raise click.UsageError("--input and --topic go together: --input FILE --topic NAME")
    show = _Screen(quiet=as_json)
    if file is not None and topic is not None:
        from kstreams_repl.demo.own_input import run

        verdict = run(file, topic, key, directory=directory / "own", instances=instances, show=show, keep=keep)
    else:
        verdict = _Demo(directory, instances, show).run(resume=resume, keep=keep)
    if as_json:
        click.echo(json.dumps(verdict))
    if not verdict["ok"]:
        raise SystemExit(1)


class _Screen:
    """Progress and tables for a person; nothing when quiet."""

    def __init__(self, *, quiet: bool) -> None:
        from rich.console import Console

        self.console = Console(quiet=quiet, highlight=False)

    def line(self, text: str) -> None:
        self.console.print(text, markup=False)

    def rows(self, title: str, columns: Iterable[str], rows: Iterable[tuple[Any, ...]]) -> None:
        from rich.table import Table
        from rich.text import Text

        table = Table(title=title, title_justify="left")
        for column in columns:
            table.add_column(Text(column))
        for row in rows:
            table.add_row(*(Text(str(cell)) for cell in row))
        self.console.print(table)

    def progress(self, app: Any, total: int) -> tuple[int, float]:
        """Follow the application until nothing remains; records of the input and the seconds from first record to last commit."""
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
        )
        began: float | None = None
        with Progress(*columns, console=self.console, transient=True) as bar:
            followed = bar.add_task("processing", total=total, rate="")
            while True:
                told = app.reports
                now = time.monotonic()
                if began is None and told.records:
                    began = now
                bar.update(followed, completed=min(total, told.records), rate=f"{told.rate:,.0f} records/s" if told.rate else "")
                # the reports are a cheap look at a file; only the broker knows that nothing is left
                if app.wait(0, until=lambda app, lag=told.lag: lag <= _NEAR and app.remaining() == 0):
                    return total, time.monotonic() - (began or now)
                time.sleep(0.05 if told.lag >= 0 else 0.25)


class _Demo:
    def __init__(self, directory: Path, instances: int, show: _Screen) -> None:
        self.directory = directory.expanduser().absolute()
        self.instances = instances
        self.show = show

    def run(self, *, resume: bool, keep: bool) -> dict[str, Any]:
        """The steps 1 to 6 of the module's docstring; the verdict is what `--json` prints."""
        from kstreams_repl import connect

        started = time.monotonic()
        resumed = self._prepare(resume)
        files = data.source_files(self.directory / "files")
        with connect(directory=self.directory / "session", report=self.show.line) as session:
            session.start()
            self.show.line(f"broker {session.bootstrap_servers}" + (" (resumed)" if resumed else ""))
            total = self._produce(session, files)
            builder = topology.build()
            app = session.deploy(
                builder,
                APPLICATION,
                processing_guarantee="exactly_once_v2",
                num_stream_threads=self.instances,
                commit_interval_ms=100,
            )
            records, seconds = self.show.progress(app, total)
            app.pause()
            answers = ask_application(lambda query: session.sql(query, records=None, rows=None).fetchall())
            wrong = mismatches(answers, ask_files(files))
            self._show(session, answers, wrong, records, seconds)
            verdict = {
                "ok": not wrong,
                "records": records,
                "mismatches": len(wrong),
                "seconds": round(time.monotonic() - started, 2),
                "streaming_seconds": round(seconds, 2),
                "records_per_second": round(records / seconds) if seconds else None,
                "resumed": resumed,
            }
            if keep:
                app.resume()
                _keep_running(session, self.directory, self.show)
            app.stop()
        if not wrong and not keep:
            shutil.rmtree(self.directory, ignore_errors=True)
        return verdict

    def _prepare(self, resume: bool) -> bool:
        """Step 1: a fresh directory unless an interrupted run is to go on."""
        exists = (self.directory / "session").exists()
        if resume and not exists:
            raise KStreamsError(
                f"there is no interrupted demo in {self.directory}", hint="./kstreams demo starts one", path=str(self.directory)
            )
        if exists and not resume:
            _refuse_running(self.directory / "session" / "broker")
            shutil.rmtree(self.directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        return resume

    def _produce(self, session: Any, files: dict[str, Path]) -> int:
        """Step 3. A run that died before the mark starts its input topics anew, and with them everything that was made of them."""
        from kstreams_repl import serdes

        mark = self.directory / _PRODUCED
        if mark.exists():
            return int(json.loads(mark.read_text())["flights"])
        self.show.line("producing 336,776 departures in event-time order ...")
        existing = set(session.admin.topics())
        session.admin.delete_topics([name for name in (data.AIRLINES_TOPIC, data.FLIGHTS_TOPIC) if name in existing])
        for name in (data.AIRLINES_TOPIC, data.FLIGHTS_TOPIC, topology.DELAYED_TOPIC):
            session.create_topic(name, partitions=data.PARTITIONS)
        raw = {"key_serde": serdes.bytes, "value_serde": serdes.bytes}
        session.produce(data.AIRLINES_TOPIC, data.airlines(files), **raw)
        count = int(session.produce(data.FLIGHTS_TOPIC, data.flights(files), **raw))
        partial = mark.with_suffix(".part")
        partial.write_text(json.dumps({"flights": count}))
        partial.rename(mark)
        return count

    def _show(self, session: Any, answers: dict[str, Any], wrong: list[str], records: int, seconds: float) -> None:
        for title, query in _SHOWN.items():
            result = session.sql(query, records=None, rows=None)
            self.show.rows(title, result.columns, result.fetchall())
        checked = sum(len(rows) for rows in answers.values())
        rate = f", {records / seconds:,.0f} records/s" if seconds else ""
        self.show.line(f"{records:,} records in {seconds:.1f} s{rate}")
        self.show.line(
            f"checked {checked:,} rows against the source files: " + ("all equal" if not wrong else f"{len(wrong)} MISMATCHES")
        )
        for line in wrong[:10]:
            self.show.line(f"  {line}")


def _refuse_running(broker: Path) -> None:
    """A demo that still runs in this directory must not lose its data."""
    from kstreams_repl.errors import EmbeddedBrokerError
    from kstreams_repl.kafka.embedded import EmbeddedBroker

    try:
        running = EmbeddedBroker.attach(broker)
    except KStreamsError:
        return
    raise EmbeddedBrokerError(
        f"another demo runs in {broker.parent} (broker {running.bootstrap_servers})",
        hint="wait for it, end it, or choose another --directory",
        path=str(broker),
    )


def _keep_running(session: Any, directory: Path, show: _Screen) -> None:
    """Stay in the foreground; look at everything from another process meanwhile."""
    show.line(
        f"""running until Ctrl-C; look at it from a notebook or ./kstreams repl:
  import kstreams_repl as ks
  from kstreams_repl.demo import topology
  session = ks.connect("{session.bootstrap_servers}", directory="{directory / "session"}")
  session.read("{topology.DELAYED_TOPIC}", n=5)
  app = session.attach("{APPLICATION}", topology.build()); app.sql("{topology.AIRLINE_DELAYS}")"""
    )
    try:
        while True:
            time.sleep(0.5)
    except KeyboardInterrupt:
        show.line("stopping ...")
