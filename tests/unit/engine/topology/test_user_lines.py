"""The user's own line is found in a traceback that runs through our code."""

from __future__ import annotations

from kstreams_repl import serdes
from kstreams_repl.engine.topology.description.user_lines import user_line
from kstreams_repl.system.types import UserLine


def test_the_innermost_line_outside_the_package_is_the_users() -> None:
    def mine() -> None:
        raise KeyError("here")  # this very line

    try:
        mine()
    except KeyError as error:
        found = user_line(error)
    assert found is not None
    assert (found.file, found.text) == (__file__, 'raise KeyError("here")  # this very line')


def test_a_line_of_ours_below_the_users_does_not_hide_it() -> None:
    try:
        serdes.long.serialize("text")  # the user calls us
    except Exception as error:
        found = user_line(error)
    assert found is not None
    assert found.text == 'serdes.long.serialize("text")  # the user calls us'


def test_an_error_that_never_passed_the_users_code_has_no_line() -> None:
    assert user_line(KeyError("never raised")) is None


def test_a_line_without_source_is_shown_by_file_and_number() -> None:
    namespace: dict[str, object] = {}
    exec(compile("def cell():\n    raise ValueError('x')\n", "<cell 7>", "exec"), namespace)
    try:
        namespace["cell"]()  # type: ignore[operator]
    except ValueError as error:
        found = user_line(error)
    assert found == UserLine("<cell 7>", 2, "")
    assert str(found) == "<cell 7>:2"
