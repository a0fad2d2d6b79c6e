"""Export a notebook as a package: the program of an application, a test made from a recording, and a `main` that deploys it.

``<folder>/app.py`` holds the topology (`topology()`) and deploys it when it is run; ``test_app.py`` replays ``recording.jsonl``
and compares with ``expected.json``, the topology's results for that recording at the time of the export: the test fails when its
behaviour changes.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.reading import ranges_of
from kstreams_repl.repl.session.session_file import SavedVersion
from kstreams_repl.repl.session.topics.record import in_order, read_records_of
from kstreams_repl.repl.session.views.values.sample_run import source_topics
from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.test_driver.recording import RecordedRecord, Recording, outputs_of

_APP = '''"""The application {name}, exported from version {number} of a notebook's.

    python app.py --broker HOST:PORT     deploys it, or goes on from where it was; Ctrl-C pauses it at a commit
    pytest                               replays recording.jsonl and compares with expected.json
"""

{future}
import argparse
import json

{body}

{NAME} = {name!r}
{CONFIG} = {config!r}


def topology():
    """What runs."""
    return __topology__


def {main}() -> None:
    parser = argparse.ArgumentParser(description="Deploys " + {NAME})
    parser.add_argument("--broker", help="host:port; without it an embedded Kafka")
    parser.add_argument("--spark", help="a Spark master; without it local Spark")
    parser.add_argument("--directory", help="where state is kept; default: .kstreams here")
    parser.add_argument("--config", action="append", default=[], metavar="KEY=VALUE", help="a setting; repeatable")
    parser.add_argument("--batch", action="store_true", help="run up to the present end of the input, and end (docs/tasks/batch.md)")
    parser.add_argument("--report", help="with --batch: write what it did to this file, as JSON")
    parser.add_argument("--stop-at", default="eol", help="with --batch: eol, a time, or records:N; default: the present end of the input")
    parser.add_argument(
        "--on-end", choices=("keep", "close_windows"), default="keep",
        help="with --batch: keep open windows for the next run (the default), or close and emit them",
    )
    parser.add_argument("--until-caught-up", action="store_true", help="end when everything on its topics is processed")
    given = parser.parse_args()
    if given.batch:
        from kstreams_repl.cli.run import batch_run

        place = {{"broker": given.broker, "spark": given.spark, "directory": given.directory}}
        ends = {{"stop_at": given.stop_at, "on_end": given.on_end}}
        raise SystemExit(batch_run(topology, {NAME}, given.config, given.report, defaults={CONFIG}, **ends, **place))
    settings = {{**{CONFIG}, **dict(item.split("=", 1) for item in given.config)}}
    with kstreams_repl.connect(given.broker, spark=given.spark, directory=given.directory) as session:
        app = session.deploy(topology(), {NAME}, config=settings)
        try:
            if given.until_caught_up:
                app.wait()
            else:
                app.wait(until=lambda app: False)
        except KeyboardInterrupt:
            pass
        app.pause()
        print(app)


if __name__ == "__main__":
    {main}()
'''

_TEST = '''"""What the topology makes of recorded input is what it made of it when it was exported."""

import json
from pathlib import Path

from kstreams_repl.testing import outputs_of, recording_fixture

from app import CONFIG, topology

HERE = Path(__file__).parent
recording = recording_fixture(HERE / "recording.jsonl")


def test_the_recording_gives_what_it_gave(recording):
    with recording.replay(topology(), CONFIG) as driver:
        assert outputs_of(driver) == json.loads((HERE / "expected.json").read_text())
'''

_README = """# {name}

- `python app.py --broker HOST:PORT` deploys the topology on local Spark (`--spark MASTER` elsewhere). Without `--broker` an embedded
  Kafka is started. Ctrl-C pauses it at a commit; the next start goes on from there.
- `python app.py --broker HOST:PORT --batch --report out.json` makes a bounded run: up to the present end of the input, then it ends.
- `pytest` replays `recording.jsonl` ({records:,} records of {topics}) and compares with `expected.json`.
"""


def export(
    admin: Admin, name: str, topology: Topology, version: SavedVersion, folder: str | os.PathLike[str], *, records: int
) -> Path:
    """Export an application, as `Application.export`.

    Args:
        version: as which the topology runs.
    """
    if version.missing:
        raise KStreamsError(
            f"{name} cannot be exported: its source text does not define {', '.join(version.missing)}",
            hint="what a cell gets by an effect (a connection, a file, a request) is not run again: define it as a plain value, or in a "
            "module that the cells import, and edit the application: app.edit(builder)",
            application=name,
        )
    if version.unsaved:
        raise KStreamsError(
            f"{name} cannot be exported: expected texts and numbers, got functions or objects for {', '.join(version.unsaved)}",
            hint="name serdes by their names, and set extractors and handlers in the topology",
            application=name,
        )
    recording = _recorded(admin, topology, records)
    place = Path(folder).expanduser()
    place.mkdir(parents=True, exist_ok=True)
    config = version.settings
    body = version.topology_program.text
    future, _, rest = body.partition("\n")
    if not future.startswith("from __future__"):
        future, rest = "", body
    with recording.replay(topology, config) as driver:
        expected = outputs_of(driver)
    own = {name: _free(name, rest) for name in ("NAME", "CONFIG", "main")}
    texts = {
        "app.py": _APP.format(name=name, number=version.number, future=future, body=rest.rstrip(), config=config, **own),
        "test_app.py": _TEST.replace("CONFIG", own["CONFIG"]),
        "README.md": _README.format(name=name, records=len(recording), topics=", ".join(recording.topics) or "no topic"),
        "requirements.txt": "kstreams-repl[spark]\npytest\n",
        "expected.json": json.dumps(expected, indent=1) + "\n",
    }
    for name, text in texts.items():
        (place / name).write_text(text, encoding="utf-8")
    recording.save(place / "recording.jsonl")
    return place


def _free(name: str, body: str) -> str:
    """Return a name that the program does not use; otherwise its functions would read ours."""
    used = set(re.findall(r"\w+", body))
    while name in used:
        name = f"APPLICATION_{name}"
    return name


def _recorded(admin: Admin, topology: Topology, records: int) -> Recording:
    """Return a recording of the first records of every source topic: the test begins with empty state."""
    known = admin.topics()
    topics = [topic for topic in source_topics(topology, known) if topic in known]
    taken: list[RecordedRecord] = []
    for topic in topics:
        share = max(1, records // max(known[topic], 1))
        ranges = [type(item)(item.partition, item.start, min(item.end, item.start + share)) for item in ranges_of(admin, topic)]
        taken += read_records_of(admin, ranges)
    return Recording(in_order(taken), {topic: known[topic] for topic in topics}, note=f"the first {records:,} of each topic, for a test")
