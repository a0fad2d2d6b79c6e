"""Builds a topology from a case's JSON ops with our own DSL or Processor API. An unknown op or field value is an error, never
skipped."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from kstreams_repl import serdes
from kstreams_repl.engine.dsl import (
    BranchedKStream,
    CogroupedKStream,
    EmitStrategy,
    JoinWindows,
    KGroupedStream,
    KGroupedTable,
    KStream,
    KTable,
    SessionWindowedCogroupedKStream,
    SessionWindowedKStream,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    UnlimitedWindows,
)
from kstreams_repl.engine.topology import Topology
from workshop.conformance import vocabulary as words
from workshop.conformance.behaviours import fixed_key_supplier, processor_supplier
from workshop.conformance.options import EXTRACTORS, PARTITIONERS, ByKey, Op, WatchedOp, state_store


def build_topology(case: Mapping[str, Any], config: Mapping[str, object]) -> Topology:
    """Return the topology of a case.

    Args:
        case: one case as read from its file.
        config: the application's settings (``topology.optimization``).

    Raises:
        KStreamsError: the DSL rejects the topology.
        KeyError: the case uses an unknown op or name.
    """
    if case.get("api", "dsl") == "topology":
        topology = Topology()
        for op in map(WatchedOp, case["ops"]):
            _TOPOLOGY_OPS[op["op"]](topology, op)
            op.check()
        return topology
    builder = StreamsBuilder()
    nodes: dict[str, Any] = {}
    for op in map(WatchedOp, case["ops"]):
        result = _DSL_OPS[op["op"]](_Step(builder, nodes, op))
        op.check()
        if op.get("id") is not None and result is not None:
            nodes[op["id"]] = result
    return builder.build(config)


class _Step:
    """One op and the nodes that it refers to."""

    def __init__(self, builder: StreamsBuilder, nodes: dict[str, Any], op: Op) -> None:
        self.builder = builder
        self.nodes = nodes
        self.op = op
        self.named: dict[str, Any] = {"name": op.get("name")}

    @property
    def source(self) -> Any:
        return self.nodes[self.op["in"]]

    @property
    def other(self) -> Any:
        return self.nodes[self.op["with"]]

    @property
    def stream(self) -> KStream:
        return _typed(self.source, KStream)  # type: ignore[no-any-return]

    @property
    def table(self) -> KTable:
        return _typed(self.source, KTable)  # type: ignore[no-any-return]

    def store_options(self, value_serde: object = serdes.json, *, always: bool = False) -> dict[str, Any]:
        """Return keyword arguments of a `Materialized`; none if the op names no store, unless the call always needs one."""
        op = self.op
        if not always and op.get("store") is None:
            return {}
        options = {
            "store": op.get("store"),
            "key_serde": serdes.string,
            "value_serde": value_serde,
            "caching": False if op.get("nocache") else None,
            "logging": False if op.get("nolog") else None,
            "retention": op.get("retention"),
            "history": op["history"] if op.get("versioned") else None,
        }
        return {name: value for name, value in options.items() if value is not None}


def _typed(value: object, kind: type[Any]) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"the case needs a {kind.__name__} here, not {value!r}")
    return value


# ---------------------------------------------------------------------------------------------------------------- sources
def _stream(step: _Step) -> KStream:
    op = step.op
    extractor = EXTRACTORS[op["extractor"]] if "extractor" in op else None
    if op.get("pattern") is not None:
        return step.builder.stream(pattern=op["pattern"], timestamp_extractor=extractor, **step.named)
    topics = op["topics"] if "topics" in op else op["topic"]
    return step.builder.stream(topics, timestamp_extractor=extractor, **step.named)


def _table(step: _Step) -> KTable:
    # the serdes of Consumed are the defaults and override those of Materialized
    options = {name: value for name, value in step.store_options().items() if not name.endswith("_serde")}
    return step.builder.table(step.op["topic"], **step.named, **options)


def _global_table(step: _Step) -> Any:
    return step.builder.global_table(step.op["topic"], **step.store_options())


def _add_state_store(step: _Step) -> None:
    step.builder.add_state_store(state_store(step.op))


def _add_global_store(step: _Step) -> None:
    supplier = processor_supplier("put", None, [step.op["store"]])
    step.builder.add_global_store(
        replace(state_store(step.op), logging=False), step.op["topic"], supplier, key_serde=serdes.string, value_serde=serdes.json
    )


# -------------------------------------------------------------------------------------------------------------- stateless
def _filter(step: _Step) -> Any:
    predicate = words.PREDICATES[step.op["fn"]]
    if isinstance(step.source, KStream):
        return step.source.filter(predicate, **step.named)
    return step.table.filter(predicate, **step.named, **step.store_options())


def _filter_not(step: _Step) -> Any:
    predicate = words.PREDICATES[step.op["fn"]]
    if isinstance(step.source, KStream):
        return step.source.filter_not(predicate, **step.named)
    return step.table.filter_not(predicate, **step.named, **step.store_options())


def _map_values(step: _Step) -> Any:
    mapper = words.VALUE[step.op["fn"]]
    if isinstance(step.source, KStream):
        return step.source.map_values(mapper, with_key=True, **step.named)
    return step.table.map_values(mapper, with_key=True, **step.named, **step.store_options())


def _select_key(step: _Step) -> KStream:
    return step.stream.select_key(words.KEY[step.op["fn"]], **step.named)


def _map(step: _Step) -> KStream:
    key, value = words.KEY[step.op["fn"]], words.VALUE[step.op.get("vfn", "id")]
    return step.stream.map(lambda k, v: (key(k, v), value(k, v)), **step.named)


def _flat_map(step: _Step) -> KStream:
    times, text = range(step.op["n"]), words.text
    return step.stream.flat_map(lambda k, v: [(f"{text(k)}{i}", f"{text(v)}#{i}") for i in times], **step.named)


def _flat_map_values(step: _Step) -> KStream:
    times, text = range(step.op["n"]), words.text
    return step.stream.flat_map_values(lambda v: [f"{text(v)}#{i}" for i in times], **step.named)


def _ignore(key: object, value: object) -> None:
    """Do nothing: the action of the cases' peek and foreach."""


def _peek(step: _Step) -> KStream:
    return step.stream.peek(_ignore, **step.named)


def _foreach(step: _Step) -> None:
    step.stream.foreach(_ignore, **step.named)


def _merge(step: _Step) -> KStream:
    return step.stream.merge(step.other, **step.named)


def _split(step: _Step) -> None:
    splitter: BranchedKStream = step.stream.split(**step.named)
    branches, default = step.op["branches"], step.op.get("default")
    for branch in branches:
        splitter.branch(words.PREDICATES[branch["fn"]], name=branch.get("name"))
    streams = splitter.no_default_branch() if default is None else splitter.default_branch(name=default.get("name"))
    for branch, stream in zip([*branches, *([] if default is None else [default])], streams.values(), strict=True):
        if branch.get("id") is not None:
            step.nodes[branch["id"]] = stream


def _repartition(step: _Step) -> KStream:
    return step.stream.repartition(partitions=step.op.get("partitions"), **step.named)


def _to_table(step: _Step) -> KTable:
    return step.stream.to_table(**step.named, **step.store_options())


def _to_stream(step: _Step) -> KStream:
    function = step.op.get("fn")
    if function is None:
        return step.table.to_stream(**step.named)
    key = words.KEY[function]
    return step.table.to_stream(lambda k, v: key(words.text(k), v), **step.named)


def _to(step: _Step) -> None:
    op = step.op
    topic = ByKey(op["topicFn"]) if op.get("topicFn") is not None else op["topic"]
    partitioner = PARTITIONERS[op["partitioner"]] if op.get("partitioner") is not None else None
    step.stream.to(topic, partitioner=partitioner, **step.named)


# ------------------------------------------------------------------------------------------------- groupings and windows
def _group_by_key(step: _Step) -> KGroupedStream:
    return step.stream.group_by_key(**step.named)


def _group_by(step: _Step) -> Any:
    key = words.KEY[step.op["fn"]]
    if isinstance(step.source, KStream):
        return step.source.group_by(key, **step.named)
    return step.table.group_by(lambda k, v: (key(k, v), v), **step.named)


def _tumbling(step: _Step) -> Any:
    op = step.op
    return step.source.windowed_by(TimeWindows.of_size(op["size"], grace=op["grace"], advance=op.get("advance")))


def _unlimited(step: _Step) -> Any:
    return step.source.windowed_by(UnlimitedWindows.of(start=step.op.get("start", 0)))


def _sliding(step: _Step) -> Any:
    return step.source.windowed_by(SlidingWindows.of_time_difference(step.op["size"], grace=step.op["grace"]))


def _session(step: _Step) -> Any:
    return step.source.windowed_by(SessionWindows.of_inactivity_gap(step.op["gap"], grace=step.op["grace"]))


def _emit_final(step: _Step) -> Any:
    return step.source.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)


def _cogroup(step: _Step) -> CogroupedKStream:
    aggregator = words.AGGREGATE[step.op["fn"]]
    if isinstance(step.source, CogroupedKStream):
        return step.source.cogroup(step.other, aggregator)
    return _typed(step.source, KGroupedStream).cogroup(aggregator)  # type: ignore[no-any-return]


def _count(step: _Step) -> KTable:
    return step.source.count(**step.named, **step.store_options(serdes.long, always=True))  # type: ignore[no-any-return]


def _reduce(step: _Step) -> KTable:
    reducer = words.REDUCE[step.op["fn"]]
    options = step.store_options(always=True)
    if isinstance(step.source, KGroupedTable):
        return step.source.reduce(reducer, words.REDUCE[step.op.get("sub", "sub")], **step.named, **options)
    return step.source.reduce(reducer, **step.named, **options)  # type: ignore[no-any-return]


def _aggregate(step: _Step) -> KTable:
    op, source, options = step.op, step.source, step.store_options(always=True)
    add = words.AGGREGATE[op.get("fn", "sum")]
    start: str = op.get("init") or op.get("fn", "sum")

    def initializer() -> Any:
        return words.initial(start)

    def merger(key: object, one: object, other: object) -> Any:
        return words.merge_sessions(start, one, other)

    if isinstance(source, KGroupedTable):
        return source.aggregate(initializer, add, words.AGGREGATE[op.get("sub", "sub")], **step.named, **options)
    if isinstance(source, SessionWindowedKStream):
        return source.aggregate(initializer, add, merger, **step.named, **options)
    if isinstance(source, SessionWindowedCogroupedKStream):
        return source.aggregate(initializer, merger, **step.named, **options)
    if hasattr(source, "count"):
        return source.aggregate(initializer, add, **step.named, **options)  # type: ignore[no-any-return]
    return source.aggregate(initializer, **step.named, **options)  # type: ignore[no-any-return]


# ------------------------------------------------------------------------------------------------------------------ joins
def _join(step: _Step) -> Any:
    return _JOINS[step.op["kind"]](step, step.op.get("how", "inner"))


def _joiner(op: Op) -> tuple[Callable[..., Any], bool]:
    return (words.join_with_key, True) if op.get("joiner", "plain") == "key" else (words.join, False)


def _method(source: object, how: str) -> Any:
    return getattr(source, {"inner": "join", "left": "left_join", "outer": "outer_join"}[how])


def _join_streams(step: _Step, how: str) -> KStream:
    op = step.op
    windows = JoinWindows.of_time_difference(op["diff"], grace=op["grace"], before=op.get("before"), after=op.get("after"))
    joiner, with_key = _joiner(op)
    return _method(step.stream, how)(  # type: ignore[no-any-return]
        step.other, joiner, windows, with_key=with_key, store=op.get("storeName"), logging=not op.get("nolog"), **step.named
    )


def _join_stream_table(step: _Step, how: str) -> KStream:
    joiner, with_key = _joiner(step.op)
    return _method(step.stream, how)(step.other, joiner, with_key=with_key, grace=step.op.get("grace"), **step.named)  # type: ignore[no-any-return]


def _join_stream_global(step: _Step, how: str) -> KStream:
    key = words.KEY[step.op.get("fn", "id")]
    if step.op.get("joiner") == "mapped":
        return _method(step.stream, how)(step.other, words.join_with_mapped_key, with_mapped_key=True, key=key, **step.named)  # type: ignore[no-any-return]
    joiner, with_key = _joiner(step.op)
    return _method(step.stream, how)(step.other, joiner, with_key=with_key, key=key, **step.named)  # type: ignore[no-any-return]


def _join_tables(step: _Step, how: str) -> KTable:
    return _method(step.table, how)(step.other, words.join, **step.named, **step.store_options())  # type: ignore[no-any-return]


def _join_foreign_key(step: _Step, how: str) -> KTable:
    key = words.KEY[step.op.get("fn", "swap")]
    options: dict[str, Any] = {"foreign_key": lambda value: key(None, value)} | step.named
    if step.op.get("fk_with_key"):  # the oracle calls the overload without a name
        options = {"foreign_key": key, "foreign_key_with_key": True}
    return _method(step.table, how)(step.other, words.join, **options, **step.store_options())  # type: ignore[no-any-return]


_JOINS = {
    "ss": _join_streams,
    "st": _join_stream_table,
    "sg": _join_stream_global,
    "tt": _join_tables,
    "fk": _join_foreign_key,
}


# ---------------------------------------------------------------------------------------------- suppress and processors
def _suppress(step: _Step) -> KTable:
    op = step.op
    bounds: dict[str, Any] = {"max_records": op.get("max"), "name": op.get("name")}
    if op.get("until", "window") == "window":
        return step.table.suppress(Suppressed.until_window_closes(**bounds))
    max_bytes = None if op.get("max") is not None else op.get("maxBytes")
    return step.table.suppress(Suppressed.until_time_limit(op["ms"], max_bytes=max_bytes, **bounds))


def _process(step: _Step) -> KStream:
    op, stores = step.op, step.op.get("stores", [])
    return step.stream.process(processor_supplier(op["behaviour"], op.get("params"), stores), stores=stores, **step.named)


def _process_values(step: _Step) -> KStream:
    op, stores = step.op, step.op.get("stores", [])
    return step.stream.process_values(fixed_key_supplier(op["behaviour"], op.get("params"), stores), stores=stores, **step.named)


def _punctuate(step: _Step) -> KStream:
    return step.stream.process(processor_supplier("tick", {"type": step.op["type"], "every": step.op["every"]}, []))


_DSL_OPS: dict[str, Callable[[_Step], Any]] = {
    "stream": _stream,
    "table": _table,
    "globalTable": _global_table,
    "addStateStore": _add_state_store,
    "addGlobalStore": _add_global_store,
    "filter": _filter,
    "filterNot": _filter_not,
    "mapValues": _map_values,
    "selectKey": _select_key,
    "map": _map,
    "flatMap": _flat_map,
    "flatMapValues": _flat_map_values,
    "peek": _peek,
    "foreach": _foreach,
    "merge": _merge,
    "split": _split,
    "repartition": _repartition,
    "toTable": _to_table,
    "toStream": _to_stream,
    "to": _to,
    "groupByKey": _group_by_key,
    "groupBy": _group_by,
    "tumbling": _tumbling,
    "unlimited": _unlimited,
    "sliding": _sliding,
    "session": _session,
    "emitFinal": _emit_final,
    "cogroup": _cogroup,
    "count": _count,
    "reduce": _reduce,
    "aggregate": _aggregate,
    "join": _join,
    "suppress": _suppress,
    "process": _process,
    "processValues": _process_values,
    "punctuate": _punctuate,
}


# ---------------------------------------------------------------------------------------------------------- Processor API
def _source(topology: Topology, op: Op) -> None:
    if op.get("extractor") is not None:
        topology.add_source(op["name"], *op["topics"], timestamp_extractor=EXTRACTORS[op["extractor"]])
    elif op.get("pattern") is not None:
        topology.add_source(op["name"], re.compile(op["pattern"]))
    else:
        topology.add_source(op["name"], *op["topics"])


def _processor(topology: Topology, op: Op) -> None:
    topology.add_processor(
        op["name"], processor_supplier(op["behaviour"], op.get("params"), op.get("stores", [])), *op["parents"]
    )


def _sink(topology: Topology, op: Op) -> None:
    topic = ByKey(op["topicFn"]) if op.get("topicFn") is not None else op["topic"]
    partitioner = PARTITIONERS[op["partitioner"]] if op.get("partitioner") is not None else None
    topology.add_sink(op["name"], topic, *op["parents"], partitioner=partitioner)


def _topology_store(topology: Topology, op: Op) -> None:
    topology.add_state_store(state_store(op), *op.get("procs", []))


def _connect(topology: Topology, op: Op) -> None:
    topology.connect_processor_and_state_stores(op["proc"], *op["stores"])


def _topology_global_store(topology: Topology, op: Op) -> None:
    supplier = processor_supplier(op.get("behaviour", "put"), op.get("params"), [op["store"]])
    topology.add_global_store(
        replace(state_store(op), logging=False),
        op["source"],
        op["topic"],
        op["proc"],
        supplier,
        key_serde=serdes.string,
        value_serde=serdes.json,
    )


def _read_only_store(topology: Topology, op: Op) -> None:
    supplier = processor_supplier(op.get("behaviour", "put"), op.get("params"), [op["store"]])
    topology.add_read_only_state_store(
        state_store(op), op["source"], op["topic"], op["proc"], supplier, key_serde=serdes.string, value_serde=serdes.json
    )


_TOPOLOGY_OPS: dict[str, Callable[[Topology, Op], None]] = {
    "addSource": _source,
    "addProcessor": _processor,
    "addSink": _sink,
    "addStateStore": _topology_store,
    "connect": _connect,
    "addGlobalStore": _topology_global_store,
    "addReadOnlyStateStore": _read_only_store,
}
