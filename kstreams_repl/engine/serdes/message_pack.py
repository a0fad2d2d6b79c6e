"""MessagePack: the values of JSON, and bytes and times, in fewer bytes and without a schema."""

from __future__ import annotations

from datetime import datetime

from kstreams_repl.engine.serdes.serde import Serde, wrong_bytes
from kstreams_repl.system.errors import SerializationError
from kstreams_repl.system.extras import extras


def _serialize(value: object) -> bytes:
    with extras():
        from msgpack import packb

    try:
        return bytes(packb(value, datetime=True))
    except (TypeError, ValueError, OverflowError) as error:
        raise SerializationError(
            f"the message_pack serde cannot write a value of type {type(value).__name__}: {error}",
            hint="it writes dict, list, str, bytes, int, float, bool, None and datetime with a time zone; map the value first",
            serde="message_pack",
        ) from error


def _deserialize(data: bytes) -> object:
    with extras():
        from msgpack import unpackb

    try:
        return unpackb(data, timestamp=3, strict_map_key=False)
    except Exception as error:  # its own, a time beyond the year 9999, a list as a key, …
        raise wrong_bytes("message_pack", data, f"one MessagePack value ({error or type(error).__name__})") from error


MESSAGE_PACK = Serde(_serialize, _deserialize, name="message_pack", immutable=(int, str, bool, float, bytes, datetime))
