"""Exception handlers for records that cannot be read, processed or written: fail, continue, retry, dead-letter topic.

A handler is a callable ``(ErrorContext, error) -> Response`` (or one of the words "fail" and "continue"). With
``errors.dead.letter.queue.topic.name`` set, a source record that a handler skips (not one at which the application stops) is
written to that topic as it was read, with its coordinates in headers, in the same commit as all other output. Source: KIP-161,
KIP-210, KIP-1033, KIP-1034.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from kstreams_repl.engine.kafka_streams_keys import handler_word
from kstreams_repl.engine.topology.description.user_lines import user_line
from kstreams_repl.system.errors import ConfigError, SchemaRegistryError, StreamsProcessingError, is_interrupt
from kstreams_repl.system.types import Headers


class Response(StrEnum):
    """A handler's response. RETRY repeats the input since the last commit for a retriable output error, and is FAIL for all others."""

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



def resolve(setting: object, key: str) -> Handler | None:
    """Return the handler of a setting; None for the default "fail", which costs nothing per record."""
    word = handler_word(setting)
    if word is None or word == "fail":
        return None
    if word == "continue":
        return _continue
    if callable(setting):
        return setting
    raise ConfigError(
        f"{key} = {setting!r} cannot be used", hint="set it to 'fail', 'continue' or a callable (context, error) -> Response", key=key
    )


def ask(handler: Handler, context: ErrorContext, error: Exception, key: str) -> Response:
    """Call a handler and return its response.

    Raises:
        StreamsProcessingError: it raised, or returned something other than a `Response`. No handler is called for that: the task stops
            at the record.
    """
    if isinstance(error, SchemaRegistryError):  # not the record's fault: it must not be skipped
        raise error
    cause: BaseException = error
    line = None
    try:
        answer = handler(context, error)
        try:
            return Response(answer)
        except ValueError:
            outcome = f"returned {answer!r}"
    except BaseException as raised:
        if is_interrupt(raised):
            raise
        cause, line = raised, user_line(raised)
        outcome = f"raised {type(raised).__name__}: {raised}"
    where = "a punctuation" if context.topic is None else f"{context.topic}-{context.partition} offset {context.offset}"
    raise StreamsProcessingError(
        f"the {key} {outcome} when it was called for {type(error).__name__}: {error}"
        + (f"\n  {line}" if line else "")
        + f"\n  in node {context.node}, task {context.task}, at {where}",
        hint="return Response.CONTINUE or Response.FAIL from the handler for every error, and never raise",
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
    """Return the record's own headers plus its coordinates and the error, under Kafka Streams' names (KIP-1034)."""
    cause = error.__cause__ or error
    fields = {
        "exception": type(cause).__name__,
        "message": str(cause),
        "stacktrace": "".join(traceback.format_exception(cause)),
        "topic": context.topic or "",
        "partition": str(context.partition),
        "offset": str(context.offset),
        "timestamp": str(context.timestamp),
    }
    return [*context.headers, *((f"__streams.errors.{name}", text.encode("utf-8", "replace")) for name, text in fields.items())]
