"""Records off the main path of an asynchronous node, in the test driver: the table, and the orders to try or drop some of them."""

from __future__ import annotations

from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.engine.topology.store_builder import StoreBuilder
from kstreams_repl.repl.inspection.stores import StoreRows, store_table
from kstreams_repl.system.errors import TopologyError
from tests.unit.engine.runtime.test_async_nodes import driver_of, out, pipe

ROWS = (("a", 100), ("a", 10), ("b", 50), ("c", 20))


class Service:
    """Refuses even multiples of 50 until it is repaired."""

    def __init__(self) -> None:
        self.repaired = False

    async def __call__(self, value: int) -> int:
        if value % 50 == 0 and not self.repaired:
            raise ConnectionError(f"no {value}")
        return value


def waiting(service: Service, **options: Any) -> ks.testing.TopologyTestDriver:
    options = {"on_error": "retry", "attempts": 3, "retry_backoff": "1m"} | options
    driver = driver_of(
        lambda stream: stream.map_values_async(service, name="service", **options),
        config={"errors.dead.letter.queue.topic.name": "dead"},
    )
    pipe(driver, *ROWS)
    return driver


def test_the_table_has_the_record_its_tries_and_the_cause() -> None:
    with waiting(Service()) as driver:
        first, second = driver.retries("service").records
        assert (first.key, first.value, first.tries, first.next_try, first.cause) == ("a", 100, 1, 60_000, "ConnectionError: no 100")
        assert (first.topic, first.partition, first.offset, first.timestamp) == ("in", 0, 0, 0)
        assert "in __call__" in first.trace
        assert second.value == 50
        assert [row[:3] for row in driver.retries("service").table().rows] == [("a", 100, 1), ("b", 50, 1)]
        assert repr(driver.retries("service")) == "Retries('service', 2 records)"


def test_retry_now_does_not_wait_for_the_back_off() -> None:
    service = Service()
    with waiting(service) as driver:
        assert out(driver) == [("a", 10), ("c", 20)]
        assert driver.retries("service").retry_now() == ks.reports.RetryReport(before=2, after=2, gone=0, failed=2, pending=0)
        assert [record.tries for record in driver.retries("service").records] == [2, 2]
        service.repaired = True
        chosen = driver.retries("service").where(lambda record: record.key == "b")
        assert chosen.retry_now() == ks.reports.RetryReport(before=2, after=1, gone=1, failed=0, pending=0)
        assert out(driver) == [("b", 50)]
        driver.advance_wall_clock_time(120_000)
        assert out(driver) == [("a", 100)]
        assert len(driver.retries("service")) == 0


def test_dropped_records_are_counted_and_never_tried_again() -> None:
    service = Service()
    with waiting(service) as driver:
        chosen = driver.retries("service").where(lambda record: "100" in record.cause)
        assert chosen.drop() == ks.reports.RetryReport(before=2, after=1, gone=1, failed=0, pending=0)
        assert driver.dropped == 1
        service.repaired = True
        driver.advance_wall_clock_time(120_000)
        assert out(driver) == [("a", 10), ("c", 20), ("b", 50)]
        assert not driver.output("dead")
        assert chosen.drop() == ks.reports.RetryReport(before=0, after=0, gone=1, failed=0, pending=0)


def test_a_last_try_by_order_makes_a_dead_letter() -> None:
    with waiting(Service(), attempts=2) as driver:
        assert driver.retries("service").retry_now() == ks.reports.RetryReport(before=2, after=0, gone=2, failed=0, pending=0)
        assert [letter.value for letter in driver.output("dead")] == [b"100", b"50"]


def test_a_try_that_takes_time_is_pending() -> None:
    service = Service()
    latency = {"ms": 0}
    driver = driver_of(
        lambda stream: stream.map_values_async(service, name="service", on_error="retry", retry_backoff="1m"),
        call_latency=lambda call: latency["ms"],
    )
    with driver:
        pipe(driver, *ROWS)
        service.repaired, latency["ms"] = True, 500
        assert driver.retries("service").retry_now() == ks.reports.RetryReport(before=2, after=2, gone=0, failed=0, pending=2)
        driver.advance_wall_clock_time(500)
        assert len(driver.retries("service")) == 0


def test_only_an_asynchronous_node_has_waiting_records() -> None:
    with waiting(Service()) as driver:
        with pytest.raises(TopologyError, match="there is no node 'servic'") as caught:
            driver.retries("servic")
        assert caught.value.hint == "did you mean 'service'?"
        with pytest.raises(TopologyError, match="is not an asynchronous node"):
            driver.retries("KSTREAM-SOURCE-0000000000")


def test_sql_sees_the_rows_as_records() -> None:
    with waiting(Service()) as driver:
        assert driver._task is not None
        builder: StoreBuilder = next(store for store in driver._task.spec.subtopology.stores if store.name == "service-pending")
        rows = list(driver._task.environment.engine("service-pending").range())
        part = StoreRows(0, [key for key, _ in rows], [value for _, value in rows])
        columns = store_table(builder, [part], key_serde=ks.serdes.long, value_serde=ks.serdes.bytes).columns
        assert columns["cause"].to_pylist() == ["ConnectionError: no 100", "ConnectionError: no 50"]
        assert columns["tries"].to_pylist() == [1, 1]
        assert columns["offset"].to_pylist() == [0, 2]
        assert columns["next_try"].to_pylist()[0].timestamp() > 0
