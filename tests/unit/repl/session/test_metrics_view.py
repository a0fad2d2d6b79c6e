"""An application's metrics as a Python object, as a table of SQL, and as rates of nodes."""

from __future__ import annotations

from typing import Any

import pytest

from kstreams_repl.engine.metrics.catalogue import TASK
from kstreams_repl.engine.metrics.metrics_snapshot import Metric, Snapshot, merged
from kstreams_repl.repl.inspection import Limits, run_sql
from kstreams_repl.repl.session.views.counts.metrics_view import MetricsView, metrics_table
from kstreams_repl.system.errors import KStreamsError
from tests.unit.engine.metrics.prometheus_page import read_page

AT = 1_700_000_000_000


def dropped(task: str, value: float | None) -> Metric:
    return Metric("dropped-records-total", TASK, {"thread-id": "counts-StreamThread-1", "task-id": task}, value, AT)


@pytest.fixture
def view() -> MetricsView:
    lag = Metric("repl-lag", TASK, {"thread-id": "counts-StreamThread-1", "task-id": "0_0"}, 7, AT)
    state = Metric("state", "stream-metrics", {"client-id": "counts"}, "running", AT)
    return MetricsView("counts", [dropped("0_0", 3), dropped("0_1", 4), lag, state])


def test_metrics_are_found_by_name_group_and_tags(view: MetricsView) -> None:
    assert len(view["dropped-records-total"]) == 2
    assert view.value("dropped-records-total", task_id="0_1") == 4
    assert view.total("dropped-records-total") == 7
    assert [metric.name for metric in view.filter(group=TASK, task_id="0_0")] == ["dropped-records-total", "repl-lag"]
    assert "repl-lag" in view and "nothing" not in view


def test_a_name_that_is_not_there_tells_the_nearest(view: MetricsView) -> None:
    with pytest.raises(KStreamsError, match="dropped-records-total"):
        view["droped-records-total"]


def test_one_value_of_several_asks_for_more_tags(view: MetricsView) -> None:
    with pytest.raises(KStreamsError, match="expected one metric .*, got 2"):
        view.value("dropped-records-total")


def test_it_shows_itself_as_a_table_and_says_when_there_is_nothing(view: MetricsView) -> None:
    assert repr(view) == "MetricsView('counts', 4 metrics, 3 names)"
    shown = view._repr_mimebundle_()
    assert "repl-lag" in shown["text/plain"] and "task-id=0_1" in shown["text/html"]
    assert "nothing is measured yet" in MetricsView("counts", [])._repr_mimebundle_()["text/plain"]


def test_prometheus_carries_the_application_as_a_label(view: MetricsView) -> None:
    page = read_page(view.prometheus())
    assert {labels["application"] for _, labels, _ in page.samples} == {"counts"}
    assert ("kafka_streams_stream_metrics", {"application": "counts", "client_id": "counts", "state": "running"}, 1.0) in page.samples


class Only:
    """A source with the one table ``metrics``."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def table(self, schema: str, name: str, limits: Limits) -> Any:
        return self._table if (schema, name) == ("", "metrics") else None

    def expect(self, tables: object) -> None:
        """Nothing belongs together."""

    def names(self) -> list[str]:
        return ["metrics"]


def test_sql_reads_names_tags_values_and_texts(view: MetricsView) -> None:
    source = Only(metrics_table([view, MetricsView("other", [dropped("0_0", None)])]))
    query = "SELECT application, tags['task-id'] AS task, value FROM metrics WHERE name = 'dropped-records-total' ORDER BY ALL"
    assert run_sql(query, source).fetchall() == [("counts", "0_0", 3.0), ("counts", "0_1", 4.0), ("other", "0_0", None)]
    texts = run_sql("SELECT text, epoch_ms(\"at\") FROM metrics WHERE \"group\" = 'stream-metrics'", source)
    assert texts.fetchall() == [("running", AT)]


def test_a_snapshot_comes_back_as_it_travelled() -> None:
    snapshot = Snapshot(AT, [(TASK, {"task-id": "0_0"}, {"repl-lag": 3, "process-latency-avg": None})])
    assert merged([Snapshot.read(snapshot.plain())]) == [
        Metric("repl-lag", TASK, {"task-id": "0_0"}, 3, AT),
        Metric("process-latency-avg", TASK, {"task-id": "0_0"}, None, AT),
    ]
