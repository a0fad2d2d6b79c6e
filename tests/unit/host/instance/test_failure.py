"""What a report says of a failure."""

from __future__ import annotations

import json
import linecache

from kstreams_repl.host.instance.failures.failure_report import failure_of
from kstreams_repl.host.spark.failures.failure_translation import error_from
from kstreams_repl.repl.session.source.error_source import user_location, with_source
from kstreams_repl.system.errors import StreamsProcessingError
from kstreams_repl.system.types import UserLine


def test_the_users_line_comes_back_through_a_report_and_the_notebook_fills_in_its_text() -> None:
    """A worker has no text of a cell: it knows file and number, the kernel has the rest."""
    line = UserLine("/tmp/ipykernel_1/2.py", 3, "")
    error = StreamsProcessingError(f"KeyError: 'price'\n  {line}\n  in node cents", user_line=line, node="cents", offset=4)
    told = error_from(json.loads(json.dumps(failure_of(error))))
    assert user_location(told) == ("/tmp/ipykernel_1/2.py", 3, "")
    text = ["one\n", "two\n", "order['price'] * 100\n"]
    linecache.cache[line.file] = (1, None, text, line.file)
    try:
        shown = with_source(told)
    finally:
        del linecache.cache[line.file]
    assert "a cell of another kernel, line 3: order['price'] * 100" in shown.message
    assert user_location(shown) == (line.file, 3, "order['price'] * 100")
    assert shown.fields["node"] == "cents" and shown.fields["offset"] == 4
