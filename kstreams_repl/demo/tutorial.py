"""The tutorial's data, and its checks: what each step of ``notebooks/tutorial.ipynb`` has left on the broker, compared with pandas.

A check reads topics with a plain consumer (`Session.read`), stores with SQL and files with pandas, and computes the same from the rows
that the notebook produced. Nothing of what is compared passes through a topology a second time.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from kstreams_repl.demo import data
from kstreams_repl.demo.topology import DELAYED_TOPIC, HEAVY_DELAY_MINUTES
from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.system.types import JsonMapping, JsonObject

if TYPE_CHECKING:
    import pandas as pd

SHOPS = ("Berlin", "Lisbon", "Oslo", "Paris", "Rome")
_AGAIN = 'session.close(), then run the cells from ks.connect(directory="temporary") on again.'
DRINKS = {"espresso": 2.2, "latte": 4.1, "tea": 3.0, "cocoa": 3.6}


def sales(day: str, days: int = 1) -> list[JsonObject]:
    """Return the sales of five coffee shops in the order in which they arrive; the same at each call.

    The till of Oslo has no network from 11:30 to 12:20: these sales arrive after it, with the time at which they were made.

    Args:
        day: the first one, as 2026-03-02.
        days: how many.

    Example:
        >>> from kstreams_repl.demo import tutorial
        >>> tutorial.sales("2026-03-02")[0]
        {'shop': 'Lisbon', 'drink': 'latte', 'euros': 8.2, 'at': '2026-03-02T06:01:22'}
    """
    arrivals: list[tuple[datetime, JsonObject]] = []
    for number in range(days):
        morning = datetime.fromisoformat(day) + timedelta(days=number, hours=6)
        offline, online = morning + timedelta(hours=5, minutes=30), morning + timedelta(hours=6, minutes=20)
        for shop in SHOPS:
            chance, at = random.Random(f"{shop} {morning}"), morning
            while (at := at + timedelta(seconds=round(chance.expovariate(_per_second(at))))) < morning + timedelta(hours=14):
                drink = chance.choice([*DRINKS])
                cups = chance.choice([1, 1, 1, 2, 3])
                sale = {"shop": shop, "drink": drink, "euros": round(cups * DRINKS[drink], 2), "at": at.isoformat()}
                arrivals.append((online if shop == "Oslo" and offline <= at < online else at, sale))
    return [sale for _, sale in sorted(arrivals, key=lambda arrival: arrival[0])]


def _per_second(at: datetime) -> float:
    return 1 / 45 if at.hour == 8 else 1 / 200


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a step is right; it shows itself.

    Attributes:
        step: its number.
        right: whether what was found equals what pandas computes.
        text: what was compared, or what is missing.
    """

    step: int
    right: bool
    text: str

    def __repr__(self) -> str:
        return f"step {self.step}: {'right' if self.right else 'not yet'}. {self.text}"


class Check:
    """Says of a step of the tutorial "right", or what is missing.

    Args:
        names: the notebook's variables: ``globals()``.

    Example:
        >>> from kstreams_repl.demo import tutorial
        >>> tutorial.Check({})(2)
        step 2: not yet. There is no variable `sales` yet: run the cells of this step from its first one on.
    """

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names
        self._steps: tuple[Callable[[], str], ...] = (
            self._demo, self._topic, self._count, self._windows, self._average, self._join, self._bad_events, self._alert, self._files,
        )  # fmt: skip

    def __call__(self, step: int) -> Verdict:
        try:
            return Verdict(step, True, self._steps[step - 1]())
        except _NotYetError as missing:
            return Verdict(step, False, str(missing))
        except KStreamsError as error:
            return Verdict(step, False, f"{error.message.rstrip('.')}. Run the cells of this step from its first one on.")

    def _demo(self) -> str:
        import pandas as pd

        with TemporaryDirectory() as folder:
            files = data.source_files(Path(folder))
            flights = pd.read_csv(files["flights"], usecols=["carrier", "dep_delay"])
            names = pd.read_csv(files["airlines"], keep_default_na=False)
        late = flights[flights["dep_delay"] > HEAVY_DELAY_MINUTES].merge(names, on="carrier")
        found = Counter(record.value["airline"] for record in self._name("demo").read(DELAYED_TOPIC, None))
        _compare(found, late["name"].value_counts().to_dict(), "late flights per airline", "Is the demo still running?")
        return f"{len(late):,} of {len(flights):,} flights were more than {HEAVY_DELAY_MINUTES} minutes late, in pandas as on the topic."

    def _topic(self) -> str:
        rows = Counter(_row(sale["shop"], _ms(sale["at"]), sale) for sale in self._name("sales"))
        records = self._name("session").read("sales", None)
        found = Counter(_row(record.key, record.timestamp, record.value) for record in records)
        if records and all(record.key is None for record in records):
            raise _NotYetError('The records have no key: session.produce("sales", sales, key="shop", …).')
        times, values = {time for _, time, _ in rows}, {value for _, _, value in rows}
        if records and not any(record.timestamp in times for record in records):
            raise _NotYetError('The records have the time at which they were written: add timestamp="at".')
        if twice := sum(number for row, number in (found - rows).items() if row[2] in values):
            raise _NotYetError(f"{twice:,} records are there more than once: {_AGAIN}")
        if gone := (rows - found).total():
            raise _NotYetError(f"{gone:,} of {rows.total():,} sales are not on the topic.")
        return f"{rows.total():,} records, each with the shop as key and the time of its sale."

    def _count(self) -> str:
        found = self._rows('SELECT key, value FROM "sales-per-shop"')
        truth = self._sold(sum(found.values())).groupby("shop").size().to_dict()
        surplus = sum(found.values()) > sum(truth.values())
        hint = f"The topic has sales more than once: {_AGAIN}" if surplus else "app.wait(120) waits until all records are counted."
        _compare(found, truth, "sales per shop", hint)
        return f"{sum(truth.values()):,} sales in {len(truth)} shops, as in pandas."

    def _windows(self) -> str:
        rows = self._name("session").sql('SELECT key, CAST(epoch_ms(window_start) AS BIGINT), value FROM "sales-per-hour"').fetchall()
        found = {(drink, _time(begin)): count for drink, begin, count in rows}
        sold = self._sold(sum(found.values()))
        truth = sold.groupby(["drink", sold["at"].dt.floor("h")]).size().to_dict()
        late = 'Sales that came late were dropped: app.explain() says how many; ks.TimeWindows.of_size("1 h", grace="1 h") keeps them.'
        _compare(found, truth, "sales per drink and hour", late if sum(found.values()) < len(sold) else "")
        return f"{len(truth)} windows hold {len(sold):,} sales, none missing, those of Oslo's dead network neither."

    def _average(self) -> str:
        prices = self._rows('SELECT key, value FROM "prices"')
        found = {drink: (round(price["euros"] / price["sales"], 6), price["most"]) for drink, price in prices.items()}
        sold = self._sold(sum(price["sales"] for price in prices.values())).groupby("drink")["euros"]
        truth = {drink: (round(row["mean"], 6), row["max"]) for drink, row in sold.agg(["mean", "max"]).iterrows()}
        _compare(found, truth, "mean and maximum", "")
        return f"Mean and maximum of {len(truth)} drinks, as in pandas."

    def _join(self) -> str:
        import pandas as pd

        today, shops = self._frame("today"), self._name("shops").assign(shop=lambda frame: frame["shop"].str.title())
        truth = Counter(pd.merge(today, shops, on="shop")["country"])
        found = Counter(record.value["country"] for record in self._name("session").read("sales-by-country", None))
        hint = "The keys of both sides must be equal: app.explain() shows two of each; then produce `today`, once."
        _compare(found, dict(truth), "sales per country", hint)
        return f"All {len(today):,} sales of today found their shop."

    def _bad_events(self) -> str:
        events = [(record.key, record.value) for record in self._name("session").read("tills", None, value_serde="bytes")]
        good = [(key, sale["euros"]) for key, value in events if (sale := _sale(value)) is not None]
        bad = Counter(value for _, value in events if _sale(value) is None)
        letters = Counter(record.value for record in self._name("session").read("bad-sales", None, value_serde="bytes"))
        if letters != bad:
            raise _NotYetError(f"{bad.total()} events of the topic `tills` cannot be used, and `bad-sales` has {letters.total()}.")
        truth: dict[str, float] = {}
        for shop, euros in good:
            truth[shop] = truth.get(shop, 0.0) + euros
        found = {shop: round(euros, 2) for shop, euros in self._rows('SELECT key, value FROM "euros-per-shop"').items()}
        _compare(found, {shop: round(euros, 2) for shop, euros in truth.items()}, "euros per shop", "")
        return f"{bad.total()} of {len(events)} events are dead letters; the others are counted to the cent."

    def _alert(self) -> str:
        sold, limit = self._frame("sales", "today"), self._name("alerts").RUSH
        counts = sold.groupby(["shop", sold["at"].dt.floor("10min")]).size()
        truth = Counter({key: 1 for key, count in counts.items() if count >= limit})
        records = self._name("session").read("alerts", None)
        found = Counter((record.key, _time(record.value["from"])) for record in records)
        _compare(found, dict(truth), "alerts per shop and ten minutes", "")
        self._tests_fail_without_the_rule()
        return f"{len(truth)} of {len(counts)} windows had {limit} sales or more: one alert each. Your tests notice a changed rule."

    def _tests_fail_without_the_rule(self) -> None:
        """A test that passes with another limit says nothing."""
        alerts = self._name("alerts")
        tests = self._name("test_alerts")
        functions = [test for name, test in vars(tests).items() if name.startswith("test_")]
        right = alerts.RUSH
        for limit, passes in ((right, True), (right + 1, False), (right - 1, False)):
            alerts.RUSH = limit
            try:
                for test in functions:
                    test()
                passed = True
            except AssertionError:
                passed = False
            finally:
                alerts.RUSH = right
            if passed != passes:
                raise _NotYetError(f"With RUSH = {limit} the tests of test_alerts.py {'pass' if passed else 'fail'}.")

    def _files(self) -> str:
        import pandas as pd

        sold = self._frame("sales", "today")
        rows = pd.read_parquet(self._name("daily"))
        found = {(str(day), shop): count for (day, shop), count in rows.groupby(["event_day", "shop"], observed=True).size().items()}
        truth = sold.groupby([sold["at"].dt.strftime("%Y-%m-%d"), "shop"]).size().to_dict()
        _compare(found, truth, "rows per day and shop", "")
        return f"{len(rows):,} rows in {sold['at'].dt.date.nunique()} days of Parquet, each sale once."

    def _name(self, name: str) -> Any:
        if name not in self._names:
            raise _NotYetError(f"There is no variable `{name}` yet: run the cells of this step from its first one on.")
        return self._names[name]

    def _frame(self, *names: str) -> pd.DataFrame:
        import pandas as pd

        frame = pd.DataFrame([sale for name in names for sale in self._name(name)])
        return frame.assign(at=pd.to_datetime(frame["at"]))

    def _sold(self, counted: int) -> pd.DataFrame:
        """Return the sales that a store can have seen: who repeats a step after the sixth has those of the third day, too."""
        return self._frame("sales", *(("today",) if "today" in self._names and counted > len(self._name("sales")) else ()))

    def _rows(self, query: str) -> dict[Any, Any]:
        return dict(self._name("session").sql(query).fetchall())


class _NotYetError(Exception):
    """What is missing, as the reader sees it."""


def _compare(found: Mapping[Any, object], truth: Mapping[Any, object], what: str, hint: str) -> None:
    wrong = [key for key in dict.fromkeys((*truth, *found)) if found.get(key) != truth.get(key)]
    if wrong:
        first = wrong[0]
        text = f"{len(wrong)} of {len(truth)} {what} differ; the first, {_shown(first)}: {found.get(first)}, in pandas {truth.get(first)}."
        raise _NotYetError(f"{text} {hint}".strip())


def _shown(key: object) -> str:
    return ", ".join(map(str, key)) if isinstance(key, tuple) else str(key)


def _row(key: Hashable, timestamp: int, value: object) -> tuple[Hashable, int, str]:
    return key, timestamp, json.dumps(value, sort_keys=True)


def _sale(value: bytes) -> JsonMapping | None:
    """Return a till's event; None: it is no JSON object, or its euros are no number."""
    try:
        sale: object = json.loads(value)
    except ValueError:
        return None
    return sale if isinstance(sale, dict) and isinstance(sale.get("euros"), int | float) else None


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def _time(ms: int) -> pd.Timestamp:
    import pandas as pd

    return pd.Timestamp(ms, unit="ms")
