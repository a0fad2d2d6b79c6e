"""How long a notebook's user waits: an edit until a record has passed the new code, pause, resume, the values of an undeployed
topology, a query over a large store, one update of a large picture. One application with a store of many keys is used for all but
the last.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from kstreams_repl import StreamsBuilder
from kstreams_repl.engine.config import EXACTLY_ONCE_V2
from kstreams_repl.pictures.graph.arrange import Room, room_for
from kstreams_repl.pictures.graph.svg import marked_rows, svg_of
from kstreams_repl.pictures.graph.view import simplified
from workshop.bench.rig import json_output
from workshop.bench.rig.probe import Probe, await_running, check_of, edited, warm_up
from workshop.bench.rig.testbed import Testbed, give_up, open_testbed, produce, where
from workshop.bench.rig.workloads import Row

BENCH = "notebook"
PICTURE = "picture update"
CASES = ("edit to first record", "pause", "resume to first record", "values undeployed", "sql over a store")
"""Repetitions of each case except the picture."""
_SETTLED_SECONDS = 1.0


@click.command(help="Seconds: edit to first record, pause, resume, values, SQL over a large store, update of a large picture; medians.")
@click.option("--keys", type=click.IntRange(1), default=1_000_000, show_default=True, help="Rows of the store.")
@click.option("--nodes", type=click.IntRange(3), default=200, show_default=True, help="Nodes of the picture.")
@click.option("--runs", type=click.IntRange(1), default=5, show_default=True)
@click.option("--instances", type=click.IntRange(1), default=2, show_default=True)
@click.option("--max-seconds", type=click.IntRange(1), default=300, show_default=True, help="Seconds allowed to fill the store.")
@where
def main(
    keys: int, nodes: int, runs: int, instances: int, max_seconds: int, bootstrap: str | None, directory: Path | None
) -> None:
    """Print one line per case, with its target."""
    json_output.emit_machine()
    with open_testbed(bootstrap, directory) as testbed:
        warm_up(testbed, instances=instances)
        config = {"processing.guarantee": EXACTLY_ONCE_V2, "num.stream.threads": instances}
        for case, values in _life(testbed, keys, runs, config, max_seconds).items():
            _emit(case, values, keys=keys, instances=instances)
        _emit(PICTURE, _picture(testbed, nodes, max(runs, 20), config), nodes=nodes)


def _emit(case: str, values: list[float], **fields: object) -> None:
    json_output.emit(BENCH, case, json_output.median(values, digits=4), "s", **json_output.spread(values, digits=4), **fields)


def _topology(source: str, sink: str, sign: int) -> StreamsBuilder:
    """Return a topology that counts every key and writes values to the sink, with a sign that shows which code they passed."""
    builder = StreamsBuilder()
    stream = builder.stream(source, key_serde="bytes", value_serde="bytes", name="in")
    stream.group_by_key().count(store="counts", name="counted")
    probes = stream.filter(lambda key, value: value != b"0", name="probes")
    probes.map_values(lambda value: b"%d" % (int(value) * sign), name="edited").to(sink, key_serde="bytes", value_serde="bytes")
    return builder


def _life(testbed: Testbed, keys: int, runs: int, config: dict[str, Any], max_seconds: int) -> dict[str, list[float]]:
    source, sink = testbed.fresh_topic("bench-notebook-in"), testbed.fresh_topic("bench-notebook-out")
    click.echo(f"producing {keys:,} keys ...", err=True)
    produce(testbed.settings, source, _rows(keys))
    taken: dict[str, list[float]] = {case: [] for case in CASES}
    for _ in range(runs):
        undeployed = _topology(source, sink, 1)
        taken["values undeployed"].append(_timed(lambda: testbed.session.values("counted", topology=undeployed.build())))  # noqa: B023
    app = testbed.session.deploy(_topology(source, sink, 1), "bench-notebook", config=config)
    try:
        if not app.wait(max_seconds):
            raise give_up(f"a store of {keys:,} keys", max_seconds)
        for _ in range(runs):
            taken["sql over a store"].append(
                _timed(lambda: testbed.session.sql("SELECT count(*), sum(value), max(value) FROM counts").fetchall())
            )
        with Probe(testbed.settings, source, sink) as probe:
            for number in range(runs):
                time.sleep(_SETTLED_SECONDS)
                taken["pause"].append(_timed(app.pause))
                taken["resume to first record"].append(_timed(lambda: _resume(probe, app)))
                await_running(app)
                time.sleep(_SETTLED_SECONDS)
                sign = -1 if number % 2 == 0 else 1
                changed = _topology(source, sink, sign)
                taken["edit to first record"].append(edited(probe, app, changed, is_new=lambda arrival: arrival.sent * sign > 0))  # noqa: B023
        rows = testbed.session.sql("SELECT count(*) FROM counts WHERE starts_with(CAST(key AS VARCHAR), 'key-')").fetchall()[0][0]
        assert rows == keys, f"the store has {rows:,} rows, not {keys:,}"
    finally:
        app.stop()
        testbed.session.cleanup("bench-notebook")
    testbed.admin.delete_topics([source, sink])
    return taken


def _rows(keys: int) -> Iterator[Row]:
    now = int(time.time() * 1000)
    for number in range(keys):
        yield b"key-%07d" % number, b"0", now


def _resume(probe: Probe, app: Any) -> None:
    probe.send()
    wanted = probe.sent
    app.resume()
    probe.await_arrivals(wanted, check_of(app))


def _picture(testbed: Testbed, nodes: int, runs: int, config: dict[str, Any]) -> list[float]:
    """Measure one update of a running application's picture as the panel makes it: all marks, and the drawing if it changed."""
    source, sink = testbed.fresh_topic("bench-notebook-in"), testbed.fresh_topic("bench-notebook-out")
    builder = StreamsBuilder()
    stream = builder.stream(source, key_serde="bytes", value_serde="bytes")
    for number in range(nodes - 2):
        stream = stream.map_values(lambda value: value, name=f"node-{number}")
    stream.to(sink, key_serde="bytes", value_serde="bytes")
    app = testbed.session.deploy(builder, "bench-picture", config={**config, "metrics.recording.level": "DEBUG"})
    taken: list[float] = []
    try:
        await_running(app)
        with Probe(testbed.settings, source, sink) as probe:
            room: Room = {}
            drawn: Any = None
            for _ in range(runs):
                probe.send()
                probe.await_arrivals(probe.sent, check_of(app))

                def update() -> None:
                    nonlocal room, drawn
                    picture = simplified(replace(app.picture(), title=app.name))
                    room = room_for(picture, room)
                    shape = (picture.shapes, picture.links, picture.clusters, tuple(sorted(room.items())))
                    if shape != drawn:
                        drawn = shape
                        svg_of(picture, room=room)
                    for known in picture.shapes:
                        if (mark := picture.marks.get(known.id)) is not None:
                            marked_rows(mark, known, room, general=picture.common_state)

                taken.append(_timed(update))
    finally:
        app.stop()
        testbed.session.cleanup("bench-picture")
        testbed.admin.delete_topics([source, sink])
    return taken


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
