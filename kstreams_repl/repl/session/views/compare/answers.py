"""What a comparison runs instead of nodes with effects: nothing for `peek`, `foreach` and `print`; one answer for both sides for calls.

The function of an asynchronous node is called once for what both sides ask: the control's answer is given to the other side, too, call by
call. So a service is not asked twice, and an answer that is another one each time is no difference.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from kstreams_repl.engine.calls.node_caller import is_async
from kstreams_repl.engine.operators.streams.stream_async import StreamAsync
from kstreams_repl.engine.operators.streams.stream_peek import StreamPeek, StreamPrint
from kstreams_repl.engine.topology.nodes import Node, ProcessorNode
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.repl.session.views.past.replay.recorded_answers import refused
from kstreams_repl.system.errors import IllegalStateError

_Call = tuple[str, bytes, bytes]


class Answers:
    """The answers of asynchronous functions, by node, code and arguments, in the order in which they were given.

    Args:
        calls: whether functions may be called.

    Attributes:
        called: by node, how often a function was called.
        reused: by node, how often an answer was given again.
    """

    def __init__(self, *, calls: bool) -> None:
        self._calls = calls
        self._refused: IllegalStateError | None = None
        self._known: dict[_Call, list[Any]] = defaultdict(list)
        self.called: dict[str, int] = defaultdict(int)
        self.reused: dict[str, int] = defaultdict(int)

    def of_a_side(self) -> Callable[[Sequence[Node]], Sequence[Node]]:
        """Return what makes the nodes of one side quiet; each side asks from the first answer on."""
        given: dict[_Call, int] = defaultdict(int)
        return lambda nodes: [self._quiet(node, given) for node in nodes]

    @contextmanager
    def asked_by(self, *topologies: Topology) -> Iterator[None]:
        """Raise if functions of topologies would be called that may not be: with other answers the rest is another application.

        Raises:
            IllegalStateError: at the begin, if no answer can be recorded; at the end, if one was not.
        """
        for node in (node for topology in topologies for node in topology.nodes.values()):
            operator = node.operator if isinstance(node, ProcessorNode) else None
            if isinstance(operator, StreamAsync) and not self._calls and (operator.is_processor or not operator.options.durable):
                raise refused(node.name)
        try:
            yield
        finally:
            if self._refused is not None:
                raise self._refused

    def _quiet(self, node: Node, given: dict[_Call, int]) -> Node:
        if not isinstance(node, ProcessorNode):
            return node
        operator = node.operator
        if isinstance(operator, StreamPeek):
            return replace(node, operator=replace(operator, action=_nothing))
        if isinstance(operator, StreamPrint):
            return replace(node, operator=StreamPeek(_nothing, forward_down=False))
        if isinstance(operator, StreamAsync):
            return replace(node, operator=self._answered(node.name, operator, given))
        return node

    def _answered(self, node: str, operator: StreamAsync, given: dict[_Call, int]) -> StreamAsync:
        function = operator.function
        if operator.is_processor:
            return operator
        version = operator.version

        def known(arguments: tuple[object, ...]) -> tuple[_Call, list[Any]]:
            call = node, version, _bytes(arguments)
            answers, number = self._known[call], given[call]
            given[call] += 1
            if number < len(answers):
                self.reused[node] += 1
                return call, answers[number : number + 1]
            if not self._calls:
                self._refused = self._refused or refused(node)
                raise self._refused
            self.called[node] += 1
            return call, []

        if is_async(function):

            async def ask(*arguments: object) -> object:
                call, found = known(arguments)
                if not found:
                    found = [await function(*arguments)]
                    self._known[call] += found
                return found[0]
        else:

            def ask(*arguments: object) -> object:  # type: ignore[misc]
                call, found = known(arguments)
                if not found:
                    found = [function(*arguments)]
                    self._known[call] += found
                return found[0]

        answered = replace(operator, function=ask)
        answered.__dict__["version"] = version  # recorded results are those of the user's function
        return answered


def _nothing(key: object, value: object) -> None:
    pass


def _bytes(arguments: tuple[object, ...]) -> bytes:
    try:
        return pickle.dumps(arguments)
    except Exception:  # noqa: BLE001 - not every object can be pickled
        return repr(arguments).encode()
