"""The iterator of a query: over the rows of one or more tasks, each as of one commit. It holds a read transaction of each until it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from kstreams_repl.engine.stores.engine.failures import RawError
from kstreams_repl.serving.queries.task_view import migrated
from kstreams_repl.system.errors import InvalidStateStoreError


class Holder(Protocol):
    """What an iterator gives its view back to."""

    task: Any

    def give(self, view: Any) -> None:
        """Take a view back."""


Held = tuple[Holder, object, Iterator[object]]
_NOTHING: object = object()


class RowIterator:
    """Rows of a store. A context manager; it closes itself after the last row, and when it is dropped.

    While it is open the store's file keeps the pages of its commit: close it, or read it to its end.

    Example:
        >>> with app.store("counts", ks.queries.QueryableStoreTypes.key_value_store()).all() as rows:  # doctest: +SKIP
        ...     first = next(rows)
    """

    def __init__(self, held: Sequence[Held], show: Callable[[Any], object] | None = None) -> None:
        self._held = list(held)
        self._rows = iter(()) if not held else self._held[0][2]
        self._show = show
        self._peeked: Any = _NOTHING
        self._closed = False

    def __iter__(self) -> RowIterator:
        return self

    def __next__(self) -> Any:
        if self._peeked is not _NOTHING:
            row, self._peeked = self._peeked, _NOTHING
            return row
        if self._closed:
            raise InvalidStateStoreError("this iterator is closed", hint="query again")
        held = self._held
        while held:
            try:
                row = next(self._rows)
            except StopIteration:
                self._end_first()
                continue
            except RawError as error:
                task = held[0][0].task
                self._release()
                raise migrated(task) from error
            return row if self._show is None else self._show(row)
        raise StopIteration

    def peek_next_key(self) -> Any:
        """Return the key of the next row, without going on to it.

        Raises:
            StopIteration: there is none.
        """
        if self._peeked is _NOTHING:
            self._peeked = next(self)
        return self._peeked[0]

    def _end_first(self) -> None:
        reader, view, _ = self._held.pop(0)
        self._rows = self._held[0][2] if self._held else iter(())
        reader.give(view)

    def _release(self) -> None:
        held, self._held, self._rows = self._held, [], iter(())
        while held:
            reader, view, rows = held.pop()
            del rows  # ends its cursor first
            reader.give(view)

    def close(self) -> None:
        """End the read transactions; may be repeated."""
        self._closed = True
        self._peeked = _NOTHING
        self._release()

    def __enter__(self) -> RowIterator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self._release()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "at its end" if not self._held else f"{len(self._held)} tasks to read"
        return f"RowIterator({state})"
