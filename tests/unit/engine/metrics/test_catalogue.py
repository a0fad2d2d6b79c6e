"""The metrics are Kafka Streams': every name of its own is here or is missing for a stated reason, and nothing else takes its names.

tests/data/kafka_streams_metrics.tsv has every metric of Kafka Streams 4.4.0: those that `KafkaStreams.metrics()` and
`TopologyTestDriver.metrics()` list at TRACE, with stores on disk and in memory, windows, sessions, joins and a suppression; and those that
come up only with a running thread (rebalance listener, state updater, standbys), by the constants of the classes that make them.
"""

from __future__ import annotations

import ast
import csv
import re
from pathlib import Path
from typing import Any

from kstreams_repl.engine.metrics.catalogue import SPECS, STATE, STATE_ID, STORE_CALLS
from tests.unit.engine.metrics.contract import ABSENT, TAGS

ROOT = Path(__file__).resolve().parents[4]
COARSER_IN_KAFKA = {"bytes-consumed-total", "bytes-produced-total", "records-produced-total"}
"""At INFO there; here they would be work per record, so they are recorded at DEBUG."""
BY_CLIENT_ID = {("stream-metrics", "recording-level"), ("stream-metrics", "client-state")}
"""There with the tag process-id besides, a UUID of each `KafkaStreams` object; an application here has one driver at a time. The other
additional tag, application-id, is the client-id here."""


def kafkas() -> list[dict[str, str]]:
    with (ROOT / "tests/data/kafka_streams_metrics.tsv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def test_every_metric_of_kafka_streams_is_here_or_its_absence_explained() -> None:
    names = {(row["group"], row["name"]) for row in kafkas()}
    assert len(names) > 190
    assert names == {key for key in SPECS if not key[1].startswith("repl-")} | set(ABSENT)
    assert not set(SPECS) & set(ABSENT)


def test_groups_carry_the_same_tags() -> None:
    for row in kafkas():
        if (row["group"], row["name"]) in SPECS:
            wanted = tuple(tag.replace("*-state-id", STATE_ID) for tag in row["tags"].split(","))
            if (row["group"], row["name"]) in BY_CLIENT_ID:
                wanted = tuple(tag for tag in wanted if tag not in ("process-id", "application-id"))
            assert TAGS[row["group"]] == wanted, row


def test_recording_levels_are_the_same_but_for_what_would_be_work_per_record() -> None:
    levels = {(row["group"], row["name"]): row["level"] for row in kafkas()}
    different = {name for (group, name), spec in SPECS.items() if levels.get((group, name), spec.level) != spec.level}
    assert different == COARSER_IN_KAFKA


def test_what_kafka_streams_does_not_know_has_a_prefix() -> None:
    names = {(row["group"], row["name"]) for row in kafkas()}
    assert all(name.startswith("repl-") for group, name in SPECS if (group, name) not in names)


WORDS = {"avg": "mean", "min": "smallest", "max": "largest"}


def listed(group: str) -> str:
    """The entries of a group on the page: a rate with its total, and a mean with its extremes, share one; so do the calls of a store."""
    rows: dict[tuple[str, ...], list[tuple[str, str, str]]] = {}
    for spec in SPECS.values():
        if spec.group == group:
            stem, _, kind = spec.name.rpartition("-")
            text = spec.what.removesuffix(", per second") if kind == "rate" else spec.what.removeprefix(f"{WORDS.get(kind, '')} ")
            call = stem.removesuffix("-latency")
            if group == STATE and call in STORE_CALLS:
                stem, text = "", re.sub(rf"\b(a )?{call}$", "each", text)
            known = kind in ("rate", "total") or text != spec.what
            row = (stem if known else spec.name, spec.level, text)
            rows.setdefault(row, []).append((spec.name, spec.unit, WORDS.get(kind, "") if known else ""))
    lines = []
    for (_, level, text), metrics in rows.items():
        names, units, words = (list(dict.fromkeys(column)) for column in zip(*metrics, strict=True))
        said = f"{', '.join(words)} {text}".strip()
        lines.append(f"- {', '.join(f'`{name}`' for name in names)} ({level}; {', '.join(units)}): {said}")
    return "\n".join(lines) + "\n"


def test_the_page_lists_every_metric_with_its_unit_and_level() -> None:
    page = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
    for group in dict.fromkeys(spec.group for spec in SPECS.values()):
        assert f"Group `{group}`" in page and listed(group) in page, listed(group)
    absent = page.partition("\n## What Kafka Streams has and this does not\n")[2]
    reasons = {why: names for names, why in re.findall(r"^- (`.+?`): (.+)$", absent, re.MULTILINE)}
    for (_, name), why in ABSENT.items():
        assert f"`{name}`" in reasons.get(why, "").split(", "), (name, why)


def test_every_state_metric_says_which_kind_of_store() -> None:
    assert TAGS[STATE][-1] == STATE_ID


def test_a_test_names_every_additional_metric() -> None:
    """tests/spark/test_metrics.py sees that all are registered; what an additional one counts is known to us alone."""
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    added = {re.sub("-(rate|total|avg|min|max)$", "", spec.name) for spec in SPECS.values() if spec.name.startswith("repl-")}
    assert added and {name for name in added if not re.search(f'"{name}(-(rate|total|avg|min|max))?"', tests)} == set(), "assert its value"


def test_the_code_registers_every_metric_by_its_name() -> None:
    """tests/spark/test_metrics.py sees all of them deployed; this finds one without Spark that nothing registers."""
    paths = [path for path in (ROOT / "kstreams_repl").rglob("*.py") if path.name != "catalogue.py"]
    source = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    strings = set(re.findall(r'"([a-z0-9-]+)"', source))
    parts = (re.split(r"\{[^}]*\}", text) for text in set(re.findall(r'\bf"([a-z0-9-]*\{[^"]*)"', source)))
    formats = re.compile("|".join("[a-z-]+".join(map(re.escape, texts)) for texts in parts if len("".join(texts)) >= 8))
    missing = {
        spec.name
        for spec in SPECS.values()
        if not {spec.name, re.sub("-(rate|total|avg|min|max|ratio)$", "", spec.name)} & strings
        and not formats.fullmatch(spec.name)
    }
    assert {name for name in missing if name.removesuffix("-avg").removesuffix("-max").removesuffix("-latency") not in strings} == set()


def test_every_metric_that_the_code_registers_has_a_spec() -> None:
    """`Registry` raises for one without; this finds it without a run that registers it."""
    names = {spec.name for spec in SPECS.values()}
    unknown = []
    registers = re.compile(rf"\b({'|'.join(REGISTERED)})\(")
    for path in (path for room in ("engine", "host") for path in (ROOT / "kstreams_repl" / room).rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)) if registers.search(source) else ():
            called = node.func if isinstance(node, ast.Call) else None
            method = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
            if not isinstance(node, ast.Call) or method not in REGISTERED or not node.args:
                continue
            text = node.args[0]
            pattern = re.escape(text.value) if isinstance(text, ast.Constant) else _pattern(text) if _is_format(text) else None
            for suffix in REGISTERED[method] if pattern is not None else ():
                if not any(re.fullmatch(f"{pattern}{suffix}", name) for name in names):
                    unknown.append(f"{path.name}:{node.lineno}: {ast.unparse(text)}{suffix}")
    assert unknown == [], "add a Spec to engine/metrics/catalogue.py"


REGISTERED = {
    "gauge": ("",), "rate": ("-rate",), "rate_and_total": ("-rate", "-total"), "avg_and_max": ("-avg", "-max"),
    "avg_min_max": ("-avg", "-min", "-max"),
}  # fmt: skip
"""Methods of `Registry` and `Sensor` that take a metric's name, and what they add to it."""


def _is_format(node: ast.AST) -> bool:
    """Return whether it is an f-string with enough text of its own to name a metric: ``f"repl-calls-{state}"``."""
    return isinstance(node, ast.JoinedStr) and len("".join(one.value for one in node.values if isinstance(one, ast.Constant))) >= 8


def _pattern(node: Any) -> str:
    return "".join(re.escape(one.value) if isinstance(one, ast.Constant) else "[a-z-]+" for one in node.values)
