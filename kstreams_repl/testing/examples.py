"""An example for every method of `Topology`, `ProcessorContext`, `TopologyTestDriver` and `MockProcessorContext`, put below its docstring:
what ``topology.add_source?`` shows can be copied and runs. They are put there when one of these is first asked of the package;
tests/unit/test_docs.py runs them all.
"""

from __future__ import annotations

from collections.abc import Mapping

from kstreams_repl.dsl.examples import attach

_IMPORT = "import kstreams_repl as ks"
_TOPOLOGY = f"{_IMPORT}\ntopology = ks.Topology()"
_COUNT = f"""{_IMPORT}
builder = ks.StreamsBuilder()
words = builder.stream("words", key_serde="string", value_serde="string", name="words")
words.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("counted", name="sink")"""
_GRAPH = f"{_COUNT}\ntopology = builder.build()"
_DRIVER = f"""{_COUNT}
driver = ks.TopologyTestDriver(builder.build(), start_ms=0)
words_in = driver.create_input_topic("words", "string", "string")"""
_MOCK = f"{_IMPORT}\ncontext = ks.MockProcessorContext()"

BEFORE: Mapping[str, str] = {
    "Topology": _TOPOLOGY,
    "TopologyGraph": _GRAPH,
    "ProcessingContext": _IMPORT,
    "ProcessorContext": _IMPORT,
    "TopologyTestDriver": _DRIVER,
    "MockProcessorContext": _MOCK,
}

_RUN = """
        topology = ks.Topology().add_source("in", "words", key_serde="string", value_serde="string").add_processor("work", Work, "in")
        topology = topology.add_sink("out", "results", "work", key_serde="string", value_serde="string")
        with ks.TopologyTestDriver(topology, start_ms=5000) as driver:
            driver.create_input_topic("words", "string", "string").pipe_input("a", "to", timestamp=1000)
            print(driver.create_output_topic("results", "string", "string").read_value())
"""
"""Runs a processor `Work` over one record and prints what it forwards."""


def _worked(does: str, result: str, *, first: str = "") -> str:
    """A processor that does this with a record, and what comes out of it."""
    init = f"            def init(self, context):\n                super().init(context)\n                {first}\n" if first else ""
    return (
        f"        class Work(ks.Processor):\n{init}            def process(self, record):\n"
        f"                self.context.forward(record.with_value({does}))\n{_RUN}\n        |{result}"
    )


EXAMPLES: Mapping[str, str] = {
    "Topology.add_source": 'topology.add_source("in", "words", key_serde="string")\n|Topology(1 nodes, 0 stores, 1 sub-topologies)',
    "Topology.add_processor": """
        class Twice(ks.Processor):
            def process(self, record):
                self.context.forward(record)
                self.context.forward(record)

        topology.add_source("in", "words").add_processor("twice", Twice, "in").children("in")
        |('twice',)
        """,
    "Topology.add_sink": 'topology.add_source("in", "words").add_sink("out", "copy", "in").sink_topics()\n|(\'copy\',)',
    "Topology.add_state_store": """
        class Last(ks.Processor):
            def process(self, record):
                self.context.get_state_store("last").put(record.key, record.value)

        topology = topology.add_source("in", "words").add_processor("keep", Last, "in")
        sorted(topology.add_state_store(ks.StoreBuilder("last", ks.StoreKind.KEY_VALUE), "keep").stores)
        |['last']
        """,
    "Topology.connect_processor_and_state_stores": """
        topology = topology.add_source("in", "words").add_processor("keep", ks.Processor, "in")
        topology = topology.add_state_store(ks.StoreBuilder("last", ks.StoreKind.KEY_VALUE))
        topology.connect_processor_and_state_stores("keep", "last").node("keep").stores
        |('last',)
        """,
    "Topology.add_global_store": """
        class Keep(ks.Processor):
            def process(self, record):
                self.context.get_state_store("limits").put(record.key, record.value)

        store = ks.StoreBuilder("limits", ks.StoreKind.KEY_VALUE, logging=False)
        topology.add_global_store(store, "limits-in", "limits", "keep", Keep).global_stores().stores[0].name
        |'limits'
        """,
    "Topology.add_read_only_state_store": """
        class Keep(ks.Processor):
            def process(self, record):
                self.context.get_state_store("prices").put(record.key, record.value)

        store = ks.StoreBuilder("prices", ks.StoreKind.KEY_VALUE)
        topology.add_read_only_state_store(store, "prices-in", "prices", "keep", Keep).store("prices").source_topic
        |'prices'
        """,
    "Topology.add_internal_topic": """
        topology = topology.add_internal_topic("by-word", 4).add_source("in", "words").add_sink("out", "by-word", "in")
        dict(topology.internal_topics)
        |{'by-word': 4}
        """,
    "Topology.copartition_sources": """
        topology = topology.add_source("one", "a").add_source("two", "b").copartition_sources(["one", "two"])
        [sorted(group) for group in topology.copartition_groups()]
        |[['a', 'b']]
        """,
    "Topology.replace_copartition_source": """
        topology = topology.add_source("one", "a").add_source("two", "b").add_source("new", "c").copartition_sources(["one", "two"])
        topology.replace_copartition_source("two", "new")
        [sorted(group) for group in topology.copartition_groups()]
        |[['a', 'c']]
        """,
    "Topology.validate_copartitioning": """
        topology = topology.add_source("one", "a").add_source("two", "b").copartition_sources(["one", "two"])
        topology.validate_copartitioning()
        """,
    "Topology.connect_source_topic": """
        topology = topology.add_source("in", "prices").add_processor("keep", ks.Processor, "in")
        topology = topology.add_state_store(ks.StoreBuilder("prices", ks.StoreKind.KEY_VALUE), "keep")
        topology.connect_source_topic("prices", "prices")
        """,
    "TopologyGraph.nodes": "list(topology.nodes)\n|['words', 'count', 'changes', 'sink']",
    "TopologyGraph.stores": "list(topology.stores)\n|['counts']",
    "TopologyGraph.internal_topics": "dict(topology.internal_topics)\n|{}",
    "TopologyGraph.node": "topology.node('sink').topic\n|'counted'",
    "TopologyGraph.store": "str(topology.store('counts').kind)\n|'timestamped-key-value'",
    "TopologyGraph.children": "topology.children('words')\n|('count',)",
    "TopologyGraph.subtopologies": "[len(part.nodes) for part in topology.subtopologies()]\n|[4]",
    "TopologyGraph.global_stores": "topology.global_stores() is None\n|True",
    "TopologyGraph.source_topics": "topology.source_topics()\n|('words',)",
    "TopologyGraph.sink_topics": "topology.sink_topics()\n|('counted',)",
    "TopologyGraph.copartition_groups": "topology.copartition_groups()\n|()",
    "TopologyGraph.describe": "print(topology.describe())\n|Topologies:\n|   Sub-topology: 0\n|    Source: words (topics: [words])\n|...",
    "ProcessingContext.application_id": _worked("self.context.application_id", "test"),
    "ProcessingContext.task_id": _worked("str(self.context.task_id)", "0_0"),
    "ProcessingContext.config": _worked('str(self.context.config["num.stream.threads"])', "1"),
    "ProcessingContext.key_serde": _worked("self.context.key_serde.name", "bytes"),
    "ProcessingContext.value_serde": _worked("self.context.value_serde.name", "bytes"),
    "ProcessingContext.record_metadata": _worked('f"{record.value} of {self.context.record_metadata().topic}"', "to of words"),
    "ProcessingContext.get_state_store": """
        class Seen(ks.Processor):
            @staticmethod
            def stores():
                return [ks.StoreBuilder("seen", ks.StoreKind.KEY_VALUE, key_serde="string", value_serde="string")]
            def process(self, record):
                self.context.get_state_store("seen").put(record.key, record.value)

        topology = ks.Topology().add_source("in", "words", key_serde="string", value_serde="string").add_processor("see", Seen, "in")
        with ks.TopologyTestDriver(topology) as driver:
            driver.create_input_topic("words", "string", "string").pipe_input("a", "to")
            print(driver.state_store("seen").get("a"))

        |to
        """,
    "ProcessingContext.schedule": """
        class Tick(ks.Processor):
            def init(self, context):
                context.schedule(1000, ks.PunctuationType.STREAM_TIME, lambda now: context.forward(ks.Record("tick", now, now)))
            def process(self, record): pass

        topology = ks.Topology().add_source("in", "words").add_processor("tick", Tick, "in")
        topology = topology.add_sink("out", "ticks", "tick", key_serde="string", value_serde="long")
        with ks.TopologyTestDriver(topology) as driver:
            driver.create_input_topic("words").pipe_input(b"a", b"to", timestamp=5000)
            print(driver.create_output_topic("ticks", "string", "long").read_key_value())

        |('tick', 5000)
        """,
    "ProcessingContext.commit": """
        class Flush(ks.Processor):
            def process(self, record):
                self.context.commit()

        context = ks.MockProcessorContext()
        flush = Flush()
        flush.init(context)
        flush.process(ks.Record("a", "to", 1000))
        context.committed
        |True
        """,
    "ProcessingContext.current_stream_time_ms": _worked("str(self.context.current_stream_time_ms())", "1000"),
    "ProcessingContext.current_system_time_ms": _worked("str(self.context.current_system_time_ms())", "5000"),
    "ProcessorContext.forward": _worked("record.value.upper()", "TO"),
    "TopologyTestDriver.create_input_topic": """
        words_in = driver.create_input_topic("words", "string", "string", start_timestamp=1000, auto_advance=10)
        words_in.pipe_input("a", "to")
        driver.state_store("counts").get("a").timestamp
        |1000
        """,
    "TopologyTestDriver.create_output_topic": """
        words_in.pipe_input("a", "to")
        driver.create_output_topic("counted", "string", "long").read_key_value()
        |('a', 1)
        """,
    "TopologyTestDriver.produced_topic_names": """
        words_in.pipe_input("a", "to")
        sorted(driver.produced_topic_names())
        |['counted', 'test-counts-changelog']
        """,
    "TopologyTestDriver.advance_wall_clock_time": "driver.advance_wall_clock_time(5000)\ndriver.now()\n|5000",
    "TopologyTestDriver.state_store": """
        words_in.pipe_input("a", "to")
        driver.state_store("counts").get("a").value
        |1
        """,
    "TopologyTestDriver.all_state_stores": "list(driver.all_state_stores())\n|['counts']",
    "TopologyTestDriver.dropped": """
        words_in.pipe_input(None, "to")
        driver.dropped
        |1
        """,
    "TopologyTestDriver.close": "driver.close()",
    "TopologyTestDriver.pipe_bytes": """
        driver.pipe_bytes("words", b"a", b"to", 1000)
        driver.state_store("counts").get("a").value
        |1
        """,
    "TopologyTestDriver.output": """
        words_in.pipe_input("a", "to")
        driver.output("counted")[0].key
        |b'a'
        """,
    "TopologyTestDriver.now": "driver.now()\n|0",
    "MockProcessorContext.forward": 'context.forward(ks.Record("a", 1, 0))\nlen(context.forwarded())\n|1',
    "MockProcessorContext.forwarded": """
        context.forward(ks.Record("a", 1, 0))
        context.forward(ks.Record("b", 2, 0), "left")
        [call.record.value for call in context.forwarded("right")]
        |[1]
        """,
    "MockProcessorContext.reset_forwards": 'context.forward(ks.Record("a", 1, 0))\ncontext.reset_forwards()\ncontext.forwarded()\n|[]',
    "MockProcessorContext.schedule": """
        ticks = []
        context.schedule(1000, ks.PunctuationType.WALL_CLOCK_TIME, ticks.append).punctuate(5000)
        ticks
        |[5000]
        """,
    "MockProcessorContext.scheduled_punctuators": """
        tick = context.schedule(1000, ks.PunctuationType.STREAM_TIME, print)
        [captured.interval_ms for captured in context.scheduled_punctuators()]
        |[1000]
        tick.cancel()
        context.scheduled_punctuators()
        |[]
        """,
    "MockProcessorContext.commit": "context.commit()\ncontext.committed\n|True",
    "MockProcessorContext.reset_commit": "context.commit()\ncontext.reset_commit()\ncontext.committed\n|False",
    "MockProcessorContext.get_state_store": """
        context = ks.MockProcessorContext(stores=(ks.StoreBuilder("seen", ks.StoreKind.KEY_VALUE, value_serde="long"),))
        context.get_state_store("seen").put(b"a", 1)
        context.get_state_store("seen").get(b"a")
        |1
        """,
    "MockProcessorContext.add_state_store": """
        context.add_state_store(ks.MockProcessorContext(stores=(ks.StoreBuilder("seen", ks.StoreKind.KEY_VALUE),)).get_state_store("seen"))
        context.get_state_store("seen").name
        |'seen'
        """,
    "MockProcessorContext.record_metadata": """
        context.set_record_metadata("words", 1, 42)
        context.record_metadata().offset
        |42
        """,
    "MockProcessorContext.set_record_metadata": """
        context.set_record_metadata("words", 1, 42)
        context.record_metadata().topic
        |'words'
        """,
    "MockProcessorContext.set_headers": 'context.set_headers([("trace", b"1")])',
    "MockProcessorContext.current_stream_time_ms": "context.current_stream_time_ms()\n|-1",
    "MockProcessorContext.set_current_stream_time_ms": """
        context.set_current_stream_time_ms(1000)
        context.current_stream_time_ms()
        |1000
        """,
    "MockProcessorContext.current_system_time_ms": "context.current_system_time_ms()\n|0",
    "MockProcessorContext.set_current_system_time_ms": """
        context.set_current_system_time_ms(1000)
        context.current_system_time_ms()
        |1000
        """,
}

_attached: set[type] = set()


def install(kind: type) -> None:
    """Put the examples below the methods of a class and of its bases; once each."""
    for owner in kind.__mro__:
        found = {place: example for place, example in EXAMPLES.items() if place.partition(".")[0] == owner.__name__}
        if found and owner not in _attached:
            _attached.add(owner)
            attach([owner], found, BEFORE)
