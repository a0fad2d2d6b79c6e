"""Recordings: exact through a file, replayed into a topology, and believed only when whole."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kstreams_repl as ks
from kstreams_repl.host.kafka import record_counter
from kstreams_repl.host.kafka.reading import OffsetRange
from kstreams_repl.repl.session.topics import read, record
from kstreams_repl.repl.session.topics.record import in_order
from kstreams_repl.system.errors import KStreamsError, RecordingError, UnknownTopicError
from kstreams_repl.system.types import RecordBatch, TopicPartition
from kstreams_repl.test_driver.recording import RecordedRecord, Recording, recording_fixture


def words() -> Recording:
    rows = [("a", "to"), ("b", "be"), ("a", "or")]
    records = [RecordedRecord("words", i % 2, i, 1000 + i, k.encode(), v.encode(), [("n", b"\x00")]) for i, (k, v) in enumerate(rows)]
    return Recording(records, {"words": 2}, note="three")


def counting() -> ks.StreamsBuilder:
    builder = ks.StreamsBuilder()
    stream = builder.stream("words", key_serde="string", value_serde="string")
    stream.group_by_key(key_serde="string", value_serde="string").count(store="counts")
    return builder


maybe_bytes = st.none() | st.binary(max_size=30)
records = st.builds(
    RecordedRecord,
    st.sampled_from(["a", "b.c"]),
    st.integers(0, 3),
    st.integers(0, 2**62),
    st.integers(-(2**62), 2**62),
    maybe_bytes,
    maybe_bytes,
    st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), maybe_bytes), max_size=3),
)


@given(st.lists(records, max_size=10))
def test_what_was_saved_is_what_is_loaded(tmp_path_factory: pytest.TempPathFactory, taken: list[RecordedRecord]) -> None:
    recording = Recording(taken, {"a": 4, "b.c": 4})
    path = recording.save(tmp_path_factory.mktemp("recording") / "r.jsonl")
    assert Recording.load(path) == recording


def test_a_recording_replays_into_a_builder_and_into_a_driver() -> None:
    with words().replay(counting()) as driver:
        assert {key: row.value for key, row in driver.state_store("counts").all()} == {"a": 2, "b": 1}
        words().replay(driver)
        assert driver.state_store("counts").get("a").value == 4


def test_replaying_what_a_topology_does_not_read_says_so() -> None:
    with pytest.raises(UnknownTopicError, match="other"):
        Recording([RecordedRecord("other", 0, 0, 1, None, None)], {"other": 1}).replay(counting())
    with pytest.raises(KStreamsError, match="expected a TopologyTestDriver, a topology or a builder, got int"):
        words().replay(5)


def test_a_fixture_gives_the_recording_of_a_file(tmp_path: Path) -> None:
    module = tmp_path / "test_made.py"
    words().save(tmp_path / "words.jsonl")
    module.write_text(
        "from kstreams_repl.test_driver.recording import recording_fixture\n"
        f"words = recording_fixture({str(tmp_path / 'words.jsonl')!r})\n"
        "def test_it(words):\n    assert len(words) == 3\n"
    )
    assert recording_fixture(tmp_path / "words.jsonl") is not None
    assert pytest.main(["-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(tmp_path), str(module)]) == 0


def test_partitions_keep_their_order_and_the_earliest_head_goes_first() -> None:
    late = [RecordedRecord("t", 0, 0, 50, None, None), RecordedRecord("t", 0, 1, 10, None, None)]
    other = [RecordedRecord("t", 1, 0, 20, None, None), RecordedRecord("t", 1, 1, 60, None, None)]
    assert [(r.partition, r.timestamp) for r in in_order([*late, *other])] == [(1, 20), (0, 50), (0, 10), (1, 60)]


def _line(path: Path, number: int, change: Callable[[dict[str, object]], object]) -> bytes:
    """The file with one line changed, and a hash that fits."""
    import hashlib

    lines = path.read_bytes().splitlines(keepends=True)
    said = json.loads(lines[number])
    lines[number] = json.dumps(change(said)).encode() + b"\n"
    body = b"".join(lines[:-1])
    return body + json.dumps({"records": len(lines) - 2, "sha256": hashlib.sha256(body).hexdigest()}).encode() + b"\n"


@pytest.mark.parametrize(
    ("number", "change", "why"),
    [
        (0, lambda said: {**said, "format": "pickle"}, "not a recording"),
        (0, lambda said: {**said, "version": 99}, "got '99'"),
        (0, lambda said: {**said, "topics": {"../../x": 1}}, "topic"),
        (1, lambda said: {**said, "p": 7}, "no partition 7"),
        (1, lambda said: {**said, "p": True}, "a partition must be"),
        (1, lambda said: {**said, "o": -1}, "an offset must be"),
        (1, lambda said: {**said, "ts": "soon"}, "a timestamp must be"),
        (1, lambda said: {**said, "v": "%%%"}, "expected base64 text"),
        (1, lambda said: {**said, "v": ["gASVLg=="]}, "base64 text"),
        (1, lambda said: {**said, "h": {"a": 1}}, "pairs"),
        (1, lambda said: {**said, "t": "other"}, "does not list"),
        (1, lambda said: {k: v for k, v in said.items() if k != "k"}, "lacks 'k'"),
        (1, lambda said: [said], "not an object"),
    ],
)
def test_a_field_that_does_not_fit_is_refused_with_its_line(
    tmp_path: Path, number: int, change: Callable[[dict[str, object]], object], why: str
) -> None:
    path = words().save(tmp_path / "r.jsonl")
    path.write_bytes(_line(path, number, change))
    with pytest.raises(RecordingError, match=why) as caught:
        Recording.load(path)
    assert caught.value.fields["line"] == number + 1


def test_every_cut_and_every_flipped_byte_is_refused(tmp_path: Path) -> None:
    """Truncated anywhere, or one byte changed anywhere: never a wrong recording."""
    path = words().save(tmp_path / "r.jsonl")
    whole, rng = path.read_bytes(), random.Random(7)
    for cut in range(len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(RecordingError):
            Recording.load(path)
    for _ in range(300):
        at = rng.randrange(len(whole))
        other = bytes([whole[at] ^ (1 << rng.randrange(8))])
        path.write_bytes(whole[:at] + other + whole[at + 1 :])
        try:
            assert Recording.load(path) == words()
        except RecordingError:
            continue


@pytest.mark.parametrize("content", [b"", b"\x00" * 100, b"null\n", b"\x80\x04\x95", base64.b64encode(b"x"), b"{}\n"])
def test_what_is_no_recording_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(content)
    with pytest.raises(RecordingError):
        Recording.load(path)


def test_a_missing_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(RecordingError) as caught:
        Recording.load(tmp_path / "no")
    assert "session.record" in (caught.value.hint or "")


@given(st.integers(0, 40), st.integers(0, 90), st.integers(1, 4), st.booleans())
def test_the_last_n_records_of_a_topic_are_the_last_n_or_all_there_are(count: int, n: int, partitions: int, markers: bool) -> None:
    """Also for n < count < 2n and count < n < 2 count, and where a transaction marker follows every third record."""
    rows = [RecordedRecord("words", i % partitions, i + (i // 3 if markers else 0), 1000 + i, None, b"%d" % i) for i in range(count)]
    ends = {p: max((row.offset for row in rows if row.partition == p), default=-1) + 1 + markers for p in range(partitions)}
    ranges = tuple(OffsetRange(TopicPartition("words", p), 0, end) for p, end in ends.items())

    def read_ranges(settings: object, wanted: Iterable[OffsetRange], **_: float) -> Iterator[tuple[TopicPartition, RecordBatch]]:
        for part in wanted:
            of = [row for row in rows if row.partition == part.partition.partition and part.start <= row.offset < part.end]
            columns = [[row.key for row in of], [row.value for row in of], [row.timestamp for row in of], [row.offset for row in of]]
            yield part.partition, RecordBatch(*columns, None)  # type: ignore[arg-type]

    cluster = SimpleNamespace(settings=None, partitions=lambda topic: partitions)
    with pytest.MonkeyPatch.context() as patched:
        for reader in (read, record_counter):
            patched.setattr(reader, "read_ranges", read_ranges)
        for module in (read, record):
            patched.setattr(module, "ranges_of", lambda *given, **bounds: ranges)
        recorded = record.record_topics(cluster, ["words"], n=n, seconds=None, offsets=None)  # type: ignore[arg-type]
        shown = read.read_records(cluster, record_counter.RecordCounter(), "words", n, key_serde=None, value_serde=None, start=None)  # type: ignore[arg-type]
    last = [row.offset for row in rows[max(0, count - n) :]]
    assert [row.offset for row in recorded] == last
    assert [row.offset for row in shown] == last
    told = shown.table().note
    assert (f"all {count} records" if n >= count > 0 else f"{n} of {count} records" if count else "0 records on words") in told
