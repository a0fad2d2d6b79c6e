"""Asynchronous nodes on a real broker: takeovers without a commit, with calls in flight, lose and double nothing in topics and stores."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.instance import Instance
from kstreams_repl.host.instance.polling.poll_loop import PollLoop
from tests.faults.one_task import OneTask

pytestmark = pytest.mark.kafka
RECORDS, KEYS = 600, 20


async def asked(record: Any, context: Any) -> None:
    """Count the key in a store, wait, and forward both counts."""
    seen = context.store("seen")
    count = (await seen.get(record.key) or 0) + 1
    seen.put(record.key, count)
    await asyncio.sleep(0.005)
    context.forward(record.with_value(b"%d:%d" % (record.value, count)))


def counting(source: str, sink: str) -> Any:
    builder = ks.StreamsBuilder()
    builder.add_state_store(ks.StoreBuilder("seen", ks.StoreKind.KEY_VALUE, ks.serdes.bytes, ks.serdes.long))
    both: Any = {"key_serde": "bytes", "value_serde": "bytes"}
    numbered = builder.stream(source, **both).group_by_key().count(store="upstream").to_stream()
    numbered.process_async(
        asked, stores=["seen"], name="ask", in_flight=16, key_serde="bytes", value_serde="long"
    ).to(sink, **both)
    return builder.build()


def ending(instance: Instance, last: bool, now: float) -> Signal:
    """SUPERSEDED ends the loop without a commit, here with calls in flight and after some progress; at last every record has left."""
    [task] = instance.tasks
    if not task.calls_waiting and set(task.committed.values()) == {RECORDS}:
        return Signal.STOP
    if not last and instance.counters.commits >= 4 and instance.committer.touched and task.calls_waiting:
        return Signal.SUPERSEDED
    return Signal.RUN


@pytest.mark.slow
def test_take_overs_without_a_commit_with_calls_in_flight_lose_and_double_nothing(broker: Any, tmp_path: Path) -> None:
    one = OneTask(broker.bootstrap_servers, tmp_path, counting, **{"statestore.cache.max.bytes": 0, "commit.interval.ms": 20})
    for at in range(RECORDS // KEYS):
        one.write({b"k%d" % key: b"%d" % at for key in range(KEYS)})
    waited = 0
    for number in range(6):
        instance = one.open()
        loop = PollLoop(instance, signal=partial(ending, instance, number == 5), report=lambda instance: None)
        assert loop.run(time.monotonic() + 30) is not Signal.RUN, "it did not end in time"
        waited += sum(task.calls_waiting for task in instance.tasks)
        instance.close()
        if number % 2:
            one.wipe()  # the successor has the changelogs only
    assert waited > 0, "no take-over met a call in flight"
    rows: dict[bytes, list[bytes]] = {}
    for key, value in one.results():
        rows.setdefault(key or b"", []).append(value or b"")
    expected = [b"%d:%d" % (at, at) for at in range(1, RECORDS // KEYS + 1)]
    assert rows == {b"k%d" % key: expected for key in range(KEYS)}
