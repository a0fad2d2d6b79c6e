"""`MetricsView`: an application's metrics at one time, to read, filter, display and export to Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kstreams_repl.engine.metrics.metrics_snapshot import Metric, Value
from kstreams_repl.engine.metrics.prometheus import prometheus_text
from kstreams_repl.pictures.frames import Frames
from kstreams_repl.pictures.table import Table
from kstreams_repl.system.errors import CallError, did_you_mean

if TYPE_CHECKING:
    import pyarrow


class MetricsView(Frames):
    """Consistent metrics of one application. Get one from `Application.metrics`; later values need a new view.

    Example:
        >>> app.metrics.total("process-total")                       # doctest: +SKIP
        >>> app.metrics.filter("dropped-records-total", task_id="0_1")   # doctest: +SKIP
        >>> app.metrics["record-e2e-latency-avg"]                    # doctest: +SKIP
    """

    def __init__(self, application: str, metrics: Iterable[Metric]) -> None:
        self.application = application
        self._metrics = tuple(metrics)

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._metrics)

    def __len__(self) -> int:
        return len(self._metrics)

    def __contains__(self, name: object) -> bool:
        return any(metric.name == name for metric in self._metrics)

    def __getitem__(self, name: str) -> MetricsView:
        """Return all metrics of that name.

        Raises:
            CallError: there is none; another recording level may have it.
        """
        found = self.filter(name)
        if not found:
            raise CallError(
                f"{self.application} has no metric {name!r}",
                hint=did_you_mean(name, self.names) or "docs/reference/metrics.md lists the metrics, each with its metrics.recording.level",
            )
        return found

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(metric.name for metric in self._metrics))

    def filter(self, name: str | None = None, *, group: str | None = None, **tags: str) -> MetricsView:
        """Return the metrics of that name, group and tags; tags with underscores for dashes: ``task_id="0_0"``.

        Example:
            >>> consumed = app.metrics.filter("records-consumed-total")
        """
        wanted = {tag.replace("_", "-"): text for tag, text in tags.items()}
        return MetricsView(self.application, (metric for metric in self._metrics if metric.matches(name, group, wanted)))

    def value(self, name: str, *, group: str | None = None, **tags: str) -> Value:
        """Return the value of the one metric that has this name, group and tags.

        Args:
            name: name of the metric.
            group: None: any group.
            **tags: tags with underscores for dashes: ``task_id="0_0"``.

        Raises:
            CallError: there is none, or more than one: then name more tags.

        Example:
            >>> commits = app.metrics.value("commit-total", thread_id=f"{app.name}-StreamThread-1")
        """
        found = self[name].filter(name, group=group, **tags)
        if len(found) != 1:
            raise CallError(
                f"expected one metric {name!r} of {self.application} with these tags, got {len(found)}",
                hint="give more tags (task_id=, processor_node_id=), or sum them: metrics.total(name)",
            )
        return next(iter(found)).value

    def total(self, name: str, *, group: str | None = None, **tags: str) -> float:
        """Return the sum over all instances, tasks and nodes that have it; 0 when none does.

        Args:
            group: needed if several groups have a metric of that name.
            **tags: tags with underscores for dashes: ``task_id="0_0"``.

        Example:
            >>> total = app.metrics.total("records-consumed-total")
        """
        numbers = (metric.value for metric in self.filter(name, group=group, **tags))
        return sum(number for number in numbers if isinstance(number, (int, float)))

    def prometheus(self) -> str:
        """Return the metrics in Prometheus' text format, with the application as a label.

        Example:
            >>> text = app.metrics.prometheus()
        """
        return prometheus_text(self._metrics, {"application": self.application})

    def arrow(self) -> pyarrow.Table:
        """Return the metrics as in SQL: ``application, name, group, tags, value, text, at``.

        Example:
            >>> app.metrics.arrow().column_names[:2]
            ['application', 'name']
        """
        return metrics_table([self])

    def table(self) -> Table:
        """Return a table for display.

        Example:
            >>> table = app.metrics.table()
        """
        rows = [(m.name, m.group, ", ".join(f"{tag}={text}" for tag, text in m.tags.items()), m.value) for m in self._metrics]
        note = "" if rows else "nothing is measured yet: it is not started, or started less than a second ago"
        return Table.of(("name", "group", "tags", "value"), rows, note=note, title=f"{self.application}: {len(rows)} metrics")

    def __repr__(self) -> str:
        return f"MetricsView({self.application!r}, {len(self._metrics)} metrics, {len(self.names)} names)"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return self.table()._repr_mimebundle_()


def metrics_table(views: Iterable[MetricsView]) -> pyarrow.Table:
    """Return metrics of several applications as one Arrow table."""
    import pyarrow as pa

    rows = [(view.application, metric) for view in views for metric in view]
    numbers = [float(m.value) if isinstance(m.value, (int, float)) else None for _, m in rows]
    return pa.table(
        {
            "application": pa.array([name for name, _ in rows], pa.string()),
            "name": pa.array([m.name for _, m in rows], pa.string()),
            "group": pa.array([m.group for _, m in rows], pa.string()),
            "tags": pa.array([list(m.tags.items()) for _, m in rows], pa.map_(pa.string(), pa.string())),
            "value": pa.array(numbers, pa.float64()),
            "text": pa.array([m.value if isinstance(m.value, str) else None for _, m in rows], pa.string()),
            "at": pa.array([m.at_ms for _, m in rows], pa.timestamp("ms")),
        }
    )
