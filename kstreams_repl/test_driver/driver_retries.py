"""The waiting records of asynchronous nodes in the test driver, with the orders that a deployed application takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.runtime.calls.async_calls import RetryAction
from kstreams_repl.engine.runtime.calls.pending_rows import PendingRow
from kstreams_repl.pictures.retries import Retries, WaitingRecord, async_operator, waiting_record
from kstreams_repl.test_driver.driver_tasks import DriverTasks
from kstreams_repl.test_driver.table_rows import TableRowsReader


class DriverRetries:
    """`pictures.retries.RetrySource` of one node of a test driver."""

    def __init__(self, driver: RetriesReader, node: str) -> None:
        tasks = [task for task, _ in driver._tasks.all]
        nodes = {each.name: each for task in tasks for each in task.spec.subtopology.nodes}
        self._driver, self._node, self._operator = driver, node, async_operator(nodes, node)
        self._tasks = {task.id.partition: task for task in tasks if self._operator.store in task.stores}

    def read(self) -> list[WaitingRecord]:
        """Return the records that wait as of the last commit."""
        config, name = self._driver.config, self._operator.store
        rows = (
            waiting_record(partition, number, PendingRow.decode(row), self._operator, config)
            for partition, task in self._tasks.items()
            for number, row in task.stores[name].all()
        )
        return [record for record in rows if record is not None]

    def order(self, action: RetryAction, rows: Mapping[int, list[int]], done: Callable[[], bool], timeout: float) -> None:
        """Do something with records at once; what takes time ends when the driver's clock is advanced."""
        for partition, numbers in rows.items():
            calls = self._tasks[partition].calls
            assert calls is not None
            calls.order(self._node, action, numbers)
        self._driver._complete()


class RetriesReader(TableRowsReader):
    """The part of the test driver that shows waiting records."""

    _tasks: DriverTasks
    config: StreamsConfig
    _complete: Callable[[], None]

    def retries(self, node: str) -> Retries:
        """Return the records that failed in an asynchronous node and wait for another try (`on_error="retry"`).

        Args:
            node: its name.

        Raises:
            TopologyError: the topology has no such asynchronous node.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> priced = words.map_values_async(int, name="price", on_error="retry", retry_backoff="1s")
            >>> driver = ks.testing.TopologyTestDriver(builder.build(), start_ms=0)
            >>> driver.create_input_topic("words", "string", "string").pipe_input("a", "to")
            >>> driver.retries("price").records[0].cause
            "ValueError: invalid literal for int() with base 10: 'to'"
            >>> driver.retries("price").drop()
            RetryReport(before=1, after=0, gone=1, failed=0, pending=0)
        """
        source = DriverRetries(self, node)
        return Retries(node, source, source.read())
