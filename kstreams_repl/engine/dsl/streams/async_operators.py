"""The operators of a stream whose function waits for something: `map_values_async`, `filter_async`, `flat_map_values_async`,
`process_async`, `process_values_async`. They have no counterpart in Kafka Streams.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Self, Unpack

from kstreams_repl.engine import serdes
from kstreams_repl.engine.dsl.graph.call_log import logged
from kstreams_repl.engine.dsl.graph.graph_nodes import OperatorGraphNode
from kstreams_repl.engine.dsl.streams.stream_base import AbstractStream, check_callable, serde_or_none
from kstreams_repl.engine.operators.streams.async_options import AsyncArguments, async_options
from kstreams_repl.engine.operators.streams.stream_async import PENDING, WAITING, AsyncKind, StreamAsync
from kstreams_repl.engine.topology.connected_stores import store_names
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.system.errors import TopologyError
from kstreams_repl.system.types import Predicate, UserFunction, ValueMapper


class AsyncOperators(AbstractStream):
    """The operators of `KStream` that call functions outside the task's thread."""

    @logged
    def map_values_async(
        self, mapper: ValueMapper, *, with_key: bool = False, name: str | None = None, **options: Unpack[AsyncArguments]
    ) -> Self:
        """Replace each record's value by what a function returns that waits: a `def` runs in a thread, an `async def` in an event loop.

        Many calls run at once. By default calls of one key run one after the other and keep their order.

        Args:
            mapper: (value) -> new value, or (key, value) -> new value with `with_key=True`; with `batch=`, of lists.
            with_key: whether `mapper` takes the key too.
            name: name of the node, which also names the store of waiting records; None = generated.
            options: fields of `AsyncOptions`: in_flight, order, timeout, retries, rate, breaker, batch, on_error, ...

        Raises:
            TopologyError: an option is unknown or invalid.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> orders = builder.stream("orders", key_serde="string", value_serde="json")
            >>> async def priced(order):
            ...     return order | {"price": 7}
            ...
            >>> orders.map_values_async(priced, in_flight=64, timeout="2s", name="price").to("priced", value_serde="json")
        """
        check_callable(mapper, "mapper", "map_values_async", "key, value" if with_key else "value")
        node = self._call(AsyncKind.MAP_VALUES, mapper, name, options, with_key=with_key)
        return self._after(node, self.key_serde, None)

    @logged
    def filter_async(self, predicate: Predicate, *, name: str | None = None, **options: Unpack[AsyncArguments]) -> Self:
        """Keep records for which a function that waits returns a true value.

        Args:
            predicate: (key, value) -> truth value; with `batch=`, lists -> list of truth values.
            name: name of the node, which also names the store of waiting records; None = generated.
            options: fields of `AsyncOptions`.

        Raises:
            TopologyError: an option is unknown or invalid.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> users = builder.stream("users", key_serde="string", value_serde="json")
            >>> async def is_known(key, user):
            ...     return user["id"] < 100
            ...
            >>> known = users.filter_async(is_known, timeout="500ms")
        """
        check_callable(predicate, "predicate", "filter_async")
        node = self._call(AsyncKind.FILTER, predicate, name, options, with_key=True)
        return self._after(node, self.key_serde, self.value_serde)

    @logged
    def flat_map_values_async(
        self, mapper: ValueMapper, *, with_key: bool = False, name: str | None = None, **options: Unpack[AsyncArguments]
    ) -> Self:
        """Replace each record by one record per value that a function that waits returns.

        Args:
            mapper: (value) -> values, or (key, value) -> values with `with_key=True`; with `batch=`, of lists.
            with_key: whether `mapper` takes the key too.
            name: name of the node, which also names the store of waiting records; None = generated.
            options: fields of `AsyncOptions`.

        Raises:
            TopologyError: an option is unknown or invalid.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> pages = builder.stream("pages", key_serde="string", value_serde="string")
            >>> async def links(page):
            ...     return page.split()
            ...
            >>> found = pages.flat_map_values_async(links, order="partition")
        """
        check_callable(mapper, "mapper", "flat_map_values_async", "key, value" if with_key else "value")
        node = self._call(AsyncKind.FLAT_MAP_VALUES, mapper, name, options, with_key=with_key)
        return self._after(node, self.key_serde, None)

    @logged
    def process_async(
        self, processor: UserFunction, *, stores: Iterable[str] = (), name: str | None = None, **options: Unpack[AsyncArguments]
    ) -> Self:
        """Run a processor that waits. What it forwards and writes takes effect on the task's thread when its call has ended.

        Args:
            processor: (record, context) -> ignored, or a class with such a `process` and, if wanted, `init()` and `close()`, which run
                once per instance (a connection pool).
            stores: names of the stores it uses, added with `StreamsBuilder.add_state_store`.
            name: name of the node, which also names the store of waiting records; None = generated.
            options: fields of `AsyncOptions`; not `batch`.

        Raises:
            TopologyError: an option is unknown or invalid.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> builder.add_state_store(ks.Stores.key_value_store_builder("seen", "string", "long"))  # doctest: +SKIP
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> async def twice(record, context):
            ...     context.forward(record)
            ...     context.forward(record.with_value(record.value.upper()))
            ...
            >>> doubled = words.process_async(twice, name="twice")
        """
        node = self._call(AsyncKind.PROCESS, processor, name, options, stores=stores)
        return self._after(node, None, None, key_changing=True)

    @logged
    def process_values_async(
        self, processor: UserFunction, *, stores: Iterable[str] = (), name: str | None = None, **options: Unpack[AsyncArguments]
    ) -> Self:
        """Run a processor that waits and cannot change keys, so that no repartitioning follows.

        Args:
            processor: as for `process_async`, with a `FixedKeyRecord`.
            stores: names of the stores it uses, added with `StreamsBuilder.add_state_store`.
            name: name of the node, which also names the store of waiting records; None = generated.
            options: fields of `AsyncOptions`; not `batch`.

        Raises:
            TopologyError: an option is unknown or invalid.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> async def length(record, context):
            ...     context.forward(record.with_value(len(record.value)))
            ...
            >>> lengths = words.process_values_async(length, name="lengths")
        """
        node = self._call(AsyncKind.PROCESS_VALUES, processor, name, options, stores=stores)
        return self._after(node, self.key_serde, None)

    def _call(
        self,
        kind: AsyncKind,
        function: UserFunction,
        name: str | None,
        options: AsyncArguments,
        *,
        with_key: bool = False,
        stores: Iterable[str] = (),
    ) -> OperatorGraphNode:
        """Add an asynchronous node with its store of waiting records."""
        chosen = async_options(kind, options)
        operator = StreamAsync(kind, function, "", chosen, with_key)
        if operator.is_processor:
            _check_processor(kind, function)
            if chosen.batch is not None:
                raise TopologyError(
                    f"{kind}() cannot be given batch=: a processor forwards and writes by itself",
                    hint="use map_values_async or flat_map_values_async",
                )
            if chosen.durable:
                raise TopologyError(
                    f"{kind}() cannot be durable: what a processor writes depends on what it has read from stores, and a rollback takes "
                    "that back",
                    hint="make the call in map_values_async(..., durable=True), and use its result in process()",
                )
        node_name = self._graph.name_or_generate(name, f"KSTREAM-{kind.upper().replace('_', '')}-")
        operator.store = f"{node_name}{PENDING}"
        key, value = serde_or_none(chosen.key_serde) or self.key_serde, serde_or_none(chosen.value_serde) or self.value_serde
        operator.options = dataclasses.replace(chosen, key_serde=key, value_serde=value)
        store = StoreBuilder(operator.store, StoreKind.KEY_VALUE, serdes.long, serdes.bytes_, options={WAITING: True})
        node = OperatorGraphNode(node_name, self._graph.here(), operator, store=store, used_stores=store_names(stores, node_name))
        node.value_changing = kind is not AsyncKind.FILTER
        self._graph.add(self._node, node)
        return node


def _check_processor(kind: AsyncKind, processor: object) -> None:
    if isinstance(processor, type):
        if not callable(getattr(processor, "process", None)):
            raise TopologyError(
                f"{kind}() expected a class with process(record, context), got {processor.__name__}", hint="define process in the class"
            )
    else:
        check_callable(processor, "processor", kind, "record, context")
