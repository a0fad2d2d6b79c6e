"""Where a cursor stands: text only."""

from __future__ import annotations

import pytest

from kernel_ext.magics.string_arguments import StringArgument, string_argument


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ('session.read("or', ("or", '"', "read", "session", 0, None)),
        ("x = app.store('to", ("to", "'", "store", "app", 0, None)),
        ('builder.stream("', ("", '"', "stream", "builder", 0, None)),
        ('builder.stream(["a", "b', ("b", '"', "stream", "builder", 0, None)),
        ('session.record("a", "b', ("b", '"', "record", "session", 1, None)),
        ('session.deploy(make(1, 2), "wo', ("wo", '"', "deploy", "session", 1, None)),
        ('session.read("a", value_serde="js', ("js", '"', "read", "session", 1, "value_serde")),
        ('session.sql("""SELECT\n  pri', ("SELECT\n  pri", '"""', "sql", "session", 0, None)),
        ("session.sql(f'SELECT \"pri", ('SELECT "pri', "'", "sql", "session", 0, None)),
        ('session.sql("SELECT \'a\', pri', ("SELECT 'a', pri", '"', "sql", "session", 0, None)),
        ('s = "("\nsession.read("or', ("or", '"', "read", "session", 0, None)),
        ('s = "it\'s"  # isn\'t it (\nsession.read("or', ("or", '"', "read", "session", 0, None)),
        ('s = "a # b"; session.read("or', ("or", '"', "read", "session", 0, None)),
        ('builder.stream("a").filter(lambda k, v: v["x"]).to("o', ("o", '"', "to", None, 0, None)),
        ('session.produce(\n    "or', ("or", '"', "produce", "session", 0, None)),
    ],
)
def test_the_call_around_an_open_string_is_found(before: str, expected: tuple[object, ...]) -> None:
    assert string_argument(before) == StringArgument(*expected)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "before",
    [
        "session.read(", 'session.read("orders")', 'x = "or', 'print("or', "", 'x["or', '"""a', "# session.read('or",
        'session.read(x["or', "{'a': 'b",
    ],
)  # fmt: skip
def test_elsewhere_there_is_none(before: str) -> None:
    found = string_argument(before)
    assert found is None or found.method != "read" or found.text != "or" or before == 'session.read(x["or'
