"""`Chart`: a bar chart, line chart or histogram as one small image, which every front end shows, also from a saved notebook.

The image is embedded and does not know the page's theme, so its colours are readable on light and dark backgrounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import StrEnum
from typing import Any

from kstreams_repl.pictures.markup import Markup, element, image, one_line
from kstreams_repl.pictures.table import value_text
from kstreams_repl.pictures.wording import counted

WIDTH, HEIGHT = 640.0, 300.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 74.0, 14.0, 22.0, 74.0
_WIDE, _HIGH = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM
_INK, _GRID, _MARK = "#7d8590", "#7d859055", "#4493f8"
_LABEL = 16
_HALF_LETTER = 3.3
BINS = 20


class ChartKind(StrEnum):
    BAR = "bar"
    LINE = "line"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Chart:
    """Points and their labels.

    Attributes:
        points: (x, y) in drawing order; a histogram uses y only. A numeric axis omits values that are neither a number nor a
            time.
        note: how many of the rows are drawn, if not all are.
    """

    kind: ChartKind
    points: tuple[tuple[Any, Any], ...]
    x: str
    y: str
    note: str = ""

    @property
    def title(self) -> str:
        """Return a description of what is shown.

        Example:
            >>> import kstreams_repl as ks
            >>> chart = ks.reports.Chart(ks.reports.ChartKind.BAR, (("to", 2), ("be", 1)), "word", "count")
            >>> chart.title
            'bar of count by word'
        """
        over = "" if self.kind is ChartKind.HISTOGRAM or not self.x else f" by {self.x}"
        text = f"{self.kind} of {self.y}{over}"
        return one_line(f"{text}, {self.note}" if self.note else text, limit=160)

    def svg(self) -> Markup:
        """Return the image as SVG.

        Example:
            >>> import kstreams_repl as ks
            >>> chart = ks.reports.Chart(ks.reports.ChartKind.BAR, (("to", 2), ("be", 1)), "word", "count")
            >>> chart.svg().startswith("<svg>") or chart.svg().startswith("<svg ")
            True
        """
        draw = {ChartKind.BAR: _bars, ChartKind.LINE: _line, ChartKind.HISTOGRAM: _histogram}[self.kind]
        return element(
            "svg",
            element("title", self.title),
            _text(WIDTH / 2, 13, self.title, anchor="middle"),
            *draw(self),
            xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}", width=f"{WIDTH:g}", height=f"{HEIGHT:g}",
        )  # fmt: skip

    def html(self) -> Markup:
        """Return the image for a page: an ``<img>`` with the image embedded.

        Example:
            >>> import kstreams_repl as ks
            >>> chart = ks.reports.Chart(ks.reports.ChartKind.BAR, (("to", 2), ("be", 1)), "word", "count")
            >>> "ks-chart" in chart.html()
            True
        """
        return image(self.svg(), alt=self.title, width=WIDTH, height=HEIGHT, class_="ks-chart")

    def __repr__(self) -> str:
        return f"Chart({self.title}, {counted(len(self.points), 'point')})"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": str(self.html())}


def number_of(value: Any) -> float | None:
    """Return a value on an axis: a number, or a time in seconds since 1970; None for anything else, NaN and infinity."""
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp()
    try:
        found = float(value) if not isinstance(value, str | bytes | bool) else math.nan
    except (TypeError, ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def _bars(chart: Chart) -> list[Markup]:
    heights = [(x, number_of(y)) for x, y in chart.points]
    shown = [(x, y) for x, y in heights if y is not None]
    low, high, ticks = _scale([0.0, *(y for _, y in shown)])
    up = _onto(low, high, _TOP + _HIGH, _TOP)
    step = _WIDE / max(len(shown), 1)
    marks = []
    for index, (x, y) in enumerate(shown):
        left, top, foot = _LEFT + index * step, min(up(y), up(0)), max(up(y), up(0))
        marks.append(
            element("rect", x=_n(left + step * 0.1), y=_n(top), width=_n(step * 0.8), height=_n(max(foot - top, 0.5)), fill=_MARK)
        )
        if len(shown) <= 12:
            marks.append(_text(left + step / 2, top - 3, _short(y), anchor="middle"))
        marks.append(_below(left + step / 2, value_text(x, _LABEL), turned=len(shown) > 6))
    return [*_levels(ticks, up), *marks, _level(up(0), _INK)]


def _line(chart: Chart) -> list[Markup]:
    points = [(number_of(x), number_of(y), x) for x, y in chart.points]
    known = sorted(((x, y, given) for x, y, given in points if x is not None and y is not None), key=lambda point: point[0])
    if not known:
        return [_text(WIDTH / 2, HEIGHT / 2, "no numbers", anchor="middle")]
    low, high, ticks = _scale([y for _, y, _ in known])
    up, first, last = _onto(low, high, _TOP + _HIGH, _TOP), known[0][0], known[-1][0]
    across = _onto(first, last, _LEFT, _LEFT + _WIDE)
    path = " ".join(f"{_n(across(x))},{_n(up(y))}" for x, y, _ in known)
    drawn = element("polyline", points=path, fill="none", stroke=_MARK, stroke_width="1.8", stroke_linejoin="round")
    dots = [element("circle", cx=_n(across(x)), cy=_n(up(y)), r="2.6", fill=_MARK) for x, y, _ in known] if len(known) <= 60 else []
    is_time = isinstance(known[0][2], date)
    if is_time and last > first:
        places = [first + (last - first) * share / 4 for share in range(5)]
    else:
        places = _within(first, last, whole=all(x == int(x) for x, _, _ in known))
    labels = [_below(across(at), _moment(at, last - first) if is_time else _short(at), turned=False) for at in places]
    return [*_levels(ticks, up), drawn, *dots, *labels]


def _histogram(chart: Chart) -> list[Markup]:
    values = [value for _, y in chart.points if (value := number_of(y)) is not None]
    if not values:
        return [_text(WIDTH / 2, HEIGHT / 2, "no numbers", anchor="middle")]
    least, most = min(values), max(values)
    width = (most - least) / BINS
    counts = [0] * (BINS if width > 0 else 1)
    for value in values:
        counts[min(int((value - least) / width), BINS - 1) if width > 0 else 0] += 1
    _, high, ticks = _scale([0.0, *map(float, counts)])
    up, step = _onto(0.0, high, _TOP + _HIGH, _TOP), _WIDE / len(counts)
    bars = [
        element("rect", x=_n(_LEFT + index * step + 0.5), y=_n(up(count)), width=_n(step - 1), height=_n(up(0) - up(count)), fill=_MARK)
        for index, count in enumerate(counts)
    ]
    if width == 0:
        return [*_levels(ticks, up), *bars, _below(_LEFT + _WIDE / 2, _short(least), turned=False)]
    across = _onto(least, most, _LEFT, _LEFT + _WIDE)
    places = _within(least, most, whole=all(value == int(value) for value in values))
    return [*_levels(ticks, up), *bars, *(_below(across(at), _short(at), turned=False) for at in places)]


def _within(low: float, high: float, *, whole: bool) -> list[float]:
    """Return round numbers between two ends; whole numbers if all values are whole."""
    if low == high:
        return [low]
    ticks = _scale([low, high], parts=6)[2]
    return [tick for tick in ticks if low <= tick <= high and (tick == int(tick) or not whole)]


def _scale(values: Sequence[float], parts: int = 4) -> tuple[float, float, list[float]]:
    """Return the ends of an axis that includes all values, and round numbers along it."""
    low, high = min(values), max(values)
    if high == low:
        low, high = (low - 1, high + 1) if low else (0.0, 1.0)
    rough = (high - low) / parts
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first = math.floor(low / step) * step
    count = math.ceil((high - first) / step - 1e-9)
    ticks = [first + step * index for index in range(count + 1)]
    return ticks[0], ticks[-1], ticks


def _onto(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    span = (high - low) or 1.0
    return lambda value: start + (value - low) / span * (end - start)


def _levels(ticks: Sequence[float], up: Callable[[float], float]) -> list[Markup]:
    return [part for tick in ticks for part in (_level(up(tick), _GRID), _text(_LEFT - 6, up(tick) + 4, _short(tick), anchor="end"))]


def _level(y: float, colour: str) -> Markup:
    return element("line", x1=_n(_LEFT), x2=_n(_LEFT + _WIDE), y1=_n(y), y2=_n(y), stroke=colour)


def _below(x: float, label: str, *, turned: bool) -> Markup:
    y = _TOP + _HIGH + 14
    if not turned:
        return _text(min(x, WIDTH - len(label) * _HALF_LETTER), y, label, anchor="middle")
    return _text(x + 3, y - 4, label, anchor="end", transform=f"rotate(-40 {_n(x + 3)} {_n(y - 4)})")


def _text(x: float, y: float, words: str, *, anchor: str, transform: str | None = None) -> Markup:
    return element(
        "text", one_line(words, limit=160), x=_n(x), y=_n(y), fill=_INK, text_anchor=anchor, transform=transform,
        font_size="11", font_family="ui-sans-serif,system-ui,sans-serif",
    )  # fmt: skip


def _short(number: float) -> str:
    """Return a number as an axis label: 12, 1.5, 336,776, 4.2e+09."""
    if number == int(number) and abs(number) < 1e9:
        return f"{int(number):,}"
    return f"{number:.4g}"


def _moment(seconds: float, span: float) -> str:
    form = "%Y-%m-%d" if span > 3 * 86400 else "%m-%d %H:%M" if span > 300 else "%H:%M:%S"
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime(form)
    except (ValueError, OverflowError, OSError):
        return f"{seconds:.4g}"


def _n(number: float) -> str:
    return f"{round(number, 1):g}"
