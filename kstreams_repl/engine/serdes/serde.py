"""`Serde`: converts values to bytes and back.

A `Serde` is two plain callables, `serialize(value)` and `deserialize(data)`, because they run once or twice per record: no topic
argument, no method lookup, no wrapper objects. None is passed through in both directions without calling the user's function:
null keys and tombstones occur at every level of Kafka Streams.

Two more properties allow skipping work. `passthrough` means that `serialize(deserialize(b)) == b` for all bytes for which
`canonical(b)`
holds: such a key or value may be forwarded as raw bytes. `immutable` lists the exact value types that a store may keep as objects
and serialize later; all other values are serialized at once, so that an in-place change by user code never reaches a store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Protocol

from kstreams_repl.system.errors import CallError, SerializationError
from kstreams_repl.system.types import Deserialize, is_async


class DeserializeFields(Protocol):
    """Of a serde that can leave out fields of objects: returns a `deserialize_many` for callers that look only at these fields.

    With `plain=True` it is for callers that send the bytes on: it raises if a value is no object, if one of the fields can be changed in
    place, or if other readers might read something else.
    """

    def __call__(self, fields: frozenset[str], *, plain: bool = False) -> Callable[[Sequence[bytes | None]], list[Any]]: ...


Serializer = Callable[[Any], bytes | None]
Deserializer = Callable[[bytes | None], Any]


def _never(data: bytes) -> bool:
    return False


class Serde:
    """A pair of functions that convert between values and bytes.

    The functions are never called with None. Their exceptions are raised unchanged, with the record's coordinates added.

    Args:
        serialize: value -> bytes.
        deserialize: bytes -> value.
        name: shown in errors and in `repr`.
        passthrough: whether bytes for which `canonical` holds survive a round trip unchanged.
        canonical: returns whether bytes have this property; by default none have.
        immutable: value types that survive a round trip as equal objects and cannot be changed in place.
        size_of: serialized size of an `immutable` value without serializing it (an estimate is enough).
        none_safe: whether both functions handle None themselves.
        base_key_suffix: number of bytes at the end of a serialized key that do not affect its partition (window bounds).
        layout: the code of the `struct` module that writes the same big-endian bytes; None if there is none.
        deserialize_many: deserializes a column at once, possibly before the records' turn, so it must have no side effects; if it
            raises, each value is deserialized separately.
        ascii_safe: whether it reads any bytes, never as None, and returns ASCII unchanged; unused values then need no
            deserialization.
        recipe: (function, arguments) that makes this serde again, if its own functions cannot be pickled for a worker.
        bind: (topic, part, registry settings) -> the serde for one topic, if its bytes depend on it (`for_topic`).
        record_schema: the schema of its dicts: the name of the format (avro, protobuf, json_schema), the text, and the name of a
            Protobuf message if it is not the first; None: it has none, or does not know it.
        reads_header_ids: whether its bytes begin with a schema id, which a record may have in a header instead (`header_ids`).
        odd_writes: how many values were written to bytes that may not be canonical; None: that is not counted, any may be.
        header_id_size: serialized bytes -> how many at their beginning are a schema id to send in a header; None: it writes none there.

    Example:
        >>> point = Serde(lambda p: f"{p[0]},{p[1]}".encode(), lambda b: tuple(map(int, b.split(b","))), name="point")
        >>> point.deserialize(point.serialize((1, 2)))
        (1, 2)
    """

    __slots__ = (
        "name",
        "serialize",
        "deserialize",
        "passthrough",
        "canonical",
        "immutable",
        "size_of",
        "base_key_suffix",
        "layout",
        "deserialize_many",
        "deserialize_fields",
        "ascii_safe",
        "record_schema",
        "reads_header_ids",
        "header_id_size",
        "odd_writes",
        "_recipe",
        "_bind",
        "_builtin",
    )

    def __init__(
        self,
        serialize: Callable[[Any], bytes],
        deserialize: Deserialize,
        *,
        name: str = "custom",
        passthrough: bool = False,
        canonical: Callable[[bytes], bool] = _never,
        immutable: Iterable[type] = (),
        size_of: Callable[[Any], int] | None = None,
        none_safe: bool = False,
        base_key_suffix: int = 0,
        layout: str | None = None,
        deserialize_many: Callable[[Sequence[bytes | None]], list[Any]] | None = None,
        ascii_safe: bool = False,
        recipe: tuple[Callable[..., Serde], tuple[Any, ...]] | None = None,
        bind: Callable[[str | None, Literal["key", "value"], Any], Serde] | None = None,
        record_schema: tuple[str, ...] | None = None,
        reads_header_ids: bool = False,
        header_id_size: Callable[[bytes], int] | None = None,
        odd_writes: list[int] | None = None,
    ) -> None:
        for what, function in (("serialize", serialize), ("deserialize", deserialize)):
            if is_async(function):
                raise CallError(f"Serde() expected a {what} that returns its result, got an async function", hint="write it with def")
        self.name = name
        self.serialize: Serializer = serialize if none_safe else _skip_none(serialize)
        self.deserialize: Deserializer = deserialize if none_safe else _skip_none(deserialize)  # type: ignore[assignment]
        self.passthrough = passthrough
        self.canonical = canonical
        self.immutable = frozenset(immutable)
        self.size_of: Callable[[Any], int] = size_of or _guess_size
        self.base_key_suffix = base_key_suffix
        self.layout = layout
        self.deserialize_many = deserialize_many
        self.deserialize_fields: DeserializeFields | None = None
        self.ascii_safe = ascii_safe
        self.record_schema = record_schema
        self.reads_header_ids = reads_header_ids
        self.header_id_size = header_id_size
        self.odd_writes = odd_writes
        self._recipe = recipe
        self._bind = bind
        self._builtin = False

    def __call__(self) -> Serde:
        """Return the serde itself, so that `serdes.string()` means `serdes.string`."""
        return self

    def for_topic(self, topic: str | None, part: Literal["key", "value"] = "value", registry: object = ()) -> Serde:
        """Return the serde to use for one topic: itself, unless its schema is registered by topic. Topologies do this themselves.

        Args:
            topic: the topic's name; None: unknown, as in a pattern, so only reading works.
            part: whether it serializes keys or values.
            registry: settings of the Schema Registry's client; empty: those of the session.

        Example:
            >>> from kstreams_repl import serdes
            >>> serdes.string.for_topic("words") is serdes.string
            True
        """
        if self._bind is not None:
            return self._bind(topic, part, registry)
        if self._recipe is None or not any(isinstance(item, Serde) for item in self._recipe[1]):
            return self
        make, arguments = self._recipe
        bound = tuple(item.for_topic(topic, part, registry) if isinstance(item, Serde) else item for item in arguments)
        return self if all(new is old for new, old in zip(bound, arguments, strict=True)) else make(*bound)

    def writes_like(self, other: Serde) -> bool:
        """Return whether both certainly write the same bytes: the same serde, or one made by the same recipe.

        Args:
            other: the serde to compare with.

        Example:
            >>> from kstreams_repl import serdes
            >>> serdes.string.writes_like(serdes.string)
            True
            >>> serdes.string.writes_like(serdes.long)
            False
        """
        if self is other:
            return True
        if self._recipe is None or other._recipe is None or self._recipe[0] is not other._recipe[0]:
            return False
        pairs = zip(self._recipe[1], other._recipe[1], strict=True)
        return all(one.writes_like(two) if isinstance(one, Serde) and isinstance(two, Serde) else one == two for one, two in pairs)

    def __repr__(self) -> str:
        return f"Serde({self.name})"

    def __reduce__(self) -> tuple[Callable[..., Serde], tuple[object, ...]]:
        if self._builtin:
            from kstreams_repl.engine import serdes

            return serdes.of, (self.name,)
        if self._recipe is not None:
            return self._recipe
        how = (self.serialize, self.deserialize, self.name, self.passthrough, self.canonical, tuple(self.immutable), self.size_of)
        return _rebuild, (*how, self.base_key_suffix, self.layout, self.deserialize_many, self.ascii_safe)


def _rebuild(
    serialize: Any,
    deserialize: Any,
    name: str,
    passthrough: bool,
    canonical: Callable[[bytes], bool],
    immutable: tuple[type, ...],
    size_of: Callable[[Any], int],
    base_key_suffix: int = 0,
    layout: str | None = None,
    deserialize_many: Callable[[Sequence[bytes | None]], list[Any]] | None = None,
    ascii_safe: bool = False,
) -> Serde:
    return Serde(
        serialize,
        deserialize,
        name=name,
        passthrough=passthrough,
        canonical=canonical,
        immutable=immutable,
        size_of=size_of,
        none_safe=True,
        base_key_suffix=base_key_suffix,
        layout=layout,
        deserialize_many=deserialize_many,
        ascii_safe=ascii_safe,
    )


def _skip_none(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def call(value: object) -> object:
        return None if value is None else function(value)

    call.of_values = function  # type: ignore[attr-defined]
    return call


def to_send(serialize: Serializer) -> Serializer:
    """Return a serde's `serialize` for a caller that copies the bytes at once, as a Kafka client does."""
    to_send: Serializer = getattr(serialize, "to_send", serialize)
    return to_send


def of_values(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a serde's `serialize` or `deserialize` for values that are never None."""
    of_values: Callable[[Any], Any] = getattr(function, "of_values", function)
    return of_values


def _guess_size(value: Any) -> int:
    kind = type(value)
    return len(value) if kind is str or kind is bytes else 8


def wrong_type(serde: str, value: object, expected: str) -> SerializationError:
    """Return the error of a built-in serde for a value of another type."""
    return SerializationError(
        f"the {serde} serde cannot write a value of type {type(value).__name__}",
        hint=f"it writes {expected}; give this node or store the serde of its values (key_serde=, value_serde=)",
        serde=serde,
    )


def wrong_bytes(serde: str, data: object, expected: str) -> SerializationError:
    """Return the error of a built-in serde for bytes it cannot read."""
    size = f"{len(data)} bytes" if isinstance(data, bytes | bytearray | memoryview) else type(data).__name__
    return SerializationError(
        f"the {serde} serde cannot read these {size}: it expects {expected}",
        hint="the data was written by another serde; check key_serde and value_serde of this topic or store",
        serde=serde,
        reading=True,
    )
