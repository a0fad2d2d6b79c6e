"""The tutorial's checks: right for what the steps leave, and a reason for each mistake that a reader makes; without a broker."""

from __future__ import annotations

import json
import types
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from kstreams_repl.demo import data, tutorial
from kstreams_repl.system.errors import UnknownTopicError

HOUR = 3_600_000
SALES = tutorial.sales("2026-03-02", days=2)
TODAY = tutorial.sales("2026-03-04")


def ms(sale: dict[str, Any]) -> int:
    return round(pd.Timestamp(sale["at"]).timestamp() * 1000)


def record(key: Any, value: Any, timestamp: int = 0) -> Any:
    return types.SimpleNamespace(key=key, value=value, timestamp=timestamp)


class Broker:
    """Topics, and the rows of each store, as `Session.read` and `Session.sql` return them."""

    def __init__(self) -> None:
        self.topics: dict[str, list[Any]] = {}
        self.stores: dict[str, list[tuple[Any, ...]]] = {}

    def read(self, topic: str, n: None, value_serde: str = "json") -> list[Any]:
        if topic not in self.topics:
            raise UnknownTopicError(f"the topic {topic} does not exist.")
        return self.topics[topic]

    def sql(self, query: str) -> Any:
        (name,) = [name for name in self.stores if f'"{name}"' in query]
        return types.SimpleNamespace(fetchall=lambda: self.stores[name])


def produced() -> list[Any]:
    return [record(sale["shop"], sale, ms(sale)) for sale in SALES]


@pytest.fixture
def broker() -> Broker:
    broker = Broker()
    broker.topics["sales"] = produced()
    return broker


@pytest.fixture
def check(broker: Broker) -> tutorial.Check:
    return tutorial.Check({"session": broker, "sales": SALES, "today": TODAY})


def test_the_same_sales_come_at_each_call_and_some_arrive_late() -> None:
    assert tutorial.sales("2026-03-02", days=2) == SALES and len(SALES) > 2_000
    times = [ms(sale) for sale in SALES]
    assert times != sorted(times) and [sale for sale in SALES if sale["shop"] != "Oslo"] == sorted(
        (sale for sale in SALES if sale["shop"] != "Oslo"), key=ms
    )


@pytest.mark.parametrize("step", range(1, 10))
def test_a_step_that_has_not_begun_says_what_to_run(step: int) -> None:
    verdict = tutorial.Check({})(step)
    assert not verdict.right and "run the cells of this step" in repr(verdict)


def test_late_flights_of_the_demo(tmp_path: Path) -> None:
    files = data.source_files(tmp_path)
    names = {key: json.loads(value)["name"] for key, value, _ in data.airlines(files)}
    flights = ((key, json.loads(value)) for key, value, _ in data.flights(files))
    late = [record(key, {**flight, "airline": names[key]}) for key, flight in flights if (flight["dep_delay"] or 0) > 120]
    broker = Broker()
    broker.topics["delayed-flights"] = late
    assert tutorial.Check({"demo": broker})(1).text.startswith(f"{len(late):,} of 336,776 flights")
    late.pop()
    assert not tutorial.Check({"demo": broker})(1).right


MISTAKES: dict[str, tuple[Callable[[list[Any]], list[Any]], str]] = {
    "no key": (lambda rows: [record(None, row.value, row.timestamp) for row in rows], 'key="shop"'),
    "no time": (lambda rows: [record(row.key, row.value, 1_790_000_000_000) for row in rows], 'timestamp="at"'),
    "twice": (lambda rows: rows * 2, f"{len(SALES):,} records are there more than once: session.close()"),
    "some missing": (lambda rows: rows[5:], f"5 of {len(SALES):,} sales are not on the topic"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_records_on_the_topic(mistake: str, broker: Broker, check: tutorial.Check) -> None:
    assert check(2).right
    change, said = MISTAKES[mistake]
    broker.topics["sales"] = change(produced())
    assert not check(2).right and said in check(2).text


def test_a_topic_that_does_not_exist_is_no_traceback(broker: Broker, check: tutorial.Check) -> None:
    del broker.topics["sales"]
    assert not check(2).right and "the topic sales does not exist" in check(2).text


def test_counts_and_windows(broker: Broker, check: tutorial.Check) -> None:
    per_shop = Counter(sale["shop"] for sale in SALES)
    broker.stores["sales-per-shop"] = list(per_shop.items())
    assert check(3).right
    broker.stores["sales-per-shop"] = list((per_shop + Counter(sale["shop"] for sale in TODAY)).items())
    assert check(3).right, "the step is repeated when today's sales are there"
    broker.stores["sales-per-shop"] = list({**per_shop, "Berlin": 1}.items())
    assert check(3).text.startswith(f"1 of 5 sales per shop differ; the first, Berlin: 1, in pandas {per_shop['Berlin']}.")
    broker.stores["sales-per-shop"] = [(shop, 3 * count) for shop, count in per_shop.items()]
    assert "more than once: session.close()" in check(3).text
    per_hour = Counter((sale["drink"], ms(sale) // HOUR * HOUR) for sale in SALES)
    rows = [(drink, begin, count) for (drink, begin), count in per_hour.items()]
    broker.stores["sales-per-hour"] = rows
    assert check(4).right
    broker.stores["sales-per-hour"] = [(*rows[0][:2], rows[0][2] - 1), *rows[1:]]
    assert not check(4).right and 'grace="1 h"' in check(4).text


def test_average_and_maximum(broker: Broker, check: tutorial.Check) -> None:
    by_drink: dict[str, list[float]] = {}
    for sale in SALES:
        by_drink.setdefault(sale["drink"], []).append(sale["euros"])
    prices = {drink: {"sales": len(euros), "euros": sum(euros), "most": max(euros)} for drink, euros in by_drink.items()}
    broker.stores["prices"] = list(prices.items())
    assert check(5).right
    prices["tea"]["most"] = 1.0
    assert not check(5).right and "the first, tea" in check(5).text


def test_a_join_without_matches_says_where_to_look(broker: Broker) -> None:
    shops = pd.DataFrame({"shop": [shop.upper() for shop in tutorial.SHOPS], "country": list("DPNFI"), "since": 0})
    check = tutorial.Check({"session": broker, "today": TODAY, "shops": shops})
    broker.topics["sales-by-country"] = []
    assert not check(6).right and "app.explain()" in check(6).text
    country = dict(zip(tutorial.SHOPS, "DPNFI", strict=True))
    broker.topics["sales-by-country"] = [record(sale["shop"].upper(), {**sale, "country": country[sale["shop"]]}) for sale in TODAY]
    assert check(6).right


def test_dead_letters_are_exactly_the_bad_events(broker: Broker, check: tutorial.Check) -> None:
    bad = [b'{"shop": "Rome", "euros": "3,00"}', b'{"shop"']
    good = [record("Oslo", json.dumps({"euros": 2.2}).encode()) for _ in range(3)]
    broker.topics |= {"tills": [*good, *(record("Rome", one) for one in bad)], "bad-sales": [record("Rome", bad[0])]}
    broker.stores["euros-per-shop"] = [("Oslo", 6.6000000000000005)]
    assert check(7).text == "2 events of the topic `tills` cannot be used, and `bad-sales` has 1."
    broker.topics["bad-sales"].append(record("Rome", bad[1]))
    assert check(7).right


def test_a_test_that_cannot_fail_is_noticed(broker: Broker) -> None:
    rush, tests = types.SimpleNamespace(RUSH=12), types.SimpleNamespace()
    check = tutorial.Check({"session": broker, "sales": SALES, "today": TODAY, "alerts": rush, "test_alerts": tests})
    windows = Counter((sale["shop"], ms(sale) // 600_000 * 600_000) for sale in [*SALES, *TODAY])
    alerts = [record(shop, {"from": begin, "sales": 12}) for (shop, begin), count in windows.items() if count >= 12]
    broker.topics["alerts"] = alerts

    def exactly_twelve() -> None:
        assert rush.RUSH == 12

    tests.test_rule = exactly_twelve
    assert check(8).right
    broker.topics["alerts"] = [*alerts, alerts[0]]
    assert not check(8).right and "alerts per shop and ten minutes differ" in check(8).text
    broker.topics["alerts"] = alerts
    tests.test_rule = lambda: None
    assert check(8).text == "With RUSH = 13 the tests of test_alerts.py pass." and rush.RUSH == 12


def test_rows_of_the_files(check: tutorial.Check, broker: Broker, tmp_path: Path) -> None:
    frame = pd.DataFrame([*SALES, *TODAY]).assign(event_day=lambda rows: rows["at"].str[:10])
    frame.to_parquet(tmp_path / "all", partition_cols=["event_day"])
    check = tutorial.Check({"session": broker, "sales": SALES, "today": TODAY, "daily": tmp_path / "all"})
    assert check(9).right
    frame.iloc[1:].to_parquet(tmp_path / "fewer", partition_cols=["event_day"])
    assert not tutorial.Check({"session": broker, "sales": SALES, "today": TODAY, "daily": tmp_path / "fewer"})(9).right
