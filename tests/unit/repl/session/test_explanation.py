"""`app.explain()` answers why a result is empty with the application's own counts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.host.kafka.admin import NewTopicSpec
from kstreams_repl.host.kafka.reading import OffsetRange
from kstreams_repl.repl.session.views.explanation import QUESTIONS
from kstreams_repl.repl.session.views.values import sample_run
from kstreams_repl.system.types import RecordBatch, TopicPartition
from tests.unit.repl.session.small_cluster import SmallCluster, SmallSession, partition_of

ROOT = Path(__file__).resolve().parents[4]
SERDES = {"default.key.serde": "string", "default.value.serde": "json"}
HOUR = 3_600_000
Row = tuple[str | None, Any, int]


class Cluster(SmallCluster):
    """A cluster whose topics a sample can read."""

    def holds(self, topic: str, rows: Iterable[Row]) -> None:
        if topic not in self.described:
            self.create_topics([NewTopicSpec(topic, 2)])
        for key, value, at in rows:
            data = None if key is None else key.encode()
            number = 0 if data is None else partition_of(data)
            raw = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.logs[TopicPartition(topic, number)].append((data, raw, at))

    def ranges(self, _: Any, topic: str) -> tuple[OffsetRange, ...]:
        return tuple(OffsetRange(at, 0, len(log)) for at, log in self.logs.items() if at.topic == topic)

    def read(self, _: Any, ranges: Iterable[OffsetRange]) -> Iterator[tuple[TopicPartition, RecordBatch]]:
        for part in ranges:
            if rows := self.logs[part.partition][part.start : part.end]:
                keys, values, times = (list(column) for column in zip(*rows, strict=True))
                yield part.partition, RecordBatch(keys, values, times, list(range(part.start, part.end)))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(sample_run, "ranges_of", made.ranges)
    monkeypatch.setattr(sample_run, "read_ranges", made.read)
    return made


def told(cluster: Cluster, folder: Path, builder: ks.StreamsBuilder, **config: Any) -> dict[str, list[tuple[str, str]]]:
    """Deploy, and return the answers by question."""
    cluster.holds("out", [])
    with SmallSession(cluster, folder) as session:
        app = session.deploy(builder, "app", config=SERDES | {"state.dir": str(folder / "state")} | config)
        app.resume()
        answers: dict[str, list[tuple[str, str]]] = {}
        table = app.explain()
        for question, here, then in table.rows:
            assert here in repr(table) and then in repr(table), "a terminal shows it whole"
            answers.setdefault(question, []).append((here, then))
        app.stop()
    return answers


def here(answers: dict[str, list[tuple[str, str]]], question: str) -> list[str]:
    return [text for text, _ in answers[question]]


def test_the_numbers_are_those_of_the_application(cluster: Cluster, tmp_path: Path) -> None:
    cluster.holds("in", [(f"k{n}", n, 1000 + n) for n in range(30)] + [(None, 7, 2000)])
    builder = ks.StreamsBuilder()
    kept = builder.stream("in").filter(lambda key, value: value % 3 == 0, name="thirds").map_values(lambda value: value, name="same")
    kept.to("out")
    answers = told(cluster, tmp_path, builder)
    assert list(answers) == list(QUESTIONS) and answers["Does it run?"] == [("yes", "")]
    assert here(answers, "Were records read?") == ["in: 31 records"]
    assert here(answers, "Are all processed and committed?") == ["–"]
    assert answers["Does a filter reject them?"] == [("thirds: 31 in, 10 out", QUESTIONS["Does a filter reject them?"])]
    assert here(answers, "Was something written?") == ["out: 10 records"]
    for question in ("Were they dropped as late?", "Do the keys of a join match?", "Could they be read and processed?"):
        assert answers[question] == [("–", "")]


def test_late_records_null_keys_and_bad_bytes_are_told_apart(cluster: Cluster, tmp_path: Path) -> None:
    cluster.holds("in", [("a", 1, 5 * HOUR), ("a", 1, HOUR), ("a", 1, 2 * HOUR), (None, 1, 6 * HOUR), ("a", b"{", 6 * HOUR)])
    cluster.create_topics([NewTopicSpec("dead", 1)])
    builder = ks.StreamsBuilder()
    hours = builder.stream("in").group_by_key().windowed_by(ks.TimeWindows.of_size("1 h"))
    hours.count(store="hours", name="count-hours").to_stream(lambda window, n: window.key).to("out", value_serde="long")
    answers = told(cluster, tmp_path, builder, **{"deserialization.exception.handler": "continue"})
    [late] = here(answers, "Were they dropped as late?")
    assert "2 records late" in late
    [null] = here(answers, "Have they a key, a value and a time?")
    assert null.endswith("1 dropped: null key")
    [bad] = here(answers, "Could they be read and processed?")
    assert bad.endswith("1 dropped: deserialization")


def test_a_join_whose_keys_differ_shows_two_of_them(cluster: Cluster, tmp_path: Path) -> None:
    cluster.holds("in", [(f"K{n}", n, 1000) for n in range(20)])
    cluster.holds("names", [(f"k{n}", f"name {n}", 1) for n in range(20)])
    builder = ks.StreamsBuilder()
    builder.stream("in").join(builder.table("names"), lambda value, name: name, name="named").to("out")
    answers = told(cluster, tmp_path, builder)
    [missed] = here(answers, "Do the keys of a join match?")
    assert missed.startswith("named: 20 in, 0 out: 0 of 20 keys are in names; upper and lower case differ: 'K0' is 'k0' there, 'K")
    assert here(answers, "Was something written?") == ["out: 0 records"]


def test_a_window_that_is_open_is_named_with_what_it_holds(cluster: Cluster, tmp_path: Path) -> None:
    cluster.holds("in", [("a", 1, 1000), ("a", 1, 2000), ("a", 1, HOUR + 1)])
    builder = ks.StreamsBuilder()
    hours = builder.stream("in").group_by_key().windowed_by(ks.TimeWindows.of_size("1 h")).count(store="hours")
    final = hours.suppress(ks.Suppressed.until_window_closes(name="final"))
    final.to_stream(lambda window, n: window.key).to("out", value_serde="long")
    assert here(told(cluster, tmp_path, builder), "Is a window still open?") == ["final: 2 in, 1 out"], "the cache joins two"


def test_an_application_that_has_read_nothing_says_so(cluster: Cluster, tmp_path: Path) -> None:
    cluster.holds("in", [])
    builder = ks.StreamsBuilder()
    builder.stream("in").to("out")
    answers = told(cluster, tmp_path, builder)
    assert here(answers, "Were records read?") == ["in: 0 records"] and here(answers, "Was something written?") == ["out: 0 records"]


def test_the_page_asks_the_same_questions() -> None:
    page = (ROOT / "docs" / "tasks" / "empty-results.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| ([A-Z][^|]*\?) \|", page, re.MULTILINE) == list(QUESTIONS)
