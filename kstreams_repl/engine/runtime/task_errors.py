"""Errors of a task's nodes: who decides about them, and what is reported.

A processing exception handler is asked about errors of user code; what it does not skip, and every error without a handler, ends the
task. Invariant: after that error the task may only be closed, because its current record is half processed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import CodeType
from typing import NoReturn

from kstreams_repl.engine import serdes
from kstreams_repl.engine.operators.operator import Process
from kstreams_repl.engine.processor.record_context import context_of_error
from kstreams_repl.engine.runtime.compiler.compile import node_of_traceback
from kstreams_repl.engine.runtime.nodes.handlers import Handler, Response, ask
from kstreams_repl.engine.runtime.task_context import TaskServices
from kstreams_repl.engine.topology.description.user_lines import line_of, read_by_user, user_line
from kstreams_repl.engine.topology.nodes import Node, SourceNode
from kstreams_repl.system.errors import (
    IllegalStateTransitionError,
    InvalidRecordError,
    KStreamsError,
    NullKeyError,
    SerializationError,
    StreamsProcessingError,
    is_interrupt,
)
from kstreams_repl.system.types import Headers


class TaskErrors:
    """The errors of one task.

    Args:
        nodes: the task's nodes.
        handler: the processing exception handler; None is the default, "fail".

    Attributes:
        failure: the error that ended the task.
        codes: the code objects of the nodes' entries.
    """

    def __init__(self, services: TaskServices, nodes: Sequence[Node], handler: Handler | None) -> None:
        self._services = services
        self._nodes = nodes
        self.handler = handler
        self.failure: KStreamsError | None = None
        self.codes: Mapping[CodeType, str] = {}

    def fail(self, error: BaseException, node: str | None, otherwise: str = "a punctuation") -> NoReturn:
        """Raise an error that no handler handled: a `KStreamsError` as it is, others with coordinates."""
        if is_interrupt(error):  # passed on; the record that it interrupted is half processed
            self.failure = self.explain(error, node, otherwise)
            raise error
        if isinstance(error, KStreamsError) and not _has_no_location(error):
            self.failure = error
            raise error
        self.failure = self.explain(error, node, otherwise)
        raise self.failure from error

    def check(self) -> None:
        """Raise if the task has failed: its current record is half processed, so it may only be closed."""
        if self.failure is not None:
            raise IllegalStateTransitionError(
                f"task {self._services.task_id} failed and cannot continue: {self.failure.message}",
                hint="create a new task, which restarts from the last commit (in a test: a new driver)",
                task=str(self._services.task_id),
            ) from self.failure

    def explain(self, error: BaseException, node: str | None, otherwise: str = "a punctuation") -> StreamsProcessingError:
        """Return an error of user code with the node, the record and the user's line."""
        node = node_of_traceback(error, self.codes) or node
        context, line = context_of_error(error, self._services.record), user_line(error)
        if line is None and isinstance(error, SerializationError):  # the call that lacks a serde
            line = next((line_of(one.origin) for one in self._nodes if one.name == node), None)
        where = f"{context.topic}-{context.partition} offset {context.offset}" if context.topic is not None else otherwise
        return StreamsProcessingError(
            f"{type(error).__name__}: {error.message if isinstance(error, KStreamsError) else error}"
            + (f"\n  {line}" if line else "")
            + f"\n  in node {node}, task {self._services.task_id}, at {where}",
            hint=(isinstance(error, KStreamsError) and error.hint)
            or self._bytes_hint(error)
            or "fix the function and deploy again; committed results are kept and nothing is lost",
            node=node,
            task=str(self._services.task_id),
            topic=context.topic,
            partition=context.partition,
            offset=context.offset,
            user_line=line,
        )

    def guarded(self, node: str, entry: Process) -> Process:
        """Return the node's entry, with the processing handler asked about its errors."""
        decide, record = self.decide, self._services.record

        def entry_with_handler(key: object, value: object, timestamp: int, headers: Headers) -> None:
            outer_timestamp, outer_headers = record.timestamp, record.headers
            try:
                entry(key, value, timestamp, headers)
            except Exception as error:
                if not of_the_user(error):
                    raise
                decide(node, error)
                record.timestamp, record.headers = outer_timestamp, outer_headers

        return entry_with_handler

    def handled(self, node: str, error: Exception) -> bool:
        """Ask the processing handler about an error of user code, if there is one; return whether it continues."""
        if self.handler is None or not of_the_user(error):
            return False
        self.decide(node, error)
        return True

    def decide(self, node: str, error: Exception) -> None:
        """Ask the processing handler; raise if it does not continue."""
        handler = self.handler
        assert handler is not None
        context = self._services.error_context(node)
        try:
            answer = ask(handler, context, error, "processing.exception.handler")
        except StreamsProcessingError as failure:
            self.failure = failure
            raise
        if answer is not Response.CONTINUE:
            self.failure = self.explain(error, node)
            raise self.failure from error
        self._services.dead_letter(context, error)
        self._services.drop("processing", node)

    def _bytes_hint(self, error: BaseException) -> str | None:
        """Return a hint for a function that expected a dict or text and got bytes because the source has no serde."""
        record = self._services.record
        if not isinstance(error, TypeError | AttributeError) or "byte" not in str(error) or record.topic is None:
            return None
        sources = (node for node in self._nodes if isinstance(node, SourceNode) and record.topic in node.topics)
        if not any(self._services.value_serde(node.value_serde) is serdes.bytes_ for node in sources):
            return None
        serde = "json" if (record.raw_value or b"").lstrip()[:1] in (b"{", b"[") else "string"
        return f'{record.topic!r} is read as bytes, the default: value_serde="{serde}" at its source reads what looks like {serde}'


def of_the_user(error: Exception) -> bool:
    """Return whether the processing handler decides: for errors of user code and for invalid keys, values and records."""
    return not isinstance(error, KStreamsError) or isinstance(error, NullKeyError) or _has_no_location(error)


def _has_no_location(error: Exception) -> bool:
    """Return whether an error lacks a location, so that coordinates are added: the record is invalid, or a serde failed on what a store was
    given to write or inside a user's function. Sources and sinks name themselves and have their own handlers; a row that a store cannot
    read concerns more than this record."""
    if isinstance(error, InvalidRecordError):
        return True
    if not isinstance(error, SerializationError) or error.node is not None or error.topic is not None:
        return False
    return "reading" not in error.fields or read_by_user(error)
