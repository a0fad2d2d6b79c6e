"""Lists of values, with the bytes of Kafka's `ListSerializer`.

The first byte is the framing of entries. Entries of a fixed size (short, integer, long, float32, double, uuid) follow each other
without a length, after the indexes of None entries; all others are preceded by their size, -1 for None.
"""

from __future__ import annotations

import struct

from kstreams_repl.engine.serdes.serde import Serde, wrong_bytes, wrong_type

_BARE, _SIZED = 0, 1
_INT = struct.Struct(">i")
_FIXED = {"short": 2, "integer": 4, "long": 8, "float32": 4, "double": 8, "uuid": 36}
_NULL = -1


def list_of(inner: Serde | str) -> Serde:
    """Return a serde of lists (and tuples) whose entries `inner` writes; as Kafka's ``Serdes.ListSerde(ArrayList.class, inner)``.

    It reads Python lists. None entries are preserved; a None list is a null record value.

    Args:
        inner: serde of the entries, or its name: any serde, including `list_of`.

    Raises:
        SerializationError: for a value that is not a list, an entry that `inner` cannot write, or bytes that do not contain a
            list.

    Example:
        >>> from kstreams_repl import serdes
        >>> serdes.list_of(serdes.short).serialize([7, None]).hex()
        '000000000100000001000000020007'
        >>> serdes.list_of("string").deserialize(serdes.list_of("string").serialize(["a", None]))
        ['a', None]
    """
    from kstreams_repl.engine.serdes import resolve

    entries = resolve(inner)
    fixed = _FIXED.get(entries.name) if entries._builtin else None
    name = f"list({entries.name})"

    def serialize(values: object) -> bytes | None:
        if values is None:
            return None
        if not isinstance(values, list | tuple):
            raise wrong_type(name, values, "a list")
        written = [None if value is None else entries.serialize(value) for value in values]
        if fixed is None:
            sized = (_INT.pack(_NULL) if data is None else _INT.pack(len(data)) + data for data in written)
            return b"".join((bytes([_SIZED]), _INT.pack(len(written)), *sized))
        nulls = [_INT.pack(index) for index, data in enumerate(written) if data is None]
        bare = (data for data in written if data is not None)
        return b"".join((bytes([_BARE]), _INT.pack(len(nulls)), *nulls, _INT.pack(len(written)), *bare))

    def deserialize(data: bytes | None) -> list[object] | None:
        if data is None:
            return None
        try:
            values, end = _read(data, entries, fixed)
        except (struct.error, IndexError, ValueError):
            raise wrong_bytes(name, data, "a list as Kafka's ListSerializer writes it") from None
        if end != len(data):
            raise wrong_bytes(name, data, f"{end} bytes, as its sizes say")
        return values

    return Serde(serialize, deserialize, name=name, none_safe=True, recipe=(list_of, (entries,)))  # type: ignore[arg-type]


def _read(data: bytes, entries: Serde, fixed: int | None) -> tuple[list[object], int]:
    """Return the list, and the index of the first byte after it."""
    flag, position = data[0], 1
    nulls: set[int] = set()
    if flag == _BARE:
        if fixed is None:
            raise ValueError("entries without their sizes")
        count, position = _INT.unpack_from(data, position)[0], position + 4
        if not 0 <= 4 * count <= len(data):
            raise ValueError("a count that does not fit")
        nulls = {index for (index,) in _INT.iter_unpack(data[position : position + 4 * count])}
        position += 4 * count
    elif flag != _SIZED:
        raise ValueError("an unknown flag")
    size, position = _INT.unpack_from(data, position)[0], position + 4
    if not 0 <= size <= len(data) + len(nulls):
        raise ValueError("a size that does not fit")
    values: list[object] = []
    for index in range(size):
        length = fixed or 0
        if flag == _SIZED:
            length, position = _INT.unpack_from(data, position)[0], position + 4
        if index in nulls or length == _NULL:
            values.append(None)
            continue
        if length < 0 or position + length > len(data):
            raise ValueError("an entry beyond the end")
        values.append(entries.deserialize(data[position : position + length]))
        position += length
    return values, position
