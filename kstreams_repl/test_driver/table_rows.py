"""What sinks that write tables would have written, for tests: the test driver keeps their rows and writes no file."""

from __future__ import annotations

from typing import Any

from kstreams_repl.system.errors import TopologyError, did_you_mean
from kstreams_repl.test_driver.host import DriverCollector


class TableRowsReader:
    """The part of `TopologyTestDriver` that reads tables."""

    _collector: DriverCollector

    def read_table_files(self, path: str) -> list[dict[str, Any]]:
        """Return the rows that the topology's table sinks wrote to a path since the last call, oldest first, as dicts with all columns.

        The driver writes no file.

        Args:
            path: the path of `to_table_files`.

        Raises:
            TopologyError: no sink writes there.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> orders = builder.stream("orders", key_serde="string", value_serde="json")
            >>> orders.to_table_files("/data/orders", schema={"amount": "double"}, partition_by="event_day")
            >>> driver = ks.testing.TopologyTestDriver(builder.build(), start_ms=0)
            >>> driver.create_input_topic("orders", "string", "json").pipe_input("a", {"amount": 2.5}, timestamp=86_400_000)
            >>> driver.read_table_files("/data/orders")
            [{'amount': 2.5, 'event_day': datetime.date(1970, 1, 2)}]
        """
        tables = list(self._collector.tables.values())
        if not any(rows.table.path == str(path) for rows in tables):
            paths = [rows.table.path for rows in tables]
            raise TopologyError(
                f"no sink writes a table to {path!r}",
                hint=did_you_mean(str(path), paths) or f"tables: {', '.join(paths) or 'none'}",
                path=str(path),
            )
        writes: list[dict[str, object]] = []
        for rows in tables:
            if rows.table.path == str(path):
                writes += rows.written
                rows.written = []
        return writes
