"""Schema ids in the headers of records instead of in front of keys and values: Confluent's ``HeaderSchemaIdSerializer``.

A schema id is a byte 0 and the schema's number, or a byte 1 and its GUID (Protobuf: message indexes follow). The bytes are the same in a
header as in front of a payload. So a serde sees one form only, id and payload, the *framed* form: `framing` makes it where records
are read, `on_the_wire` takes it apart where they are written. The framed form is itself one that Confluent's deserializers read, so a
store, whose rows have no headers, keeps it as it is.

A header with a schema id is a part of its key or value: the serde's caller takes it from the record's headers, so that it is never
forwarded with a value to which it does not apply.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from operator import itemgetter
from typing import Any, Literal

from kstreams_repl.engine.serdes.serde import Serde
from kstreams_repl.system.types import Headers, RecordBatch

KEY_HEADER, VALUE_HEADER = "__key_schema_id", "__value_schema_id"
"""The names of Confluent's serializers."""
_NAMES = {"key": KEY_HEADER, "value": VALUE_HEADER}
_NAME = itemgetter(0)
Part = Literal["key", "value"]


class Framed(bytes):
    """A schema id and the payload that was received without it.

    Attributes:
        payload: the bytes as they were received.
    """

    payload: bytes

    @classmethod
    def of(cls, schema_id: bytes, payload: bytes) -> Framed:
        made = cls(schema_id + payload)
        made.payload = payload
        return made


def framed(data: bytes | None, headers: Headers | None, part: Part) -> bytes | None:
    """Return a key or value with the schema id of its header in front; unchanged if there is none.

    Example:
        >>> framed(b"abc", [("__value_schema_id", bytes([0, 0, 0, 0, 7]))], "value")
        b'\\x00\\x00\\x00\\x00\\x07abc'
    """
    if data is None or not headers:
        return data
    name = _NAMES[part]
    for header, schema_id in reversed(headers):  # the last one counts, as in Kafka's `lastHeader`
        if header == name:
            return data if schema_id is None else Framed.of(schema_id, data)
    return data


def framed_column(column: Sequence[bytes | None], headers: Sequence[Headers | None], part: Part) -> list[bytes | None]:
    """Return a column of keys or values, each as by `framed`."""
    if not any(headers):
        return list(column)
    return [framed(data, own, part) for data, own in zip(column, headers, strict=True)]


def framing(key: object, value: object) -> Callable[[RecordBatch], RecordBatch] | None:
    """Return what prepares batches with headers for these serdes (None: one that does not); None if neither reads schema ids."""
    parts = ((key, KEY_HEADER), (value, VALUE_HEADER))
    names = {name for serde, name in parts if getattr(serde, "reads_header_ids", False)}
    if not names:
        return None

    def frame(batch: RecordBatch) -> RecordBatch:
        headers = batch.headers
        if headers is None or names.isdisjoint(map(_NAME, chain.from_iterable(filter(None, headers)))):
            return batch
        return replace(
            batch,
            keys=framed_column(batch.keys, headers, "key") if KEY_HEADER in names else batch.keys,
            values=framed_column(batch.values, headers, "value") if VALUE_HEADER in names else batch.values,
            headers=[own and [pair for pair in own if pair[0] not in names] for own in headers],
        )

    return frame


def as_received(key: bytes | None, value: bytes | None, headers: Headers) -> tuple[bytes | None, bytes | None, Any]:
    """Return a source record's bytes and headers as they were before `framing`, for handlers and dead letters."""
    if type(key) is not Framed and type(value) is not Framed:
        return key, value, headers
    headers = list(headers)
    if type(key) is Framed:
        headers.append((KEY_HEADER, _id_of(key)))
        key = key.payload
    if type(value) is Framed:
        headers.append((VALUE_HEADER, _id_of(value)))
        value = value.payload
    return key, value, headers


def _id_of(data: Framed) -> bytes:
    return data[: len(data) - len(data.payload)]


def on_the_wire(
    key_serde: Serde | None, value_serde: Serde | None, key: bytes | None, value: bytes | None, headers: Headers | None
) -> tuple[bytes | None, bytes | None, Any]:
    """Return a serialized record as it is sent: schema ids that its serdes write into headers are taken from the front of key and value.

    Args:
        headers: (name, bytes) pairs, or None.
    """
    for serde, part, data in ((key_serde, "key", key), (value_serde, "value", value)):
        size_of = None if serde is None else serde.header_id_size
        if size_of is None or data is None:
            continue
        size, name = size_of(data), _NAMES[part]
        headers = [*(pair for pair in headers or () if pair[0] != name), (name, bytes(data[:size]))]
        if part == "key":
            key = data[size:]
        else:
            value = data[size:]
    return key, value, headers


def without_stale_ids(key_serde: Serde | None, value_serde: Serde | None, headers: Any) -> Any:
    """Return a user's headers without the schema ids of a key or value that is serialized again, as in records read from another topic."""
    if not headers:
        return headers
    again = {name for serde, name in ((key_serde, KEY_HEADER), (value_serde, VALUE_HEADER)) if serde is not None and serde.name != "bytes"}
    return [pair for pair in headers if pair[0] not in again]


def sends_ids(key: Serde, value: Serde) -> bool:
    """Return whether one of these serdes writes schema ids into headers."""
    return key.header_id_size is not None or value.header_id_size is not None
