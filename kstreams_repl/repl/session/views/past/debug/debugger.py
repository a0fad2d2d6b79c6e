"""`Debugger`: one record of an application, stepped through node by node, on a local copy of its task.

Actors: a `TaskReplica` from the last commit before the record; the `RecordTrace` of the record, which the first step executes and further
steps walk; edited functions, with which the record runs again from the same state. Nothing reaches the application or its broker.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from kstreams_repl.engine.runtime.calls.call_results import ResultLog
from kstreams_repl.engine.runtime.task import TaskSpec
from kstreams_repl.engine.topology.description.user_lines import is_users
from kstreams_repl.engine.topology.graph import TopologyGraph
from kstreams_repl.engine.topology.nodes import Node, ProcessorNode
from kstreams_repl.pictures.graph.mimebundle import html_of
from kstreams_repl.pictures.graph.picture import Mark, picture_of
from kstreams_repl.pictures.table import Table
from kstreams_repl.pictures.wording import counted
from kstreams_repl.repl.session.views.past.debug.saved_test import Expected, test_text
from kstreams_repl.repl.session.views.past.replay.record_trace import NodeVisit, RecordTrace
from kstreams_repl.repl.session.views.past.replay.replica import Starts, TaskReplica
from kstreams_repl.system.errors import CallError, IllegalStateError, KStreamsError, did_you_mean
from kstreams_repl.system.files import replacing
from kstreams_repl.system.types import RecordBatch, RecordPosition, TopicPartition

_SECONDARY = ("initializer", "merger", "remove", "key_mapper")
"""Fields of operators with several functions that `edit` changes only if they are named, unless no other function is there."""


class _Breakpoint(NamedTuple):
    node: str | None
    key: object
    where: Callable[[Any, Any], object] | None

    def stops(self, visit: NodeVisit) -> bool:
        if visit.input is None:
            return self.node == visit.node and self.key is _ANY and self.where is None
        key, value = visit.input[:2]
        return (
            self.node in (None, visit.node)
            and (self.key is _ANY or self.key == key)
            and (self.where is None or bool(self.where(key, value)))
        )


_ANY: Any = object()


class Debugger:
    """One record in a local copy of its task, and the way it takes through the nodes. Get one from `Application.debug`.

    The record runs at the first `step`, in the caller's thread, so that `breakpoint()` in a function opens the debugger there; it runs to
    its end, a commit included, and steps then walk what happened. The wall clock shows the largest timestamp so far. An error is raised
    by the step that comes to its node, as the function raised it: `%debug` opens the function's frame.

    Args:
        spec: the task that processes the record.
        position: the record.
        starts: the committed offsets of the task's input partitions at a commit before the record, with their metadata.
        records: by input partition, the records from those offsets on, as far as `run` may go.
        state: a directory with the task's stores as of that commit; None: they are empty.
        global_stores: stores of global tables.
        results: durable results of asynchronous nodes.
        partitions: (topic) -> number of partitions, for the outputs; None: 1 each.
        topology: drawn with the path of the record; None: no picture.
        program: source text that sets ``__topology__``, for `save_test`; None: name a module there.

    Attributes:
        position: the record that is debugged now.

    Raises:
        IllegalStateError: the record is not among `records`.

    Example:
        >>> debugger = app.debug("orders-0@17")     # doctest: +SKIP
        >>> debugger.step()                         # doctest: +SKIP
        >>> debugger.edit("total", lambda key, order, total: total + order["amount"])   # doctest: +SKIP
        >>> debugger.again()                        # doctest: +SKIP
        >>> debugger.save_test("test_orders.py", expect={"totals": [("UA", 12)]})       # doctest: +SKIP
    """

    def __init__(
        self,
        spec: TaskSpec,
        position: RecordPosition,
        *,
        starts: Starts,
        records: Mapping[TopicPartition, RecordBatch],
        state: Path | None = None,
        global_stores: Mapping[str, object] | None = None,
        results: ResultLog | None = None,
        partitions: Callable[[str], int] | None = None,
        topology: TopologyGraph | None = None,
        program: str | None = None,
    ) -> None:
        self.position = position
        self._spec, self._nodes = spec, list(spec.subtopology.nodes)
        self._records, self._topology, self._program = records, topology, program
        self._made: dict[str, Any] = {
            "starts": starts, "state": state, "global_stores": global_stores, "results": results, "partitions": partitions,
        }  # fmt: skip
        self._breakpoints: list[_Breakpoint] = []
        self._replica: TaskReplica | None = None
        self._trace: RecordTrace | None = None
        self._index = -1
        self._raw(position)

    # ---- walk

    @property
    def trace(self) -> RecordTrace:
        """All that happened to the record; runs it if it has not run."""
        if self._trace is None:
            self._execute()
        assert self._trace is not None
        return self._trace

    @property
    def visit(self) -> NodeVisit | None:
        """The visit at which the debugger stands; None: before the first one."""
        return None if self._index < 0 else self.trace.visits[self._index]

    def step(self) -> NodeVisit:
        """Advance to the next visit of a node and return it; after the last one, to the first one of the task's next record.

        Raises:
            Exception: what a function raised in the node, as it was raised.
            IllegalStateError: the record failed before, or there is no further record.

        Example:
            >>> debugger.step()                                               # doctest: +SKIP
        """
        while self._index + 1 == len(self.trace.visits):
            error = self.trace.error
            if error is not None and not any(visit.error is not None for visit in self.trace.visits):
                self._raise(error, error)  # not in a node: a record that cannot be read, a punctuation
            self._next_record()
        self._index += 1
        visit = self.trace.visits[self._index]
        if visit.error is not None:
            self._raise(visit.error, self.trace.error)
        return visit

    def breakpoint(self, node: str | None = None, *, key: object = _ANY, where: Callable[[Any, Any], object] | None = None) -> None:
        """Have `run` stop at visits that fulfil all of the conditions.

        Args:
            node: name of the node; None: any.
            key: the key of the record that enters it (not given: any, None included).
            where: (key, value) -> truth value; of a table the value is ``(new, old, is_latest)``.

        Raises:
            CallError: the task has no such node, or no condition is given.

        Example:
            >>> debugger.breakpoint("total", key="UA")                        # doctest: +SKIP
            >>> debugger.breakpoint(where=lambda key, value: value is None)   # doctest: +SKIP
        """
        if node is None and key is _ANY and where is None:
            raise CallError("a breakpoint needs a condition", hint='debugger.breakpoint("node"), key="…" or where=lambda key, value: …')
        if node is not None:
            self._node(node)
        self._breakpoints.append(_Breakpoint(node, key, where))

    def run(self) -> NodeVisit | None:
        """Go on to the next breakpoint, through the task's further records; return the visit, or None after the last record.

        Raises:
            Exception: what a function raised on the way.
            IllegalStateError: the record failed before.

        Example:
            >>> debugger.breakpoint("total", key="UA")                        # doctest: +SKIP
            >>> debugger.run()                                                # doctest: +SKIP
        """
        while True:
            try:
                visit = self.step()
            except _NoRecordError:
                return None
            if any(each.stops(visit) for each in self._breakpoints):
                return visit

    # ---- change

    def edit(self, node: str, function: Any, *, argument: str | None = None) -> None:
        """Replace a function of a node, here only; `again` runs the record with it. Earlier records keep the old one.

        Args:
            node: name of the node.
            function: takes what the old one takes. Of a processor it is the class, or a function that returns a new processor.
            argument: which function of a node with several, such as ``initializer``; None: the one that takes the record.

        Raises:
            CallError: the task has no such node, the node has no such function, or `function` cannot be called.

        Example:
            >>> debugger.edit("share", lambda value: 100 // (value or 1))     # doctest: +SKIP
            >>> debugger.edit("total", lambda: 0.0, argument="initializer")   # doctest: +SKIP
        """
        found = self._node(node)
        if not callable(function) and not isinstance(function, list):
            raise CallError(f"expected a function for {node}, got {function!r}", hint="debugger.edit(node, lambda value: …)", node=node)
        operator = found.operator if isinstance(found, ProcessorNode) else found
        if not dataclasses.is_dataclass(operator) or isinstance(operator, type):
            assert isinstance(found, ProcessorNode)
            self._replace(found, dataclasses.replace(found, operator=function))  # the supplier itself
            return
        name = argument or _function_of(operator, node)
        old = getattr(operator, name, None)
        if name not in {field.name for field in dataclasses.fields(operator)} or not _is_function(old):
            raise CallError(f"{node} has no function {name!r}", hint=f"it has {', '.join(_functions(operator)) or 'none'}", node=node)
        for each in self._nodes:  # the other side of a join has the same function, from the same line
            side = getattr(each, "operator", each)
            if each is found or (each.origin.file and each.origin == found.origin and getattr(side, name, None) is old):
                changed: Any = dataclasses.replace(side, **{name: function})
                self._replace(each, changed if side is each else dataclasses.replace(each, operator=changed))

    def again(self) -> RecordTrace:
        """Run the record again from the same state, with the edited functions; return what happened, an error included.

        The next `step` begins at its first node. The state is a fresh copy: what the record changed before is undone.

        Example:
            >>> debugger.again()                                              # doctest: +SKIP
        """
        self._close_replica()
        return self.trace

    # ---- look

    def state(self, store: str) -> Table:
        """Return the rows of a store that the record has touched, before it and up to where the debugger stands.

        Args:
            store: name of the store.

        Raises:
            CallError: the task has no such store.

        Example:
            >>> debugger.state("totals")                                      # doctest: +SKIP
        """
        stores = [builder.name for builder in self._spec.subtopology.stores]
        if store not in stores:
            raise CallError(f"the task has no store {store!r}", hint=did_you_mean(store, stores) or f"it has {', '.join(stores) or 'none'}")
        rows: dict[str, list[Any]] = {}
        for visit in self.trace.visits[: self._index + 1]:
            for access in visit.stores:
                if access.store == store:
                    rows.setdefault(repr(access.key), [access.key, access.before, None])[2] = access.after
        where = self.visit.node if self.visit is not None else "the first node"
        return Table.of(("key", "before", "after"), rows.values(), title=store, note=f"touched by {self.position} up to {where}")

    def save_test(
        self, path: str | os.PathLike[str], *, expect: Mapping[str, Expected] | None = None, topology: str | None = None
    ) -> Path:
        """Write a pytest file that runs the record against the topology with the state it needs, and fails now.

        It needs nothing but `kstreams_repl` and the topology: the rows that the record read are in it, with the functions as they were
        and as they are edited. Where the record raised, the test fails with that error until the topology is mended; without an edit
        the rows that it would have read after that are those of its key in key-value stores. Rows of global tables are not in it.

        Args:
            path: the file; it is replaced.
            expect: what should come out: by output topic a list of (key, value), or by store a dict of key and value. None: what
                the test fails with is the error, and without one you complete the expected values in the file.
            topology: ``module:name`` of the topology, builder, or function that returns one; None: the program is in the file.

        Raises:
            IllegalStateError: neither `topology` nor a program is known.
            CallError: `expect` names neither an output topic nor a store of the task.

        Example:
            >>> debugger.save_test("test_orders.py", expect={"out": [("UA", 12)], "totals": {"UA": 12}})   # doctest: +SKIP
        """
        if topology is None and self._program is None:
            raise IllegalStateError("the source text of the topology is not known", hint='save_test(path, topology="module:name")')
        with self._open(edited=False) as replica:
            before, trace, record = replica.starts, replica.step_record(), self._raw(self.position)
            assert trace is not None
            if trace.raised is not None:
                replica.read_rows_of(record.keys[0])
            if any(node is not old for node, old in zip(self._nodes, self._spec.subtopology.nodes, strict=True)):
                with self._open(edited=True) as mended:
                    mended.step_record()
                    replica.noted.add(mended.noted)
            text = test_text(
                self._spec, trace, record, before, replica.noted,
                expect=expect, program=self._program, topology=topology,
            )  # fmt: skip
        with replacing(Path(path)) as file:
            file.write(text.encode())
        return Path(path)

    def close(self) -> None:
        """Remove the copy; idempotent.

        Example:
            >>> debugger.close()                                              # doctest: +SKIP
        """
        self._close_replica()

    def __enter__(self) -> Debugger:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._trace is None:
            return f"Debugger({self.position}, task {self._spec.task_id}, not run)"
        where = "before the first node" if self.visit is None else f"at {self.visit.node}"
        return f"Debugger({self.position}, task {self._spec.task_id}, {where}, {counted(len(self._trace.visits), 'visit')})"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        if self._trace is None:
            return {"text/plain": repr(self)}
        table = self._trace.table(self._index)
        picture = "" if self._topology is None else html_of(picture_of(self._topology, title=str(self.position), marks=self._marks()))
        return {"text/plain": f"{self!r}\n{table.text()}", "text/html": picture + str(table.html())}

    # ---- inside

    def _marks(self) -> dict[str, Mark]:
        """Return what lights the path in the picture."""
        marks: dict[str, Mark] = {}
        for index, visit in enumerate(self.trace.visits):
            failed, drops = visit.error is not None, [f"dropped: {reason}" for reason in visit.drops]
            former = marks.get(f"node:{visit.node}")
            lines = [*(() if former is None else former.lines), *drops, *(["▶ here"] if index == self._index else [])]
            marks[f"node:{visit.node}"] = Mark("failed" if failed else None, tuple(dict.fromkeys(["✓ passed", *lines])))
            for access in visit.stores:
                marks[f"store:{access.store}"] = Mark(lines=("✓ used",))
        return marks

    def _raw(self, position: RecordPosition) -> RecordBatch:
        """Return a record as it is on the broker."""
        batch = self._records.get(TopicPartition(position.topic, position.partition))
        rows = [] if batch is None else [index for index, offset in enumerate(batch.offsets) if offset == position.offset]
        if batch is None or not rows:
            raise IllegalStateError(
                f"{position} is not among the records of task {self._spec.task_id}",
                hint="its partitions are " + ", ".join(map(str, self._spec.partitions)),
                topic=position.topic, partition=position.partition, offset=position.offset,
            )  # fmt: skip
        return batch.part(slice(rows[0], rows[0] + 1))

    def _open(self, *, edited: bool) -> TaskReplica:
        """Return a replica just before the record."""
        replica = TaskReplica(self._spec, **self._made)
        try:
            for partition, batch in self._records.items():
                replica.feed(partition, batch)
            replica.run_to(self.position, nodes=self._nodes if edited else None)
        except BaseException:
            replica.close()
            raise
        return replica

    def _execute(self) -> None:
        self._replica = self._open(edited=True)
        self._trace, self._index = self._replica.step_record(), -1

    def _next_record(self) -> None:
        assert self._replica is not None and self._trace is not None
        if self._trace.error is not None:
            raise IllegalStateError(f"{self.position} failed, so the task cannot go on", hint="edit(node, function), then again()")
        following = self._replica.step_record()
        if following is None:
            raise _NoRecordError(f"there is no record after {self.position} here", hint="again() returns to the start of this one")
        self._trace, self._index, self.position = following, -1, following.position

    def _close_replica(self) -> None:
        replica, self._replica, self._trace, self._index = self._replica, None, None, -1
        if replica is not None:
            replica.close()

    def _node(self, name: str) -> Node:
        for node in self._nodes:
            if node.name == name:
                return node
        names = [node.name for node in self._nodes]
        raise CallError(f"the task has no node {name!r}", hint=did_you_mean(name, names) or f"it has {', '.join(names)}", node=name)

    def _replace(self, old: Node, new: Node) -> None:
        self._nodes[self._nodes.index(old)] = new

    def _raise(self, error: BaseException, failure: KStreamsError | None) -> None:
        """Raise an error as user code raised it, where user code is the innermost frame, with the record's coordinates as a note."""
        while isinstance(error, KStreamsError) and error.__cause__ is not None:
            error = error.__cause__
        frames = []
        trace = error.__traceback__
        while trace is not None:
            frames.append(trace)
            trace = trace.tb_next
        last = max((index for index, each in enumerate(frames) if is_users(each.tb_frame.f_code.co_filename)), default=len(frames) - 1)
        ours: TracebackType | None = None
        for each in reversed(frames[: last + 1]):
            ours = TracebackType(ours, each.tb_frame, each.tb_lasti, each.tb_lineno)
        if failure is not None and failure is not error and not getattr(error, "__notes__", None):
            error.add_note(failure.message)
        raise error.with_traceback(ours)


class _NoRecordError(IllegalStateError):
    """There is no further record."""


def _is_function(value: object) -> bool:
    return callable(value) or (isinstance(value, list) and bool(value) and all(map(callable, value)))


def _functions(operator: Any) -> list[str]:
    """Return the names of an operator's functions of the user: neither serdes nor what reads a table."""
    kinds = ("object", "ValueGetter")
    return [
        field.name
        for field in dataclasses.fields(operator)
        if not str(field.type).startswith(kinds) and not field.name.endswith("_serde") and _is_function(getattr(operator, field.name))
    ]


def _function_of(operator: Any, node: str) -> str:
    """Return the name of the operator's one function that takes the record."""
    names = _functions(operator)
    first = [name for name in names if name not in _SECONDARY] or names
    if len(first) == 1:
        return first[0]
    raise CallError(
        f"{node} has {'several functions' if names else 'no function'}",
        hint=f"name one: argument={' or '.join(map(repr, names))}" if names else "edit another node, or the topology",
        node=node,
    )
