"""How long until a fork runs, and what it costs the application beside it.

An application counts records by key, as fast as it can, from a topic with each of `keys` keys once and `records` further records. When
every key has a row it is forked, the fork runs beside it, and is dropped. The application's records per second are measured before, while
the fork is made, while it runs, and after. With `--rate` another fork is promoted then, while a few records arrive.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from kstreams_repl import StreamsBuilder, serdes
from kstreams_repl.engine.config import EXACTLY_ONCE_V2
from kstreams_repl.host.kafka.clients import make_consumer, make_producer
from kstreams_repl.host.kafka.group_offsets import assign
from kstreams_repl.host.kafka.reading import READ_GROUP
from kstreams_repl.repl.session.application.application import Application
from kstreams_repl.system.types import TopicPartition
from workshop.bench.rig import json_output, workloads
from workshop.bench.rig.probe import await_running
from workshop.bench.rig.testbed import Testbed, open_testbed, where
from workshop.bench.rig.workloads import Topics

BENCH = "fork"
_STEP_SECONDS = 0.05
_READY_SECONDS = 120.0
_FEED_SECONDS = 0.1
_FEW_A_SECOND = 400


@click.command(help="Seconds until a fork runs, and records per second of the application before, beside and after it.")
@click.option("--records", type=click.IntRange(1000), default=10_000_000, show_default=True)
@click.option("--keys", type=click.IntRange(1), default=1_000_000, show_default=True)
@click.option("--instances", type=click.IntRange(1), default=1, show_default=True)
@click.option("--seconds", type=click.FloatRange(1), default=5.0, show_default=True, help="of each measurement")
@click.option(
    "--rate", type=click.IntRange(0), default=0, show_default=True, help="records/s that arrive meanwhile; 0: all are there"
)
@where
def main(
    records: int, keys: int, instances: int, seconds: float, rate: int, bootstrap: str | None, directory: Path | None
) -> None:
    """Print one line per case."""
    json_output.emit_machine()
    with open_testbed(bootstrap, directory) as testbed:
        first = int(time.time() * 1000) - records // 1000 - 1
        topics = Topics(f"bench-fork-{records}-{keys}", "", "bench-output")
        rows = itertools.chain(
            workloads.table_rows(keys, at_ms=first), workloads.stream_rows(0 if rate else records, keys, first_ms=first)
        )
        testbed.fill(topics.input, keys + (0 if rate else records), rows)
        testbed.fresh_topic(topics.output)
        config = {"processing.guarantee": EXACTLY_ONCE_V2, "num.stream.threads": instances}
        app = testbed.session.deploy(workloads.topology("count", topics), "bench-fork", config=config)
        facts = {"records": records, "keys": keys, "instances": instances}
        try:
            await_running(app)
            while _committed(testbed, app) < keys:
                time.sleep(_STEP_SECONDS)
            with _arriving(testbed, topics, keys, rate):
                _rate(testbed, app, seconds)  # warm
                before = _rate(testbed, app, seconds)
                began, offsets = time.monotonic(), _committed(testbed, app)
                fork = app.fork("beside", workloads.topology("count", topics))
                made = time.monotonic() - began
                while (time.monotonic() - began) < _READY_SECONDS and not _runs(fork.application):
                    time.sleep(_STEP_SECONDS)
                ready = time.monotonic() - began
                meanwhile = (_committed(testbed, app) - offsets) / ready
                beside = _rate(testbed, app, seconds)
                rows_there = fork.application.store("counts").count()
                began = time.monotonic()
                fork.drop()
                dropped = time.monotonic() - began
                after = _rate(testbed, app, seconds)
            if rate:
                gap, promoted = _promoted(testbed, app, topics)
                json_output.emit(BENCH, "promote", round(promoted, 2), "s", **facts)
                json_output.emit(BENCH, "promote, longest time without output", round(gap, 2), "s", **facts)
            under = f", {rate:,} records/s" if rate else ", full load"
            json_output.emit(BENCH, f"until the fork is started{under}", round(made, 2), "s", rows=rows_there, **facts)
            json_output.emit(BENCH, f"until the fork runs{under}", round(ready, 2), "s", **facts)
            json_output.emit(BENCH, f"drop{under}", round(dropped, 2), "s", **facts)
            named = {"before": before, "while it is made": meanwhile, "while it runs": beside, "after": after}
            for case, value in named.items():
                ratio = round(value / before, 3)
                json_output.emit(BENCH, f"the application, {case}{under}", round(value), "records/s", of_before=ratio, **facts)
        finally:
            app.stop()
            testbed.session.cleanup("bench-fork")


@contextmanager
def _arriving(testbed: Testbed, topics: Topics, keys: int, rate: int) -> Iterator[None]:
    """Let records arrive at a rate (a second) meanwhile; 0: none."""
    over = threading.Event()

    def feed() -> None:
        producer = make_producer(testbed.settings, linger_ms=5)
        due, number = time.monotonic(), 0
        while not over.wait(max(0.0, due - time.monotonic())):
            due, number = due + _FEED_SECONDS, number + 1
            count = max(1, round(rate * _FEED_SECONDS))
            for key, value, timestamp in workloads.stream_rows(count, keys, seed=number, first_ms=int(time.time() * 1000)):
                producer.produce(topics.input, value, key, -1, None, None, timestamp)
            producer.poll(0)
        producer.flush(10)
        producer.close()

    feeder = threading.Thread(target=feed)
    if rate:
        feeder.start()
    try:
        yield
    finally:
        over.set()
        if rate:
            feeder.join()


def _changed(topics: Topics) -> StreamsBuilder:
    """Count as the application does, with one more node."""
    builder = StreamsBuilder()
    stream = builder.stream(topics.input, key_serde=serdes.string, value_serde=serdes.string)
    counts = stream.group_by_key(key_serde=serdes.string, value_serde=serdes.string).count(store="counts")
    counts.to_stream().filter(lambda key, value: True).to(topics.output, key_serde=serdes.string, value_serde=serdes.long)
    return builder


def _promoted(testbed: Testbed, app: Application, topics: Topics) -> tuple[float, float]:
    """Promote a fork of another code while records arrive; return the longest time in which a plain reader of the output got nothing, and
    how long it took, in seconds."""
    assert app.wait(600)
    fork = app.fork("promoted", _changed(topics))
    over, arrivals = threading.Event(), [time.monotonic()]
    consumer = make_consumer(testbed.settings, group_id=READ_GROUP, isolation="read_committed")
    at = [TopicPartition(topics.output, number) for number in range(testbed.admin.partitions(topics.output))]
    assign(consumer, testbed.admin.end_offsets(at))

    def read() -> None:
        while not over.is_set():
            if [message for message in consumer.consume(500, 0.02) if message.error() is None]:
                arrivals.append(time.monotonic())

    reader = threading.Thread(target=read)
    reader.start()
    with _arriving(testbed, topics, 1000, _FEW_A_SECOND):
        while len(arrivals) < 20 or not _runs(fork.application):
            time.sleep(_STEP_SECONDS)
        first, began = len(arrivals), time.monotonic()
        fork.promote()
        took = time.monotonic() - began
        after = len(arrivals)
        while len(arrivals) < after + 5:
            time.sleep(_STEP_SECONDS)
    over.set()
    reader.join()
    consumer.close()
    return max(later - earlier for earlier, later in itertools.pairwise(arrivals[first - 1 :])), took


def _committed(testbed: Testbed, app: Application) -> int:
    return sum(found.offset for found in testbed.admin.committed_offsets(app.name, stable=False).values())


def _rate(testbed: Testbed, app: Application, seconds: float) -> float:
    began, offsets = time.monotonic(), _committed(testbed, app)
    time.sleep(seconds)
    return (_committed(testbed, app) - offsets) / (time.monotonic() - began)


def _runs(app: Application) -> bool:
    instances = app.reports.instances.values()
    return app.status == "running" and bool(instances) and all(instance.state == "running" for instance in instances)
