"""What a side sends does not depend on how many records are run at once; which node is first where that is not plain."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.repl.session.views.compare import side as side_module
from kstreams_repl.repl.session.views.compare import topologies
from kstreams_repl.repl.session.views.compare.answers import Answers
from kstreams_repl.repl.session.views.compare.comparison import Comparison
from kstreams_repl.repl.session.views.compare.inputs import Inputs
from kstreams_repl.repl.session.views.compare.side import Base, Sent, Side, SideTopology
from kstreams_repl.repl.session.views.compare.topologies import compare_topologies
from kstreams_repl.system.errors import StreamsProcessingError
from kstreams_repl.system.types import RecordPosition
from tests.unit.repl.session.compare.mistakes import MISTAKES, by_customer, orders
from tests.unit.repl.session.compare.shop import CONFIG, compared, shop


def sent_by(topology: Topology, chunk: int, monkeypatch: pytest.MonkeyPatch) -> list[Sent]:
    monkeypatch.setattr(side_module, "CHUNK", chunk)
    inputs = Inputs(topologies.batches_of(shop(), topology))
    config = StreamsConfig({**CONFIG, "application.id": "test"})
    given = SideTopology(topology, "test", config, shop().topics, Answers(calls=False).of_a_side())
    with Side(given, Base(), inputs) as side:
        made = [
            sent for _, each in side.run(len(inputs)) for sent in each if sent.timestamp is not None
        ]  # a buffer logs at the commit
        return sorted(made, key=lambda sent: (sent.tag, sent.topic))


JOINS = (
    "inner_for_left_join", "wrong_side_of_a_join", "missing_retraction", "lost_grace", "wrong_interval_of_a_punctuation",
    "suppress_too_long",
)  # fmt: skip


@pytest.mark.parametrize("name", JOINS)
def test_the_number_of_records_at_once_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    build, _ = MISTAKES[name]
    once = sent_by(build(False), 1, monkeypatch)
    assert len(once) > 20
    assert once == sent_by(build(False), 7, monkeypatch) == sent_by(build(False), 10_000, monkeypatch)


def test_generated_names_that_shift_are_the_same_nodes() -> None:
    def build(*, known: bool, factor: int) -> Topology:
        builder = ks.StreamsBuilder()
        stream = builder.stream("orders")
        if known:
            stream = stream.filter(lambda key, order: order is not None)
        stream.filter(lambda key, order: order["amount"] > 3).map_values(lambda order: order["amount"] * factor).to("out")
        return builder.build(CONFIG)

    assert compared(build(known=False, factor=1), build(known=True, factor=1)).equal
    found = compared(build(known=False, factor=1), build(known=True, factor=2))
    assert found.first is not None and found.first.node == "KSTREAM-MAPVALUES-0000000002", found.text


def test_a_change_that_has_no_effect_is_not_the_first_node() -> None:
    def build(*, wrong: bool, after: bool) -> Topology:
        builder = ks.StreamsBuilder()
        stream = orders(builder)
        field = "net" if after else "amount"
        plain = by_customer(stream).map_values(lambda order: {field: order[field]}, name="plain")
        plain.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("out", name="sink")
        stream.filter(lambda key, order: order["amount"] > 18 + wrong, name="large").to("large", name="large-sink")
        return builder.build(CONFIG)

    assert compared(build(wrong=False, after=False), build(wrong=False, after=True)).equal
    found = compared(build(wrong=False, after=False), build(wrong=True, after=True))
    assert found.first is not None and found.first.node == "large", found.text


def test_a_new_output_is_a_difference_that_begins_at_its_branch() -> None:
    def build(*, more: bool) -> Topology:
        builder = ks.StreamsBuilder()
        stream = orders(builder)
        stream.to("out", name="sink")
        if more:
            stream.filter(lambda key, order: order["amount"] > 15, name="large").to("large", name="large-sink")
        return builder.build(CONFIG)

    found = compared(build(more=False), build(more=True))
    assert found.first is not None and found.first.node == "large", found.text
    (out, large) = found.rows
    assert (out.different, out.equal) == (0, 400) and large.only_after > 0 and large.equal == 0


def test_a_node_that_keeps_state_in_its_attributes_is_found() -> None:
    def build(*, first: int) -> Topology:
        class Every(ks.Processor):
            def init(self, context: Any) -> None:
                super().init(context)
                self.seen = 0

            def process(self, record: ks.Record) -> None:
                self.seen += 1
                if self.seen % 5 == 0 and (first == 0 or self.seen < first):
                    self.context.forward(record)

        builder = ks.StreamsBuilder()
        orders(builder).process(Every, name="every").to("out", name="sink")
        return builder.build(CONFIG)

    found = compared(build(first=0), build(first=50))
    assert found.first is not None and found.first.node == "every", found.text


def test_records_that_the_topology_writes_and_reads_again_go_through() -> None:
    def build(*, limit: int) -> Topology:
        builder = ks.StreamsBuilder()
        orders(builder).map_values(lambda order: order["amount"], name="amount").to("amounts", name="to-amounts")
        again = builder.stream("amounts", name="amounts")
        again.filter(lambda key, amount: amount > limit, name="large").to("out", name="sink")
        return builder.build(CONFIG)

    found = compared(build(limit=5), build(limit=6))
    assert found.first is not None and found.first.node == "large", found.text
    assert {each.name: each.equal for each in found.rows}["amounts"] == 400


def test_a_global_table_is_read_by_both() -> None:
    def build(*, field: str) -> Topology:
        builder = ks.StreamsBuilder()
        customers = builder.global_table("customers", store="customers")
        pair, customer = (lambda order, row: [order["amount"], row[field]]), (lambda key, order: order["customer"])
        orders(builder).join(customers, pair, key=customer, name="joined").to("out", name="sink")
        return builder.build(CONFIG)

    assert compared(build(field="name"), build(field="name")).rows[0].equal > 100
    found = compared(build(field="name"), build(field="city"))
    assert found.first is not None and found.first.node == "joined", found.text


def test_rows_of_a_table_of_files_are_compared(tmp_path: Path) -> None:
    def build(*, factor: int) -> Topology:
        builder = ks.StreamsBuilder()
        rows = orders(builder).map_values(lambda order: {"id": order["id"], "n": order["amount"] * factor}, name="row")
        rows.to_table_files(str(tmp_path / "rows"), schema={"id": "string", "n": "int64"}, name="files")
        return builder.build(CONFIG)

    assert compared(build(factor=1), build(factor=1)).rows[0].equal == 400
    found = compared(build(factor=1), build(factor=2))
    assert found.first is not None and found.first.node == "row", found.text
    assert found.rows[0].changed > 300 and found.samples[0].fields == ("value.n",)
    assert list(tmp_path.iterdir()) == []
    assert "≠" in str(found._repr_mimebundle_()) or found.picture().marks[f"table:{tmp_path / 'rows'}"].state == "differs"


def test_batches_are_compared_by_their_records() -> None:
    def build(*, bound: int) -> Topology:
        builder = ks.StreamsBuilder()
        amounts = orders(builder).map_values(lambda order: {"n": order["amount"]}, name="amount")

        def large(batch: Any) -> Any:
            import pyarrow as pa
            import pyarrow.compute as pc

            keep = pc.greater(batch.column("n"), bound)
            return pa.table({name: batch.column(name).filter(keep) for name in ("row", "n")})

        amounts.map_batches(large, columns={"n": "int64"}, name="large").to("out", name="sink")
        return builder.build(CONFIG)

    found = compared(build(bound=5), build(bound=6))
    assert found.first is not None and found.first.node == "large", found.text
    assert found.rows[0].only_before > 5 and found.rows[0].changed == 0


def test_the_records_before_an_error_are_compared() -> None:
    build, node = MISTAKES["raises_at_a_record"]
    found = compared(build(False), build(True))
    assert found.first is not None and found.first.node == node
    assert "ZeroDivisionError" in found.first.after and found.first.record is not None
    assert found.records == found.rows[0].equal and not found.rows[0].different
    assert any("were not compared" in note for note in found.notes), found.notes
    both = compared(build(True), build(True))
    assert both.equal and both.records == found.records and both.notes == found.notes


def test_an_application_that_fails_at_its_first_record_cannot_be_compared() -> None:
    builder = ks.StreamsBuilder()
    orders(builder).map_values(lambda order: order["nothing"], name="raising").to("out", name="sink")
    with pytest.raises(StreamsProcessingError, match="nothing"):
        compared(builder.build(CONFIG), builder.build(CONFIG))


def test_what_peek_and_foreach_do_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[object] = []
    builder = ks.StreamsBuilder()
    stream = orders(builder).peek(lambda key, order: seen.append(key), name="peeked")
    stream.to("out", name="sink")
    stream.foreach(lambda key, order: seen.append(key), name="each")
    stream.print(label="orders")
    found = compared(builder.build(CONFIG), builder.build(CONFIG))
    assert found.equal and found.rows[0].equal == 400 and seen == [] and capsys.readouterr().out == ""


@pytest.fixture(scope="module")
def shown() -> Comparison:
    build, _ = MISTAKES["less_for_less_or_equal"]
    return compared(build(False), build(True), samples=3)


def test_what_a_comparison_shows(shown: Comparison) -> None:
    assert repr(shown) == shown.text and shown.text.startswith("test: 400 input records from the beginning\n  output out: ")
    assert "first difference: node large, at orders-" in shown.text
    assert shown.table().columns == ("kind", "name", "equal", "changed", "only before", "only after", "noise")
    assert shown.df().shape == (2, 7) and list(shown.df()["name"]) == ["out", "counts"]
    assert len(shown.differences().rows) == 6 and len(shown.differences("counts").rows) == 3
    assert "samples= keeps more" in shown.differences().note
    sample = shown.samples[0]
    assert sample.kind == "output" and isinstance(sample.record, RecordPosition)
    assert shown.picture().marks["node:large"].state == "differs" and shown.picture().marks["store:counts"].state == "differs"
    bundle = shown._repr_mimebundle_()
    assert "<img" in bundle["text/html"] and bundle["text/plain"] == shown.text
    assert shown.to_dict()["first"]["node"] == "large" and shown.to_dict()["equal"] is False
    assert shown.differences().arrow().num_rows == 6


def test_a_late_windowed_row_shows_its_window() -> None:
    def build(*, step: int) -> Topology:
        builder = ks.StreamsBuilder()
        windowed = by_customer(orders(builder)).group_by_key().windowed_by(ks.TimeWindows.of_size("10 s", grace="20 s"))
        windowed.aggregate(lambda: 0, lambda key, order, n: n + step, store="counts", name="count")
        return builder.build(CONFIG)

    (sample, *_) = compared(build(step=1), build(step=2)).samples
    assert " @ 2023-11-14" in str(sample.key) and sample.fields == ("value",), sample


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_mistake_at_one_of_the_last_of_100_000_records_is_found() -> None:
    def build(*, wrong: str) -> Topology:
        builder = ks.StreamsBuilder()
        amounts = by_customer(orders(builder)).map_values(lambda order: order["amount"] + (order["id"] == wrong), name="amount")
        amounts.group_by_key().reduce(lambda one, other: one + other, store="totals", name="total").to_stream(name="changes").to(
            "out"
        )
        return builder.build(CONFIG)

    recording = shop(100_000)
    begin = time.process_time()
    assert compare_topologies(build(wrong=""), build(wrong=""), recording, CONFIG).equal
    found = compare_topologies(build(wrong=""), build(wrong="o99990"), recording, CONFIG)
    assert found.first is not None and found.first.node == "amount", found.text
    assert found.records == 100_000 and 0 < found.rows[0].changed < 10
    assert time.process_time() - begin < 120
