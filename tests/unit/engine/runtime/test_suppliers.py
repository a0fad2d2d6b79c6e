"""What a supplier of processors gives, the stores it brings, and errors of `init` and `close`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kstreams_repl import Processor, StoreBuilder, StoreKind, StreamsBuilder, Topology
from kstreams_repl.system.errors import KStreamsError, StreamsProcessingError, TopologyError
from kstreams_repl.testing import TopologyTestDriver

TEXT = {"default.key.serde": "string", "default.value.serde": "json"}


class Passing(Processor):
    def process(self, record: Any) -> None:
        self.context.forward(record)


def driver_with(supplier: Any, **options: Any) -> TopologyTestDriver:
    builder = StreamsBuilder()
    builder.stream("in").process(supplier, name="mine", **options).to("out")
    return TopologyTestDriver(builder.build(), TEXT, start_ms=0)


def test_a_supplier_that_gives_the_same_processor_each_time_is_refused() -> None:
    shared = Passing()
    with pytest.raises(TopologyError, match="the same Passing each time") as caught:
        driver_with(lambda: shared)
    assert caught.value.node == "mine"


def test_the_same_transformer_each_time_is_refused() -> None:
    class Same:
        def transform(self, key: Any, value: Any) -> Any:
            return value

    shared, builder = Same(), StreamsBuilder()
    builder.table("in").transform_values(lambda: shared).to_stream().to("out")
    with pytest.raises(TopologyError, match="the same Same each time"):
        TopologyTestDriver(builder.build(), TEXT)


@pytest.mark.parametrize(
    ("supplier", "told"), [(lambda: None, "returned None"), (lambda: 1 // 0, "raised ZeroDivisionError"), (object, "no process")]
)
def test_a_supplier_without_a_processor_is_named(supplier: Any, told: str) -> None:
    with pytest.raises(TopologyError, match=told) as caught:
        driver_with(supplier)
    assert caught.value.node == "mine"


class Without(Passing):
    @staticmethod
    def stores() -> None:
        """None of its own."""


class Bound(Passing):
    def stores(self) -> list[StoreBuilder]:
        return []


class Names(Passing):
    @staticmethod
    def stores() -> list[str]:
        return ["s"]


def test_a_supplier_may_have_no_stores() -> None:
    driver = driver_with(Without)
    assert driver.all_state_stores() == {}
    Topology().add_source("s", "in").add_processor("p", Without, "s")


@pytest.mark.parametrize(("supplier", "told"), [(Bound, "cannot be called"), (Names, r"got \['s'\]")])
def test_stores_of_a_supplier_that_are_none_are_refused_at_the_call(supplier: Any, told: str) -> None:
    with pytest.raises(TopologyError, match=told):
        StreamsBuilder().stream("in").process(supplier)
    topology = Topology().add_source("s", "in")
    with pytest.raises(TopologyError, match=told):
        topology.add_processor("p", supplier, "s")
    assert "p" not in topology.nodes


def test_a_store_is_added_by_its_builder_and_connected_by_its_name() -> None:
    topology = Topology().add_source("s", "in").add_processor("p", Passing, "s")
    with pytest.raises(TopologyError, match="expected a StoreBuilder"):
        topology.add_state_store("counts", "p")  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="names of stores"):
        StreamsBuilder().stream("in").process(Passing, stores=[StoreBuilder("counts", StoreKind.KEY_VALUE)])  # type: ignore[list-item]


class Remembering:
    """A transformer that brings its own store."""

    @staticmethod
    def stores() -> list[StoreBuilder]:
        return [StoreBuilder("seen", StoreKind.KEY_VALUE)]

    def init(self, context: Any) -> None:
        self.seen = context.get_state_store("seen")

    def transform(self, key: Any, value: Any) -> Any:
        self.seen.put(key, value)
        return value

    def close(self) -> None:
        """Nothing to do."""


def test_stores_of_a_transformers_supplier_are_connected_also_where_its_table_is_read() -> None:
    builder = StreamsBuilder()
    table = builder.table("in").transform_values(Remembering)
    builder.stream("records").join(table, lambda value, row: [value, row]).to("out")
    driver = TopologyTestDriver(builder.build(), TEXT)
    driver.create_input_topic("in", "string", "json").pipe_input("a", 1, 1)
    driver.create_input_topic("records", "string", "json").pipe_input("a", 2, 2)
    assert driver.state_store("seen").get("a") == 1
    assert driver.create_output_topic("out", "string", "json").read_key_values() == [("a", [2, 1])]


def test_a_transformer_reads_its_named_store_in_a_join_too_and_describe_lists_it_there() -> None:
    class Named:
        """Uses a store that the builder has, and makes another value each time it is asked."""

        def init(self, context: Any) -> None:
            self.asked = context.get_state_store("asked")

        def transform(self, key: Any, value: Any) -> Any:
            self.asked.put(key, (self.asked.get(key) or 0) + 1)
            return [value, self.asked.get(key)]

        def close(self) -> None:
            """Nothing to do."""

    builder = StreamsBuilder().add_state_store(StoreBuilder("asked", StoreKind.KEY_VALUE, "string", "json"))
    table = builder.table("in", store="rows").transform_values(Named, stores=["asked"])
    table.join(builder.table("others", store="others"), lambda left, right: [left, right], name="joined").to_stream().to("out")
    topology = builder.build()
    assert "Processor: joined-join-other (stores: [asked, rows])" in str(topology.describe())
    driver = TopologyTestDriver(topology, TEXT)
    driver.create_input_topic("in", "string", "json").pipe_input("a", 1, 1)
    driver.create_input_topic("others", "string", "json").pipe_input("a", "x", 2)
    assert driver.state_store("asked").get("a") == 2
    assert driver.create_output_topic("out", "string", "json").read_key_values() == [("a", [[1, 2], "x"])]


def test_an_error_in_close_names_its_node_and_everything_else_is_closed() -> None:
    closed = []

    class Failing(Passing):
        def close(self) -> None:
            raise ValueError("boom")

    class Closing(Passing):
        def close(self) -> None:
            closed.append(True)

    builder = StreamsBuilder()
    builder.stream("in").process(Failing, name="failing").process(Closing).to("out")
    driver = TopologyTestDriver(builder.build(), TEXT)
    with pytest.raises(StreamsProcessingError, match="in node failing, task 0_0, at its close") as caught:
        driver.close()
    assert isinstance(caught.value.__cause__, ValueError) and closed == [True]


def test_an_error_in_init_is_not_told_as_that_of_a_punctuation() -> None:
    class Failing(Passing):
        def init(self, context: Any) -> None:
            raise ValueError("boom")

    with pytest.raises(StreamsProcessingError, match="in node mine, task 0_0, at its init"):
        driver_with(Failing)


def global_driver(processor: type[Processor]) -> TopologyTestDriver:
    builder = StreamsBuilder()
    builder.add_global_store(StoreBuilder("rows", StoreKind.KEY_VALUE, logging=False), "rows-topic", processor, name="filling")
    return TopologyTestDriver(builder.build(), TEXT)


def test_a_processor_of_a_global_store_cannot_schedule() -> None:
    class Ticking(Passing):
        def init(self, context: Any) -> None:
            super().init(context)
            context.schedule(1, "WALL_CLOCK_TIME", print)

    with pytest.raises(KStreamsError, match="cannot schedule punctuations") as caught:
        global_driver(Ticking)
    assert caught.value.node == "filling"


def test_errors_in_init_and_close_of_a_global_stores_processor_are_named() -> None:
    class InInit(Passing):
        def init(self, context: Any) -> None:
            raise ValueError("boom")

    class InClose(Passing):
        def close(self) -> None:
            raise ValueError("boom")

    with pytest.raises(StreamsProcessingError, match="in node filling of a global store, at its init"):
        global_driver(InInit)
    driver = global_driver(InClose)
    with pytest.raises(StreamsProcessingError, match="in node filling of a global store, at its close"):
        driver.close()


def test_every_global_store_is_closed_though_one_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = StreamsBuilder()
    for name in ("first", "second"):
        builder.add_global_store(StoreBuilder(name, StoreKind.KEY_VALUE, logging=False), f"{name}-topic", Passing, name=f"filling-{name}")
    driver = TopologyTestDriver(builder.build(), TEXT)
    first, second = (driver.state_store(name) for name in ("first", "second"))
    closed = []

    def fails() -> None:
        raise OSError("boom")

    monkeypatch.setattr(first, "close", fails)
    monkeypatch.setattr(second, "close", lambda: closed.append("second"))
    with pytest.raises(OSError, match="boom"):
        driver.close()
    assert closed == ["second"]


def test_global_stores_are_closed_though_the_task_cannot_be() -> None:
    closed = []

    class Failing(Passing):
        def close(self) -> None:
            raise ValueError("boom")

    class Filling(Passing):
        def close(self) -> None:
            closed.append(True)

    builder = StreamsBuilder()
    builder.add_global_store(StoreBuilder("rows", StoreKind.KEY_VALUE, logging=False), "rows-topic", Filling)
    builder.stream("in").process(Failing).to("out")
    with pytest.raises(StreamsProcessingError, match="at its close"):
        TopologyTestDriver(builder.build(), TEXT).close()
    assert closed == [True]


def test_print_to_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.stream("in").print(path=str(tmp_path / "missing" / "file"), name="printing")
    with pytest.raises(TopologyError, match="printing cannot write"):
        TopologyTestDriver(builder.build(), TEXT)
