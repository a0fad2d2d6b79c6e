"""A record in the debugger: steps, breakpoints, edits, errors that open in the user's frame, and the test that is written from it."""

from __future__ import annotations

import os
import pdb
import random
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.engine.commit.offset_metadata import OffsetMetadata
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.runtime.task import TaskSpec
from kstreams_repl.host.instance.initialization.start_offsets import StartOffset
from kstreams_repl.repl.session.views.past.debug.debugger import Debugger
from kstreams_repl.system.types import RecordBatch
from kstreams_repl.test_driver.driver_tasks import DriverTopics
from kstreams_repl.types import RecordPosition
from tests.unit.repl.session.past.workloads import batches, buffers, everything, from_the_start, random_input, spec_of

LONG = ks.serdes.long.serialize
ROOT = Path(__file__).resolve().parents[4]

PROGRAM = '''from __future__ import annotations

import kstreams_repl as ks


def share(value):
    return 100 // value


builder = ks.StreamsBuilder()
orders = builder.stream("orders", key_serde="string", value_serde="long", name="orders")
shares = orders.map_values(share, name="share")
grouped = shares.group_by_key(key_serde="string", value_serde="long")
total = grouped.aggregate(lambda: 0, lambda key, value, total: total + value, store="totals", name="total", value_serde="long")
total.to_stream(name="changes").to("out", key_serde="string", value_serde="long", name="to-out")
windows = grouped.windowed_by(ks.TimeWindows.of_size_and_grace(50, 20)).count(store="windowed", name="windows")
__topology__ = builder
'''


def shares() -> ks.Topology:
    space: dict[str, Any] = {}
    exec(compile(PROGRAM, str(Path(__file__).parent / "shares.py"), "exec"), space)
    topology: ks.Topology = space["builder"].build()
    return topology


def debugging(topology: ks.Topology, position: str, rows: list[Any], **more: Any) -> Debugger:
    spec: TaskSpec = spec_of(topology)
    return Debugger(
        spec, RecordPosition.parse(position), starts=from_the_start(spec), records=batches(rows), topology=topology, **more
    )


def orders(*values: int) -> list[Any]:
    return [("orders", b"a", LONG(value), 1000 + number) for number, value in enumerate(values)]


def run_pytest(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", str(path)],
        cwd=path.parent, capture_output=True, text=True, timeout=120, check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip


# ---- steps


def test_steps_walk_the_nodes_with_the_state_of_the_record_before() -> None:
    with debugging(shares(), "orders-0@2", orders(50, 25, 10)) as debugger:
        assert repr(debugger) == "Debugger(orders-0@2, task 0_0, not run)"
        assert [debugger.step().node for _ in range(3)] == ["orders", "share", "total"]
        assert debugger.visit is not None and debugger.visit.input == ("a", 10, 1002, [])
        assert debugger.state("totals").rows == (("a", (6, 1001), (16, 1002)),)
        assert "a" in debugger.step().table().text() and "at " in repr(debugger)
        bundle = debugger._repr_mimebundle_()
        assert "<img" in bundle["text/html"] and "▶" in bundle["text/plain"]
        marks = debugger._marks()
        assert marks["node:to-out"].lines == ("✓ passed",) and "▶ here" in marks[f"node:{debugger.visit.node}"].lines


def test_steps_go_on_with_the_next_record_until_there_is_none() -> None:
    with debugging(shares(), "orders-0@0", orders(50, 25)) as debugger:
        while str(debugger.position) == "orders-0@0":
            debugger.step()
        assert debugger.visit is not None and debugger.visit.node == "orders"
        with pytest.raises(ks.errors.IllegalStateError, match="no record after orders-0@1"):
            for _ in range(50):
                debugger.step()


def test_a_record_that_is_not_there() -> None:
    with pytest.raises(ks.errors.IllegalStateError, match="orders-0@9 is not among the records"):
        debugging(shares(), "orders-0@9", orders(1))


# ---- breakpoints


def test_run_stops_at_node_key_and_predicate() -> None:
    rows = random_input(5, 200)
    rows.sort(key=lambda row: row[3])
    with debugging(everything(), "orders-0@3", rows) as debugger:
        debugger.breakpoint("twice", key="k3")
        visit = debugger.run()
        assert visit is not None and visit.node == "twice" and visit.input is not None and visit.input.key == "k3"
        first = debugger.position
        visit = debugger.run()
        assert visit is not None and debugger.position.offset > first.offset
    with debugging(everything(), "orders-0@3", rows) as debugger:
        debugger.breakpoint(where=lambda key, value: value == 42)
        visit = debugger.run()
        assert visit is not None and visit.input is not None and visit.input.value == 42
        with pytest.raises(ks.errors.CallError, match="did you mean 'twice'|no node 'twise'"):
            debugger.breakpoint("twise")
        with pytest.raises(ks.errors.CallError, match="needs a condition"):
            debugger.breakpoint()
    with debugging(everything(), "orders-0@3", rows) as debugger:
        debugger.breakpoint("twice", key="nobody")
        assert debugger.run() is None


# ---- edits


def test_an_edit_runs_the_record_again_from_the_same_state_and_leaves_earlier_records_alone() -> None:
    with debugging(shares(), "orders-0@1", orders(50, 25)) as debugger:
        assert [record.value for record in debugger.trace.sent if record.topic == "out"] == [LONG(6)]
        for value, total in ((7, 9), (8, 10), (7, 9)):
            debugger.edit("share", lambda _, value=value: value)
            trace = debugger.again()
            assert [record.value for record in trace.sent if record.topic == "out"] == [LONG(total)]
        debugger.edit("total", lambda key, value, total: total - value)
        debugger.edit("total", lambda: 99, argument="initializer")
        assert [record.value for record in debugger.again().sent if record.topic == "out"] == [LONG(2 - 7)]


def test_a_processor_and_both_sides_of_a_join_are_edited() -> None:
    class Silent(ks.Processor):
        def process(self, record: Any) -> None: ...

    rows: list[Any] = [("names", b"a", b"ann", 1), ("clicks", b"a", LONG(5), 1000), ("orders", b"a", LONG(3), 1001)]
    with debugging(everything(), "orders-0@0", rows) as debugger:
        assert any(record.topic == "pairs" and record.value == b"3/5" for record in debugger.trace.sent)
        nodes = [node.name for node in debugger._nodes if type(getattr(node, "operator", None)).__name__ == "StreamStreamJoin"]
        debugger.edit(nodes[1], lambda left, right: f"{left}+{right}")
        debugger.edit("running", Silent)
        debugger.edit("join", lambda value, name: name)
        sent = {record.topic: record.value for record in debugger.again().sent}
        assert sent["pairs"] == b"3+5" and sent["joined"] == b"ann"
        assert not {"even", "odd"} & sent.keys()


def test_what_cannot_be_edited_says_what_can() -> None:
    with debugging(everything(), "orders-0@0", orders(1)) as debugger:
        with pytest.raises(ks.errors.CallError, match="count has no function"):
            debugger.edit("count", lambda value: value)
        with pytest.raises(ks.errors.CallError, match="expected a function for twice, got 3"):
            debugger.edit("twice", 3)
        with pytest.raises(ks.errors.CallError, match="sum has no function 'merger'"):
            debugger.edit("sum", lambda: 0, argument="merger")
        with pytest.raises(ks.errors.CallError, match="the task has no store 'count'"):
            debugger.state("count")


# ---- errors


def test_an_error_is_raised_at_its_node_and_opens_in_the_users_frame() -> None:
    with debugging(shares(), "orders-0@1", orders(50, 0)) as debugger:
        assert debugger.step().node == "orders"
        with pytest.raises(ZeroDivisionError) as caught:
            debugger.step()
        assert debugger.visit is not None and debugger.visit.node == "share"
        assert "in node share" in caught.value.__notes__[0] and "orders-0 offset 1" in caught.value.__notes__[0]
        opened = pdb.Pdb()
        opened.setup(None, caught.value.__traceback__)
        frame, _ = opened.stack[-1]
        assert frame.f_code.co_name == "share" and frame.f_locals == {"value": 0}
        with pytest.raises(ks.errors.IllegalStateError, match="failed, so the task cannot go on"):
            debugger.step()
        debugger.edit("share", lambda value: 100 // (value or 1))
        assert debugger.again().error is None


def test_an_error_of_the_engine_under_a_users_function_opens_in_that_function() -> None:
    class Wrong(ks.Processor):
        def init(self, context: Any) -> None:
            self.store = context.get_state_store("running")

        def process(self, record: Any) -> None:
            self.store.put(None, 1)

    with debugging(everything(), "orders-0@0", orders(1)) as debugger:
        debugger.edit("running", Wrong)
        with pytest.raises(ks.errors.NullKeyError) as caught:
            debugger.run()
        assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "process"


def test_a_breakpoint_in_a_function_runs_in_the_thread_of_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    stopped: list[Any] = []
    monkeypatch.setattr(sys, "breakpointhook", lambda: stopped.append((threading.get_ident(), sys._getframe(1).f_locals["value"])))

    def stopping(value: int) -> int:
        breakpoint()
        return value

    with debugging(shares(), "orders-0@1", orders(50, 25)) as debugger:
        debugger.edit("share", stopping)
        debugger.step()
    assert stopped == [(threading.get_ident(), 25)]


def test_an_error_that_a_handler_skips_is_raised_in_the_debugger_and_the_record_goes_on() -> None:
    spec = spec_of(shares(), processing_exception_handler="continue")
    records = batches(orders(0, 50))
    with Debugger(spec, RecordPosition("orders", 0, 0), starts=from_the_start(spec), records=records) as debugger:
        debugger.step()
        with pytest.raises(ZeroDivisionError):
            debugger.step()
        assert debugger.trace.error is None and debugger.visit is not None and debugger.visit.drops == ["processing"]
        assert debugger.step().node == "orders" and str(debugger.position) == "orders-0@1"


# ---- the test that is written


@pytest.mark.parametrize(("make", "cache"), [(everything, 0), (everything, 10_000_000), (buffers, 0), (buffers, 10_000_000)])
def test_the_state_in_a_saved_test_is_all_that_the_record_needs(make: Any, cache: int, tmp_path: Path) -> None:
    rows = sorted(random_input(6, 300), key=lambda row: row[3])
    spec, records = spec_of(make(), statestore_cache_max_bytes=cache), batches(rows)
    rng = random.Random(7)
    positions = [RecordPosition(*partition, offset) for partition, batch in records.items() for offset in batch.offsets[20:]]
    for position in rng.sample(positions, 15):
        with Debugger(spec, position, starts=from_the_start(spec), records=records) as debugger:
            text = debugger.save_test(
                tmp_path / "test_one.py", expect={}, topology=f"tests.unit.repl.session.past.workloads:{make.__name__}"
            ).read_text()
            expected: dict[str, list[Any]] = {}
            for record in debugger.trace.sent:
                expected.setdefault(record.topic, []).append((record.key, record.value, record.timestamp, list(record.headers)))
        space: dict[str, Any] = {}
        exec(compile(text + "        found.update(driver._outputs)\n", "saved test", "exec"), space)
        found: dict[str, Any] = {}
        space["found"] = found
        next(test for name, test in space.items() if name.startswith("test_"))()
        came = {topic: [(r.key, r.value, r.timestamp, list(r.headers)) for r in queue] for topic, queue in found.items() if queue}
        assert came == expected, position


def test_a_saved_test_fails_with_the_error_and_passes_after_the_mend(tmp_path: Path) -> None:
    with debugging(shares(), "orders-0@2", orders(50, 25, 0), program=PROGRAM) as debugger:
        saved = debugger.save_test(tmp_path / "test_share.py", expect={"out": [("a", 6)], "totals": {"a": 6}})
    failed = run_pytest(saved)
    assert failed.returncode == 1 and "ZeroDivisionError" in failed.stdout, failed.stdout
    saved.write_text(saved.read_text().replace("100 // value", "100 // value if value else 0"))
    passed = run_pytest(saved)
    assert passed.returncode == 0, passed.stdout


def test_a_saved_test_of_a_wrong_value_imports_the_topology(tmp_path: Path) -> None:
    (tmp_path / "shares.py").write_text(PROGRAM)
    with debugging(shares(), "orders-0@2", orders(50, 25, 10)) as debugger:
        saved = debugger.save_test(tmp_path / "test_shares.py", expect={"out": [("a", 26)]}, topology="shares:builder")
        with pytest.raises(ks.errors.IllegalStateError, match="source text of the topology is not known"):
            debugger.save_test(tmp_path / "test_other.py")
        with pytest.raises(ks.errors.CallError, match="expect names 'outs'"):
            debugger.save_test(tmp_path / "test_other.py", expect={"outs": []}, topology="shares:builder")
        assert not (tmp_path / "test_other.py").exists()
    text = saved.read_text()
    assert "'totals': {\n            b'a':" in text and "'windowed': {" in text and "# 'a': 10" in text
    failed = run_pytest(saved)
    assert failed.returncode == 1 and "16" in failed.stdout, failed.stdout
    # of another size: what was imported in the same second is cached
    (tmp_path / "shares.py").write_text(PROGRAM.replace("100 // value", "2 * 100 // value"))
    assert run_pytest(saved).returncode == 0


def test_a_saved_test_of_a_task_behind_a_repartition_topic_in_another_partition(tmp_path: Path) -> None:
    program = """
import kstreams_repl as ks

builder = ks.StreamsBuilder()
orders = builder.stream("orders", key_serde="string", value_serde="long", name="orders")
grouped = orders.group_by(lambda key, value: str(value % 3), name="by", key_serde="string", value_serde="long")
total = grouped.reduce(lambda total, value: total + value, store="totals", name="total")
total.to_stream(name="changes").to("out", key_serde="string", value_serde="long", name="to-out")
__topology__ = builder
"""
    space: dict[str, Any] = {}
    exec(program, space)
    topology = space["builder"].build()
    specs = DriverTopics(topology, "test", StreamsConfig({"application.id": "test"}), 2).specs
    [spec] = [spec for spec in specs if str(spec.task_id) == "1_1"]
    [partition] = spec.partitions
    assert partition.topic.startswith("test-") and partition.topic.endswith("-repartition")
    records = {partition: RecordBatch([b"1"] * 4, [LONG(n) for n in (1, 4, 7, 10)], [1, 2, 3, 4], [10, 12, 13, 20])}
    starts = {partition: StartOffset(10, OffsetMetadata())}
    with Debugger(spec, RecordPosition(*partition, 13), starts=starts, records=records, program=program, topology=topology) as debugger:
        assert [debugger.step().node for _ in range(2)][-1] == "total"
        assert debugger.state("totals").rows == (("1", (5, 2), (12, 3)),)
        saved = debugger.save_test(tmp_path / "test_total.py", expect={"out": [("1", 12)], "totals": {"1": 12}})
    space = {}
    exec(compile(saved.read_text(), str(saved), "exec"), space)
    next(test for name, test in space.items() if name.startswith("test_"))()


def test_a_record_that_cannot_be_read_is_raised_by_the_first_step(tmp_path: Path) -> None:
    rows = [*orders(50), ("orders", b"a", b"short", 1001)]
    with debugging(shares(), "orders-0@1", rows, program=PROGRAM) as debugger:
        with pytest.raises(Exception, match="8 bytes|short|unpack") as caught:
            debugger.step()
        assert "orders-0 offset 1" in caught.value.__notes__[0]
        saved = debugger.save_test(tmp_path / "test_bad.py")
    space: dict[str, Any] = {}
    exec(compile(saved.read_text(), str(saved), "exec"), space)
    with pytest.raises(ks.errors.SerializationError):
        next(test for name, test in space.items() if name.startswith("test_"))()


def test_a_saved_test_without_a_value_fails_until_it_is_completed(tmp_path: Path) -> None:
    with debugging(shares(), "orders-0@1", orders(50, 25), program=PROGRAM) as debugger:
        saved = debugger.save_test(tmp_path / "test_share.py")
    text = saved.read_text()
    assert "TODO: what should come out? It was [('a', 6)]" in text
    assert run_pytest(saved).returncode == 1
    saved.write_text(text.replace("== ...", "== [('a', 6)]"))
    assert run_pytest(saved).returncode == 0
