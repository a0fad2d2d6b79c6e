"""Convert Python objects (dicts, pairs, dataframes) to records and write them to a topic."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kstreams_repl.engine import serdes
from kstreams_repl.engine.serdes import Serde
from kstreams_repl.engine.serdes.header_ids import on_the_wire, without_stale_ids
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, make_producer
from kstreams_repl.host.kafka.failures import kafka_errors, translate
from kstreams_repl.repl.inspection import SqlResult
from kstreams_repl.repl.session.topics.records import ReadRecord
from kstreams_repl.system.errors import (
    CallError,
    EmbeddedBrokerError,
    KStreamsError,
    ProductionError,
    SchemaRegistryError,
    SerializationError,
    did_you_mean,
)

if TYPE_CHECKING:
    import pandas as pd

_FLUSH_SECONDS = 30.0
_INTERRUPTED_SECONDS = 1.0
_AHEAD_MS = 3_600_000
"""Kafka's default of ``message.timestamp.after.max.ms``."""

_TIME_NAME = re.compile(r"(^|_)(ts|at|when)($|_)|time|date", re.IGNORECASE)
Parts = tuple[object, object, int | None, object]
"""Key, value, timestamp (ms; None: now), headers."""


def parts_of(records: object, *, key: str | None = None, timestamp: str | None = None) -> Iterator[Parts]:
    """Yield records one by one from values, tuples, records that were read, a dataframe or a query result.

    Tuples are `(key, value)`, `(key, value, timestamp)` or `(key, value, timestamp, headers)`.

    Args:
        key: the field or column that is also the key.
        timestamp: the field or column that holds the time: ms, or a date.
    """
    for record in _rows(records):
        if isinstance(record, ReadRecord):
            given_key, value, given_time, headers = record.key, record.value, record.timestamp, record.headers
        elif isinstance(record, tuple) and 2 <= len(record) <= 4:
            given_key, value, given_time, headers = (*record, None, None)[:4]
        else:
            given_key, value, given_time, headers = None, record, None, None
        if key is not None:
            given_key = _field(value, key)
        if timestamp is not None:
            given_time = _field(value, timestamp)
        yield given_key, value, None if given_time is None else milliseconds(given_time), headers


class UntimedRecords:
    """Counts the records without a time, which get the present one, and finds a field of the first of them that looks like its time."""

    def __init__(self, records: Iterable[Parts]) -> None:
        self._records = records
        self.count = 0
        self.field: str | None = None

    def __iter__(self) -> Iterator[Parts]:
        for record in self._records:
            if record[2] is None:
                if not self.count and isinstance(record[1], dict):
                    self.field = next((name for name, item in record[1].items() if _TIME_NAME.search(str(name)) and _is_time(item)), None)
                self.count += 1
            yield record

    def note(self, topic: str) -> str:
        """Return what to tell the user; empty if there is nothing to tell."""
        if self.field is None:
            return ""
        have, they = ("record has", "it got") if self.count == 1 else ("records have", "they got")
        return f"{topic}: {self.count:,} {have} no timestamp: {they} the present time; timestamp={self.field!r} takes it from the field"


def _is_time(value: object) -> bool:
    """Return whether a value looks like a time between 1973 and 5138: milliseconds, a date or ISO text."""
    if isinstance(value, int | float):
        return 1e11 <= value < 1e14
    with suppress(KStreamsError):
        return not isinstance(value, bytes) and milliseconds(value) is not None
    return False


def _rows(records: Any) -> Iterable[object]:
    if isinstance(records, SqlResult):
        records = records.arrow()
    if hasattr(records, "itertuples") and hasattr(records, "columns"):
        return map(_plain, _frame_rows(records))
    if hasattr(records, "collect") and hasattr(records, "collect_schema"):  # a LazyFrame of polars
        records = records.collect()
    if hasattr(records, "__arrow_c_stream__") and not hasattr(records, "to_pylist"):  # a frame of polars, a relation of DuckDB
        import pyarrow as pa

        records = pa.RecordBatchReader.from_stream(records)
        return (_plain(row) for batch in records for row in batch.to_pylist())
    if hasattr(records, "to_pylist"):
        return map(_plain, records.to_pylist())
    if isinstance(records, dict | str | bytes):
        return [records]
    try:
        rows: Iterator[object] = iter(records)
    except TypeError as error:
        raise CallError(
            f"expected an iterable of records or a dataframe, got a {type(records).__name__}",
            hint="session.produce(topic, [value, …]), or a generator, a pandas DataFrame, an Arrow table",
        ) from error
    return rows


def _plain(value: Any) -> object:
    """Return a value of a dataframe as JSON has it: decimals as numbers with the same digits, times as ISO text.

    Raises:
        SerializationError: a decimal has more digits than a number of JSON keeps.
    """
    from datetime import date, time
    from decimal import Decimal

    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return list(map(_plain, value))
    if type(value).__module__ == "numpy":
        return _plain(value.tolist())
    if isinstance(value, date | time):
        return value.isoformat()
    if not isinstance(value, Decimal):
        return value
    if value.is_finite() and value == value.to_integral_value():
        return int(value)
    if value.is_finite() and Decimal(repr(float(value))) != value:
        raise SerializationError(
            f"the decimal {value} has more digits than a number of JSON keeps",
            hint="write it as text or rounded: SELECT CAST(x AS VARCHAR) or CAST(x AS DOUBLE)",
            serde="json",
        )
    return float(value)


def _frame_rows(frame: pd.DataFrame) -> Iterator[dict[str, object]]:
    """Yield rows of a pandas DataFrame as dicts: NaN becomes None, dates ISO text, with UTC offset if they have a zone."""
    frame = frame.copy(deep=False)
    for name in frame.columns:
        if getattr(getattr(frame[name], "dtype", None), "tz", None) is not None:
            frame[name] = frame[name].map(lambda moment: moment.isoformat(timespec="microseconds"), na_action="ignore")
        elif hasattr(frame[name], "dt") and "datetime" in str(frame[name].dtype):
            frame[name] = frame[name].dt.strftime("%Y-%m-%dT%H:%M:%S.%f").where(frame[name].notna(), None)
    frame = frame.astype(object).where(frame.notna(), None)
    yield from frame.to_dict("records")


def _field(value: Any, name: str) -> Any:
    try:
        return value[name]
    except (KeyError, TypeError, IndexError) as error:
        raise CallError(
            f"expected a field {name!r} in each record, got {str(value)[:80]}",
            hint=(did_you_mean(name, map(str, value)) if isinstance(value, Mapping) else None)
            or "key= and timestamp= name a field that every value has",
        ) from error


def milliseconds(moment: Any) -> int:
    """Return milliseconds since 1970 of a number, a date or ISO text (UTC if it has no zone).

    Raises:
        CallError: it cannot be parsed as a time.
    """
    from datetime import UTC, date, datetime

    try:
        if isinstance(moment, str):
            moment = datetime.fromisoformat(moment)
        elif getattr(getattr(moment, "dtype", None), "kind", "") == "M":  # a NumPy datetime64, of any unit
            moment = moment.astype("datetime64[ms]").item()
        if isinstance(moment, date) and not isinstance(moment, datetime):
            moment = datetime(moment.year, moment.month, moment.day)
        if isinstance(moment, bool):
            raise TypeError("a truth value is not a time")
        if isinstance(moment, datetime):
            return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
        return int(moment)
    except (TypeError, ValueError, OverflowError) as error:
        raise CallError(
            f"cannot parse {moment!r} as a time", hint="give milliseconds since 1970, a date, a datetime or ISO text: '2013-03-01'"
        ) from error


def _as_text(timestamp: int) -> str:
    from datetime import UTC, datetime, timedelta

    try:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp)).isoformat(timespec="seconds")
    except OverflowError:
        return "after the year 9999"


def _pairs(headers: Any) -> list[tuple[str, object]] | None:
    return (list(headers.items()) if isinstance(headers, Mapping) else list(headers)) if headers else None


def serde_for(value: object) -> Serde:
    """Return the built-in serde that fits a value."""
    if isinstance(value, bytes | bytearray):
        return serdes.bytes_
    if isinstance(value, str):
        return serdes.string
    if isinstance(value, bool):
        return serdes.json
    if isinstance(value, int):
        return serdes.long
    if isinstance(value, float):
        return serdes.double
    return serdes.json


def serialized(
    record: Parts, key_serde: Serde | None, value_serde: Serde | None, *, what: str, **where: str
) -> tuple[dict[str, object], Serde | None, Serde | None]:
    """Return a record as the client takes it, and the serdes that wrote it: those that are None follow from a key or value that is not.

    Args:
        what, where: the record, for the message of an error, and its fields.

    Raises:
        SerializationError: its serde cannot write the key or value.
    """
    key, value, timestamp, headers = record
    key_serde = serde_for(key) if key_serde is None and key is not None else key_serde
    value_serde = serde_for(value) if value_serde is None and value is not None else value_serde
    try:
        key_bytes = None if key is None or key_serde is None else key_serde.serialize(key)
        value_bytes = None if value is None or value_serde is None else value_serde.serialize(value)
    except SchemaRegistryError:
        raise
    except KStreamsError as error:
        raise SerializationError(f"{what}: {error.message}", hint=error.hint, **where) from error
    pairs = without_stale_ids(key_serde, value_serde, _pairs(headers))
    key_bytes, value_bytes, pairs = on_the_wire(key_serde, value_serde, key_bytes, value_bytes, pairs)
    sent = {"key": key_bytes, "value": value_bytes, "headers": pairs}
    if timestamp is not None:
        sent["timestamp"] = timestamp or 1  # the client reads 0 as "now", so the first millisecond of 1970 is sent as the second
    return sent, key_serde, value_serde


class TopicProducer:
    """Write records to one topic. Serdes that are not given follow from the first key and value that are not None.

    Args:
        watch: called while waiting for the broker; raises when waiting is useless, as when the broker has ended.
    """

    def __init__(
        self,
        settings: ClientSettings,
        topic: str,
        key_serde: Serde | None,
        value_serde: Serde | None,
        *,
        watch: Callable[[], None] | None = None,
    ) -> None:
        self.topic = topic
        self.key_serde = key_serde and key_serde.for_topic(topic, "key")
        self.value_serde = value_serde and value_serde.for_topic(topic)
        self._settings = settings
        self._watch = watch or (lambda: None)
        self._failed: list[object] = []
        self._checked_until = time.time() * 1000 + _AHEAD_MS
        """Every topic with Kafka's default accepts timestamps up to this one (ms)."""
        self._producer = make_producer(settings, on_delivery_error=lambda error, message: self._failed.append(error))

    def send_all(self, records: Iterable[Parts]) -> int:
        """Write all records and wait until they are on the broker. Return their number.

        Raises:
            SerializationError: its serde cannot write a key or value; the records before it are written.
            ProductionError, BrokerUnavailableError: the broker did not accept a record.
            EmbeddedBrokerError: the broker ended meanwhile.
        """
        count = 0
        try:
            for record in records:
                timestamp = record[2]
                if timestamp is not None and timestamp > self._checked_until:
                    self._refuse_future(count, timestamp)
                self._send(count, record)
                count += 1
                if self._failed:
                    break
            left = self._flush()
        except EmbeddedBrokerError:
            raise
        except KeyboardInterrupt:
            self._producer.flush(_INTERRUPTED_SECONDS)  # a second interrupt does not end this call
            raise
        except Exception:
            with suppress(EmbeddedBrokerError):
                self._flush()  # write the records before the one that failed
            raise
        finally:
            self._producer.purge()  # unsent records are given up; `close` without this would wait for them for minutes
            self._producer.close(0)
        if self._failed or left:
            self._watch()
            raise self._error(left)
        return count

    def _refuse_future(self, index: int, timestamp: int) -> None:
        """Raise if the topic rejects a timestamp far in the future: the broker would reject the whole batch with it.

        Raises:
            ProductionError: the topic rejects it; the records before it are written.
        """
        setting = "message.timestamp.after.max.ms"
        ahead = int(Admin(self._settings).topic_configs([self.topic])[self.topic].get(setting, _AHEAD_MS))
        now = time.time() * 1000
        self._checked_until = now + ahead
        if timestamp > self._checked_until:
            raise ProductionError(
                f"record {index} for topic {self.topic!r} has the timestamp {timestamp} ({_as_text(timestamp)}), "
                f"but the topic takes at most {ahead / 3_600_000:,.3g} h ahead; the {index:,} records before it are written",
                hint="give milliseconds since 1970, not micro- or nanoseconds"
                if timestamp > 100_000_000_000_000
                else f"correct it, or create the topic with a larger limit: session.create_topic(topic, configs={{{setting!r}: ...}})",
                topic=self.topic,
                index=index,
                timestamp=timestamp,
                written=index,
            )

    def _flush(self) -> int:
        """Wait until all records are on the broker. Return how many are missing after half a minute without progress."""
        before, deadline = -1, 0.0
        while True:
            left = int(self._producer.flush(0.5))
            if not left or self._failed:
                return left
            if left != before:
                before, deadline = left, time.monotonic() + _FLUSH_SECONDS
            elif time.monotonic() > deadline:
                return left
            self._watch()

    def _send(self, index: int, record: Parts) -> None:
        what = f"record {index} for topic {self.topic!r}"
        sent, key_serde, value_serde = serialized(record, self.key_serde, self.value_serde, what=what, topic=self.topic)
        deadline = 0.0
        while True:
            try:
                with kafka_errors(f"producing to {self.topic!r}", topic=self.topic):
                    self._producer.produce(self.topic, **sent)
                break
            except BufferError:
                deadline = deadline or time.monotonic() + _FLUSH_SECONDS
                if time.monotonic() > deadline:
                    raise self._error(len(self._producer)) from None
                self._producer.poll(0.05)
                self._watch()
            except (ValueError, TypeError, OverflowError) as error:
                raise ProductionError(f"{what} cannot be sent: {error}", topic=self.topic) from error
        self.key_serde, self.value_serde = key_serde, value_serde  # only the serdes of a record that was written
        if index % 1000 == 0:
            self._producer.poll(0)

    def _error(self, left: int) -> KStreamsError:
        if not self._failed:
            servers = self._settings.bootstrap_servers
            return ProductionError(
                f"{left:,} records for topic {self.topic!r} did not reach the broker at {servers}; those before them did",
                hint="check that the broker runs, then produce them again",
                topic=self.topic,
                bootstrap_servers=servers,
            )
        return translate(
            self._failed[0], f"producing to {self.topic!r}", bootstrap_servers=self._settings.bootstrap_servers, topic=self.topic
        )
