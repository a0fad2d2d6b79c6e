"""`Session.run_batch` on a real broker and Spark: runs that add up, beside a stream, and the change to a stream and back."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.system.errors import ApplicationFailedError, TopologyError

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]
TEXT = {"key_serde": "string", "value_serde": "string"}


def counting(source: str, sink: str, store: str = "letters") -> ks.StreamsBuilder:
    builder = ks.StreamsBuilder()
    by_letter = builder.stream(source, **TEXT).group_by(lambda key, word: word[0], **TEXT)
    by_letter.count(store=store).to_stream().to(sink, key_serde="string", value_serde="long")
    return builder


@pytest.mark.slow  # tests/faults/test_r19_bounded_runs.py has the fast ones
def test_runs_add_up_to_one_beside_a_stream_and_become_one(broker: Any, tmp_path: Path) -> None:
    told: list[str] = []
    words = [f"{letter}{number}" for number in range(200) for letter in "abc"]
    with ks.connect(broker.bootstrap_servers, directory=tmp_path, report=told.append) as session:
        name = f"r{tmp_path.name[-6:]}{id(told) % 10_000}"
        source, sink, other = f"{name}-in", f"{name}-out", f"{name}-other"
        for topic in (sink, other):
            session.create_topic(topic, partitions=2)
        session.create_topic(source, partitions=3)
        session.produce(source, [(word, word) for word in words[:300]])
        stream = session.deploy(counting(source, other), f"{name}-stream", processing_guarantee="exactly_once_v2")
        settings = {"processing_guarantee": "exactly_once_v2", "num_stream_threads": 2, "statestore_cache_max_bytes": 0}

        first = session.run_batch(counting(source, sink), name, **settings)
        report = first.batch_report
        assert report is not None and first.status == "stopped" and not report.is_empty
        assert (report.run, report.state, report.records_in, report.records_out, report.dropped) == (1, "finished", 300, 300, {})
        assert sum(part.end - part.start for part in report.partitions) == 300 and stream.status == "running"
        assert "300 records in" in repr(report) and report.table().rows

        again = session.run_batch(counting(source, sink), name, **settings).batch_report
        assert again is not None and again.state == "nothing new" and again.is_empty and again.run == 1 and again.seconds < 3

        session.produce(source, [(word, word) for word in words[300:]])
        second = session.run_batch(counting(source, sink), name, stop_at="records:20", **settings).batch_report
        assert second is not None and (second.run, second.records_in) == (2, 60)
        third = session.run_batch(counting(source, sink), name, **settings).batch_report
        assert third is not None and (third.run, third.records_in) == (3, 240)
        wanted = Counter(word[0] for word in words)
        rows = session.sql(f'SELECT key, max(value), count(*) FROM "{sink}" GROUP BY key').fetchall()
        assert {key: (most, count) for key, most, count in rows} == {letter: (count, count) for letter, count in wanted.items()}

        assert stream.wait(60) and stream.status == "running", "the other application went on"
        streaming = session.deploy(counting(source, sink), name, **settings)
        session.produce(source, [("a", "a")])
        assert streaming.wait(60) and streaming.status == "running" and streaming.batch_progress is None
        streaming.stop()
        session.produce(source, [("a", "a")])
        last = session.run_batch(counting(source, sink), name, **settings).batch_report
        assert last is not None and (last.run, last.records_in) == (4, 1)
        assert session.sql(f"SELECT max(value) FROM \"{sink}\" WHERE key = 'a'").fetchall() == [(wanted["a"] + 2,)]

        through = ks.StreamsBuilder()
        through.stream(source, **TEXT).to(sink, **TEXT)
        through.stream(sink, **TEXT).to(other, **TEXT)
        with pytest.raises(TopologyError, match="writes and reads") as refused:
            session.run_batch(through, f"{name}-through")
        assert "repl.autostop.through" in str(refused.value.hint)

        broken = ks.StreamsBuilder()
        broken.stream(source, **TEXT).map_values(lambda word: 1 / 0, name="broken").to(sink, **TEXT)
        with pytest.raises(ks.KStreamsError, match="division by zero") as failed:
            session.run_batch(broken, f"{name}-broken")
        assert not isinstance(failed.value, ApplicationFailedError) and session.applications[f"{name}-broken"].status == "failed"
