"""`Recording`: an exact range of topics as a file, which can be replayed into a topology, so that an observation becomes a test.

The file is JSON Lines in UTF-8. The first line is ``{"format": "kstreams-recording", "version": 1, "topics": {topic: partitions},
...}``; then one line per record, ``{"t": topic, "p": partition, "o": offset, "ts": ms, "k": …, "v": …, "h": [[name, …], …]}``
with bytes in base64 and null for null; the last is ``{"records": how many, "sha256": of all bytes before}``. Bytes, timestamps,
headers and offsets are those on the broker; records are in the order in which a task would process them. The reader does not
trust the file: every field is checked, a truncated or changed file is rejected, and nothing in it is executed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from kstreams_repl.engine.topology.names import validate_name
from kstreams_repl.pictures.frames import Frames
from kstreams_repl.pictures.table import Table
from kstreams_repl.system.errors import CallError, KStreamsError, RecordingError
from kstreams_repl.system.files import replacing
from kstreams_repl.system.types import Headers, JsonMapping
from kstreams_repl.test_driver.driver import TopologyTestDriver

FORMAT = "kstreams-recording"
VERSION = 1
MOST_LINE = 64 * 1024 * 1024
_TIME = 2**63


@dataclass(frozen=True, slots=True)
class RecordedRecord:
    """One record as it is on its topic."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = field(default_factory=list)


class Recording(Frames, Sequence[RecordedRecord]):
    """Records in the order in which a task processes them. Get one from `Session.record`, or from a file by `load`.

    Example:
        >>> recording = session.record("flights", n=1000)          # doctest: +SKIP
        >>> recording.save("flights.recording.jsonl")              # doctest: +SKIP
        >>> with recording.replay(builder) as driver:              # doctest: +SKIP
        ...     driver.state_store("delays").get("UA")
    """

    def __init__(self, records: Iterable[RecordedRecord], topics: Mapping[str, int], *, note: str = "") -> None:
        self._records = tuple(records)
        self.topics = dict(topics)
        """Number of partitions by topic."""
        self.note = note

    def __getitem__(self, index: Any) -> Any:
        return self._records[index]

    def __len__(self) -> int:
        return len(self._records)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recording) and (self._records, self.topics) == (other._records, other.topics)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Recording({len(self):,} records of {', '.join(self.topics) or 'no topic'}{'; ' + self.note if self.note else ''})"

    def table(self) -> Table:
        """Return one row per record, as bytes: topic, partition, offset, timestamp (ms), key, value, number of headers.

        Example:
            >>> import kstreams_repl as ks
            >>> recording = ks.testing.Recording([ks.testing.RecordedRecord("words", 0, 7, 1000, b"a", b"to")], {"words": 1})
            >>> len(recording.table())
            1
        """
        rows = [(r.topic, r.partition, r.offset, r.timestamp, r.key, r.value, len(r.headers)) for r in self]
        return Table.of(("topic", "partition", "offset", "timestamp", "key", "value", "headers"), rows, note=self.note)

    # ---- replay

    def replay(self, target: object, config: Mapping[str, object] | None = None) -> TopologyTestDriver:
        """Feed the records with their original bytes and times into a test driver.

        Args:
            target: a `TopologyTestDriver`, or an object with a topology: a `Topology`, builder, stream or table. For the latter a
                driver is made, whose clock starts at the first record; close it, or use it in a `with`.
            config: settings of that driver.

        Raises:
            UnknownTopicError: the topology does not read a recorded topic.
            StreamsProcessingError: a function of the topology raised.
            CallError: `target` is neither.

        Example:
            >>> import kstreams_repl as ks
            >>> recording = ks.testing.Recording([ks.testing.RecordedRecord("words", 0, 7, 1000, b"a", b"to")], {"words": 1})
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> words.map_values(str.upper).to("loud", value_serde="string")
            >>> recording.replay(builder).create_output_topic("loud", "string", "string").read_key_value()
            ('a', 'TO')
        """
        if isinstance(target, TopologyTestDriver):
            self._feed(target)
            return target
        topology = target if hasattr(target, "subtopologies") else getattr(target, "topology", None)
        if topology is None:
            topology = target.build(config) if hasattr(target, "build") else None
        if topology is None:
            raise CallError(
                f"expected a TopologyTestDriver, a topology or a builder, got {type(target).__name__}", hint="recording.replay(builder)"
            )
        driver = TopologyTestDriver(topology, config, start_ms=self._records[0].timestamp if self._records else None)
        try:
            self._feed(driver)
        except BaseException:
            driver.close()
            raise
        return driver

    def _feed(self, driver: TopologyTestDriver) -> None:
        for record in self._records:
            driver.pipe_bytes(record.topic, record.key, record.value, record.timestamp, list(record.headers))

    # ---- file

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the file atomically; returns its path.

        Example:
            >>> import kstreams_repl as ks
            >>> recording = ks.testing.Recording([ks.testing.RecordedRecord("words", 0, 7, 1000, b"a", b"to")], {"words": 1})
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     again = ks.testing.Recording.load(recording.save(f"{folder}/words.recording.jsonl"))
            ...
            >>> len(again)
            1
        """
        target = Path(path)
        digest = hashlib.sha256()
        with replacing(target) as file:
            for line in self._lines():
                digest.update(line)
                file.write(line)
            file.write(orjson.dumps({"records": len(self), "sha256": digest.hexdigest()}) + b"\n")
        return target

    def _lines(self) -> Iterator[bytes]:
        head = {"format": FORMAT, "version": VERSION, "topics": self.topics, "note": self.note}
        yield orjson.dumps(head) + b"\n"
        for record in self._records:
            headers = [[name, _text(value)] for name, value in record.headers]
            yield (
                orjson.dumps(
                    {
                        "t": record.topic,
                        "p": record.partition,
                        "o": record.offset,
                        "ts": record.timestamp,
                        "k": _text(record.key),
                        "v": _text(record.value),
                        "h": headers,
                    }
                )
                + b"\n"
            )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Recording:
        """Read a file that `save` wrote.

        Args:
            path: path of the file.

        Raises:
            RecordingError: the file does not exist, was truncated or changed, or is not a recording.

        Example:
            >>> import kstreams_repl as ks
            >>> recording = ks.testing.Recording([ks.testing.RecordedRecord("words", 0, 7, 1000, b"a", b"to")], {"words": 1})
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     again = ks.testing.Recording.load(recording.save(f"{folder}/words.recording.jsonl"))
            ...
            >>> again[0].offset
            7
        """
        target = Path(path)
        try:
            with target.open("rb") as file:
                return cls._read(file, str(target))
        except OSError as error:
            raise RecordingError(
                f"the recording {target} cannot be read: {error.strerror or error}",
                hint="session.record(topic, n=100).save(path) makes one",
                path=str(target),
            ) from error

    @classmethod
    def _read(cls, file: BinaryIO, path: str) -> Recording:
        number = 0

        def refuse(why: str, cause: Exception | None = None) -> RecordingError:
            error = RecordingError(
                f"{path}, line {number}: {why}",
                hint="record it again; a damaged recording is not read in part",
                path=path,
                line=number,
            )
            error.__cause__ = cause
            return error

        digest = hashlib.sha256()
        records: list[RecordedRecord] = []
        topics: dict[str, int] = {}
        note, ended = "", False
        while line := file.readline(MOST_LINE + 1):
            number += 1
            if len(line) > MOST_LINE:
                raise refuse(f"longer than {MOST_LINE:,} bytes")
            if ended:
                raise refuse("something after the end")
            try:
                plain = orjson.loads(line)
                if not isinstance(plain, dict):
                    raise ValueError("not an object")
                if number == 1:
                    topics, note = _read_head(plain)
                elif "sha256" in plain:
                    _check_end(plain, len(records), digest.hexdigest())
                    ended = True
                else:
                    records.append(_read_record(plain, topics))
            except (ValueError, KeyError, TypeError, KStreamsError) as error:
                reason = f"lacks {error}" if isinstance(error, KeyError) else str(error)
                raise refuse(reason, error) from error
            digest.update(line)
        if not ended:
            raise refuse("the file is cut off" if number else "the file is empty")
        return cls(records, topics, note=note)


def recording_fixture(path: str | os.PathLike[str], *, scope: str = "session") -> Any:
    """Return a pytest fixture that loads the recording of a file.

    Example, in a test module:
        >>> flights = recording_fixture("tests/flights.recording.jsonl")   # doctest: +SKIP
        >>> def test_delays(flights):                                      # doctest: +SKIP
        ...     with flights.replay(topology()) as driver:
        ...         assert driver.state_store("delays").get("UA").value == 12
    """
    import pytest

    @pytest.fixture(scope=scope)  # type: ignore[call-overload,untyped-decorator,unused-ignore]
    def recording() -> Recording:
        return Recording.load(path)

    return recording


def outputs_of(driver: TopologyTestDriver) -> dict[str, list[list[Any]]]:
    """Return a driver's unread output by topic, in JSON form: key, value (bytes in base64), timestamp.

    It includes changelogs: a topology without sinks has no other output.
    """
    return {
        topic: [[_text(record.key), _text(record.value), record.timestamp] for record in driver.output(topic)]
        for topic in sorted(driver.produced_topic_names())
    }


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode("ascii")


def _bytes(plain: object) -> bytes | None:
    if plain is None:
        return None
    if not isinstance(plain, str):
        raise ValueError("bytes must be base64 text")
    try:
        return base64.b64decode(plain, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"expected base64 text: {error}") from error


def _number(plain: object, name: str, *, least: int = 0) -> int:
    if not isinstance(plain, int) or isinstance(plain, bool) or not least <= plain < _TIME:
        raise ValueError(f"{name} must be a whole number, got {str(plain)[:40]!r}")
    return plain


def _read_head(plain: JsonMapping) -> tuple[dict[str, int], str]:
    if plain.get("format") != FORMAT:
        raise ValueError("not a recording")
    if plain.get("version") != VERSION:
        raise ValueError(f"expected version {VERSION}, got {str(plain.get('version'))[:20]!r}")
    topics = plain["topics"]
    if not isinstance(topics, dict) or not isinstance(plain.get("note", ""), str):
        raise ValueError("topics must be an object, the note a text")
    return {validate_name(name, "topic"): _number(count, "partitions", least=1) for name, count in topics.items()}, plain.get("note", "")


def _read_record(plain: JsonMapping, topics: Mapping[str, int]) -> RecordedRecord:
    topic = plain["t"]
    if topic not in topics:
        raise ValueError(f"the first line does not list topic {str(topic)[:60]!r}")
    partition = _number(plain["p"], "a partition")
    if partition >= topics[topic]:
        raise ValueError(f"{topic} has no partition {partition}")
    headers = plain["h"]
    if not isinstance(headers, list) or not all(isinstance(h, list) and len(h) == 2 and isinstance(h[0], str) for h in headers):
        raise ValueError("headers must be pairs of name and value")
    return RecordedRecord(
        topic,
        partition,
        _number(plain["o"], "an offset"),
        _number(plain["ts"], "a timestamp", least=-_TIME),
        _bytes(plain["k"]),
        _bytes(plain["v"]),
        [(name, _bytes(value)) for name, value in headers],
    )


def _check_end(plain: Mapping[str, object], records: int, digest: str) -> None:
    if plain.get("records") != records:
        raise ValueError(f"expected {str(plain.get('records'))[:20]} records, got {records:,}")
    if plain.get("sha256") != digest:
        raise ValueError("the content was changed: its sha256 does not match")
