"""The interface of an operator: a pure description whose `build` turns it into a callable of four arguments.

Actors: an `Operator` (functions, names and numbers; created by the DSL, shared by all tasks), a `NodeContext` (what one task provides
to one node), and the `Process` callables that the runtime chains. Invariant: `build` is called once per task and node after the
task's stores are open; tasks share no state, because all state is in the closure or in a store.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from kstreams_repl.engine.processor.processors import Cancellable
from kstreams_repl.engine.processor.punctuation import PunctuationType
from kstreams_repl.system.types import Headers, Outlet, RowLoop, TaskId

if TYPE_CHECKING:
    from pathlib import Path

    from kstreams_repl.engine.config import StreamsConfig
    from kstreams_repl.engine.metrics.custom import StreamsMetrics
    from kstreams_repl.engine.operators.batches.partial_columns import Merging
    from kstreams_repl.engine.processor.record_context import RecordContext
    from kstreams_repl.engine.serdes import Serde

Process = Callable[[Any, Any, int, Headers], None]
"""(key, value, timestamp, headers): process one record that enters a node."""

Change = tuple[Any, Any, bool]
"""A table record's value: (new, old, is_latest). `old` is None unless the parent is configured to send it."""


class TaskContext(Protocol):
    """The state that all nodes of one task share."""

    application_id: str
    task_id: TaskId
    config: StreamsConfig
    shared: dict[str, Any]
    """Objects that nodes of the task share by name (both sides of a stream-stream join share one time tracker)."""

    def key_serde(self, serde: object, topic: str | None = None) -> Any:
        """Return `serde`, or the application's default key serde if it is None, for one topic."""

    def value_serde(self, serde: object, topic: str | None = None) -> Any:
        """Return `serde`, or the application's default value serde if it is None, for one topic."""

    def metrics_of(self, node: str) -> StreamsMetrics:
        """Return the task's metrics."""

    def state_dir_of(self, node: str) -> Path:
        """Return the directory for files of the task's processors, created if it does not exist."""

    def async_node(self, operator: Any, node: NodeContext, forward: Process) -> Process:
        """Return the entry of an asynchronous node (`engine.operators.streams.stream_async`)."""

    def batch_node(self, operator: Any, node: NodeContext, forward: Process) -> Process:
        """Return the entry of a node that takes many records at once (`engine.operators.batches.batch_operator`)."""


class NodeContext(Protocol):
    """What one task provides to one node at `build`."""

    name: str
    record: RecordContext
    children: tuple[str, ...]
    metadata: dict[str, int]
    """Processor metadata of the task: numbers that are committed with its offsets (the last emit time of windows that are emitted on
    close). Restored before the `on_init` callbacks run, not before `build`."""

    @property
    def task(self) -> TaskContext: ...

    def store(self, name: str, *, headers: bool = False) -> Any:
        """Return the open store; raises InvalidStateStoreError if this node is not connected to it.

        Args:
            headers: a store that keeps headers shows them (a processor's); otherwise it reads and writes without them.
        """

    def owns(self, store: str) -> bool:
        """Return whether no other node has access to a store of this node."""

    def child(self, name: str) -> Process:
        """Return one child's entry, to forward to it alone."""

    def outlet(self, key_serde: Serde, value_serde: Serde) -> Outlet | None:
        """Return where rows serialized by these serdes can be sent unchanged: the topic downstream of this node, if no node in between
        needs the objects and the topic is written with the same serdes. None: forward the rows one by one."""

    def row_loop(self) -> RowLoop | None:
        """Return a function that forwards many rows to this node's children, if all nodes down to a sink fit into one loop."""

    @property
    def by_columns(self) -> bool:
        """Whether no handler of errors, metric or trace wants to see single records."""

    def merging(self) -> Merging | None:
        """Return what the only child offers that takes partials in columns, if nothing wants to see single records."""

    def stream_time(self) -> int:
        """Return the largest timestamp this task has taken from its queues; -1 before the first record."""

    def wall_clock(self) -> int:
        """Return the task's clock in ms (mocked in the test driver)."""

    def schedule(
        self, interval_ms: int, punctuation: PunctuationType, callback: Callable[[int], None], start_ms: int | None = None
    ) -> Cancellable: ...

    def request_commit(self) -> None: ...

    def remember(self, name: str, read: Callable[[], int], restore: Callable[[int], None]) -> None:
        """Commit a number of this operator with the task's offsets: its own stream time, which decides which records are late.

        Args:
            name: a name that survives an edit of the topology: that of the operator's store.
            read: called at each commit.
            restore: called before the `on_init` callbacks with the number of the last commit, if there is one.
        """

    def drop(self, reason: str, needed_grace_ms: int = 0) -> None:
        """Count one dropped record (`dropped-records-total`).

        Args:
            needed_grace_ms: of a late record, the smallest grace with which it would have been taken.
        """

    def on_close(self, callback: Callable[[], None]) -> None: ...

    def on_window_close(self, callback: Callable[[], None]) -> None:
        """Register a callback for the end of a bounded run that closes windows: it emits what waits in the operator's open windows, and
        advances its own stream time to their end, no further. Without open windows it does nothing."""

    def on_init(self, callback: Callable[[], None]) -> None:
        """Register a callback that runs once after every node of the task is built, in topology order (a processor may forward from it)."""


class Operator(ABC):
    """One DSL operator (or a wrapped user processor)."""

    __slots__ = ()

    carries_rows: ClassVar[bool] = False
    """This operator only forwards the newest value of a row, so rows may pass it as bytes (`NodeContext.outlet`)."""

    shows_headers: ClassVar[bool] = False
    """This operator passes the record's list of headers to user code."""

    one_to_one: ClassVar[bool] = False
    """Each input record leaves as one record, to all children, unless it is dropped; its output need not be counted separately."""

    hands_on: ClassVar[bool] = False
    """Output records are the input records, with the same list of headers. Other operators create new records."""

    role: ClassVar[Literal["", "aggregate", "join", "processor"]] = ""
    """On which rows its output depends: an aggregate continues its own, a join reads the other side's, a processor what its code reads."""

    word: ClassVar[str] = "node"
    """What a report on nodes that forward no record calls this node: "filter paid: 1,000 in, 0 out"."""

    @abstractmethod
    def build(self, node: NodeContext, forward: Process) -> Process:
        """Return this node's entry for one task.

        Args:
            node: the node's context in the task.
            forward: forwards a record to all children in the order they were added, depth first; with one child it is that child's entry.
        """
