"""The output of a benchmark: one JSON line per measurement, after a first line that describes the machine."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import wraps
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click

from kstreams_repl.system.errors import KStreamsError
from workshop.bench.rig.targets import judged

Line = dict[str, Any]
_MISSED = f"{__name__}.missed"
"""Key in a command's context for the lines that missed their target."""


def emit(bench: str, case: str, value: float, unit: str, **fields: object) -> Line:
    """Print one measurement and return it, with its target and verdict if it has a target; fields that are None are omitted."""
    line: Line = {"bench": bench, "case": case, "value": value, "unit": unit}
    line |= {name: field for name, field in fields.items() if field is not None}
    line |= judged(line)
    click.echo(json.dumps(line))
    context = click.get_current_context(silent=True)
    if context is not None and line.get("met") is False:
        context.meta.setdefault(_MISSED, []).append(line)
    return line


def strict_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--strict`: the command fails if one of its lines missed its target."""

    @click.option("--strict", is_flag=True, help="Exit status 1 if a target is missed; all lines are printed nevertheless.")
    @wraps(command)
    def measured(*, strict: bool, **options: object) -> None:
        command(**options)
        missed: list[Line] = click.get_current_context().meta.get(_MISSED, [])
        if strict and missed:
            misses = [f"{line['bench']}: {line['case']} is {line['value']:g} {line['unit']}, not {line['target']}" for line in missed]
            hint = "check the machine's load: the first line reports it"
            raise KStreamsError(f"targets missed: {'; '.join(misses)}", hint=hint)

    return measured


def spread(values: Sequence[float], *, digits: int = 0) -> dict[str, float]:
    """Return smallest, largest and number of the values of a median."""
    return {"min": rounded(min(values), digits), "max": rounded(max(values), digits), "runs": len(values)}


def median(values: Sequence[float], *, digits: int = 0) -> float:
    return rounded(statistics.median(values), digits)


def rounded(value: float, digits: int) -> float:
    """Return a rounded value; a whole number for 0 digits."""
    return round(value, digits) if digits else round(value)


def quantiles(values: Sequence[float], *, digits: int = 2) -> dict[str, float]:
    """Return p50, p95, p99 and max by nearest rank."""
    ordered = sorted(values)

    def at(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], digits)

    return {"p50": at(0.50), "p95": at(0.95), "p99": at(0.99), "max": round(ordered[-1], digits)}


def emit_machine() -> Line:
    """Print the machine, its load before the benchmark starts, and the versions of the software."""
    load = [round(figure, 2) for figure in os.getloadavg()]
    return emit(
        "machine",
        _processor(),
        os.cpu_count() or 1,
        "cores",
        memory_gb=round(_memory_bytes() / 2**30, 1),
        load=load,
        at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        system=platform.system(),
        versions={"python": platform.python_version()} | {name: found for name in _MEASURED if (found := _version(name))},
    )


_MEASURED = ("kstreams-repl", "pyspark", "confluent-kafka", "lmdb", "orjson")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux: use the platform module's description
    return platform.processor() or platform.machine()


def _memory_bytes() -> int:
    import psutil

    return int(psutil.virtual_memory().total)
