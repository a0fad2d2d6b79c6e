"""What the typed stores have in common: a name, a key serde, and the layer below that they flush and clear."""

from __future__ import annotations

import struct
from typing import NoReturn, Protocol

from kstreams_repl.engine.serdes import Serde
from kstreams_repl.system.errors import NullKeyError

LONG = struct.Struct(">q")
MAX_LONG = 2**63 - 1


class _Below(Protocol):
    """The objects of a store, or its changelog."""

    def flush(self) -> None: ...

    def clear(self) -> None: ...


class TypedStore:
    """A store with serdes on top of objects or of an engine.

    Args:
        below: flushed with the store; cleared when the store is closed.
    """

    def __init__(self, name: str, below: _Below, key_serde: Serde, *, persistent: bool) -> None:
        self.name = name
        self.persistent = persistent
        self.key_serde = self._key = key_serde
        self.serialize_key = key_serde.serialize
        self._below = below

    def _bytes(self, key: object) -> bytes:
        data = self._key.serialize(key)
        return self._null_key() if data is None else data

    def _optional_bytes(self, key: object) -> bytes | None:
        return None if key is None else self._bytes(key)

    def _null_key(self) -> NoReturn:
        raise NullKeyError(
            f"store {self.name}: the key must not be null", store=self.name, hint="filter out records without a key first"
        )

    def _rows_held(self) -> str:
        """Return the number of rows for `repr`."""
        raise NotImplementedError

    def flush(self) -> None:
        self._below.flush()

    def close(self) -> None:
        self._below.clear()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self._rows_held()})"
