"""The panel without a front end."""

from __future__ import annotations

import re
from pathlib import Path

import kernel_ext.panel as panel
from kernel_ext.subshells import heard_at_once

SOURCE = (Path(panel.__file__).parent / "static" / "panel.js").read_text(encoding="utf-8")


def test_the_front_end_is_one_file_that_fetches_nothing() -> None:
    for word in ("import ", "import(", "fetch(", "http:", "https:", "XMLHttpRequest", "WebSocket", "eval("):
        assert word not in SOURCE
    assert "export default { render }" in SOURCE


def test_only_markup_of_ours_becomes_html() -> None:
    """Everything else goes in as text."""
    assert SOURCE.count("innerHTML") == 2
    assert 'innerHTML = model.get("svg")' in SOURCE and "place.innerHTML = html" in SOURCE
    given = re.findall(r"replace\((\w+), model\.get\(\"(\w+)\"\)\)", SOURCE)
    assert given == [("detail", "detail"), ("values", "values"), ("about", "about")] and SOURCE.count("replace(") == len(given)


def test_what_a_front_end_says_to_a_subshell_is_handled_there_whoever_spoke_last() -> None:
    """ipykernel asks a comm where a message is to go, before a browser test would notice."""
    from ipykernel.comm.comm import BaseComm

    comm = BaseComm(target_name="kstreams_repl", comm_id="1")
    heard_at_once(comm)
    route = getattr(comm, "_reply_subshell_for")  # noqa: B009
    comm._reply_subshell_id = None
    assert route({"method": "custom", "content": {"do": "pause"}}, "subshell-1") == "subshell-1"
    heard_at_once(None)
