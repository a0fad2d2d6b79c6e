"""Queries of a benchmark as cases of a comparison: each is a topology over topics that are filled once, and has a twin for the JVM.

The clock runs from the first record processed to the last one committed, records of repartition topics included. A rate is that of the
records on the topics that a query reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

from kstreams_repl import KStream, KTable, StreamsBuilder, Topology, serdes
from kstreams_repl.host.instance.state.state_directory import application_directory
from kstreams_repl.repl.session.application.application import Application
from workshop.bench.peers.kafka_streams import KafkaStreamsPeer, PeerRun
from workshop.bench.rig.comparison import Case
from workshop.bench.rig.deployed import MeasuredRun, Settings, run_topology
from workshop.bench.rig.outputs import Compared, Output, read_output
from workshop.bench.rig.processes import megabytes_in
from workshop.bench.rig.testbed import Testbed
from workshop.bench.rig.workloads import Row, Topics

_SETTLE_SECONDS = 1.5
"""A topology with repartition topics has finished when it has processed nothing for so long: many commit intervals."""


ValueSerdes = Callable[[str], serdes.Serde]
"""Returns the serde of the values of an input topic; called with the topic's name without the prefix."""


def json_values(kind: str) -> serdes.Serde:
    return serdes.json


class QueryTopics:
    """The topics of one run, as streams.

    Args:
        prefix: input topics are `<prefix>-<kind>`.
        output: the topic of results, whose values are JSON.
        values: the serdes of the inputs' values.
    """

    key_serde: ClassVar[Any] = serdes.string

    def __init__(self, prefix: str, output: str, values: ValueSerdes = json_values) -> None:
        self.builder, self.prefix, self.output, self.values = StreamsBuilder(), prefix, output, values

    def stream(self, kind: str, **options: Any) -> KStream:
        options = {"key_serde": self.key_serde, "value_serde": self.values(kind)} | options
        return self.builder.stream(f"{self.prefix}-{kind}", **options)

    def write(self, result: KStream | KTable, key_serde: Any = None, value_serde: Any = serdes.json) -> None:
        stream = result.to_stream() if isinstance(result, KTable) else result
        stream.to(self.output, key_serde=key_serde or self.key_serde, value_serde=value_serde)


@dataclass(frozen=True, slots=True)
class BenchmarkQuery:
    """One query.

    Attributes:
        build: makes its topology, from `topics`.
        what: description in a few words.
        reads: its input topics, without the prefix.
        scale: it reads so many times as many events, because few of them are on its topics or because it is cheap.
        tables: topics that it reads as tables, whose records are not counted.
        feeds_back: it also reads the topic `<output>-feedback`, to which it writes.
    """

    build: Callable[[Any], None]
    what: str
    reads: tuple[str, ...] = ("bid",)
    compared: Compared = Compared.TABLE
    scale: int = 1
    tables: tuple[str, ...] = ()
    feeds_back: bool = False

    topics: ClassVar[type[QueryTopics]] = QueryTopics

    def topology(self, prefix: str, output: str, values: ValueSerdes = json_values) -> Topology:
        topics = self.topics(prefix, output, values)
        self.build(topics)
        return topics.builder.build()

    @contextmanager
    def feedback(self, testbed: Testbed, output: str) -> Iterator[tuple[str, ...]]:
        """Create the feedback topic of a run if the query has one, and delete it afterwards; yields its name, or nothing."""
        made = (testbed.fresh_topic(f"{output}-feedback"),) if self.feeds_back else ()
        try:
            yield made
        finally:
            testbed.admin.delete_topics(made)


@dataclass(frozen=True, slots=True)
class QueryCase(Case):
    """One query over its topics, whose names begin with `prefix`; `twins` names the class of its twin, `twin` its method."""

    query: BenchmarkQuery
    twins: str
    twin: str
    prefix: str
    inputs: dict[str, int]
    values: ValueSerdes = json_values
    twin_options: Mapping[str, str] = field(default_factory=dict)
    sizes: list[float] = field(default_factory=list)

    def run(self, name: str, output: str) -> MeasuredRun:
        def weigh(app: Application) -> None:
            self.sizes.append(megabytes_in(application_directory(self.testbed.session.client.state_root, name)))

        with self.query.feedback(self.testbed, output):
            topology = self.query.topology(self.prefix, output, self.values)
            return run_topology(self.testbed, topology, self.inputs, self.settings, name, then=weigh, settle_seconds=_SETTLE_SECONDS)

    def run_peer(self, peer: KafkaStreamsPeer, name: str, output: str) -> PeerRun:
        topics, settle_ms = Topics(self.prefix, "", output), int(_SETTLE_SECONDS * 1000)
        with self.query.feedback(self.testbed, output):
            return peer.run(
                self.testbed,
                self.twin,
                topics,
                self.records,
                self.settings,
                name,
                twins=self.twins,
                settle_ms=settle_ms,
                options=self.twin_options,
            )

    def read(self, output: str) -> Output:
        return read_output(self.testbed, output, self.query.compared)

    def fields(self) -> dict[str, Any]:
        state_mb = self.sizes[-1] or None
        return {"records": self.records, "instances": self.settings.instances, "state_mb": state_mb, "what": self.query.what}


def query_case(
    testbed: Testbed,
    settings: Settings,
    twins: str,
    name: str,
    query: BenchmarkQuery,
    prefix: str,
    rows: Callable[[str], tuple[int, Iterable[Row]]],
    *,
    values: ValueSerdes = json_values,
    twin_options: Mapping[str, str] | None = None,
    label: str = "",
) -> QueryCase:
    """Write a query's topics unless they exist; return its case.

    Args:
        twins: the benchmark, which names the applications and the class of the twins.
        rows: returns the number of records of a topic, and the records; called with the topic's name without the prefix.
        values: the serdes of the topics' values.
        twin_options: further options of the twin.
        label: the name of its lines; empty: the query's.
    """
    inputs = {}
    for kind in (*query.tables, *query.reads):
        records, made = rows(kind)
        testbed.fill(f"{prefix}-{kind}", records, made)
        if kind in query.reads:
            inputs[f"{prefix}-{kind}"] = records
    names = f"{twins}-{name}", f"{twins}-peer-{name}"
    return QueryCase(
        testbed, settings, label or name, sum(inputs.values()), *names, query, twins, name, prefix, inputs, values, twin_options or {}
    )
