"""What the notebooks display, compared with the answers computed from their source rows by plain Python.

`Displayed` finds the output of a cell by a part of its source and reads the cells of the table that a user sees; `CHECKS` has a function
for each notebook. Nothing here uses the engine: a count is a `Counter` over the rows that the notebook produced.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kstreams_repl.demo import data, tutorial

HOUR = 3_600_000
DAY = 24 * HOUR


class Displayed:
    """The outputs of an executed notebook.

    Args:
        folder: where it ran; has its files.
    """

    def __init__(self, notebook: Any, folder: Path) -> None:
        self._cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
        self.folder = folder

    def _outputs(self, code: str) -> list[Any]:
        found = [cell for cell in self._cells if cell.source == code] or [cell for cell in self._cells if code in cell.source]
        assert len(found) == 1, f"{len(found)} cells contain {code!r}"
        outputs: list[Any] = found[0].outputs
        return outputs

    def text(self, code: str) -> str:
        """Return what a cell printed, and the text of its results."""
        found = self._outputs(code)
        return "\n".join(one.get("text") or one.get("data", {}).get("text/plain", "") for one in found)

    def value(self, code: str) -> Any:
        """Return the value of a cell whose text is a literal."""
        (found,) = [one.data["text/plain"] for one in self._outputs(code) if "text/plain" in one.get("data", {})]
        return ast.literal_eval(found)

    def table(self, code: str) -> list[list[str]]:
        """Return the rows of the table that a cell shows, without its header."""
        (html,) = [one.data["text/html"] for one in self._outputs(code) if "<table" in one.get("data", {}).get("text/html", "")]
        reader = _TableReader()
        reader.feed(html)
        return reader.rows


class _TableReader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self._cell: list[str] | None = None

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag == "td":
            self._cell = []

    def handle_endtag(self, tag: str) -> None:
        if tag == "td" and self._cell is not None:
            self.rows[-1].append("".join(self._cell).strip())
            self._cell = None
        elif tag == "table":
            self.rows = [row for row in self.rows if row]

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)


def top(shown: Iterable[tuple[Any, Any]], truth: Mapping[Any, Any], n: int) -> None:
    """Assert that a list of (name, number) is the `n` largest of the truth; names with equal numbers may stand in any order."""
    rows = list(shown)
    assert [number for _, number in rows] == sorted(truth.values(), reverse=True)[:n]
    assert dict(rows) == {name: truth[name] for name, _ in rows} and len(dict(rows)) == len(rows)


def about(text: str, number: float) -> bool:
    """Return whether a number that is shown with one decimal is this one."""
    return abs(float(text) - number) <= 0.051


@cache
def source() -> tuple[list[data.Row], dict[str, str], dict[str, Path]]:
    """Return the rows of all flights, the airlines' names, and the files of the package."""
    with TemporaryDirectory() as folder:
        files = data.source_files(Path(folder))
        names = {key.decode(): json.loads(value)["name"] for key, value, _ in data.airlines(files)}
        return list(data.flights(files)), names, files


def flights(n: int | None = None) -> list[tuple[str, dict[str, Any], int]]:
    """Return carrier, flight and time of the first `n` flights."""
    return [(key.decode(), json.loads(value), at) for key, value, at in source()[0][:n]]


def departed(n: int | None = None) -> list[tuple[str, dict[str, Any], int]]:
    return [row for row in flights(n) if row[1]["dep_time"] is not None]


def airlines() -> dict[str, str]:
    return source()[1]


def ms(text: str) -> int:
    """Return a time that is shown, in milliseconds."""
    at = datetime.fromisoformat(text)
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def first_topology(shown: Displayed) -> None:
    rows, names = departed(), airlines()
    number, minutes = Counter(carrier for carrier, _, _ in rows), Counter[str]()
    for carrier, flight, _ in rows:
        minutes[carrier] += flight["dep_delay"]
    by_airline = shown.table('FROM "airline-delays"\nORDER BY flights DESC')
    top(((row[0], int(row[2])) for row in by_airline), number, len(number))
    assert all(row[1] == names[row[0]] and about(row[3], minutes[row[0]] / number[row[0]]) for row in by_airline)
    per_day = Counter((flight["origin"], at // DAY) for _, flight, at in rows)
    expected = [
        [origin, len(days), max(days), sum(days)]
        for origin in ("EWR", "JFK", "LGA")
        for days in [[count for (one, _), count in per_day.items() if one == origin]]
    ]
    assert [[row[0], *map(int, row[1:])] for row in shown.table('FROM "flights-per-day"')] == expected
    very_late = Counter(carrier for carrier, flight, _ in rows if flight["dep_delay"] > 120)
    percent = {names[carrier]: round(100 * count / number[carrier], 2) for carrier, count in very_late.items()}
    late = shown.table('FROM "delayed-flights" d JOIN')
    top(((row[0], float(row[2])) for row in late), percent, 5)
    assert all(int(row[1]) == next(very_late[carrier] for carrier in very_late if names[carrier] == row[0]) for row in late)
    united = shown.value('app.store("airline-delays").get("UA")')
    assert united == {
        "airline": names["UA"], "flights": number["UA"], "delay_minutes": minutes["UA"], "mean_delay": minutes["UA"] / number["UA"],
    }  # fmt: skip
    assert shown.value("sum(counted.values())") == len(rows) == 328_521


def windows_and_joins(shown: Displayed) -> None:
    import pandas

    rows = departed(27_000)
    per_hour = Counter((flight["origin"], at // HOUR) for _, flight, at in rows)
    top((((row[0], ms(row[1]) // HOUR), int(row[2])) for row in shown.table('FROM "per-hour" ORDER BY departures')), per_hour, 5)
    assert shown.value("counted == expected") == Counter(flight["origin"] for _, flight, _ in rows)
    last = max(at for _, _, at in rows)
    closed = sum((hour + 1) * HOUR + 2 * HOUR <= last for _, hour in per_hour)
    assert [list(map(int, row)) for row in shown.table("AS windows,")] == [[len(per_hour), closed]]
    sessions: dict[tuple[str, int], int] = {}
    running: dict[str, tuple[int, int]] = {}  # by plane: begin and last flight of its session
    for _, flight, at in rows:
        if (plane := flight["tailnum"]) is not None:
            begin, before = running.get(plane, (at, at))
            begin = at if at - before > 10 * HOUR else begin
            running[plane] = begin, at
            sessions[plane, begin] = sessions.get((plane, begin), 0) + 1
    top((((row[0], ms(row[2])), int(row[1])) for row in shown.table('FROM "days-at-work"')), sessions, 5)
    planes = pandas.read_csv(source()[2]["planes"]).set_index("tailnum")
    flown, seats = Counter[str](), Counter[str]()
    for _, flight, _ in rows:
        if (plane := flight["tailnum"]) is not None:
            known = plane in planes.index
            maker = planes.at[plane, "manufacturer"].split()[0] if known else "unknown"
            flown[maker] += 1
            seats[maker] += int(planes.at[plane, "seats"]) if known else 0
    makers = shown.table('FROM "seats-by-maker"')
    top(((row[0], int(row[1])) for row in makers), flown, 5)
    assert all(abs(float(row[2]) - seats[row[0]] / flown[row[0]]) <= 0.5 for row in makers)
    weather = pandas.read_csv(source()[2]["weather"], usecols=["origin", "time_hour", "temp", "wind_speed", "visib"]).dropna()
    observed = {(row.origin, ms(row.time_hour)): row.visib for row in weather[weather["time_hour"] < "2013-02-01"].itertuples()}
    delays: dict[str, list[int]] = {}
    for _, flight, at in rows:
        for minutes in range(60):
            visib = observed.get((flight["origin"], at - minutes * 60_000))
            if visib is not None:
                name = "under 1" if visib < 1 else "1 to 5" if visib < 5 else "5 and more"
                delays.setdefault(name, []).append(flight["dep_delay"])
    visibility = shown.table('FROM "flights-in-weather"')
    assert {row[0]: int(row[1]) for row in visibility} == {name: len(found) for name, found in delays.items()}
    means = {name: sum(found) / len(found) for name, found in delays.items()}
    assert all(about(row[2], means[row[0]]) for row in visibility)
    assert [row[0] for row in visibility] == sorted(means, key=means.__getitem__, reverse=True)


def edit_on_the_fly(shown: Displayed) -> None:
    """The shop's orders follow a seed. Which version took an order is not shown: all orders and the paid ones bound each count."""
    import random

    products, chance = ["book", "pen", "lamp", "chair"], random.Random(2013)
    counts = [
        {row[0]: int(row[1]) for row in shown.table(f"{code}session.sql(\"SELECT key AS product, value AS orders FROM counts")}
        for code in ("== len(PRODUCTS))\n", "app.wait(60)\n")
    ]
    (ready, end), (before, after) = counts, zip(*shown.value("{product: (before[product], after").values(), strict=True)
    assert list(ready) == list(end) == sorted(products)
    assert sum(ready.values()) <= sum(before) <= sum(after) - 20 <= sum(end.values()) - 20
    made, paid = Counter({"book": 1}), Counter({"book": 1})
    while sum(made.values()) <= 10 * sum(end.values()):  # at least so many were sold
        for _ in range(10):
            product, amount, _ = chance.choice(products), chance.choice([0, 5, 10, 40]), chance.choice("AD")
            made[product] += 1
            paid[product] += amount > 0
        if sum(paid.values()) <= sum(end.values()) <= sum(made.values()) and all(paid[p] <= end[p] <= made[p] for p in products):
            break
    else:
        raise AssertionError(f"no number of orders gives {end}")
    large = [json.loads(row[1])["amount"] for row in shown.table('session.read("large-orders", 3)')]
    assert large == [40, 40, 40]


def looking_inside(shown: Displayed) -> None:
    rows, everything, names = departed(6_000), flights(6_000), airlines()
    summary = {row[0]: row[2:] for row in shown.table("SUMMARIZE")}
    for column in ("origin", "dest", "dep_delay", "distance"):
        values = [flight[column] for _, flight, _ in everything if flight[column] is not None]
        low, high, null = summary[column]
        assert (str(min(values)), str(max(values))) == (low, high)
        assert abs(float(null) - 100 * (1 - len(values) / len(everything))) <= 0.01
    fifth = [at for _, _, at in everything if ms("2013-01-05") <= at < ms("2013-01-06")]
    ((first, last, count),) = shown.table("AS first, max(timestamp)")
    assert (ms(first), ms(last), int(count)) == (min(fifth), max(fifth), len(fifth))
    assert shown.table("topic_limit=100") == [["100"]]
    number, minutes = Counter(carrier for carrier, _, _ in rows), Counter[str]()
    for carrier, flight, _ in rows:
        minutes[carrier] += flight["dep_delay"]
    per_day = Counter((carrier, at // DAY) for carrier, _, at in rows)
    stores = {row[1]: int(row[3]) for row in shown.table("%topo_stores")}
    assert stores == {"delays": len(number), "per-day": len(per_day)}
    delays = shown.table("FROM delays ORDER BY flights DESC LIMIT 4")
    top(((row[0], int(row[1])) for row in delays), number, 4)
    assert all(about(row[2], minutes[row[0]] / number[row[0]]) for row in delays)
    assert shown.value('app.store("delays").get("UA")') == {"flights": number["UA"], "delay": minutes["UA"]}
    begin = ms("2013-01-01") // DAY
    pivot = {row[0]: [int(cell) for cell in row[1:]] for row in shown.table("PIVOT (SELECT")}
    assert pivot == {carrier: [per_day[carrier, begin + day] for day in (1, 2, 3, 4)] for carrier in ("UA", "B6", "EV")}
    longest = {
        (names[carrier], number[carrier]): max(flight["dep_delay"] for one, flight, _ in rows if one == carrier) for carrier in number
    }
    top((((row[0], int(row[1])), float(row[2])) for row in shown.table("worst")), longest, 5)
    assert f"[({len(rows)}, {max(number.values())})]" in shown.text("result.relation")


def your_own_processor(shown: Displayed) -> None:
    assert shown.value('sorted(driver.state_store("seen").all())') == [("p1", 700_001), ("p3", 700_000)]
    assert shown.table("count(DISTINCT id) AS ids") == [[sender, "300", "300"] for sender in ("ann", "bob", "eve")]


def when_it_fails(shown: Displayed) -> None:
    broken, free = {n for n in range(1_000) if n % 100 == 99}, {n for n in range(1_000) if n % 250 == 249}
    once = sum(100 * (1 + n % 5) for n in range(1_000) if n not in broken | free)
    assert shown.value("assert spent == expected") == once + len(broken) * 100 + 10_000 * 2 * 100
    assert shown.text('print(len(letters), "letters').startswith(f"{len(broken)} letters")


def state_for_other_programs(shown: Displayed) -> None:
    """The third line was 37 where it is 344: history is read one partition after the other, and the windows had no grace."""
    rows = flights(20_000)
    january = Counter(flight["origin"] for _, flight, _ in rows[:15_000])
    everything = Counter(flight["origin"] for _, flight, _ in rows)
    assert [row[1] for row in shown.table("%topo_query departures JFK")] == [str(january["JFK"])]
    first = rows[0][2] // DAY
    by_day = Counter((flight["origin"], at // DAY) for _, flight, at in rows[:15_000])
    windows = [(int(row[1]) // DAY, int(row[2])) for row in shown.table("%topo_query by-day JFK")]
    assert windows == [(first + day, by_day["JFK", first + day]) for day in range(3)]
    screen = shown.text("dashboard = subprocess.Popen")
    for airport, count in january.items():
        assert re.search(rf"^{airport} +{count:,} █", screen, re.MULTILINE), screen
    for airport, count in everything.items():
        assert re.search(rf"^{airport} +{count:,} █", shown.text("screen(len(flights))"), re.MULTILINE)
    assert str(everything["JFK"]) in shown.text('state.get("departures", "JFK").value').split(",")[0]
    by_day = Counter((flight["origin"], at // DAY) for _, flight, at in rows)
    named = {(airport, datetime.fromtimestamp(day * 86_400, UTC).strftime("%d %B")): count for (airport, day), count in by_day.items()}
    busy = shown.value('FROM "by-day" ORDER BY value DESC')
    top((((row["airport"], row["day"]), row["departures"]) for row in busy), named, 3)
    assert shown.text("again.value.value").startswith(f"({everything['JFK']},")


def nightly_runs(shown: Displayed) -> None:
    rows = flights(4_000)
    first = rows[0][2] // DAY
    days = [[row for row in rows if row[2] // DAY == first + day] for day in range(3)]
    three = [row for day in days for row in day]
    late = len(days[0][::50])
    assert shown.value("[len(day) for day in days], len(late)") == ([len(days[0]) - late, len(days[1]), len(days[2])], late)
    origins = Counter(flight["origin"] for _, flight, _ in three)
    assert {row[0]: int(row[1]) for row in shown.table('max(value) AS flights FROM "by-origin" GROUP BY key ORDER')} == origins
    per_day = [(ms(day) // DAY, int(count)) for day, count in shown.table("GROUP BY event_day ORDER BY")]
    assert per_day == [(first + number, len(day)) for number, day in enumerate(days)]
    top(((row[0], int(row[1])) for row in shown.table('groupBy("carrier").count()')), Counter(carrier for carrier, _, _ in three), 5)
    assert shown.value("assert rows.num_rows == counted") == len(three)


def calling_a_service(shown: Displayed) -> None:
    waits = len(range(6, 700, 7))
    assert shown.value("order_some(700)") == {"priced": 700 - waits, "to retry": waits}
    assert shown.value("settled(all_priced=True)")["priced"] == 900
    items = {("item-six" if n == 6 else f"item-{n}"): len(range(n, 900, 7)) for n in range(7)}
    assert {row[0]: int(row[1]) for row in shown.table("SELECT item, count(*) AS orders")} == items


def on_a_cluster(shown: Displayed) -> None:
    counts = {row[0]: int(row[1]) for row in shown.table("AS word, value AS lines")}
    assert set(counts) == {"to", "be", "or", "not"} and max(counts.values()) - min(counts.values()) <= 10, "it counts while words are written"
    expected = shown.value("expected = {word")
    assert max(expected.values()) - min(expected.values()) <= 1 and min(expected.values()) >= max(counts.values())


def the_tutorial(shown: Displayed) -> None:
    """Its own checks say "right"; the numbers that a reader sees are counted once more, without pandas."""
    for step in range(1, 10):
        assert shown.text(f"check({step})").startswith(f"step {step}: right."), shown.text(f"check({step})")
    names = airlines()
    late = Counter(names[carrier] for carrier, flight, _ in departed() if flight["dep_delay"] > 120)
    top(((row[0], int(row[1])) for row in shown.table("AS late_flights")), late, len(late))
    two, third = tutorial.sales("2026-03-02", days=2), tutorial.sales("2026-03-04")
    shops = Counter(sale["shop"] for sale in two)
    assert [row[:] for row in shown.table('FROM "sales-per-shop"')] == [[shop, str(n), str(n)] for shop, n in sorted(shops.items())]
    euros: dict[str, list[float]] = {}
    for sale in two:
        euros.setdefault(sale["drink"], []).append(sale["euros"])
    prices = [[row[0], int(row[1]), float(row[3])] for row in shown.table("prices = session.sql")]
    assert prices == [[drink, len(found), max(found)] for drink, found in sorted(euros.items())]
    assert "upper and lower case differ" in shown.text("app.explain()")
    countries = {"Berlin": "Germany", "Lisbon": "Portugal", "Oslo": "Norway", "Paris": "France", "Rome": "Italy"}
    live = Counter(countries[sale["shop"]] for sale in third)
    top(((row[0], int(row[1])) for row in shown.table('FROM "sales-by-country"')), live, 5)
    assert [row[0] for row in shown.table("letters = session.read")] in (["Rome", "Paris"], ["Paris", "Rome"])
    windows = Counter((sale["shop"], ms(sale["at"]) // 600_000) for sale in [*two, *third])
    alerts = Counter(shop for (shop, _), count in windows.items() if count >= 12)
    top(((row[0], int(row[1])) for row in shown.table("AS alerts")), alerts, 5)
    per_day = Counter(sale["at"][:10] for sale in [*two, *third])
    assert [int(row[0]) for row in shown.table('groupby("event_day"')] == [per_day[day] for day in sorted(per_day)]
    pytest = subprocess.run([sys.executable, "-m", "pytest", "-q", "test_alerts.py"], cwd=shown.folder, capture_output=True, text=True)
    assert "3 passed" in pytest.stdout, "the file is one that pytest runs"


def what_happened_here(shown: Displayed) -> None:
    rows = [(f"c{n % 8}", 100 + n % 7, 1 + n % 3, n % 50 == 49) for n in range(400)]
    added, right = Counter[str](), Counter[str]()
    for customer, price, pieces, returned in rows:
        added[customer] += price * pieces
        right[customer] += -price * pieces if returned else price * pieces
    wrong = {customer: added[customer] - right[customer] for customer in sorted(right) if added[customer] != right[customer]}
    assert shown.value("wrong = {customer") == wrong
    customer = next(iter(wrong))
    own = [row for row in rows if row[0] == customer]
    assert f"now: {added[customer]}" in shown.text("at_first = app.store")
    assert shown.text("causes = app.why").startswith(f"{len(own)} orders made this total, of which were returned: {sum(r[3] for r in own)}")
    assert "1 failed" in shown.text("debugger.save_test") and "1 passed" in shown.text("Path(\"shop.py\").write_text")
    assert shown.value("importlib.reload(shop)") == dict(right)


def try_it_beside(shown: Displayed) -> None:
    def old(kg: int) -> int:
        return 5 if kg <= 10 else 9

    def new(kg: int) -> int:
        return old(kg) if kg < 20 else 12

    def total(*prices: tuple[range, Callable[[int], int]]) -> dict[str, int]:
        counted = Counter[str]()
        for parcels, price in prices:
            for n in parcels:
                counted[f"c{n % 6}"] += price(n % 23)
        return dict(sorted(counted.items()))

    first, more = range(300), range(300, 600)
    runs, fork = total((range(600), old)), total((first, old), (more, new))
    sides = {row[0]: (int(row[1]), int(row[2])) for row in shown.table("FILTER (side = 'runs')")}
    assert sides == {customer: (runs[customer], fork[customer]) for customer in runs}
    assert shown.value("owed_now = {key") == fork
    wrong = next(n for n in first if n % 23 == 10 or n % 23 >= 20)  # the first parcel that the mistaken change prices otherwise
    difference = shown.text("found.first")
    assert f"'c{wrong % 6}': {old(wrong % 23)} at" in difference and f"'c{wrong % 6}': {9 if wrong % 23 == 10 else 12} at" in difference
    assert shown.text("session.forks") == "Forks()"


CHECKS: dict[str, Callable[[Displayed], None]] = {
    "01_first_topology": first_topology,
    "02_windows_and_joins": windows_and_joins,
    "03_edit_on_the_fly": edit_on_the_fly,
    "04_looking_inside": looking_inside,
    "05_your_own_processor": your_own_processor,
    "06_when_it_fails": when_it_fails,
    "07_state_for_other_programs": state_for_other_programs,
    "08_nightly_runs": nightly_runs,
    "09_calling_a_service": calling_a_service,
    "10_on_a_cluster": on_a_cluster,
    "11_what_happened_here": what_happened_here,
    "12_try_it_beside": try_it_beside,
    "tutorial": the_tutorial,
}
