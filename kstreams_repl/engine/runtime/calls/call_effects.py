"""What a processor's call does to its task, recorded while it runs elsewhere and replayed on the task's thread when it has ended.

Invariants: nothing of a call is seen before all of it; a failed call leaves nothing. Reads run on the task's thread at once and see the
call's own writes of key-value stores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from inspect import isawaitable
from typing import Any

from kstreams_repl.engine.operators.operator import NodeContext, Process
from kstreams_repl.engine.operators.own_copy import own_copy
from kstreams_repl.engine.processor.current_call import CallContext
from kstreams_repl.engine.processor.record import FixedKeyRecord, Record
from kstreams_repl.system.errors import CallError, InvalidStateStoreError
from kstreams_repl.system.types import TaskId

_WRITES = frozenset({"put", "put_if_absent", "put_all", "delete", "remove"})
_ANSWERED = frozenset({"put_if_absent", "delete"})
"""Writes that return a value, which is not known before the replay."""
_OTHER = object()
"""Stands for rows of a store that is not a plain key-value store."""


class CallEffects:
    """The context of one call of an asynchronous processor.

    Attributes:
        record: the record that is processed.
    """

    def __init__(
        self, node: NodeContext, call: Any, fixed_key: bool, forward: Process, ask: Callable[[Callable[[], object]], object]
    ) -> None:
        self._node, self._call, self._ask, self._forward = node, call, ask, forward
        self._kind: type[Record] | type[FixedKeyRecord] = FixedKeyRecord if fixed_key else Record
        self.record = self._kind(own_copy(call.key), own_copy(call.value), call.timestamp, call.headers)
        self._effects: list[Callable[[], None]] = []
        self._written: dict[str, dict[object, object]] = {}

    @property
    def call(self) -> CallContext:
        """The call's coordinates and its idempotency key."""
        context: CallContext = self._call.context
        return context

    @property
    def application_id(self) -> str:
        return self._node.task.application_id

    @property
    def task_id(self) -> TaskId:
        return self._node.task.task_id

    def forward(self, record: object, child: str | None = None) -> None:
        """Forward a record, as it is now, when the call has ended.

        Raises:
            CallError: it is not a record of the right kind.
        """
        if not isinstance(record, self._kind):
            raise CallError(
                f"{self._node.name} cannot forward a {type(record).__name__}",
                hint=f"forward a {self._kind.__name__}, for example record.with_value(...)", node=self._node.name,
            )  # fmt: skip
        target = self._forward if child is None else self._node.child(child)
        kept = record.with_value(own_copy(record.value))
        self._effects.append(lambda: self._send(target, kept))

    def _send(self, target: Process, record: Record | FixedKeyRecord) -> None:
        context = self._node.record
        outer_timestamp, outer_headers = context.timestamp, context.headers
        context.timestamp, context.headers = record.timestamp, record.headers
        try:
            target(record.key, record.value, record.timestamp, record.headers)
        finally:
            context.timestamp, context.headers = outer_timestamp, outer_headers

    def store(self, name: str) -> CallStore:
        """Return a store: reads are answered at once (`await` them in an `async def`), writes take effect when the call has ended."""
        return CallStore(self._node.store(name, headers=True), self._written.setdefault(name, {}), self._effects, self._ask)

    def replay(self) -> None:
        """Do everything, in order. On the task's thread."""
        for effect in self._effects:
            effect()


class CallStore:
    """A store as a running call sees it."""

    def __init__(
        self, store: Any, written: dict[object, object], effects: list[Callable[[], None]], ask: Callable[[Callable[[], object]], object]
    ) -> None:
        self._store, self._written, self._effects, self._ask = store, written, effects, ask

    def get(self, key: object) -> Any:
        """Return a key's value, as this call has left it."""
        if key in self._written:
            value = own_copy(self._written[key])
            return self._ask(lambda: value)
        return self._ask(lambda: self._store.get(key))

    def put(self, *arguments: object) -> None:
        """Put a value, as it is now, when the call has ended."""
        arguments = own_copy(arguments)
        if len(arguments) == 2:
            self._written[arguments[0]] = arguments[1]
        else:
            self._written[_OTHER] = None
        self._effects.append(lambda: self._store.put(*arguments))

    def put_all(self, entries: Iterable[tuple[object, object]]) -> None:
        """Put rows when the call has ended."""
        for key, value in entries:
            self.put(key, value)

    def delete(self, key: object) -> None:
        """Delete a key when the call has ended. Unlike a store's own `delete` it returns nothing."""
        self._written[key] = None
        self._effects.append(lambda: self._store.delete(key))

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name in _WRITES:
            if name in _ANSWERED:
                raise InvalidStateStoreError(
                    f"{name}() of store {self._store.name!r} returns what is only known when the call has ended",
                    hint="use get() and put()", store=self._store.name,
                )  # fmt: skip
            self._written[_OTHER] = None
            return lambda *arguments: self._effects.append(partial(method, *own_copy(arguments)))
        if not callable(method):
            return method

        def read(*arguments: object, **more: object) -> object:
            if self._written:
                raise InvalidStateStoreError(
                    f"{name}() of store {self._store.name!r} does not see what this call has written",
                    hint="read before you write, or use get()", store=self._store.name,
                )  # fmt: skip
            return self._ask(lambda: _fixed(method(*arguments, **more)))

        return read


def _fixed(answer: Any) -> object:
    """Return an answer that no thread changes: an iterator's rows as a list."""
    return list(answer) if hasattr(answer, "__next__") and not isawaitable(answer) else answer
