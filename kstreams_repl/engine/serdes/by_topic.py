"""Default serdes of sources by topic: the setting ``repl.source.serdes``, and its text form.

A session that knows the serdes of a topic sets it when it deploys. The setting is stored with a version, so that every later
build of the topology (attach, edit, export, a detached driver) gives the same result. Only built-in serdes have names, so only
they can be used in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from kstreams_repl.engine import serdes
from kstreams_repl.engine.serdes import Serde
from kstreams_repl.system.errors import ConfigError

SETTING = "repl.source.serdes"
Pair = tuple[Serde | None, Serde | None]
"""Serdes of keys and of values; None: the application's default."""
_ENTRY = re.compile(r"([A-Za-z0-9._-]+)=([a-z0-9_]*):([a-z0-9_]*)")


def parse(text: str | None) -> dict[str, Pair]:
    """Return the serdes in the setting's text: ``orders=string:json, words=:string``.

    Raises:
        ConfigError: the text does not have that form, or names an unknown serde.
    """
    pairs: dict[str, Pair] = {}
    for entry in filter(None, (part.strip() for part in (text or "").split(","))):
        match = _ENTRY.fullmatch(entry)
        if match is None:
            raise ConfigError(
                f"cannot parse {entry!r} in {SETTING}: expected topic=key:value",
                hint="topic=key:value: orders=string:json, words=:string", key=SETTING,
            )
        pairs[match[1]] = (_named(match[2]), _named(match[3]))
    return pairs


def write(pairs: Mapping[str, Pair]) -> str:
    """Return the setting's text."""
    return ", ".join(f"{topic}={_name(key)}:{_name(value)}" for topic, (key, value) in sorted(pairs.items()))


def has_name(serde: Serde | None) -> bool:
    """Return whether a serde can be named in the setting: it is a built-in one."""
    return serde is not None and getattr(serde, "_builtin", False)


def common(pairs: Mapping[str, Pair], topics: Sequence[str]) -> Pair:
    """Return the serdes for a source of several topics: those that are the same for all of them."""
    given = [pairs.get(topic, (None, None)) for topic in topics] or [(None, None)]
    keys, values = {id(pair[0]): pair[0] for pair in given}, {id(pair[1]): pair[1] for pair in given}
    return next(iter(keys.values())) if len(keys) == 1 else None, next(iter(values.values())) if len(values) == 1 else None


def _named(name: str) -> Serde | None:
    return serdes.of(name) if name else None


def _name(serde: Serde | None) -> str:
    return "" if serde is None else str(serde.name)
