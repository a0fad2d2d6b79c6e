"""The targets of the benchmarks by bench and case: one table, from which the fields `target` and `met` of a line are computed.

A target is about one field of a line, mostly its value. A line is not judged by fields that it lacks, nor are cases without a
target. The figures hold for the benchmarks' default sizes and paces, or larger ones.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

from kstreams_repl.engine.config import AT_LEAST_ONCE, EXACTLY_ONCE_V2
from workshop.bench.rig.record_schemas import FORMATS

_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = MappingProxyType(
    {"<=": operator.le, "<": operator.lt, ">=": operator.ge, ">": operator.gt, "=": operator.eq}
)


@dataclass(frozen=True, slots=True)
class Target:
    """One field and its bound.

    Example:
        >>> str(Target("<=", 10, of="p50"))
        'p50 <= 10'
    """

    comparison: str
    bound: float
    of: str = "value"

    def __str__(self) -> str:
        sign = f"{self.comparison} {self.bound:,.10g}" if not isinstance(self.bound, bool) else ""
        return sign if self.of == "value" else f"{self.of.replace('_', ' ')} {sign}".strip()

    def met(self, line: Mapping[str, object]) -> bool | None:
        """Return whether the target is met; None if the line lacks a field."""
        found = line.get(self.of)
        return None if found is None else _COMPARE[self.comparison](found, self.bound)


_FLOORS = {
    EXACTLY_ONCE_V2: {"stateless": 1.47, "count": 2.71, "sum": 2.28, "window": 3.01, "join": 1.7},
    AT_LEAST_ONCE: {"stateless": 1.05, "count": 2.2, "sum": 1.8, "window": 1.6, "join": 1.2},
}
"""Records per second, as a multiple of Kafka Streams'."""

TARGETS: Mapping[tuple[str, str], tuple[Target, ...]] = MappingProxyType(
    {
        **{
            ("throughput", f"{workload} {guarantee} ratio"): (Target(">=", floor), Target("=", True, of="same_output"))
            for guarantee, floors in _FLOORS.items()
            for workload, floor in floors.items()
        },
        **{
            ("nexmark", f"*{which} ratio"): (Target(">=", floor), Target("=", True, of="same_output"))
            for which, floor in {" defaults": 3, **{f" {format}": 1.3 for format in FORMATS}, "": 2}.items()
        },
        **{("engine", format): (Target(">=", 150_000),) for format in FORMATS},
        **{("engine", case): (Target(">=", 1.5, of="to_functions"),) for case in ("sql*", "map_batches*", "groups-sql, *")},
        ("async", "1,000 in flight, 50 ms"): (Target(">=", 15_000),),
        ("async", "64 in flight to 1"): (Target(">=", 20),),
        ("async", "table, * keys"): (Target(">=", 0.95, of="of_ideal"),),
        ("python-peers", "* ratio"): (Target(">", 1),),
        ("batch", "bounded run to stream ratio"): (Target(">=", 1.2),),
        ("batch", "bounded run to AvailableNow over json ratio"): (Target(">=", 2),),
        ("batch", "empty run, process start to exit"): (Target("<=", 15),),
        ("batch", "empty run, warm session"): (Target("<=", 3),),
        ("tables", "topic to a * table"): (Target(">=", 300_000),),
        ("latency", "50/s within an epoch"): (Target("<=", 1.3, of="of_floor"), Target("<=", 20, of="p99"), Target("<", 1, of="of_peer")),
        ("latency", "50/s at least once"): (Target("<=", 3, of="p50"),),
        ("latency", "50/s over * epoch turns"): (
            Target("<=", 300, of="p95"),
            Target("<=", 1000, of="max"),
            Target(">=", 20, of="turns"),
        ),
        ("latency", "20000/s within an epoch"): (Target("<=", 80, of="p99"), Target("<", 1, of="of_peer")),
        ("control", "deploy to first record"): (Target("<=", 1.2),),
        ("control", "pause"): (Target("<=", 0.3),),
        ("control", "resume to first record*"): (Target("<=", 0.8),),
        ("control", "stop"): (Target("<=", 0.5),),
        ("past", "as of the *, from the nearest snapshot"): (Target("<=", 5),),
        ("past", "direct causes of *"): (Target("<=", 3),),
        ("past", "all causes of a row"): (Target("<=", 20),),
        ("past", "first step of a debugger, state at hand"): (Target("<=", 2),),
        ("fork", "until the fork runs*"): (Target("<=", 5),),
        ("fork", "the application, while it *"): (Target(">=", 0.9, of="of_before"),),
        ("fork", "promote, longest time without output"): (Target("<=", 2),),
        ("many-applications", "all run, *"): (Target("<=", 30),),
        ("many-applications", "idle processor, *"): (Target("<=", 15),),
        ("many-applications", "memory, *"): (Target("<=", 1200),),
        ("restore", "count, *"): (Target(">=", 500_000),),
        ("state-growth", "count, 10,000,000 keys"): (Target("<=", 5), Target("<=", 0.5, of="of_peer")),
        ("state-growth", "*, kill -9 to ready"): (Target("<=", 5),),
        ("queries", "local get p50"): (Target("<=", 50),),
        ("queries", "HTTP get"): (Target(">=", 3_300, of="per_core"), Target("<=", 10, of="p99_ms")),
        ("queries", "HTTP multi-get of 1000"): (Target(">=", 150_000),),
        ("queries", "subscription, commit to change"): (Target("<=", 50, of="p99"),),
        ("queries", "processing under 1,000 queries/s, *"): (Target("<=", 10),),
        ("first-result", "process start to first SQL result"): (Target("<=", 12),),
        ("first-result", "deploy to first result"): (Target("<=", 6),),
        ("notebook", "edit to first record"): (Target("<=", 2),),
        ("notebook", "pause"): (Target("<=", 0.3),),
        ("notebook", "resume to first record"): (Target("<=", 0.8),),
        ("notebook", "values undeployed"): (Target("<=", 3),),
        ("notebook", "sql over a store"): (Target("<=", 1),),
        ("notebook", "picture update"): (Target("<=", 0.1),),
    }
)
"""The targets, in each line's own unit; a case may have `*` for what options choose. Medians are judged if there are several
runs."""


def targets_of(bench: str, case: str) -> tuple[Target, ...]:
    """Return the targets of a case; empty if it has none."""
    return next((found for (of, pattern), found in TARGETS.items() if of == bench and fnmatchcase(case, pattern)), ())


def judged(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the line's `target` in words and whether it is `met` as a whole; empty if it has no target.

    Example:
        >>> judged({"bench": "control", "case": "pause", "value": 0.4, "unit": "s"})
        {'target': '<= 0.3', 'met': False}
    """
    verdicts = {target: target.met(line) for target in targets_of(line["bench"], line["case"])}
    known = {target: verdict for target, verdict in verdicts.items() if verdict is not None}
    return {"target": ", ".join(map(str, known)), "met": all(known.values())} if known else {}
