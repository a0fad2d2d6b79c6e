"""The stores of an application as of earlier commits, against what plain Python makes of the input up to the committed offsets.

The application runs for three generations: the second takes over from a first that was not stopped, the third has lost the local state.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, make_producer
from kstreams_repl.host.kafka.reading import ranges_of, read_ranges
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.repl.session.views.past.past_state import Past as PastStates
from kstreams_repl.repl.session.views.past.state.commit_history import TaskCommit
from kstreams_repl.repl.session.views.past.state.state_builder import FOLDER, KEPT, history_of
from kstreams_repl.repl.session.views.past.store_diff import store_diff
from kstreams_repl.repl.session.views.stores.store_pages import StorePages
from kstreams_repl.repl.session.views.stores.store_view import StoreView
from kstreams_repl.repl.session.views.tables.sql_query import run_query
from kstreams_repl.system.errors import CallError, InvalidStateStoreError
from kstreams_repl.system.types import TaskId, TopicPartition
from tests.kafka.as_of_instance import config_of, start

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

PARTITIONS, KEYS, ROUNDS = 2, 12, 3
SIZE_MS, GAP_MS = 10_000, 3_000
STORES = ("counts", "windows", "sessions", "latest", "remembered", "newest")


class Remember(ks.Processor):
    """Keeps the last value of each key, in memory."""

    def init(self, context: Any) -> None:
        self.store = context.get_state_store("remembered")
        self.newest = context.get_state_store("newest")

    def process(self, record: Any) -> None:
        self.store.put(record.key, record.value)
        self.newest.put(record.key, record.value)


def topology(name: str, generation: int = 1) -> Topology:
    """The application; an edit adds a node and a store with the third generation."""
    texts: dict[str, Any] = {"key_serde": "string", "value_serde": "string"}
    builder = ks.StreamsBuilder()
    stream = builder.stream(f"{name}-in", **texts)
    grouped = stream.group_by_key()
    grouped.count(store="counts")
    grouped.windowed_by(ks.TimeWindows.of_size(SIZE_MS, grace=0)).count(store="windows")
    grouped.windowed_by(ks.SessionWindows.of_inactivity_gap(GAP_MS, grace=0)).count(store="sessions")
    builder.table(f"{name}-table", store="latest", **texts)
    builder.add_state_store(ks.Stores.key_value_store_builder(ks.Stores.in_memory_key_value_store("remembered"), "string", "string"))
    builder.add_state_store(ks.Stores.key_value_store_builder(ks.Stores.lru_map("newest", 4), "string", "string"))
    stream.process(Remember, stores=["remembered", "newest"])
    if generation > 2:
        stream.filter(lambda key, value: value is not None, name="late").group_by_key().count(store="added")
    return builder.build()


@dataclass
class Application:
    """What the past of an application needs of it."""

    name: str
    topology: Topology
    config: StreamsConfig
    client: ClusterClient
    as_of: str = ""
    until_ms: int | None = None
    registry: dict[str, Any] = field(default_factory=dict)
    versions: list[Any] = field(default_factory=list)


@dataclass
class Past:
    application: Any
    records: dict[TopicPartition, list[tuple[int, str, str | None, int]]]

    def sql(self, query: str, as_of: object = None) -> Any:
        states = PastStates(as_of) if isinstance(as_of, str | int) else as_of
        return run_query(self.application.client, self.application.registry, query, past=states)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def past(admin: Admin, settings: ClientSettings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Past]:
    name, root = "past0", tmp_path_factory.mktemp("past")
    for topic in ("in", "table"):
        admin.create_topic(f"{name}-{topic}", PARTITIONS)
    config = config_of(name, settings.bootstrap_servers, root)
    chance, at = random.Random(7), [1_700_000_000_000]
    running: list[threading.Thread] = []
    for generation in (1, 2, 3):
        if generation == 3:
            shutil.rmtree(root / name / "tasks")
        threads, stop = start(settings, config, topology(name), generation)
        running += threads
        for _ in range(ROUNDS):
            _write(settings, name, chance, at)
            _wait(admin, name)
        if generation > 1:  # the second takes over from the first, which is not stopped
            stop()
            threads[0].join(30)
    for thread in running:
        thread.join(30)
    yield (whole := _past(admin, settings, name, config))
    whole.application.client.close()


def _past(admin: Admin, settings: ClientSettings, name: str, config: StreamsConfig, generation: int = 1) -> Past:
    """What is known of the application, and all of its input."""
    app: Any = Application(name, topology(name, generation), config, ClusterClient(settings))
    app.registry[name] = app
    records = {
        TopicPartition(f"{name}-{topic}", number): [] for topic in ("in", "table") for number in range(PARTITIONS)
    }
    for topic in ("in", "table"):
        for partition, batch in read_ranges(settings, ranges_of(admin, f"{name}-{topic}")):
            rows = zip(batch.offsets, batch.keys, batch.values, batch.timestamps, strict=True)
            records[partition] += [(o, k.decode(), None if v is None else v.decode(), t) for o, k, v, t in rows if k is not None]
    return Past(app, records)


def _write(settings: ClientSettings, name: str, chance: random.Random, at: list[int]) -> None:
    producer = make_producer(settings)
    for _ in range(chance.randrange(5, 40)):
        at[0] += chance.randrange(2_500)
        key, value = f"k{chance.randrange(KEYS)}", f"v{at[0]}"
        producer.produce(f"{name}-in", value.encode(), key.encode(), timestamp=at[0])
        gone = chance.random() < 0.3
        producer.produce(f"{name}-table", None if gone else value.encode(), f"k{chance.randrange(KEYS)}".encode(), timestamp=at[0])
    assert producer.flush(20) == 0
    producer.close()


def _wait(admin: Admin, name: str, inputs: list[TopicPartition] | None = None) -> None:
    inputs = inputs or [TopicPartition(f"{name}-{topic}", number) for topic in ("in", "table") for number in range(PARTITIONS)]
    ends, deadline = admin.end_offsets(inputs), time.monotonic() + 60
    while True:
        committed = admin.committed_offsets(name, inputs, stable=False)
        if all(at in committed and committed[at].offset >= end for at, end in ends.items() if end):
            return
        assert time.monotonic() < deadline, (committed, ends)
        time.sleep(0.02)


def expected(past: Past, offsets: dict[TopicPartition, int]) -> dict[str, set[tuple[Any, ...]]]:
    """The rows of all stores after the records before these offsets, in plain Python."""
    name = past.application.name
    rows: dict[str, set[tuple[Any, ...]]] = {store: set() for store in STORES}
    for partition, records in past.records.items():
        own = [record for record in records if record[0] < offsets.get(partition, 0)]
        number = partition.partition
        if partition.topic == f"{name}-table":
            latest = {key: value for _, key, value, _ in own}
            rows["latest"] |= {(key, value, number) for key, value in latest.items() if value is not None}
            continue
        rows["counts"] |= {(key, count, number) for key, count in Counter(record[1] for record in own).items()}
        windows = Counter((key, at // SIZE_MS * SIZE_MS) for _, key, _, at in own)
        observed = max((record[3] for record in own), default=0)
        rows["windows"] |= {(key, start, count, number) for (key, start), count in windows.items() if start > observed - SIZE_MS}
        rows["remembered"] |= {(key, value, number) for key, value in {key: value for _, key, value, _ in own}.items()}
        order: dict[str, str | None] = {}
        for _, key, value, _ in own:
            order.pop(key, None)
            order[key] = value
        rows["newest"] |= {(key, value, number) for key, value in list(order.items())[-4:]}
        for key in {record[1] for record in own}:
            sessions: list[list[int]] = []
            for at in sorted(record[3] for record in own if record[1] == key):
                if sessions and at - sessions[-1][1] <= GAP_MS:
                    sessions[-1][1:] = [at, sessions[-1][2] + 1]
                else:
                    sessions.append([at, at, 1])
            rows["sessions"] |= {(key, *each, number) for each in sessions if each[1] >= observed - GAP_MS}
    return rows


BY_HAND = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r}); from tests.kafka.as_of_instance import main"
"""As `python -m tests.kafka.as_of_instance`, from any directory."""
COLUMNS = {
    "windows": "key, epoch_ms(window_start), value, partition",
    "sessions": "key, epoch_ms(window_start), epoch_ms(window_end), value, partition",
}


def found(past: Past, as_of: object, stores: tuple[str, ...] = STORES) -> dict[str, set[tuple[Any, ...]]]:
    states = PastStates(as_of)
    return {
        store: set(past.sql(f"SELECT {COLUMNS.get(store, 'key, value, partition')} FROM {store}", states).fetchall()) for store in stores
    }


def names_of(rows: set[tuple[Any, ...]]) -> set[tuple[Any, ...]]:
    """Key, window and partition of rows."""
    return {row[:-2] + row[-1:] for row in rows}


def commits_of(past: Past) -> dict[TaskId, list[TaskCommit]]:
    history = history_of(past.application)
    return {task: history.of(task) for task in (TaskId(sub, number) for sub in range(2) for number in range(PARTITIONS))}


@pytest.mark.parametrize("count", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_stores_are_as_they_were_after_any_commit(past: Past, count: int) -> None:
    commits = commits_of(past)
    numbers = sorted({commit.commit_id for own in commits.values() for commit in own})
    assert len(numbers) > 10
    for number in random.Random(3).sample(numbers, count):
        offsets: dict[TopicPartition, int] = {}
        for own in commits.values():
            offsets |= next((commit.offsets for commit in reversed(own) if commit.commit_id <= number), {})
        got, want = found(past, f"commit {number}"), expected(past, offsets)
        assert {store: got[store] ^ want[store] for store in STORES if got[store] != want[store]} == {}, (number, offsets)
    kept = list((Path(past.application.config["state.dir"]) / past.application.name / FOLDER).glob("*/moment.json"))
    assert 0 < len(kept) <= KEPT


@pytest.mark.parametrize("count", [2, pytest.param(6, marks=pytest.mark.slow)])
def test_stores_are_as_they_were_at_a_time(past: Past, count: int) -> None:
    commits = commits_of(past)
    times = sorted({commit.at_ms for own in commits.values() for commit in own})
    begun = max(own[0].at_ms for own in commits.values())
    for at in [each for each in random.Random(4).sample(times, count) if each >= begun]:
        offsets: dict[TopicPartition, int] = {}
        for own in commits.values():
            offsets |= next(commit.offsets for commit in reversed(own) if commit.at_ms <= at)
        assert found(past, at) == expected(past, offsets), at
        read = past.sql(f'SELECT partition, max("offset") + 1 FROM "{past.application.name}-in" GROUP BY ALL', at).fetchall()
        assert dict(read) == {
            partition.partition: offset for partition, offset in offsets.items() if partition.topic.endswith("-in") and offset
        }


@pytest.mark.parametrize("count", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_stores_are_as_they_were_after_exactly_one_record(past: Past, count: int) -> None:
    commits = commits_of(past)
    chance = random.Random(5)
    for partition, records in list(past.records.items())[:: 3 if count == 1 else 1]:
        task = TaskId(0 if partition.topic.endswith("-in") else 1, partition.partition)
        for offset in [record[0] for record in chance.sample(records, count)]:
            after = next(commit for commit in commits[task] if commit.offsets[partition] > offset)
            offsets = {partition: offset + 1}
            for other, own in commits.items():
                if other != task:
                    offsets |= next((commit.offsets for commit in reversed(own) if commit.at_ms < after.at_ms), {})
            last = f'SELECT max("offset") FROM "{partition.topic}" WHERE partition = {partition.partition}'
            assert past.sql(last, f"{partition}@{offset}").fetchall() == [(offset,)]
            got, want = found(past, f"{partition}@{offset}"), expected(past, offsets)
            assert {store: got[store] ^ want[store] for store in STORES if got[store] != want[store]} == {}, (partition, offset)


def test_the_last_moment_is_what_the_stores_have_now(past: Past) -> None:
    now = int(time.time() * 1000)
    assert found(past, now) == expected(past, {partition: records[-1][0] + 1 for partition, records in past.records.items()})
    for store in ("counts", "latest"):
        live, then = past.sql(f"SELECT * FROM {store}"), past.sql(f"SELECT * FROM {store}", now)
        assert set(live.fetchall()) == set(then.fetchall())
        assert "as of" in "".join(then.notes) or "as of" in str(then)


def test_rows_that_differ_between_two_moments(past: Past) -> None:
    commits = commits_of(past)
    numbers = sorted(commit.commit_id for commit in commits[TaskId(0, 0)])
    before, after = numbers[len(numbers) // 4], numbers[len(numbers) // 2]
    for store in ("latest", "windows"):
        builder = past.application.topology.store(store)
        difference = store_diff(past.application, builder, f"commit {before}", f"commit {after}").fetchall()
        old, new = (found(past, f"commit {number}", (store,))[store] for number in (before, after))
        changes = Counter(row[0] for row in difference)
        assert changes["added"] == len(names_of(new) - names_of(old))
        assert changes["gone"] == len(names_of(old) - names_of(new))
        assert changes["changed"] >= len(names_of(new - old) & names_of(old))


def test_a_store_is_queried_as_of_a_moment(past: Past) -> None:
    commits = commits_of(past)
    number = commits[TaskId(0, 0)][3].commit_id
    app = PastStates(f"commit {number}").reader(past.application, past.application.topology.store("counts"))
    view = StoreView(app, app.topology.store("counts"))
    rows = found(past, f"commit {number}", ("counts",))["counts"]
    assert len(view.df()) == len(rows)
    for key, value, _ in rows:
        assert view.get(key) == value


def test_the_panel_s_pages_are_those_of_the_commit_that_is_chosen(past: Past) -> None:
    app = past.application
    pages = StorePages(app, app.topology.store("counts"), 100)
    assert pages.read()[1]["earlier"] is None
    pages.earlier(True)
    controls: Any = pages.read()[1]["earlier"]
    assert controls["at"] == controls["last"] > 10 and controls["text"] == "now"
    for index in (controls["last"] // 2,):
        pages.choose(index)
        table, now = pages.read()
        at = int(datetime.fromisoformat(now["earlier"]["text"][6:-4] + "+00:00").timestamp() * 1000)  # type: ignore[index]
        assert {row[:2] for row in table.rows} == {row[:2] for row in found(past, at, ("counts",))["counts"]}
    pages.choose(controls["last"])
    assert {row[:2] for row in pages.read()[0].rows} == {row[:2] for row in past.sql("SELECT key, value FROM counts").fetchall()}
    pages.earlier(False)
    assert pages.read()[1]["earlier"] is None


def test_a_store_that_was_reset_and_has_outgrown_its_changelog_before_it_commits(
    admin: Admin, settings: ClientSettings, tmp_path: Path, name: str
) -> None:
    """The first commit after the reset is beyond the end of the changelog that was deleted: only the topic's id tells them apart."""
    admin.create_topic(f"{name}-in", 1)
    builder = ks.StreamsBuilder()
    builder.stream(f"{name}-in", key_serde="string", value_serde="string").group_by_key().count(store="counts")
    config = config_of(name, settings.bootstrap_servers, tmp_path)
    app: Any = Application(name, builder.build(), config, ClusterClient(settings))
    app.registry[name] = app
    for generation, count in ((1, 3), (2, 300), (3, 1)):
        producer = make_producer(settings)
        for number in range(count):
            producer.produce(f"{name}-in", b"v", f"{generation} {number}".encode())
        assert producer.flush(20) == 0
        producer.close()
        if generation == 2:  # as `edit(reset_state=["counts"])`
            admin.delete_topics([f"{name}-counts-changelog"])
            shutil.rmtree(tmp_path / name / "tasks")
        threads, stop = start(settings, config, app.topology, generation)
        _wait(admin, name, [TopicPartition(f"{name}-in", 0)])
        stop()
        threads[0].join(30)
    past, task = Past(app, {}), TaskId(0, 0)
    commits = history_of(app).of(task)
    again = history_of(app).since_reset(task, topic := f"{name}-counts-changelog")
    before = commits[: len(commits) - len(again)]
    ends = [[end for commit in own if (end := commit.end_of(topic)) is not None] for own in (before, again)]
    assert ends[0] and max(ends[0]) < min(ends[1])
    for commit in (before[-1], again[-1]):
        as_of = f"commit {commit.commit_id}"
        if commit in again:
            assert {row[0][0] for row in past.sql("SELECT key FROM counts", as_of).fetchall()} == {"2", "3"}
        else:
            with pytest.raises(InvalidStateStoreError, match="was reset") as gone:
                past.sql("SELECT key FROM counts", as_of)
            assert f"the earliest is {again[0]}" in str(gone.value.hint)
    admin.delete_topics([topic])  # and nothing was committed since
    admin.create_topic(topic, 1)
    with pytest.raises(InvalidStateStoreError, match="was reset"):
        past.sql("SELECT key FROM counts", int(time.time() * 1000))
    app.client.close()


def test_what_is_no_moment_or_not_known_is_an_error(past: Past) -> None:
    for wrong in ("yesterday", "commit x", "in-0@", True):
        with pytest.raises(CallError):
            past.sql("SELECT * FROM counts", wrong)
    with pytest.raises(InvalidStateStoreError) as early:
        past.sql("SELECT * FROM counts", 1_000)
    assert "earliest" in str(early.value.hint)



@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_any_commit_and_any_record_of_a_run_with_kills_and_an_edit(
    admin: Admin, settings: ClientSettings, tmp_path: Path
) -> None:
    """200 random commits and 200 random records; each generation is killed, and has one instance or two."""
    name = "past1"
    for topic in ("in", "table"):
        admin.create_topic(f"{name}-{topic}", PARTITIONS)
    chance, at = random.Random(9), [1_700_000_000_000]
    root, generations = tmp_path / "state", 8
    for generation in range(1, generations + 1):
        if generation % 3 == 0:
            shutil.rmtree(root / name / "tasks")
        words = [name, settings.bootstrap_servers, str(root), str(generation), str(1 + generation % 2)]
        process = subprocess.Popen([sys.executable, "-P", "-c", f"{BY_HAND}; main(*{words!r})"])
        try:
            for _ in range(4):
                _write(settings, name, chance, at)
                _wait(admin, name)
            for _ in range(3):
                _write(settings, name, chance, at)
                time.sleep(chance.random() / 4)
        finally:
            process.kill()
            process.wait()
    config = config_of(name, settings.bootstrap_servers, root)
    threads, stop = start(settings, config, topology(name, generations), generations + 1)
    _wait(admin, name)
    stop()
    threads[0].join(60)
    past = _past(admin, settings, name, config, generations)
    commits = commits_of(past)
    numbers = [commit.commit_id for own in commits.values() for commit in own]
    checked = 0
    for number in chance.choices(numbers, k=200):
        offsets: dict[TopicPartition, int] = {}
        for own in commits.values():
            offsets |= next((commit.offsets for commit in reversed(own) if commit.commit_id <= number), {})
        assert found(past, f"commit {number}") == expected(past, offsets), number
        checked += 1
    inputs = [(partition, record[0]) for partition, records in past.records.items() for record in records]
    for partition, offset in chance.choices(inputs, k=200):
        task = TaskId(0 if partition.topic.endswith("-in") else 1, partition.partition)
        after = next(commit for commit in commits[task] if commit.offsets[partition] > offset)
        offsets = {partition: offset + 1}
        for other, own in commits.items():
            if other != task:
                offsets |= next((commit.offsets for commit in reversed(own) if commit.at_ms < after.at_ms), {})
        assert found(past, f"{partition}@{offset}") == expected(past, offsets), (partition, offset)
        checked += 1
    past.application.client.close()
    assert checked == 400
