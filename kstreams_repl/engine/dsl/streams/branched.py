"""`KStream.split()`: one node that sends each record to the first branch whose predicate accepts it."""

from __future__ import annotations

from typing import Generic, Self, TypeVar

from kstreams_repl.engine.dsl.graph.call_log import BuildLog, Handle, logged
from kstreams_repl.engine.dsl.graph.graph_nodes import OperatorGraphNode
from kstreams_repl.engine.dsl.options import Branched
from kstreams_repl.engine.dsl.streams.stream_base import AbstractStream, check_callable, check_kind
from kstreams_repl.engine.operators.streams.pass_through import PassThrough
from kstreams_repl.engine.operators.streams.stream_branch import StreamBranch
from kstreams_repl.engine.topology.names import validate_name
from kstreams_repl.system.types import Predicate

StreamT = TypeVar("StreamT", bound=AbstractStream)


class BranchedStream(Handle, Generic[StreamT]):
    """Branches under construction; end with `default_branch()` or `no_default_branch()`, which return the streams by node name."""

    def __init__(self, log: BuildLog, source: StreamT, splitter: OperatorGraphNode, operator: StreamBranch) -> None:
        self._log = log
        self._source = source
        self._splitter = splitter
        self._operator = operator
        self._branches: dict[str, StreamT] = {}

    @logged
    def branch(
        self,
        predicate: Predicate,
        branched: Branched | None = None,
        *,
        name: str | None = None,
    ) -> Self:
        """Add a branch for records for which `predicate(key, value)` is true and no earlier branch's predicate was.

        Args:
            predicate: (key, value) -> truth value.
            branched: options of the branch; None = its records become a stream in the result.
            name: suffix after the splitter's name; short for `Branched(name=...)`.

        Raises:
            TopologyError: a function is not callable.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> branches = words.split().branch(lambda key, word: len(word) > 3, name="long")
        """
        check_callable(predicate, "predicate", "branch")
        chosen = _branched(branched, name)
        self._operator.predicates.append(predicate)
        self._add(chosen, len(self._operator.predicates))
        return self

    @logged
    def default_branch(self, branched: Branched | None = None, *, name: str | None = None) -> dict[str, StreamT]:
        """Add a branch for all other records; returns all branches by node name.

        Args:
            branched: options of the branch; None = its records become a stream in the result.
            name: suffix after the splitter's name; short for `Branched(name=...)`.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> branches = words.split(name="by-").branch(lambda key, word: len(word) > 3, name="long").default_branch(name="short")
            >>> branches["by-short"].to("short-words")
        """
        self._add(_branched(branched, name), 0)
        return self._branches

    @logged
    def no_default_branch(self) -> dict[str, StreamT]:
        """Drop all other records; returns all branches by node name.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> branches = words.split(name="by-").branch(lambda key, word: len(word) > 3, name="long").no_default_branch()
            >>> branches["by-long"].to("long-words")
        """
        return self._branches

    def _add(self, branched: Branched, number: int) -> None:
        graph, source = self._graph, self._source
        suffix = str(number) if branched.name is None else branched.name
        name = validate_name(self._splitter.name + suffix, "node")
        self._operator.child_names.append(name)
        graph.new_processor_name(name)  # consumes a number, as in Kafka Streams
        node = OperatorGraphNode(name, graph.here(), PassThrough())
        graph.add(self._splitter, node)
        stream = source._after(node, source.key_serde, source.value_serde)
        if branched.with_function is not None:
            result = branched.with_function(stream)
            if result is not None:
                self._branches[name] = result
        elif branched.with_consumer is not None:
            branched.with_consumer(stream)
        else:
            self._branches[name] = stream

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._splitter.name}, {len(self._operator.child_names)} branches)"


def _branched(branched: Branched | None, name: str | None) -> Branched:
    if branched is None:
        return Branched(name)
    check_kind(branched, Branched, "branch")
    for what in ("with_function", "with_consumer"):
        if getattr(branched, what) is not None:
            check_callable(getattr(branched, what), what, "branch", "stream")
    return branched if name is None else Branched(name, branched.with_function, branched.with_consumer)
