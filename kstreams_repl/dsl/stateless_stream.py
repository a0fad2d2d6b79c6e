"""Operators of a stream that process one record at a time without state: `filter`, `map`, `flat_map`, `peek`, `print`, ..."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kstreams_repl.dsl.call_log import logged
from kstreams_repl.dsl.graph_nodes import OperatorGraphNode
from kstreams_repl.dsl.stream_base import AbstractStream, check_callable
from kstreams_repl.operators.base import Operator
from kstreams_repl.operators.stream_filter import StreamFilter
from kstreams_repl.operators.stream_flat_map import StreamFlatMap
from kstreams_repl.operators.stream_flat_map_values import StreamFlatMapValues
from kstreams_repl.operators.stream_map import StreamMap
from kstreams_repl.operators.stream_map_values import StreamMapValues
from kstreams_repl.operators.stream_peek import StreamPeek, StreamPrint
from kstreams_repl.operators.stream_select_key import StreamSelectKey

if TYPE_CHECKING:
    from kstreams_repl.dsl.kstream import KStream

Predicate = Callable[[Any, Any], Any]


class StatelessStream(AbstractStream):
    """The stateless operators of `KStream`."""

    _repartition_required: bool

    def _put(
        self,
        operator: Operator,
        prefix: str,
        name: str | None,
        *,
        key_serde: Any = None,
        value_serde: Any = None,
        key_changing: bool = False,
        value_changing: bool = False,
    ) -> KStream:
        """Add a stateless operator downstream of this stream."""
        from kstreams_repl.dsl.kstream import KStream

        node = OperatorGraphNode(self._graph.name_or_generate(name, prefix), self._graph.here(), operator)
        node.key_changing = key_changing
        node.value_changing = value_changing
        self._graph.add(self._node, node)
        required = self._repartition_required or key_changing
        return KStream(self._log, node.name, key_serde, value_serde, self._sources, node, repartition_required=required)

    @logged
    def filter(self, predicate: Predicate, *, name: str | None = None) -> KStream:
        """Keep records for which `predicate(key, value)` is true.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> long_words = words.filter(lambda key, word: len(word) > 3)
        """
        check_callable(predicate, "predicate", "filter")
        return self._put(StreamFilter(predicate), "KSTREAM-FILTER-", name, key_serde=self.key_serde, value_serde=self.value_serde)

    @logged
    def filter_not(self, predicate: Predicate, *, name: str | None = None) -> KStream:
        """Keep records for which `predicate(key, value)` is false.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> kept = words.filter_not(lambda key, word: word.startswith("#"))
        """
        check_callable(predicate, "predicate", "filter_not")
        operator = StreamFilter(predicate, negate=True)
        return self._put(operator, "KSTREAM-FILTER-", name, key_serde=self.key_serde, value_serde=self.value_serde)

    @logged
    def map(self, mapper: Callable[[Any, Any], tuple[Any, Any]], *, name: str | None = None) -> KStream:
        """Replace each record by a new (key, value). The key may change, so operators that need it repartition first.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> by_letter = words.map(lambda key, word: (word[:1], word))
        """
        check_callable(mapper, "mapper", "map")
        return self._put(StreamMap(mapper), "KSTREAM-MAP-", name, key_changing=True)

    @logged
    def map_values(self, mapper: Callable[..., Any], *, with_key: bool = False, name: str | None = None) -> KStream:
        """Replace each record's value: `mapper(value)`, or `mapper(key, value)` with `with_key=True`. None values are passed too.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> loud = words.map_values(str.upper)
            >>> with_key = words.map_values(lambda key, word: f"{key}: {word}", with_key=True)
        """
        check_callable(mapper, "mapper", "map_values", "key, value" if with_key else "value")
        return self._put(
            StreamMapValues(mapper, with_key), "KSTREAM-MAPVALUES-", name, key_serde=self.key_serde, value_changing=True
        )

    @logged
    def flat_map(self, mapper: Callable[[Any, Any], Iterable[tuple[Any, Any]]], *, name: str | None = None) -> KStream:
        """Replace each record by any number of (key, value) pairs, in the order of the iterable.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> letters = words.flat_map(lambda key, word: [(letter, 1) for letter in word])
        """
        check_callable(mapper, "mapper", "flat_map")
        return self._put(StreamFlatMap(mapper), "KSTREAM-FLATMAP-", name, key_changing=True)

    @logged
    def flat_map_values(
        self, mapper: Callable[..., Iterable[Any]], *, with_key: bool = False, name: str | None = None
    ) -> KStream:
        """Replace each record by any number of values with the same key.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> parts = words.flat_map_values(str.split)
        """
        check_callable(mapper, "mapper", "flat_map_values", "key, value" if with_key else "value")
        return self._put(
            StreamFlatMapValues(mapper, with_key), "KSTREAM-FLATMAPVALUES-", name, key_serde=self.key_serde, value_changing=True
        )

    @logged
    def select_key(self, selector: Callable[[Any, Any], Any], *, name: str | None = None) -> KStream:
        """Replace each record's key by `selector(key, value)`.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> by_word = words.select_key(lambda key, word: word)
        """
        check_callable(selector, "selector", "select_key")
        return self._put(StreamSelectKey(selector), "KSTREAM-KEY-SELECT-", name, value_serde=self.value_serde, key_changing=True)

    @logged
    def peek(self, action: Callable[[Any, Any], Any], *, name: str | None = None) -> KStream:
        """Call `action(key, value)` for each record and pass it on unchanged.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> seen = []
            >>> same = words.peek(lambda key, word: seen.append(word))
        """
        check_callable(action, "action", "peek")
        return self._put(StreamPeek(action), "KSTREAM-PEEK-", name, key_serde=self.key_serde, value_serde=self.value_serde)

    @logged
    def foreach(self, action: Callable[[Any, Any], Any], *, name: str | None = None) -> None:
        """Call `action(key, value)` for each record; the stream ends here.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> seen = []
            >>> words.foreach(lambda key, word: seen.append(word))
        """
        check_callable(action, "action", "foreach")
        self._put(StreamPeek(action, forward_down=False), "KSTREAM-FOREACH-", name)

    @logged
    def print(
        self,
        *,
        label: str | None = None,
        mapper: Callable[[Any, Any], str] | None = None,
        path: str | None = None,
        name: str | None = None,
    ) -> None:
        """Print each record as ``[label]: key, value`` to standard output, or append it to a file; the stream ends here.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> words.print(label="words")
        """
        if mapper is not None:
            check_callable(mapper, "mapper", "print")
        self._put(StreamPrint(label if label is not None else self.name, mapper, path), "KSTREAM-PRINTER-", name)
