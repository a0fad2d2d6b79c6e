"""What happens to a record that cannot be read, processed or written: fail, continue, retry, or to the dead-letter topic.

A handler is a callable ``(ErrorContext, error) -> Response`` (or one of the words "fail" and "continue"). With
``errors.dead.letter.queue.topic.name`` set, a source record that is given up (not one at which the application stops) is
written there as it was read, with its coordinates in headers, in the same commit as everything else. Source: KIP-161, KIP-210,
KIP-1033, KIP-1034.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kstreams_repl.errors import ConfigError, StreamsProcessingError
from kstreams_repl.runtime.user_error import user_line
from kstreams_repl.types import Headers


class Response(StrEnum):
    """A handler's answer. RETRY counts as FAIL: the client has retried already what can be retried."""

    FAIL = "fail"
    CONTINUE = "continue"
    RETRY = "retry"


@dataclass(frozen=True, slots=True)
class ErrorContext:
    """Where an error happened. Raw key and value are the source record's bytes; None in a punctuation."""

    node: str | None
    task: str
    topic: str | None
    partition: int
    offset: int
    timestamp: int
    raw_key: bytes | None = None
    raw_value: bytes | None = None
    headers: Headers = field(default_factory=list)


Handler = Callable[[ErrorContext, Exception], Response]


_WORDS = {
    f"{prefix}{kind}ExceptionHandler": word
    for prefix, word in (("LogAndFail", "fail"), ("LogAndContinue", "continue"))
    for kind in ("", "Processing", "Deserialization", "Production")
} | {"DefaultProductionExceptionHandler": "fail"}
"""Kafka Streams' handler classes, by the word that means the same here."""


def resolve(setting: Any, key: str) -> Handler | None:
    """The handler of a setting; None for the default "fail", which costs nothing per record."""
    word = _WORDS.get(setting.rsplit(".", 1)[-1], setting) if isinstance(setting, str) else setting
    if word is None or word == "fail":
        return None
    if word == "continue":
        return _continue
    if callable(setting):
        return setting  # type: ignore[no-any-return]
    raise ConfigError(
        f"{key} = {setting!r} cannot be used", hint="'fail', 'continue' or a callable (context, error) -> Response", key=key
    )


def ask(handler: Handler, context: ErrorContext, error: Exception, key: str) -> Response:
    """What a handler says to an error.

    Raises:
        StreamsProcessingError: it raised, or answered something else. No handler is asked about that: the task stops at the record.
    """
    cause, line = error, None
    try:
        answer = handler(context, error)
        try:
            return Response(answer)
        except ValueError:
            told = f"answered {answer!r}"
    except Exception as raised:
        cause, line = raised, user_line(raised)
        told = f"raised {type(raised).__name__}: {raised}"
    at = "a punctuation" if context.topic is None else f"{context.topic}-{context.partition} offset {context.offset}"
    raise StreamsProcessingError(
        f"the {key} {told} when it was asked about {type(error).__name__}: {error}"
        + (f"\n  {line}" if line else "")
        + f"\n  in node {context.node}, task {context.task}, at {at}",
        hint="a handler returns Response.CONTINUE or Response.FAIL, whatever the error, and never raises",
        node=context.node,
        task=context.task,
        topic=context.topic,
        partition=context.partition,
        offset=context.offset,
        user_line=line,
    ) from cause


def _continue(context: ErrorContext, error: Exception) -> Response:
    return Response.CONTINUE


def dead_letter_headers(context: ErrorContext, error: BaseException) -> Headers:
    """The record's own headers plus the coordinates and the error, under Kafka Streams' names (KIP-1034)."""
    cause = error.__cause__ or error
    told = {
        "exception": type(cause).__name__,
        "message": str(cause),
        "stacktrace": "".join(traceback.format_exception(cause)),
        "topic": context.topic or "",
        "partition": str(context.partition),
        "offset": str(context.offset),
        "timestamp": str(context.timestamp),
    }
    return [*context.headers, *((f"__streams.errors.{name}", text.encode("utf-8", "replace")) for name, text in told.items())]
