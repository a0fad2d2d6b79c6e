"""What an operator is: a pure description with one method that turns it into a callable of four arguments.

Actors: an `Operator` (functions, names and numbers; made by the DSL, shared by all tasks), a `NodeContext` (what one task gives one
node), and the `Process` callables that the runtime chains. Invariant: `build` is called once per task and node after the task's stores
are open; nothing of one task leaks into another because all state lives in the closure or in a store.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from kstreams_repl.types import Headers, Outlet

if TYPE_CHECKING:
    from kstreams_repl.runtime.record_context import RecordContext

Process = Callable[[Any, Any, int, Headers], None]
"""(key, value, timestamp, headers): one record enters a node."""

Change = tuple[Any, Any, bool]
"""A table record's value: (new, old, is_latest). `old` is None unless the parent was told to send it."""


class Cancellable(Protocol):
    def cancel(self) -> None: ...


class TaskContext(Protocol):
    """What all nodes of one task share."""

    application_id: str
    task_id: Any
    config: Any
    shared: dict[str, Any]
    """What nodes of the task share with each other under a name (both sides of a stream-stream join: one time tracker)."""

    def key_serde(self, serde: Any) -> Any:
        """`serde`, or the application's default key serde when it is None."""

    def value_serde(self, serde: Any) -> Any:
        """`serde`, or the application's default value serde when it is None."""


class NodeContext(Protocol):
    """What the runtime gives one node of one task at `build`."""

    name: str
    record: RecordContext
    children: tuple[str, ...]
    metadata: dict[str, int]
    """Processor metadata of the task: numbers that are committed with its offsets (the last emit time of windows that are emitted on
    close). Restored before `on_init` callbacks run, not before `build`."""

    @property
    def task(self) -> TaskContext: ...

    def store(self, name: str) -> Any:
        """The open store; InvalidStateStoreError when this node is not connected to it."""

    def child(self, name: str) -> Process:
        """One child's entry, for forwarding to it alone."""

    def forward_to(self, name: str) -> Process:
        """Alias of `child` that raises a typed error with a hint for an unknown name."""

    def outlet(self, key_serde: Any, value_serde: Any) -> Outlet | None:
        """Where rows written by these serdes may leave as they are: the topic behind this node, if nothing on the way must see
        objects and it is written with the same serdes. None: forward them one by one."""

    def stream_time(self) -> int:
        """Largest timestamp this task has taken from its queues; -1 before the first record."""

    def wall_clock(self) -> int:
        """The task's clock in ms (mocked in the test driver)."""

    def schedule(self, interval_ms: int, punctuation: Any, callback: Callable[[int], None], start_ms: int | None = None) -> Cancellable: ...

    def request_commit(self) -> None: ...

    def drop(self, reason: str) -> None:
        """Count one dropped record (`dropped-records-total`)."""

    def on_close(self, callback: Callable[[], None]) -> None: ...

    def on_init(self, callback: Callable[[], None]) -> None:
        """Called once after every node of the task is built, in topology order (a processor may forward from there)."""


class Operator(ABC):
    """One DSL operator (or a wrapped user processor)."""

    __slots__ = ()

    carries_rows: ClassVar[bool] = False
    """This operator only hands on the newest value of a row: rows may pass it as bytes (`NodeContext.outlet`)."""

    shows_headers: ClassVar[bool] = False
    """User code gets the list of a record's headers from this operator."""

    hands_on: ClassVar[bool] = False
    """What leaves is the very record that came, with its own list of headers. What other operators make is a new record."""

    @abstractmethod
    def build(self, node: NodeContext, forward: Process) -> Process:
        """Make this node's entry for one task.

        Args:
            node: the task's side of the node.
            forward: hands a record to all children, in insertion order, depth first; with one child it is that child's entry.
        """
