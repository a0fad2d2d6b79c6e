"""What changed in the text of functions, between versions and in a plan."""

from __future__ import annotations

import linecache
from typing import Any

import kstreams_repl as ks
from kstreams_repl.repl.session.source.code_changes import code_changes, source_of

CELL = """
def is_late(key, value):
    # minutes
    return value["delay"] > {limit}

class Worst:
    def process(self, record):
        return {worst}

builder = ks.StreamsBuilder()
flights = builder.stream("flights", name="flights")
flights.filter(is_late, name="late").map_values(lambda value: value["delay"] * {factor}, name="scaled").to("out", name="out")
flights.process(Worst, name="worst")
"""


def built(number: int, **values: Any) -> Any:
    text = CELL.format(**{"limit": 15, "factor": 1, "worst": "None", **values})
    file = f"<cell of test_code_changes {number}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    space: dict[str, Any] = {"ks": ks, "__name__": "__main__"}
    exec(compile(text, file, "exec"), space)
    return space["builder"].build()


def changed(old: Any, new: Any) -> list[str]:
    return list(code_changes(old, new, before="version 1", after="version 2").lines)


def test_a_function_that_changed_is_shown_as_a_unified_diff() -> None:
    assert changed(built(1), built(2, limit=30)) == [
        "--- late (version 1)",
        "+++ late (version 2)",
        "@@ -1,3 +1,3 @@",
        " def is_late(key, value):",
        "     # minutes",
        '-    return value["delay"] > 15',
        '+    return value["delay"] > 30',
    ]


def test_lambdas_and_only_what_changed_are_shown() -> None:
    lines = changed(built(3), built(4, factor=60))
    assert lines[0] == "--- scaled (version 1)" and len([line for line in lines if line.startswith("---")]) == 1
    assert any(line.startswith("+") and '* 60' in line for line in lines)


def test_nothing_is_shown_of_cells_that_say_the_same() -> None:
    assert changed(built(5), built(6)) == []
    assert repr(code_changes(built(5), built(6), before="a", after="b")) == "no difference"


def test_a_processor_is_its_class() -> None:
    lines = changed(built(7), built(8, worst="record"))
    assert "-        return None" in lines and "+        return record" in lines


def test_functions_without_a_text_are_left_out() -> None:
    space: dict[str, Any] = {}
    exec("def f(key, value): return True", space)
    builder = ks.StreamsBuilder()
    builder.stream("in").filter(space["f"], name="kept").to("out")
    assert source_of(builder.build().nodes["kept"]) == ""


def test_it_is_marked_in_html_and_stays_inert() -> None:
    html = str(code_changes(built(9), built(10, worst="'<script>'"), before="1", after="2").html())
    assert "<script>" not in html and 'class="added"' in html and 'class="removed"' in html
