"""The demo's own job: a year of real departures, with every number checked.

Numbered, so that a resume after a crash can continue: 1. directory (fresh, or that of the interrupted run) · 2. broker · 3. input
topics, marked as complete when every record is on the broker · 4. deploy under exactly_once_v2, or continue from the committed
offsets · 5. wait until all records are processed and committed · 6. query the stores and the source files, and compare.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kstreams_repl.demo import data, topology
from kstreams_repl.demo.demo_directory import empty, refuse_running
from kstreams_repl.demo.questions import ask_application, ask_files, mismatches
from kstreams_repl.demo.screen import Screen
from kstreams_repl.system.errors import IllegalStateError
from kstreams_repl.system.types import JsonObject

if TYPE_CHECKING:
    from kstreams_repl import Application, Session

APPLICATION = "flights-demo"
_PRODUCED = "produced.json"
_SHOWN = {
    "airlines by mean departure delay": """
        SELECT value.airline AS airline, value.flights AS flights, round(value.mean_delay, 2) AS mean_delay_minutes
        FROM "airline-delays" ORDER BY mean_delay_minutes DESC""",
    "busiest days of an airport": """
        SELECT key AS origin, strftime(window_start, '%Y-%m-%d') AS day, value AS flights
        FROM "flights-per-day" ORDER BY flights DESC, day LIMIT 5""",
    "heaviest delays": """
        SELECT value.airline AS airline, key || ' ' || value.flight AS flight, value.origin || ' → ' || value.dest AS route,
               value.dep_delay AS minutes
        FROM "delayed-flights" ORDER BY minutes DESC LIMIT 5""",
}

Hold = Callable[["Application", JsonObject, str], None]
"""Called with application, verdict and instructions for queries once all is right and the demo continues; returns when it is to
end."""


class FlightsDemo:
    """Runs the steps 1 to 6 above in one directory."""

    def __init__(self, directory: Path, instances: int, show: Screen) -> None:
        self.directory = directory.expanduser().absolute()
        self.instances = instances
        self.show = show

    def run(self, *, resume: bool, hold: Hold | None = None) -> JsonObject:
        """Run the steps 1 to 6 of the module's docstring; returns the verdict, which `--json` prints.

        Args:
            hold: called when every number is right, with the application running again; None: the demo ends.
        """
        from kstreams_repl import connect

        started = time.monotonic()
        resumed = self._prepare(resume)
        files = data.source_files(self.directory / "files")
        config = {"num.stream.threads": self.instances}  # of the session: as many workers are started in advance
        with connect(directory=self.directory / "session", report=self.show.line, config=config) as session:
            session.start()
            self.show.line(f"broker {session.bootstrap_servers}" + (" (resumed)" if resumed else ""))
            total = self._produce(session, files)
            builder = topology.build()
            app = session.deploy(
                builder,
                APPLICATION,
                processing_guarantee="exactly_once_v2",
                commit_interval_ms=500,  # throughput matters here, not the latency of a record
            )
            records, seconds = self.show.progress(app, total)
            app.pause()
            answers = ask_application(lambda query: session.sql(query).fetchall())
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
            if hold is not None and not wrong:
                app.resume()
                hold(app, verdict, self._query_instructions(session))
            app.stop()
        if not wrong:
            shutil.rmtree(self.directory, ignore_errors=True)
        return verdict

    def _prepare(self, resume: bool) -> bool:
        """Step 1: prepare a fresh directory, unless an interrupted run is resumed."""
        refuse_running(self.directory)
        exists = (self.directory / "session").exists()
        if resume and not exists:
            raise IllegalStateError(
                f"there is no interrupted demo in {self.directory}", hint="./kstreams demo starts one", path=str(self.directory)
            )
        if exists and not resume:
            empty(self.directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        return resume

    def _produce(self, session: Session, files: dict[str, Path]) -> int:
        """Step 3. A run that died before the mark writes its input topics again, and discards everything derived from them."""
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

    def _query_instructions(self, session: Session) -> str:
        """Return instructions for queries from another process."""
        return f"""\
  import kstreams_repl as ks
  from kstreams_repl.demo import topology
  session = ks.connect("{session.bootstrap_servers}", directory="{self.directory / "session"}")
  session.sql('SELECT key, value.airline, value.dep_delay FROM "{topology.DELAYED_TOPIC}" LIMIT 5')
  app = session.attach("{APPLICATION}", topology.build())
  app.sql("{topology.AIRLINE_DELAYS}")"""

    def _show(self, session: Session, answers: JsonObject, wrong: list[str], records: int, seconds: float) -> None:
        for title, query in _SHOWN.items():
            result = session.sql(query)
            self.show.rows(title, result.columns, result.fetchall())
        checked = sum(len(rows) for rows in answers.values())
        rate = f", {records / seconds:,.0f} records/s" if seconds else ""
        self.show.line(f"{records:,} records in {seconds:.1f} s{rate}")
        self.show.line(
            f"checked {checked:,} rows against the source files: " + ("all equal" if not wrong else f"{len(wrong)} MISMATCHES")
        )
        for line in wrong[:10]:
            self.show.line(f"  {line}")


