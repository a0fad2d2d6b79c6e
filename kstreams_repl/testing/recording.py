"""`Recording`: an exact stretch of topics as a file, to be replayed into a topology: what was seen once becomes a test.

The file is JSON Lines in UTF-8. The first line is ``{"format": "kstreams-recording", "version": 1, "topics": {topic: partitions}, ...}``;
then one line per record, ``{"t": topic, "p": partition, "o": offset, "ts": ms, "k": …, "v": …, "h": [[name, …], …]}`` with bytes in base64
and null for null; the last is ``{"records": how many, "sha256": of all bytes before}``. Bytes, timestamps, headers and offsets are what
lay on the broker, records stand in the order in which a task would take them. Reading believes nothing: every field is checked, a file that
was cut off or changed is refused, and nothing in it is ever code.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from kstreams_repl.errors import KStreamsError, RecordingError
from kstreams_repl.testing.driver import TopologyTestDriver
from kstreams_repl.topology.names import validate_name
from kstreams_repl.types import Headers

FORMAT = "kstreams-recording"
VERSION = 1
MOST_LINE = 64 * 1024 * 1024
_TIME = 2**63


@dataclass(frozen=True, slots=True)
class RecordedRecord:
    """One record as it lay on its topic."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = field(default_factory=list)


class Recording(Sequence[RecordedRecord]):
    """Records in the order in which a task takes them. Get one from `Session.record`, or from a file by `load`.

    Example:
        >>> recording = session.record("flights", n=1000)          # doctest: +SKIP
        >>> recording.save("flights.recording.jsonl")              # doctest: +SKIP
        >>> with recording.replay(builder) as driver:              # doctest: +SKIP
        ...     driver.state_store("delays").get("UA")
    """

    def __init__(self, records: Iterable[RecordedRecord], topics: Mapping[str, int], *, note: str = "") -> None:
        self._records = tuple(records)
        self.topics = dict(topics)
        """Partitions by topic."""
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

    # ---- replay

    def replay(self, target: Any, config: Mapping[str, Any] | None = None) -> TopologyTestDriver:
        """Feed the records, bytes and times as they were, into a test driver.

        Args:
            target: a `TopologyTestDriver`, or what has a topology: a `Topology`, builder, stream or table. For the latter a driver is made,
                whose clock starts at the first record; close it, or use it in a `with`.
            config: settings of that driver.

        Raises:
            UnknownTopicError: the topology does not read a recorded topic.
            StreamsProcessingError: a function of the topology raised.
        """
        if isinstance(target, TopologyTestDriver):
            self._feed(target)
            return target
        topology = target if hasattr(target, "subtopologies") else getattr(target, "topology", None)
        if topology is None:
            topology = target.build(config) if hasattr(target, "build") else None
        if topology is None:
            raise KStreamsError(f"cannot replay into a {type(target).__name__}", hint="a TopologyTestDriver, a topology or a builder")
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
        """Write the file, as a whole or not at all; returns its path."""
        place = Path(path)
        new = place.with_name(f".{place.name}.{os.getpid()}")
        digest = hashlib.sha256()
        with new.open("wb") as file:
            for line in self._lines():
                digest.update(line)
                file.write(line)
            file.write(orjson.dumps({"records": len(self), "sha256": digest.hexdigest()}) + b"\n")
        new.replace(place)
        return place

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

        Raises:
            RecordingError: there is none, it was cut off or changed, or it is something else.
        """
        place = Path(path)
        try:
            with place.open("rb") as file:
                return cls._read(file, str(place))
        except OSError as error:
            raise RecordingError(
                f"the recording {place} cannot be read: {error.strerror or error}",
                hint="session.record(topic, n=100).save(path) makes one",
                path=str(place),
            ) from error

    @classmethod
    def _read(cls, file: Any, path: str) -> Recording:
        number = 0

        def refuse(why: str, cause: Exception | None = None) -> RecordingError:
            error = RecordingError(
                f"{path}, line {number}: {why}",
                hint="record it anew; a recording is read as a whole or not at all",
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
                said = orjson.loads(line)
                if not isinstance(said, dict):
                    raise ValueError("not an object")
                if number == 1:
                    topics, note = _read_head(said)
                elif "sha256" in said:
                    _check_end(said, len(records), digest.hexdigest())
                    ended = True
                else:
                    records.append(_read_record(said, topics))
            except (ValueError, KeyError, TypeError, KStreamsError) as error:
                told = f"lacks {error}" if isinstance(error, KeyError) else str(error)
                raise refuse(told, error) from error
            digest.update(line)
        if not ended:
            raise refuse("the file is cut off" if number else "the file is empty")
        return cls(records, topics, note=note)


def recording_fixture(path: str | os.PathLike[str], *, scope: str = "session") -> Any:
    """A pytest fixture that gives the recording of a file.

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
    """What a driver put out so far on the topics of its sinks, as JSON carries it: key, value (bytes in base64), timestamp.

    A topology without sinks shows in its changelogs, so these are in it, too.
    """
    return {
        topic: [[_text(record.key), _text(record.value), record.timestamp] for record in driver.output(topic)]
        for topic in sorted(driver.produced_topic_names())
    }


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode("ascii")


def _bytes(said: Any) -> bytes | None:
    if said is None:
        return None
    if not isinstance(said, str):
        raise ValueError("bytes must be base64 text")
    try:
        return base64.b64decode(said, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"no base64: {error}") from error


def _number(said: Any, name: str, *, least: int = 0) -> int:
    if not isinstance(said, int) or isinstance(said, bool) or not least <= said < _TIME:
        raise ValueError(f"{name} cannot be {str(said)[:40]!r}")
    return said


def _read_head(said: Mapping[str, Any]) -> tuple[dict[str, int], str]:
    if said.get("format") != FORMAT:
        raise ValueError("not a recording")
    if said.get("version") != VERSION:
        raise ValueError(f"of version {str(said.get('version'))[:20]!r}; this reads version {VERSION}")
    topics = said["topics"]
    if not isinstance(topics, dict) or not isinstance(said.get("note", ""), str):
        raise ValueError("topics must be an object, the note a text")
    return {validate_name(name, "topic"): _number(count, "partitions", least=1) for name, count in topics.items()}, said.get("note", "")


def _read_record(said: Mapping[str, Any], topics: Mapping[str, int]) -> RecordedRecord:
    topic = said["t"]
    if topic not in topics:
        raise ValueError(f"topic {str(topic)[:60]!r} is not one of the first line's")
    partition = _number(said["p"], "a partition")
    if partition >= topics[topic]:
        raise ValueError(f"{topic} has no partition {partition}")
    headers = said["h"]
    if not isinstance(headers, list) or not all(isinstance(h, list) and len(h) == 2 and isinstance(h[0], str) for h in headers):
        raise ValueError("headers must be pairs of name and value")
    return RecordedRecord(
        topic,
        partition,
        _number(said["o"], "an offset"),
        _number(said["ts"], "a timestamp", least=-_TIME),
        _bytes(said["k"]),
        _bytes(said["v"]),
        [(name, _bytes(value)) for name, value in headers],
    )


def _check_end(said: Mapping[str, Any], records: int, digest: str) -> None:
    if said.get("records") != records:
        raise ValueError(f"{records:,} records are there, {str(said.get('records'))[:20]} were written")
    if said.get("sha256") != digest:
        raise ValueError("the content was changed: its sha256 is another")
