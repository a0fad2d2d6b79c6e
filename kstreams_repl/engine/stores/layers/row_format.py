"""Whether the rows of a store on disk have headers, and their conversion when a new version of the topology decides otherwise.

The environment has an attribute for each store whose rows have headers. `keep_row_format` is called before a store is opened or restored.
It converts batch by batch, each in one transaction with the key up to which it came, so that it goes on after a crash. Keys do not
change, rows without headers get none, and headers that are not kept any more are lost in the rows (the changelog still has them).
"""

from __future__ import annotations

from kstreams_repl.engine.stores.engine.environment import Environment, after
from kstreams_repl.engine.stores.layers.header_rows import pack_headers, without_headers
from kstreams_repl.engine.topology.store_builder import StoreBuilder

_HEADERS, _PLAIN = b"H", b"P"
_UP_TO = b":"
"""In front of the key up to which rows have been converted; without it all have."""
_BATCH = 10_000


def row_format(store: str) -> str:
    """Return the name of the attribute with the format of a store's rows."""
    return f"row-format:{store}"


def have_headers(attribute: bytes | None) -> bool:
    """Return whether rows have headers.

    Args:
        attribute: the attribute `row_format`, as stored.
    """
    return attribute is not None and attribute[:1] == _HEADERS


def keep_row_format(environment: Environment, builder: StoreBuilder) -> None:
    """Convert the rows of a store to the format that its builder asks for, if they have the other one."""
    if not builder.persistent:
        return
    expected = _HEADERS if builder.headers else _PLAIN
    while (actual := environment.attribute(row_format(builder.name)) or _PLAIN) != expected:
        if actual[1:2] == _UP_TO:
            _convert(environment, builder.name, actual[:1], after(actual[2:]))
        else:
            _convert(environment, builder.name, expected, None)


def _convert(environment: Environment, name: str, to: bytes, low: bytes | None) -> None:
    engine, nothing = environment.engine(name), pack_headers(None)
    while True:
        rows = list(engine.range(low, limit=_BATCH))
        last = rows[-1][0] if len(rows) == _BATCH else None
        environment.set_attribute(row_format(name), to if last is None else to + _UP_TO + last)
        values = [nothing + row if to == _HEADERS else without_headers(row) for _, row in rows]
        environment.restore(name, [key for key, _ in rows], values)
        if last is None:
            return
        low = after(last)
