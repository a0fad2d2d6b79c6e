"""``%%topo_edit NAME NODE``: one processor's function from a cell, in a real shell on the small cluster."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from kernel_ext.live.live_picture import LivePicture
from kernel_ext.magics.node_edits import edit_text
from kstreams_repl.host.kafka.admin import NewTopicSpec
from kstreams_repl.host.spark.failures.failure_translation import taken_over
from kstreams_repl.repl.session.application.edits.edit import EditPlan
from kstreams_repl.repl.session.source import source_slice
from kstreams_repl.repl.session.source.cell_history import CellHistory
from kstreams_repl.system.errors import KStreamsError, TaskMigratedError, TopologyError
from kstreams_repl.system.types import TopicPartition
from tests.unit.kernel_ext.test_extension import new_shell, run
from tests.unit.repl.session.small_cluster import PARTITIONS, SmallCluster, SmallSession, partition_of

BEGIN = """
import kstreams_repl
b = kstreams_repl.StreamsBuilder()
"""
BUILD = """
numbers = b.stream("in", key_serde="string", value_serde="long", name="numbers")
kept = numbers.filter(lambda key, value: value > 0, name="kept")
kept.map_values(lambda value: value, name="scaled").to("out", key_serde="string", value_serde="long", name="sink")
total = kept.group_by_key(key_serde="string", value_serde="long").aggregate(
    lambda: 0, lambda key, value, total: total + value, store="totals", value_serde="long", name="total")
"""
CONFIG = "config={'statestore.cache.max.bytes': 0}"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> SmallCluster:
    cluster = SmallCluster()
    cluster.create_topics([NewTopicSpec(name, PARTITIONS) for name in ("in", "out")])
    return cluster


@pytest.fixture
def shell(cluster: SmallCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    fresh = CellHistory()
    for module in ("kstreams_repl.repl.session.source.source_slice", "kernel_ext.cell_tracker", "kernel_ext.magics.topo_magics"):
        monkeypatch.setattr(f"{module}.history", fresh)
    shell = new_shell()
    run(shell, "%load_ext kstreams_repl")
    session = shell.user_ns["session"] = SmallSession(cluster, tmp_path)
    assert run(shell, BEGIN, "begin")[0].success and run(shell, BUILD, "build")[0].success
    assert run(shell, f"app = session.deploy(b, 'app', {CONFIG}); app._core.finish_start()", "deploy")[0].success
    yield shell
    session.applications["app"].stop()
    run(shell, "%unload_ext kstreams_repl")


def produce(shell: InteractiveShell, cluster: SmallCluster, *values: int) -> list[int]:
    """Values on the sink after these were put in."""
    for value in values:
        log = cluster.logs[TopicPartition("in", partition_of(b"k"))]
        log.append((b"k", struct.pack(">q", value), 1000 + len(log)))
    shell.user_ns["session"].applications["app"]._core.deployment.work()
    return [struct.unpack(">q", value)[0] for _, value, _ in cluster.values("out") if value is not None]


def edit(shell: InteractiveShell, line: str, body: str, cell: str = "edit") -> EditPlan:
    result, printed = run(shell, f"%%topo_edit {line}\n{body}", cell)
    assert result.success, printed
    assert isinstance(result.result, EditPlan)
    return result.result


def changes(plan: EditPlan) -> dict[str, str]:
    return {node.name: str(node.change) for node in plan.diff.nodes if str(node.change) != "unchanged"}


@pytest.mark.parametrize(
    "body",
    [
        "lambda key, value: value > 10",
        "limit = 10\nlambda key, value: value > limit",
        "def kept(key, value):\n    '''Text\n  over lines.'''\n    return value > 10\n",
        "limit = 10\n\ndef above(value):\n    return value > limit\n\ndef keep(key, value):\n    return above(value)",
        "keep = lambda key, value: value > 10",
        "class Above:\n    def __call__(self, key, value):\n        return value > 10\n\nAbove()",
    ],
)
def test_the_cell_s_function_takes_the_node_s_place(shell: InteractiveShell, cluster: SmallCluster, body: str) -> None:
    assert produce(shell, cluster, 1, 20) == [1, 20]
    before = shell.user_ns["kept"]
    plan = edit(shell, "app kept", body)
    assert plan.applied and changes(plan) == {"kept": "code only"}
    assert produce(shell, cluster, 2, 30) == [1, 20, 30]
    assert shell.user_ns["kept"] is before, "a def in the body does not overwrite the user's variable"
    app = shell.user_ns["app"]
    assert app.versions[-1].complete and str(app.versions[-1].topology.describe()) == str(app.topology.describe())
    source = source_slice.Program(app.versions[-1].source.partition("\n")[2])
    assert source.run().node("kept").operator.predicate("k", 5) is False  # type: ignore[union-attr]


def test_a_variable_names_its_node_and_a_parameter_s_name_its_function(shell: InteractiveShell, cluster: SmallCluster) -> None:
    plan = edit(shell, "app total", "def aggregator(key, value, total):\n    return total + 100 * value")
    assert changes(plan) == {"total": "code only"}
    produce(shell, cluster, 1, 2)
    store = shell.user_ns["app"].store("totals")
    assert store.get("k") == 300


def test_a_dry_run_changes_neither_what_runs_nor_the_builder(shell: InteractiveShell, cluster: SmallCluster) -> None:
    edit(shell, "app kept", "lambda key, value: value > 5", "first")
    plan = edit(shell, "app kept --dry-run", "lambda key, value: value > 10", "first")
    assert not plan.applied and changes(plan) == {"kept": "code only"}
    assert shell.user_ns["app"].changes() is None, "the builder is as it was"
    assert produce(shell, cluster, 4, 7) == [7]
    edit(shell, "app scaled", "lambda value: value * 2", "second")
    assert produce(shell, cluster, 8) == [7, 16]
    text = shell.user_ns["app"].versions[-1].source
    assert "value > 5" in text and "value > 10" not in text


def test_the_last_edit_of_a_node_counts_in_the_version_s_text(shell: InteractiveShell) -> None:
    for cell, bound in (("one", 5), ("two", 10), ("one", 7)):
        edit(shell, "app kept", f"def keep(key, value):\n    return value > {bound}", cell)
    text = shell.user_ns["app"].versions[-1].source
    assert "value > 7" in text and "value > 10" not in text and "value > 5" not in text


def test_a_refused_plan_is_shown_and_takes_the_edit_back(shell: InteractiveShell, cluster: SmallCluster) -> None:
    app = shell.user_ns["app"]
    run(shell, BUILD.replace('store="totals", value_serde="long"', 'store="totals", value_serde="integer"'), "build")
    result, printed = run(shell, "%%topo_edit app kept\nlambda key, value: value > 10", "edit")
    assert "cannot be kept" in str(result.error_in_exec) and "refused" in printed
    assert app.changes().topology.node("kept").operator.predicate("k", 5) is True
    assert produce(shell, cluster, 5) == [5]


def test_reset_state_without_a_name_means_the_node_s_store(shell: InteractiveShell, cluster: SmallCluster) -> None:
    produce(shell, cluster, 1, 2)
    plan = edit(shell, "app total --reset-state", "def aggregator(key, value, total):\n    return total - value")
    assert plan.diff.reset == ("totals",)
    produce(shell, cluster, 4)
    assert shell.user_ns["app"].store("totals").get("k") == -4


OBJECTS = """def initializer():
    return {"n": 0}

def aggregator(key, value, total):
    return {"n": total["n"] + value}"""


def test_migrate_takes_a_function_s_name_and_the_count_goes_on(shell: InteractiveShell, cluster: SmallCluster) -> None:
    produce(shell, cluster, 1, 2)
    run(shell, BUILD.replace('store="totals", value_serde="long"', 'store="totals", value_serde="json"'), "build")
    run(shell, "def to_object(key, value):\n    return {'n': value}", "function")
    plan = edit(shell, "app total --migrate totals=to_object --dry-run", OBJECTS)
    assert not plan.applied and plan.diff.rewritten == ("totals",)
    assert edit(shell, "app total --migrate totals=to_object", OBJECTS).applied
    produce(shell, cluster, 4)
    assert shell.user_ns["app"].store("totals").get("k") == {"n": 7}


def test_migrate_takes_a_lambda_in_quotes_and_a_function_of_the_cell_itself(
    shell: InteractiveShell, cluster: SmallCluster
) -> None:
    produce(shell, cluster, 1, 2)
    edit(
        shell,
        'app total --migrate "totals=lambda key, value: value * 100"',
        "def aggregator(key, value, total):\n    return total + value",
    )
    assert shell.user_ns["app"].store("totals").get("k") == 300
    again = (
        BUILD.replace("b.stream", "builder.stream").replace("total + value", "total - value")
        + "\nhalf = lambda key, value: value // 2"
    )
    result, printed = run(shell, f"%%topo_edit app --migrate totals=half\n{again}", "whole")
    assert result.success, printed
    produce(shell, cluster, 4)
    assert shell.user_ns["app"].store("totals").get("k") == 146


def test_migrate_rows_gives_rows_other_keys(shell: InteractiveShell, cluster: SmallCluster) -> None:
    produce(shell, cluster, 1, 2)
    same_partition = next(key for key in ("a", "b", "c", "d", "e", "f", "g") if partition_of(key.encode()) == partition_of(b"k"))
    function = f"totals=lambda key, value: ({same_partition!r}, value)"
    edit(shell, f'app total --migrate-rows "{function}"', "def aggregator(key, value, total):\n    return total + value")
    store = shell.user_ns["app"].store("totals")
    assert (store.get("k"), store.get(same_partition)) == (None, 3)
    elsewhere = next(key for key in ("a", "b", "c", "d", "e", "f", "g") if partition_of(key.encode()) != partition_of(b"k"))
    line = f'%topo_edit app b --migrate-rows "totals=lambda key, value: ({elsewhere!r}, value)"'
    result, _ = run(shell, line, "line")
    assert "would move from partition" in str(result.error_in_exec) and "give it a new name" in str(result.error_in_exec)
    assert store.get(same_partition) == 3 and len(shell.user_ns["app"].versions) == 2


@pytest.mark.parametrize(
    ("line", "body", "said"),
    [
        ("app kep", "lambda key, value: True", "did you mean 'kept'"),
        ("app kept --reset-state", "lambda key, value: True", "kept has no store"),
        ("app kept", "import json", "to end with the new function of kept"),
        ("app kept", "42", "got int"),
        ("app kept", "", "empty"),
        ("app numbers", "lambda key, value: True", "takes no function"),
        ("app kept --migrate totals", "lambda key, value: True", "expects STORE=FUNCTION"),
        ("app kept --migrate totals=nothing", "lambda key, value: True", "nothing raised NameError"),
        ("app kept --migrate totals=42", "lambda key, value: True", "expected a function of key and value, got 42"),
        ("app kept --migrate-rows totlas=str", "lambda key, value: True", "did you mean 'totals'"),
        ("nobody kept", "lambda key, value: True", "no application 'nobody'"),
    ],
)
def test_mistakes_name_what_is_wrong(shell: InteractiveShell, line: str, body: str, said: str) -> None:
    result, printed = run(shell, f"%%topo_edit {line}\n{body}", "edit")
    error: Any = result.error_in_exec
    assert error is not None and said in f"{error}{getattr(error, 'hint', '')}", printed
    assert shell.user_ns["app"].changes() is None
    assert not [name for name in shell.user_ns if name.startswith(("__edited__", "edit_of_"))]


def test_an_error_in_an_edited_function_quotes_the_cell_s_line() -> None:
    body = "factor = 2\n\ndef keep(key, value):\n    return 1 / 0\n"
    text = edit_text("kept", body, ())
    assert text.splitlines()[4].strip() == "return 1 / 0", "line 5 of the cell, its magic included"


def test_a_body_of_nothing_but_a_comment_is_no_function() -> None:
    with pytest.raises(UsageError, match="empty"):
        edit_text("kept", "# nothing", ())


def by_the_panel(shell: InteractiveShell) -> None:
    run(shell, BUILD.replace("value > 0", "value > 10"), "build")
    live = LivePicture(shell.user_ns["app"], lambda changed: None)
    live.refresh()
    live._control(live._plan)
    live._control(live._apply)
    live.refresh()
    assert live.state["status"] == "running" and not live.state["failure"], live.state["detail"]


def by_edit(shell: InteractiveShell) -> None:
    run(shell, BUILD.replace("value > 0", "value > 10"), "build")
    assert run(shell, "app.edit(b)", "edit it")[0].success


@pytest.mark.parametrize(
    "change",
    [
        by_edit,
        by_the_panel,
        lambda shell: edit(shell, "app kept", "lambda key, value: value > 10"),
        lambda shell: run(shell, "app.rollback()", "back"),
    ],
    ids=["app.edit", "the panel", "%%topo_edit", "rollback"],
)
@pytest.mark.parametrize("stopped", [False, True], ids=["failed", "failed and stopped"])
def test_an_edit_resumes_a_failed_application(shell: InteractiveShell, cluster: SmallCluster, change: Any, stopped: bool) -> None:
    """The new function was in place, and nothing ran it: `wait()` raised the old error, whose advice was to edit (L8)."""
    app = shell.user_ns["app"]
    edit(shell, "app kept", "lambda key, value: value > 5", "first")
    app._core.deployment.fail(KStreamsError("division by zero", hint="edit the function"))
    if stopped:
        app.stop()
    with pytest.raises(KStreamsError, match="division by zero"):
        app.wait(1)
    change(shell)
    assert app.status == "running" and app.error is None and "failed" not in repr(app)
    assert 20 in produce(shell, cluster, -1, 20)


def test_an_edit_resumes_an_application_that_could_not_be_started(shell: InteractiveShell, cluster: SmallCluster) -> None:
    app = shell.user_ns["app"]
    app.stop()
    start = app._core.deployment.start
    app._core.deployment.start = lambda: 1 / 0
    with pytest.raises(KStreamsError, match="division by zero"):
        app.resume()
    with pytest.raises(KStreamsError, match="division by zero"):
        edit_raises(shell, "app.edit(b.replace('kept', lambda key, value: value > 5))")
    assert app.status == "failed" and len(app.versions) == 2
    app._core.deployment.start = start
    assert edit(shell, "app kept", "lambda key, value: value > 10").applied
    assert app.status == "running" and app.error is None and produce(shell, cluster, 6, 20) == [20]


@pytest.mark.parametrize("halt", ["pause", "stop"])
def test_an_edit_leaves_an_application_at_rest_at_rest(shell: InteractiveShell, halt: str) -> None:
    app = shell.user_ns["app"]
    getattr(app, halt)()
    before = app.status
    assert edit(shell, "app kept", "lambda key, value: value > 10").applied and app.status == before


def test_what_another_program_has_taken_over_is_not_edited(shell: InteractiveShell) -> None:
    """The resume would take it back."""
    app = shell.user_ns["app"]
    app._core.deployment.fail(taken_over("app", 7, 3))
    with pytest.raises(TaskMigratedError, match="took over app"):
        edit_raises(shell, "app.edit(b.replace('kept', lambda key, value: value > 5))")
    assert app.status == "failed" and len(app.versions) == 1


def edit_raises(shell: InteractiveShell, code: str) -> None:
    error = run(shell, code, "raises")[0].error_in_exec
    assert error is not None
    raise error


def rebuilt(shell: InteractiveShell) -> Any:
    """What the source text of the present version builds: it says what runs, and nothing else."""
    version = shell.user_ns["app"].versions[-1]
    assert version.complete, version.source
    topology = source_slice.Program(version.source.partition("\n")[2]).run()
    assert str(topology.describe()) == str(version.topology.describe())
    return topology


def by_a_cell(shell: InteractiveShell) -> None:
    run(shell, BUILD.replace("value > 0", "value > 10"), "build")
    assert run(shell, "app.edit(b)", "edit it")[0].success


def by_replace(shell: InteractiveShell) -> None:
    assert run(shell, "plan = app.edit(b.replace('kept', lambda key, value: value > 10))", "edit it")[0].success


def by_a_new_node(shell: InteractiveShell) -> None:
    more = "larger = kept.filter(lambda key, value: value > 10, name='larger')\nlarger.foreach(lambda key, value: None, name='end')\n"
    assert run(shell, f"{more}plan = app.edit(b.replace('kept', lambda key, value: value > 10))", "more")[0].success


@pytest.mark.parametrize(
    "change",
    [by_a_cell, by_replace, by_a_new_node, lambda shell: edit(shell, "app kept", "lambda key, value: value > 10", "first")],
    ids=["a cell", "replace", "a new node", "%%topo_edit"],
)
def test_an_edit_after_a_rollback_starts_from_what_runs(shell: InteractiveShell, cluster: SmallCluster, change: Any) -> None:
    """It planned the change again that had been rolled back (W5)."""
    app = shell.user_ns["app"]
    change(shell)
    assert produce(shell, cluster, 5, 20) == [20]
    said: list[str] = []
    app._core.client.report = said.append
    assert run(shell, "app.rollback()", "back")[0].success
    assert app.changes() is None and not app._core.stale and not said, "the builder is what runs"
    assert edit(shell, "app scaled --dry-run", "lambda value: value * 2", "next").table().note.startswith("4 nodes unchanged")
    plan = edit(shell, "app scaled", "lambda value: value * 2", "next")
    assert changes(plan) == {"scaled": "code only"}
    assert produce(shell, cluster, 5, 20) == [20, 10, 40]
    topology = rebuilt(shell)
    assert topology.node("kept").operator.predicate("k", 5) and topology.node("scaled").operator.mapper(4) == 8
    # the variables of the cells that ran after it still serve, and a cell that runs again counts
    assert run(shell, "kept.foreach(lambda key, value: None, name='seen'); plan = app.edit(b)", "later")[0].success
    assert changes(shell.user_ns["plan"]) == {"seen": "new"}
    run(shell, BUILD.replace("value > 0", "value > 7"), "build")
    plan = shell.user_ns["app"].changes()
    assert {"kept", "scaled"} <= changes(plan).keys() and "larger" not in str(plan.topology.describe())


def test_a_second_rollback_brings_back_what_the_first_took(shell: InteractiveShell, cluster: SmallCluster) -> None:
    app = shell.user_ns["app"]
    by_a_cell(shell)
    for limit in (0, 10, 0, 10):
        assert run(shell, "app.rollback()", "back")[0].success
        assert app.changes() is None and app.topology.node("kept").operator.predicate("k", 5) is (limit == 0)
        assert rebuilt(shell).node("kept").operator.predicate("k", 5) is (limit == 0)


def test_a_change_that_waits_in_the_notebook_outlives_a_rollback(shell: InteractiveShell) -> None:
    app = shell.user_ns["app"]
    by_a_cell(shell)
    run(shell, BUILD.replace("value > 0", "value > 11"), "build")
    said: list[str] = []
    app._core.client.report = said.append
    run(shell, "app.rollback()", "back")
    assert changes(app.changes()) == {"kept": "code only"} and app.changes().topology.node("kept").operator.predicate("k", 11) is False
    assert "still differs from it (kept)" in said[-1]
    plan = edit(shell, "app scaled", "lambda value: value * 2", "next")
    assert changes(plan) == {"kept": "code only", "scaled": "code only"}, "it is the notebook's own, not what was rolled back"


LIMIT = BUILD.replace("value > 0", "value > LIMIT")


def test_an_edit_that_would_bring_back_a_value_that_was_rolled_back_is_refused(shell: InteractiveShell, cluster: SmallCluster) -> None:
    """The cells' values cannot go back with the builder."""
    app = shell.user_ns["app"]
    assert run(shell, f"LIMIT = 1\n{LIMIT}", "build")[0].success and run(shell, "app.edit(b)", "first")[0].success
    assert run(shell, "LIMIT = 10", "limit")[0].success and run(shell, "app.edit(b)", "second")[0].success
    assert len(app.versions) == 3
    run(shell, "app.rollback()", "back")
    for dry in ("", " --dry-run"):
        error = run(shell, f"%%topo_edit app scaled{dry}\nlambda value: value * 2", "next")[0].error_in_exec
        assert isinstance(error, TopologyError) and error.message.endswith("the edit of scaled would also change kept")
        assert "app.versions[-1].source" in str(error.hint)
    assert len(app.versions) == 4 and app.topology.node("scaled").operator.mapper(3) == 3
    assert changes(app.changes()).keys() == {"kept"}, "nothing of the refused edit is in the builder"
    run(shell, "LIMIT = 1", "limit")
    assert changes(edit(shell, "app scaled", "lambda value: value * 2", "next")) == {"scaled": "code only"}
    assert produce(shell, cluster, 1, 2) == [4]


def test_another_builder_is_not_taken_back_but_what_runs_is_edited(shell: InteractiveShell, cluster: SmallCluster) -> None:
    """A cell that makes its builder itself has another one with each run."""
    app = shell.user_ns["app"]
    run(shell, BEGIN, "begin")
    run(shell, BUILD.replace("value > 0", "value > 10"), "build")
    assert run(shell, "app.edit(b)", "first")[0].success
    said: list[str] = []
    app._core.client.report = said.append
    run(shell, "app.rollback()", "back")
    assert "still differs from it (kept)" in said[-1] and app.changes() is None
    assert changes(edit(shell, "app scaled", "lambda value: value * 2", "next")) == {"scaled": "code only"}
    assert produce(shell, cluster, 5) == [10]
