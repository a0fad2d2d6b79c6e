"""The topologies that the rules of operators are tested on: the examples of the DSL's docstrings, and what no example shows."""

from __future__ import annotations

import contextlib
import doctest
import functools
import inspect
import io
from collections.abc import Callable, Iterator
from typing import Any

import kstreams_repl as ks
from kstreams_repl import serdes
from kstreams_repl.engine import dsl
from kstreams_repl.engine.operators.operator import Operator
from kstreams_repl.engine.topology.nodes import ProcessorNode
from kstreams_repl.engine.topology.store_builder import StoreBuilder
from tests.unit.public_api import methods

SETTINGS = {"default.key.serde": serdes.string, "default.value.serde": serdes.json, "repl.outer.join.emit.interval.ms": 0}

OWN_RULES = {
    "ProcessorOperator": "runs the user's code, with the user's stores",
    "FixedKeyProcessorOperator": "runs the user's code, with the user's stores",
    "StreamAsync": "its store has the calls that are under way, by number: any key, no repartition, its own kind of changelog",
}
"""Operators that none of the rules of a store is about, with the reason."""


def more() -> dict[str, Callable[[], Any]]:
    """Operators that no example shows by default."""
    string = {"key_serde": "string", "value_serde": "string"}

    def grouped(builder: Any) -> Any:
        return builder.stream("in", **string).group_by_key()

    def sliding(builder: Any) -> None:
        grouped(builder).windowed_by(ks.SlidingWindows.of_time_difference(10, grace=5)).count()

    def tumbling(builder: Any) -> None:
        grouped(builder).windowed_by(ks.TimeWindows.of_size(10, grace=5)).reduce(max)

    def on_close(builder: Any) -> None:
        windowed = grouped(builder).windowed_by(ks.TimeWindows.of_size(10, grace=5))
        windowed.emit_strategy(ks.EmitStrategy.ON_WINDOW_CLOSE).count().to_stream().to("out")

    def session(builder: Any) -> None:
        grouped(builder).windowed_by(ks.SessionWindows.of_inactivity_gap(5, grace=5)).count()

    def suppressed(builder: Any) -> None:
        table = grouped(builder).windowed_by(ks.TimeWindows.of_size(10, grace=5)).count()
        table.suppress(ks.Suppressed.until_window_closes()).to_stream().to("out")

    def inner_join(builder: Any) -> None:
        other = builder.stream("other", **string)
        builder.stream("in", **string).join(other, lambda a, b: a + b, ks.JoinWindows.of_time_difference(10, grace=5)).to("out")

    def table_join_with_grace(builder: Any) -> None:
        table = builder.table("other", history=1000, store="t", **string)
        builder.stream("in", **string).join(table, lambda a, b: a + b, grace=5).to("out")

    def foreign_key_join(builder: Any) -> None:
        right = builder.table("other", store="right", **string)
        builder.table("in", store="left", **string).join(right, lambda a, b: a + b, foreign_key=lambda value: "a", store="joined")

    def versioned(builder: Any) -> None:
        builder.stream("in", **string).to_table(store="history", history=1000)

    def joined_with_itself(builder: Any) -> None:
        stream = builder.stream("in", **string)
        stream.join(stream, lambda a, b: a + b, ks.JoinWindows.of_time_difference(10, grace=5)).to("out")

    def global_join(builder: Any) -> None:
        table = builder.global_table("other", store="g", **string)
        builder.stream("in", **string).join(table, lambda a, b: a + b, key=lambda key, value: key).to("out")

    def stored_views(builder: Any) -> None:
        table = builder.table("in", **string)
        table.filter(lambda key, value: len(value) > 2, store="filtered")
        table.transform_values(_Twice, store="transformed")

    def batches_of_texts(builder: Any) -> None:
        builder.stream("in", **string).map_batches(lambda batch: batch).to("out")

    def sql_of_texts(builder: Any) -> None:
        builder.stream("in", **string).sql("SELECT upper(value) AS value FROM this").to("out")

    def groups_of_texts(builder: Any) -> None:
        query = "SELECT count(*) AS n, max(value) AS last FROM this GROUP BY key"
        builder.stream("in", **string).sql(query, store="groups").to_stream().to("out")

    found = [
        batches_of_texts, sql_of_texts, groups_of_texts, joined_with_itself, global_join, stored_views, sliding, tumbling, on_close,
        session, suppressed, inner_join, table_join_with_grace, foreign_key_join, versioned,
    ]  # fmt: skip
    return {one.__name__: functools.partial(_built, one) for one in found}


def _built(build: Callable[[Any], None]) -> Any:
    builder = ks.StreamsBuilder()
    build(builder)
    return builder.build(ks.StreamsConfig({"application.id": "test", "topology.optimization": "single.store.self.join", **SETTINGS}))


def _example(text: str, place: str) -> Any:
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        for example in doctest.DocTestParser().get_doctest(text, {}, place, None, 0).examples:
            if example.exc_msg is None and doctest.SKIP not in example.options:
                exec(compile(example.source, place, "single"), names)
    return names["builder"].build() if "builder" in names else None


class _Twice:
    def init(self, context: Any) -> None: ...

    def transform(self, key: Any, value: Any) -> Any:
        return value

    def close(self) -> None: ...


def examples() -> dict[str, Callable[[], Any]]:
    kinds = [getattr(dsl, name) for name in dsl.__all__]
    found = {}
    for kind in kinds:
        for name, method in methods(kind).items():
            text = inspect.getdoc(method) or ""
            if "builder = ks.StreamsBuilder()" in text and f"builder.{name}_processor" not in text:
                found[f"{kind.__name__}.{name}"] = functools.partial(_example, text, name)
    return found


@functools.cache
def cases() -> dict[str, Callable[[], Any]]:
    return {name: build for name, build in (examples() | more()).items() if any(stores_of(build()))}


def stores_of(topology: Any) -> Iterator[tuple[ProcessorNode, str, StoreBuilder]]:
    """The stores that operators of the DSL write, with the node that does (the first that has it) and its operator's name."""
    if topology is None:
        return
    shared = topology.global_stores()
    seen = set() if shared is None else {store.name for store in shared.stores}
    for node in topology.nodes.values():
        if isinstance(node, ProcessorNode):
            mine = [name for name in node.stores if name not in seen]
            seen |= set(mine)
            if type(node.operator).__name__ not in OWN_RULES and isinstance(node.operator, Operator):
                for name in mine:
                    yield node, type(node.operator).__name__, topology.store(name)
