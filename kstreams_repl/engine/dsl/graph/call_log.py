"""The log of the user's calls on a builder, so that a topology can be built again, or built without one notebook cell.

Actors: a `Handle` is an object that the user holds (a stream, a table, a grouping); a `LoggedCall` is one outermost method call on a
handle; the `BuildLog` runs calls at once, so that errors are raised where they are made, and can *replay* them from the first on
a fresh graph. A replay updates the state of the handles that the user already holds, so that variables from earlier cells keep
working.

Re-running a cell replaces what it made: its old calls are removed, its new ones are logged at the position of the old ones (so
that generated names and hence stores keep their numbers), and a new call replaces the old one of the same method, in order, for
downstream cells that still hold the old handle. Downstream calls that lost their upstream are kept, and reported as problems
until it exists again.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

from kstreams_repl.engine.call_checks import BREAKS, check_kinds, check_names, spelled_out
from kstreams_repl.engine.dsl.graph.graph_builder import GraphBuilder
from kstreams_repl.engine.dsl.graph.topology_writer import build_topology
from kstreams_repl.engine.serdes.by_topic import Pair
from kstreams_repl.engine.topology.description.source_location import running_cell, user_origin
from kstreams_repl.engine.topology.differences.fingerprint import fingerprint
from kstreams_repl.engine.topology.nodes import Origin
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.system.errors import KStreamsError, TopologyError, did_you_mean
from kstreams_repl.system.types import UserFunction

F = TypeVar("F", bound=Callable[..., object])


class Handle:
    """An object of a builder that the user holds and calls methods on."""

    _log: BuildLog
    _alive: bool = True

    @property
    def _graph(self) -> GraphBuilder:
        return self._log.graph

    def _adopt(self, other: Handle) -> None:
        if self is not other:
            self.__dict__.clear()
            self.__dict__.update(other.__dict__)

    def _mark(self, alive: bool) -> None:
        self._alive = alive


@dataclass(eq=False, slots=True)
class LoggedCall:
    """One call by the user.

    Attributes:
        stands_for: results of earlier runs of the same cell that this call's result replaces.
        edited: by parameter, where the user last replaced a function (`StreamsBuilder.replace`).
        nodes: names of the graph nodes that it made.
    """

    function: UserFunction
    owner: Handle
    args: tuple[object, ...]
    kwargs: dict[str, object]
    origin: Origin
    result: object = None
    stands_for: list[object] = field(default_factory=list)
    edited: dict[str, Origin] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.function.__name__.lstrip("_")


@dataclass(frozen=True, slots=True)
class Problem:
    """A call that cannot be replayed: its upstream stream or table was removed, or it raises.

    Attributes:
        call: the method's name.
        origin: where the user wrote it.
        reason: what prevents the call.
        error: the error that the call raises, if it does.
    """

    call: str
    origin: Origin
    reason: str
    error: Exception | None = None

    def __str__(self) -> str:
        where = self.origin.cell or f"{self.origin.file}:{self.origin.line}"
        return f"{self.call}() in {where}: {self.reason}"


def logged(function: F) -> F:
    """Decorate a method of a handle so that its calls are logged; calls that it makes itself are not."""

    @functools.wraps(spelled_out(function))
    def call(self: Handle, /, *args: object, **kwargs: object) -> object:
        return self._log.run(function, self, args, kwargs)

    return cast("F", call)


class BuildLog:
    """All calls on one builder, and the graph that they made.

    Attributes:
        graph: the graph made by the calls so far.
        problems: calls that could not be replayed.
    """

    def __init__(self) -> None:
        self.calls: list[LoggedCall] = []
        self.graph = GraphBuilder()
        self.problems: list[Problem] = []
        self.source_serdes: Mapping[str, Pair] = {}
        """Default serdes by topic, for sources without serdes of their own."""
        self._inside = False
        self._stale = False
        self._position: dict[str, int] = {}
        self._replaced: dict[str, list[LoggedCall]] = {}
        self._behind: dict[str, LoggedCall | None] = {}
        """For each removed cell: the call that came after it."""
        self._runs: dict[str, int] = {}

    def run(self, function: UserFunction, owner: Handle, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """Run one call and log it; a call that raises leaves no trace."""
        if self._inside:
            return function(owner, *args, **kwargs)
        self._notice_rerun()
        if self._stale:
            self.replay()
        for handle in _handles((owner, args, kwargs)):
            self._usable(handle, function.__name__.lstrip("_"))
        try:
            check_names(function, (owner, *args), kwargs)
        except KStreamsError as error:
            error.fields.setdefault("node", kwargs.get("name") or f"{function.__name__.lstrip('_')}()")
            raise
        call = LoggedCall(function, owner, tuple(map(_repeatable, args)), {k: _repeatable(v) for k, v in kwargs.items()}, user_origin())
        try:
            call.result = self._execute(call)
        except BaseException as error:
            self._stale = True
            if isinstance(error, BREAKS) and not isinstance(error, KStreamsError):
                check_kinds(function, (owner, *args), kwargs, error)
            raise
        self._insert(call)
        return call.result

    def fresh_graph(self) -> GraphBuilder:
        """Return the graph of all calls, to be written to a topology; the next call starts on another graph.

        Raises:
            TopologyError: a call cannot be replayed.
        """
        self.replay()
        self._stale = True
        if self.problems:
            problem = self.problems[0]
            if problem.error is not None:
                raise problem.error
            raise TopologyError(
                f"the topology is incomplete: {problem}"
                + (f" (and {len(self.problems) - 1} more)" if len(self.problems) > 1 else ""),
                hint="run the cell that makes it again, or remove the cells that need it",
            )
        return self.graph

    def preview(self) -> Topology:
        """Return the topology of the calls that can be replayed; the others are in `problems`."""
        self.replay()
        self._stale = True
        return build_topology(self.graph, frozenset())

    def replay(self) -> None:
        """Rebuild everything from the first call on; afterwards every handle whose call succeeds has its new state."""
        self._match_reruns()
        for call in self.calls:
            for handle in _handles((call.result, call.stands_for)):
                handle._mark(False)
        self.graph = GraphBuilder()
        self.problems = []
        self._stale = False
        for call in self.calls:
            if not all(handle._alive for handle in _handles((call.owner, call.args, call.kwargs))):
                self.problems.append(Problem(call.name, call.origin, "its upstream stream or table was removed"))
                continue
            try:
                result = self._execute(call)
            except Exception as error:
                self.problems.append(Problem(call.name, call.origin, str(error), error))
                continue
            for old in (*call.stands_for, call.result):
                _adopt(old, result)

    def remove_cell(self, cell: str) -> int:
        """Remove the calls of a cell and return their number. If the cell runs again, its calls get their old position back, for
        the downstream cells that still hold its results.
        """
        old = [call for call in self.calls if call.origin.cell == cell]
        others = [call for call in self.calls if call.origin.cell != cell]
        self._position.pop(cell, None)
        if old:
            self._replaced[cell] = [*old, *self._replaced.pop(cell, [])]
            first = self.calls.index(old[0])
            self._behind[cell] = next((call for call in self.calls[first:] if call.origin.cell != cell), None)
            for call in self.calls:
                if call.origin.cell == cell:
                    for handle in _handles((call.result, call.stands_for)):
                        handle._mark(False)
            self.calls = others
            self.replay()
        return len(old)

    def replace(self, node: str, functions: dict[str | None, Any]) -> None:
        """Replace functions of the call that made a node, in place; see `StreamsBuilder.replace`."""
        call = self._maker(node)
        bound, keyed = _bound(call)
        callables = [name for name, value in keyed.items() if callable(value)]
        origin, edited = user_origin(), dict(call.edited)
        for name, function in functions.items():
            if name is None:
                name = callables[0] if callables else None
            if name is None or name not in callables:
                raise TopologyError(
                    f"{call.name}() that made {node} has no function {name!r}"
                    if name
                    else f"{call.name}() that made {node} takes no function",
                    hint=f"its functions are: {', '.join(callables) or 'none'}",
                    node=node,
                )
            if not callable(function):
                raise TopologyError(
                    f"expected a function as {name} of {node}, got {type(function).__name__}",
                    hint=f"give {call.name}() a function as {name}", node=node,
                )
            bound.arguments[name] = function
            edited[name] = origin
        call.args, call.kwargs, call.edited = bound.args[1:], bound.kwargs, edited
        self._stale = True

    def functions_of(self, node: str) -> tuple[str, ...]:
        """Return the parameter names under which `replace` finds the functions of the call that made a node.

        Raises:
            TopologyError: no call made that node.
        """
        return tuple(name for name, value in _bound(self._maker(node))[1].items() if callable(value))

    def remember(self) -> Callable[[], None]:
        """Return a function that takes the log back to the present calls and their functions. What the user's variables hold of calls
        after that stands for the call that the cell made before."""
        before = [(call, call.args, call.kwargs, call.edited) for call in self.calls]

        def go_back() -> None:
            kept = {id(call) for call, *_ in before}
            for call in reversed(self.calls):
                if id(call) not in kept:
                    for handle in _handles((call.result, call.stands_for)):
                        handle._mark(False)
                    if call.origin.cell is not None:
                        self._replaced.setdefault(call.origin.cell, []).insert(0, call)
            for call, args, kwargs, edited in before:
                call.args, call.kwargs, call.edited = args, kwargs, edited
            self.calls = [call for call, *_ in before]
            self._replaced = {cell: [call for call in calls if id(call) not in kept] for cell, calls in self._replaced.items()}
            self._position.clear()
            self._stale = True

        return go_back

    @property
    def files(self) -> set[str]:
        """The files, or runs of cells, in which its calls and their functions were written."""
        origins = (origin for call in self.calls for origin in (call.origin, *call.edited.values()))
        return {origin.file for origin in origins if origin.file is not None}

    def _maker(self, node: str) -> LoggedCall:
        if self._stale:
            self.replay()
        made = {name: call for call in reversed(self.calls) for name in call.nodes}
        made |= {
            handle.name: call for call in reversed(self.calls) for handle in _handles(call.result) if hasattr(handle, "name")
        }
        if node not in made:
            raise TopologyError(
                f"no call of this builder made {node!r}",
                hint=did_you_mean(node, list(made)) or "give the name of a node, a stream or a table",
                node=node,
            )
        return made[node]

    def begin_cell(self, cell: str) -> None:
        """Start another run of a cell: remove its calls, and log the new ones at their position."""
        self._match_reruns()
        old = [call for call in self.calls if call.origin.cell == cell]
        lost = self._replaced.pop(cell, [])  # made by an earlier run but not by the last one: they may be made again
        matched = {id(result) for call in old for result in call.stands_for}
        lost = [call for call in lost if id(call.result) not in matched]
        self._position.pop(cell, None)
        if old:
            position = self.calls.index(old[0])
            self.remove_cell(cell)
            self._position[cell] = position
        elif self._behind.get(cell) in self.calls:
            self._position[cell] = self.calls.index(cast("LoggedCall", self._behind[cell]))
        self._behind.pop(cell, None)
        if old or lost:
            self._replaced[cell] = [*old, *lost]

    def _notice_rerun(self) -> None:
        run = running_cell()
        if run is not None and self._runs.get(run.cell) != run.run:
            self._runs[run.cell] = run.run
            self.begin_cell(run.cell)

    def _execute(self, call: LoggedCall) -> object:
        self._inside = True
        self.graph.origin = call.origin
        made = self.graph.made = list[str]()
        try:
            result = call.function(call.owner, *call.args, **call.kwargs)
            call.nodes = tuple(made)
            return result
        except KStreamsError as error:  # add the node to any error: it is known here
            error.fields.setdefault("node", call.kwargs.get("name") or f"{call.name}()")
            raise
        finally:
            self._inside = False
            self.graph.origin = None

    def _insert(self, call: LoggedCall) -> None:
        cell = call.origin.cell
        position = None if cell is None else self._position.get(cell)
        if cell is None or position is None:
            self.calls.append(call)
        else:
            self.calls.insert(position, call)
            self._position[cell] = position + 1
            self._stale = True
        if cell in self._replaced:
            self._stale = True

    def _match_reruns(self) -> None:
        """Map each call of a cell that ran again to one of its earlier runs, for downstream cells."""
        for cell, replaced in self._replaced.items():
            fresh = [call for call in self.calls if call.origin.cell == cell]
            for call in fresh:
                call.stands_for = []
            left = list(replaced)
            for alike in (_signature, _given_name, _method):  # the same call, else the same name, else the same method
                for call in fresh:
                    if call.stands_for or alike(call) is None:
                        continue
                    old = next((old for old in left if alike(old) == alike(call)), None)
                    if old is not None:
                        call.stands_for = [old.result, *old.stands_for]
                        left.remove(old)

    def _usable(self, handle: Handle, method: str) -> None:
        if handle._log is not self:
            raise TopologyError(
                f"{method}() expected streams and tables of one builder, but {handle!r} belongs to another",
                hint="use one StreamsBuilder",
                node=f"{method}()",
            )
        if not handle._alive:
            raise TopologyError(
                f"{method}() is called on {handle!r}, which is no longer in the topology",
                hint="run the cell that makes it again",
                node=f"{method}()",
            )


_BUILT: WeakKeyDictionary[Topology, tuple[Handle, Callable[[], None]]] = WeakKeyDictionary()


def remember_build(topology: Topology, builder: Handle) -> None:
    """Note which calls of a builder made a topology, for `go_back_to`."""
    _BUILT[topology] = builder, builder._log.remember()


def go_back_to(topology: Topology, present: object) -> tuple[Handle, set[str], set[str]] | None:
    """Take the builder of a topology back to the calls that made it.

    Args:
        present: the builder, stream or table in use, whose calls may be others.

    Returns:
        `present`, or the builder of the topology if that is another one; the files, or runs of cells, of the calls that no longer count,
        and of those that count again. None: no builder of this process made the topology, or `present` is none.
    """
    builder, go_back = _BUILT.get(topology, (None, None))
    if builder is None or go_back is None or not isinstance(present, Handle):
        return None
    before = present._log.files
    go_back()
    after = builder._log.files
    return present if present._log is builder._log else builder, before - after, after


def _bound(call: LoggedCall) -> tuple[inspect.BoundArguments, dict[str, object]]:
    """Return a call's arguments, and those that can be given by name."""
    bound = inspect.signature(call.function).bind(call.owner, *call.args, **call.kwargs)
    return bound, {name: value for name, value in bound.arguments.items() if name != "self"}


def _method(call: LoggedCall) -> object:
    return call.function


def _given_name(call: LoggedCall) -> object:
    name = call.kwargs.get("name") or call.kwargs.get("store")
    return (call.function, name) if isinstance(name, str) else None


def _signature(call: LoggedCall) -> object:
    """Return the called method and its arguments, except streams and tables, which are new in each run."""
    plain = [argument for argument in call.args if not isinstance(argument, Handle)]
    named = {name: value for name, value in call.kwargs.items() if not isinstance(value, Handle)}
    return call.function, fingerprint((plain, named))


def _handles(value: object) -> Iterator[Handle]:
    if isinstance(value, Handle):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _handles(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _handles(item)


def _repeatable(value: object) -> object:
    """Return an iterator's items as a tuple: it can be read only once, and a replay needs the items again."""
    return tuple(value) if isinstance(value, Iterator) else value


def _adopt(old: object, new: object) -> None:
    """Give the handles in an earlier result the state of those in a new one; dicts get the new names as keys."""
    if old is new or old is None or new is None:
        return
    if isinstance(old, Handle) and isinstance(new, Handle):
        old._adopt(new)
        old._mark(True)
    elif isinstance(old, dict) and isinstance(new, dict):
        held = list(old.values())
        old.clear()
        for earlier, (name, fresh) in zip([*held, *[None] * len(new)], new.items(), strict=False):
            _adopt(earlier, fresh)
            old[name] = fresh if earlier is None else earlier
    elif isinstance(old, list) and isinstance(new, list):
        for earlier, fresh in zip(old, new, strict=False):
            _adopt(earlier, fresh)
