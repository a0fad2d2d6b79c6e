"""The pictures of topologies in README.md and docs/, drawn by the code that draws them in a notebook.

A page of docs/concepts/ has the picture of its own example: ``builder``, with the records that passed its nodes where the page runs a
``driver``; where it has ``edited``, that topology with the nodes that an edit changes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from doctest import DocTestParser
from pathlib import Path
from typing import Any

from kstreams_repl.demo import topology
from kstreams_repl.engine.runtime.nodes.node_counts import NodeCount
from kstreams_repl.engine.topology.differences.diff import diff
from kstreams_repl.engine.topology.differences.node_diff import NodeChange
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.pictures.graph.picture import Mark, picture_of
from kstreams_repl.pictures.graph.svg import svg_of
from kstreams_repl.pictures.graph.view import simplified
from kstreams_repl.pictures.wording import counted
from kstreams_repl.repl.session.views.counts.record_counts import NodeRate, late_text

DOCS = Path(__file__).resolve().parents[2] / "docs"
LINK = re.compile(r"\]\(\.\./pictures/(concept-[\w-]+\.svg)\)")


def pictures() -> dict[Path, str]:
    """Return the SVG text of the demo's picture and of the concepts', by file."""
    found = {DOCS / "pictures" / "demo.svg": drawn(topology.build().build(), title="flights")}
    for page in sorted((DOCS / "concepts").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        for name in LINK.findall(text):
            found[DOCS / "pictures" / name] = _of_page(text, text.partition("\n")[0].removeprefix("# "))
    return found


def drawn(topology: Topology, *, title: str, marks: Mapping[str, Mark] | None = None) -> str:
    """Return a topology's picture without the source locations in tooltips."""
    picture = simplified(picture_of(topology, title=title, marks=marks))
    return re.sub(r"\\n[^<]*, line \d+</title>", "</title>", str(svg_of(picture))) + "\n"


def _of_page(text: str, title: str) -> str:
    names: dict[str, Any] = {}
    for example in DocTestParser().get_examples(text):
        exec(example.source, names)
    before: Topology = names["builder"].build()
    if "edited" in names:
        after: Topology = names["edited"].build()
        changed = [node.name for node in diff(before, after).nodes if node.change is not NodeChange.UNCHANGED]
        return drawn(after, title=title, marks={f"node:{name}": Mark("stale") for name in changed})
    return drawn(before, title=title, marks=passed(names["driver"].node_counts) if "driver" in names else None)


def passed(counts: Mapping[str, NodeCount]) -> dict[str, Mark]:
    """Return marks that say how many records each node took and forwarded, and how many were late."""
    marks = {}
    for name, count in counts.items():
        late = late_text(NodeRate(count.taken, count.given, 0.0, count.dropped, count.needed_grace_ms))
        same = count.given in (0, count.taken)
        lines = counted(count.taken, "record") if same else f"{count.taken:,} in, {count.given:,} out"
        marks[f"node:{name}"] = Mark(None, (lines, *filter(None, late.split(": "))))
    return marks
