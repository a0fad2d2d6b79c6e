"""Interactive queries over one store of many keys: what a read costs a program on the same host, and by HTTP (`queries_http`).

Local: the store's files are those of two tasks; nothing else runs. The clock is around each get, and around whole scans and batches.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from kstreams_repl import serdes
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.dsl.builder import StreamsBuilder
from kstreams_repl.engine.partitioning import partition_for_key
from kstreams_repl.host.instance.state.environment_attributes import INPUT
from kstreams_repl.host.instance.state.state_directory import task_directory
from kstreams_repl.serving.local.local_stores import LocalStores
from kstreams_repl.serving.local.queryable_state import QueryableState
from kstreams_repl.serving.local.store_types import QueryableStoreTypes
from kstreams_repl.serving.queries.query_types import KeyQuery
from kstreams_repl.serving.queries.state_query import StateQueryRequest
from kstreams_repl.system.types import TaskId
from workshop.bench import queries_http
from workshop.bench.peers.kafka_streams import chosen_jdk, peer_option
from workshop.bench.peers.kafka_streams_queries import QueriesPeer
from workshop.bench.queries_http import AT_ONCE, key_of
from workshop.bench.rig import json_output
from workshop.bench.rig.testbed import open_testbed, where

BENCH = "queries"
PARTITIONS = 2
_STORE, _APPLICATION = "counts", "bench-queries"
_BATCH = 50_000


@click.command(help="Queries of state: gets, scans and multi-gets on the same host and by HTTP; a subscription; what processing loses.")
@click.option("--keys", type=click.IntRange(1_000), default=1_000_000, show_default=True, help="Keys in the store.")
@click.option("--gets", type=click.IntRange(100), default=100_000, show_default=True, help="Single local gets, of random keys.")
@click.option("--seconds", type=click.FloatRange(0.5), default=10.0, show_default=True, help="Of each load by HTTP.")
@click.option("--records", type=click.IntRange(1_000), default=2_000_000, show_default=True, help="Processed with and without queries.")
@click.option("--runs", type=click.IntRange(1), default=3, show_default=True, help="Of processing, with and without queries each.")
@click.option("--only", type=click.Choice(["local", "http", "subscription", "processing"]), help="Only this part; default: all.")
@peer_option
@where
def main(
    keys: int,
    gets: int,
    seconds: float,
    records: int,
    runs: int,
    only: str | None,
    peer: str | None,
    bootstrap: str | None,
    directory: Path | None,
) -> None:
    """Print one line for each kind of read."""
    json_output.emit_machine()
    if only in (None, "local"):
        with filled_state(keys) as state:
            for metric, value, unit in local_figures(state, keys, gets):
                json_output.emit(BENCH, metric, value, unit, keys=keys)
    if only == "local":
        return

    def emit(case: str, value: float, unit: str, **fields: object) -> None:
        json_output.emit(BENCH, case, value, unit, keys=keys, **fields)

    jdk = chosen_jdk(peer)
    with open_testbed(bootstrap, directory) as testbed:
        topics = queries_http.topics_of(testbed, keys)
        if jdk is not None:  # before ours: the topic grows below
            with QueriesPeer(jdk, scratch=testbed.scratch) as compiled:
                queries_http.emit_peer(emit, testbed, compiled, topics, keys, seconds)
        with queries_http.served(testbed, topics, keys) as (app, server):
            token = json.loads(Path(server.token_path).read_text(encoding="utf-8"))["look"]
            loads = queries_http.requests_of(server.host_info.port, token, keys)
            if only in (None, "http"):
                queries_http.emit_loads(emit, server.host_info.port, server._record.pid, *loads, seconds)
            if only in (None, "subscription"):
                queries_http.emit_subscription(emit, testbed, app, server, topics.input, seconds)
            if only in (None, "processing"):
                queries_http.emit_slowdown(emit, testbed, app, server, topics.input, records, loads[0], runs)
        testbed.admin.delete_topics([topics.input, topics.output])  # it has more records now than a later run expects


@contextmanager
def filled_state(keys: int) -> Iterator[QueryableState]:
    """Yield the state of an application with a count of so many keys in two tasks."""
    with tempfile.TemporaryDirectory(prefix="kstreams-queries-") as root:
        builder = StreamsBuilder()
        builder.stream("in", key_serde="string", value_serde="string").group_by_key().count(store=_STORE)
        config = StreamsConfig({"application.id": _APPLICATION, "bootstrap.servers": "127.0.0.1:1", "state.dir": root})
        topology = builder.build()
        for partition in range(PARTITIONS):
            _fill(task_directory(Path(root), _APPLICATION, TaskId(0, partition)), partition, keys)
        with LocalStores(topology, config) as local:
            yield QueryableState(local)


def _fill(path: Path, partition: int, keys: int) -> None:
    from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment

    environment, count = LmdbEnvironment(path), serdes.resolve("long").serialize
    engine = environment.engine(_STORE)
    for first in range(0, keys, _BATCH):
        rows = {key_of(number).encode(): bytes(8) + (count(number) or b"") for number in range(first, min(keys, first + _BATCH))}
        own = {key: row for key, row in rows.items() if partition_for_key(key, PARTITIONS) == partition}
        engine.put_many(list(own), list(own.values()))
        environment.commit({f"{INPUT}in-{partition}": first + len(rows)}, first)
    environment.close()


def local_figures(state: QueryableState, keys: int, gets: int) -> Iterator[tuple[str, float, str]]:
    """Iterate over (metric, value, unit) of the reads of a local program."""
    chosen = [key_of(number) for number in random.Random(1).choices(range(keys), k=gets)]
    store = state.store(_STORE, QueryableStoreTypes.key_value_store())
    nanoseconds = sorted(_timed(store.get, key) for key in chosen)
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        yield f"local get {name}", round(nanoseconds[int(len(nanoseconds) * share)] / 1000, 2), "us"
    request = StateQueryRequest.in_store(_STORE).with_partitions([0])
    some = [request.with_query(KeyQuery.with_key(key)) for key in chosen[: gets // 10]]
    nanoseconds = sorted(_timed(state.query, one) for one in some)
    yield "local KeyQuery p50", round(nanoseconds[len(nanoseconds) // 2] / 1000, 2), "us"
    yield "range scan", round(keys / (_timed(lambda: deque(store.all(), 0)) / 1e9)), "rows/s"
    batches = [chosen[first : first + AT_ONCE] for first in range(0, len(chosen), AT_ONCE)]
    seconds = _timed(lambda: [store.get_many(batch) for batch in batches]) / 1e9
    yield f"multi-get of {AT_ONCE}", round(len(chosen) / seconds), "keys/s"


def _timed(work: Callable[..., object], *arguments: object) -> int:
    """Return the nanoseconds of a call."""
    begun = time.perf_counter_ns()
    work(*arguments)
    return time.perf_counter_ns() - begun
