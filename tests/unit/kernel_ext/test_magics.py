"""What magics show and print, in a shell on the small cluster."""

from __future__ import annotations

import pytest
from IPython.core.interactiveshell import InteractiveShell

from kstreams_repl.repl.session import Application
from kstreams_repl.repl.session.views.compare.comparison import Comparison
from tests.unit.kernel_ext.test_extension import run
from tests.unit.kernel_ext.test_topo_edit import cluster, produce, shell  # noqa: F401 - fixtures
from tests.unit.repl.session.compare.mistakes import MISTAKES
from tests.unit.repl.session.compare.shop import compared
from tests.unit.repl.session.small_cluster import SmallCluster, SmallSession


def test_a_diff_is_the_plan_of_an_edit_and_changes_nothing(shell: InteractiveShell) -> None:  # noqa: F811
    run(shell, "b.replace('kept', lambda key, value: value > 10)")
    result, _ = run(shell, "%topo_diff app b")
    assert result.success and "kept" in repr(result.result) and len(shell.user_ns["app"].versions) == 1


def test_stores_topics_and_logs_are_tables(
    shell: InteractiveShell, cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:
    produce(shell, cluster, 3, 4)
    stores = run(shell, "%topo_stores app")[0].result
    assert [row[:2] for row in stores.rows] == [("app", "totals")]
    topics = run(shell, "%topo_topics")[0].result
    assert [row[0] for row in topics.rows] == ["in", "out"]
    monkeypatch.setattr(SmallSession, "logs", lambda self, name, *, n: f"the last {n} lines of {name}")
    assert run(shell, "%topo_logs app -n 3")[0].result == "the last 3 lines of app"


def test_pause_resume_and_stop_print_the_state_that_was_reached(shell: InteractiveShell) -> None:  # noqa: F811
    assert run(shell, "%topo_pause app")[1].startswith("app: paused in ")
    assert run(shell, "%topo_pause app")[1] == "app: already paused\n"
    assert run(shell, "%topo_resume app")[1].startswith("app: ")
    shell.user_ns["app"]._core.finish_start()
    assert run(shell, "%topo_stop --all")[1].startswith("app: stopped in ")
    assert run(shell, "%topo_stop")[0].error_in_exec is not None


def test_a_removal_is_listed_first(shell: InteractiveShell) -> None:  # noqa: F811
    run(shell, "%topo_stop app")
    result, _ = run(shell, "%topo_remove app --dry-run")
    assert result.success and "app-totals-changelog" in repr(result.result)


def test_a_fork_is_planned_made_promoted_and_dropped_by_its_name(shell: InteractiveShell) -> None:  # noqa: F811
    run(shell, "%topo_stop app")
    run(shell, "app = session.deploy(b, 'app', config={'processing.guarantee': 'exactly_once_v2'}); app._core.finish_start()")
    run(shell, "b.replace('kept', lambda key, value: value > 10)")
    plan = run(shell, "%topo_fork app next b --dry-run")[0].result
    assert ("output", "out", "written to app.next-out", "") in plan.table().rows and plan.id == "app.next"
    for line in ("%topo_drop app.next", "%topo_promote app.next --emit diff"):
        error = run(shell, line)[0].error_in_exec
        assert "expected a fork, got 'app.next'; the forks are none" in str(error)
    run(shell, "app.stop(); app = session.deploy(b, 'app')")
    assert "runs at least once" in str(run(shell, "%topo_fork app next b")[0].error_in_exec)


def test_a_comparison_takes_the_builder_and_the_options_of_the_call(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:
    asked: list[tuple[object, dict[str, object]]] = []

    def compare(app: Application, topology: object, **options: object) -> Comparison:
        asked.append((topology, options))
        return compared(MISTAKES["wrong_bound"][0](False), MISTAKES["wrong_bound"][0](True))

    monkeypatch.setattr(Application, "compare", compare)
    result, _ = run(shell, "%topo_compare app b --records 500 --samples 3")
    assert result.success and result.result.first.node == "large"
    assert asked == [(shell.user_ns["b"], {"records": 500, "start": None, "end": None, "calls": False, "samples": 3})]
    result, _ = run(shell, "%topo_compare app b --start '10 minutes ago' --calls")
    assert result.success and asked[-1][1]["start"] == "10 minutes ago" and asked[-1][1]["calls"] is True
