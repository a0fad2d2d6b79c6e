"""``docs/reference/defaults.md``: every setting, and every argument that has a default of the calls that people make most.

``python -m workshop.commands.defaults_page`` writes the page from the code; a test compares them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from operator import attrgetter
from pathlib import Path
from typing import Any

import kstreams_repl as ks
from kstreams_repl.engine.config import KEYS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "defaults.md"

CALLS = {
    "Sessions and topics": "connect Session.create_topic Session.produce Session.produce_table Session.read Session.values Session.sql "
    "Session.record Session.deploy Session.run_batch",
    "Applications": "Application.wait Application.tap Application.tail Application.explain Application.edit Application.export",
    "Windows and suppress": "TimeWindows.of_size SessionWindows.of_inactivity_gap SlidingWindows.of_time_difference "
    "JoinWindows.of_time_difference UnlimitedWindows.of Suppressed.until_window_closes Suppressed.until_time_limit",
    "Stores and functions that wait": "StoreBuilder AsyncOptions",
    "Tests": "testing.TopologyTestDriver",
}

HEAD = """# Defaults

What holds if nothing is said, generated from the code. Arguments without a default: [Python API](api.md). Options of a table's store:
[operators](operators/README.md#options-of-a-tables-store). Durations of arguments: [one rule](../tasks/building.md#names-of-arguments);
settings are Kafka's whole numbers.

## Settings

Of `config=` of `connect`, `deploy` and `run_batch`, or as an argument of `deploy` with underscores: `commit_interval_ms=500`.
"""


def page() -> str:
    """Return the text of the page."""
    parts = [HEAD, *(f"- `{name}={_shown(key.default)}`: {_text(key.doc)}" for name, key in KEYS.items())]
    for title, calls in CALLS.items():
        parts.append(f"\n## {title}")
        for call in calls.split():
            rows: dict[str, list[str]] = {}
            for name, default, meaning in arguments(attrgetter(call)(ks)):
                rows.setdefault(meaning, []).append(f"`{name}={default}`")
            lines = [f"- {', '.join(names)}{': ' if meaning else ''}{meaning}" for meaning, names in rows.items()]
            parts.append("\n".join([f"\n### {call}\n", *lines]))
    return "\n".join(parts) + "\n"


def arguments(call: Callable[..., Any]) -> Iterator[tuple[str, str, str]]:
    """Return name, default and meaning of each argument that has a default, from the signature and the docstring."""
    described = _described(inspect.getdoc(call) or "")
    for name, parameter in inspect.signature(call).parameters.items():
        if parameter.default is parameter.empty:
            continue
        if repr(parameter.default) == "<factory>":
            parameter = parameter.replace(default=next(one.default_factory() for one in fields(call) if one.name == name))  # type: ignore
        yield name, _shown(parameter.default), _text(described.get(name, ""))


def _described(text: str) -> dict[str, str]:
    """Return what the Args or Attributes of a docstring say of each name."""
    found: dict[str, str] = {}
    for section in re.findall(r"^(?:Args|Attributes):\n((?:    .*\n?|\n)+)", text, re.MULTILINE):
        for entry in re.split(r"\n(?=    \S)", section):
            names, _, meaning = entry.strip().partition(": ")
            found |= dict.fromkeys((name.strip("* ") for name in names.split(",")), " ".join(meaning.split()))
    return found


def _shown(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10_000:
        return f"{value:_}"
    return repr(value.value if hasattr(value, "value") else value)


def _text(text: str) -> str:
    return text.replace(' (ms, timedelta or "30 s")', "").replace("``", "`")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"written: {PAGE}")
