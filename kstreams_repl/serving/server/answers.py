"""Answers: JSON or an Arrow stream, and errors as JSON with their class, so that a client raises the same error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
from starlette.responses import Response

from kstreams_repl.pictures.markup import clean_text
from kstreams_repl.serving.queries.rows import StoreRow
from kstreams_repl.system.errors import (
    BrokerUnavailableError,
    CallError,
    InvalidStateStoreError,
    KStreamsError,
    QueryLimitError,
    QueryServerError,
    SerializationError,
    SqlError,
    StateStoreError,
    UnknownStateStoreError,
)
from kstreams_repl.system.types import JsonObject

if TYPE_CHECKING:
    import pyarrow as pa

JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
_RETRY_SECONDS = "1"
_MOST_TEXT = 4_000


def json_answer(content: object, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return JSON; integers beyond 64 bits are written as they are, which Python and most parsers read."""
    return Response(encoded(content), status_code=status, media_type=JSON, headers=headers)


def encoded(content: object) -> bytes:
    """Return JSON bytes."""
    try:
        return orjson.dumps(content)
    except TypeError:  # an integer beyond 64 bits, or a lone surrogate
        import json

        return json.dumps(content, ensure_ascii=True).encode()


def rows_answer(rows: list[StoreRow], more: JsonObject, accept: str) -> Response:
    """Return rows as JSON, or as an Arrow stream whose schema metadata hold everything else.

    Args:
        rows: plain values (`serving.queries.wire`).
        more: position, next page and so on.
        accept: the request's ``Accept`` header.
    """
    if ARROW not in accept:
        return json_answer({"rows": rows, **more})
    import pyarrow as pa

    columns = {name: [_arrow_value(row.get(name)) for row in rows] for name in (rows[0] if rows else {})}
    table = pa.table({name: _column(values) for name, values in columns.items()})
    return arrow_answer(table.replace_schema_metadata({"kstreams": encoded(more)}))


def arrow_answer(table: pa.Table) -> Response:
    """Return a table as an Arrow stream."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return Response(sink.getvalue().to_pybytes(), media_type=ARROW)


def _arrow_value(value: object) -> object:
    if isinstance(value, dict) and set(value) == {"$bytes"}:
        import base64

        return base64.b64decode(value["$bytes"])
    return value


def _column(values: list[object]) -> pa.Array:
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):  # values of several types: JSON text
        return pa.array([None if value is None else encoded(value).decode() for value in values], pa.string())


def status_of(error: KStreamsError) -> int:
    """Return the HTTP status of an error."""
    own = error.status
    if own is not None:
        return own
    if isinstance(error, QueryLimitError):
        return 413
    if isinstance(error, CallError | SqlError):
        return 400
    if isinstance(error, SerializationError):  # of a key that was asked for, or of a row
        return 409 if error.reading else 400
    if isinstance(error, UnknownStateStoreError):
        return 404
    if may_retry(error):
        return 503
    if isinstance(error, InvalidStateStoreError | StateStoreError):
        return 409
    return 503 if isinstance(error, BrokerUnavailableError | QueryServerError) else 500


def may_retry(error: KStreamsError) -> bool:
    """Return whether the same request may succeed later."""
    return bool(getattr(error, "retriable", False)) or isinstance(error, BrokerUnavailableError)


def error_answer(error: KStreamsError) -> Response:
    """Return an error as JSON: class, message, hint, whether asking again helps, and its plain fields."""
    fields = {name: value for name, value in error.fields.items() if isinstance(value, str | int | bool) and name not in ("status", "path")}
    content = {
        "error": type(error).__name__,
        "message": clean_text(error.message, limit=_MOST_TEXT),
        "hint": None if error.hint is None else clean_text(error.hint, limit=_MOST_TEXT),
        "retriable": may_retry(error),
        "fields": {name: clean_text(value, limit=_MOST_TEXT) if isinstance(value, str) else value for name, value in fields.items()},
    }
    headers = {"Retry-After": _RETRY_SECONDS} if may_retry(error) else None
    return json_answer(content, status=status_of(error), headers=headers)
