"""`Session.run_batch` with asynchronous nodes, on a real broker and Spark: a run ends when no record waits for a call."""

from __future__ import annotations

import asyncio
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]
SETTINGS = {"processing_guarantee": "exactly_once_v2", "num_stream_threads": 2, "statestore_cache_max_bytes": 0}


async def never(word: str) -> str:
    await asyncio.sleep(3600)
    return word


async def soon(word: str) -> str:
    """Fail once for every fifth word."""
    await asyncio.sleep(0.02)
    if word.endswith(("0", "5")) and ks.current_call().attempt == 1:
        raise ConnectionError("refused")
    return word


def asking(name: str, function: Any) -> ks.StreamsBuilder:
    builder = ks.StreamsBuilder()
    words = builder.stream(f"{name}-in", key_serde="string", value_serde="string")
    asked = words.map_values_async(function, name="ask", in_flight=50, timeout="1h", on_error="retry", retry_backoff="300ms")
    asked.to(f"{name}-out", key_serde="string", value_serde="string")
    return builder


def test_a_run_ends_when_no_record_waits_and_makes_the_calls_that_a_stream_left(broker: Any, tmp_path: Path) -> None:
    name = f"calls-{uuid.uuid4().hex[:8]}"
    with ks.connect(broker.bootstrap_servers, directory=tmp_path) as session:
        session.topic_configs["retention.ms"] = "-1"
        for topic in ("in", "out"):
            session.create_topic(f"{name}-{topic}", partitions=2)

        def write(begin: int, end: int) -> None:
            session.produce(f"{name}-in", [(f"k{number % 7}", f"w{number}") for number in range(begin, end)])

        def results() -> list[str]:
            return sorted(record.value for record in session.read(f"{name}-out", n=None, value_serde="string"))

        write(0, 30)
        stream = session.deploy(asking(name, never), name, **SETTINGS)
        until = time.monotonic() + 180
        while "30 waiting for calls" not in repr(stream):
            assert time.monotonic() < until, repr(stream)
            assert not stream.wait(1), "its calls never end"
        stream.stop()
        assert results() == []

        first = session.run_batch(asking(name, soon), name, **SETTINGS).batch_report
        assert first is not None and (first.state, first.records_in) == ("finished", 0)
        assert results() == sorted(f"w{number}" for number in range(30)), "the calls that the stream left, and those tried again"

        again = session.run_batch(asking(name, soon), name, **SETTINGS).batch_report
        assert again is not None and again.state == "nothing new"

        write(30, 60)
        second = session.run_batch(asking(name, soon), name, **SETTINGS).batch_report
        assert second is not None and (second.state, second.records_in) == ("finished", 30)
        assert results() == sorted(f"w{number}" for number in range(60))
