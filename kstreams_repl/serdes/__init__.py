"""Serdes: between values and bytes. `serdes.string`, `serdes.long`, `serdes.json`, … are ready to use; `serdes.of("json")` looks one up.

Write your own as `Serde(serialize=..., deserialize=..., name=...)`.
"""

from __future__ import annotations

from typing import Any

from kstreams_repl.errors import ConfigError, did_you_mean
from kstreams_repl.serdes.base import Serde
from kstreams_repl.serdes.json_text import JSON
from kstreams_repl.serdes.primitive import BYTES, DOUBLE, INTEGER, LONG, STRING
from kstreams_repl.serdes.windowed import session_windowed, time_windowed

__all__ = ["Serde", "bytes_", "double", "integer", "json", "long", "of", "resolve", "session_windowed", "string", "time_windowed"]

_BUILT_IN = {serde.name: serde for serde in (BYTES, STRING, INTEGER, LONG, DOUBLE, JSON)}
for _serde in _BUILT_IN.values():
    _serde._builtin = True

bytes_ = BYTES
string = STRING
integer = INTEGER
long = LONG
double = DOUBLE
json = JSON

_ALIASES = {"str": "string", "int": "long", "float": "double", "bytearray": "bytes"}


def of(name: str) -> Serde:
    """The built-in serde of that name: bytes, string, integer, long, double, json.

    Raises:
        ConfigError: there is none.
    """
    serde = _BUILT_IN.get(_ALIASES.get(name, name))
    if serde is None:
        raise ConfigError(f"there is no serde named {name!r}", hint=did_you_mean(name, _BUILT_IN) or f"there are {', '.join(_BUILT_IN)}")
    return serde


def resolve(serde: Any, default: Any = None) -> Serde:
    """A Serde from what users and configurations write: a Serde, a name, or None for the default (bytes when there is none)."""
    if serde is None:
        return BYTES if default is None else resolve(default)
    if isinstance(serde, Serde):
        return serde
    if isinstance(serde, str):
        return of(serde)
    if hasattr(serde, "serialize") and hasattr(serde, "deserialize"):
        return Serde(serde.serialize, serde.deserialize, name=type(serde).__name__)
    raise ConfigError(
        f"not a serde: {serde!r}", hint="use kstreams_repl.serdes.string, .long, .json, ... or Serde(serialize=..., deserialize=...)"
    )


def __getattr__(name: str) -> Any:
    if name == "bytes":  # `serdes.bytes` without hiding the built-in inside this module
        return BYTES
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
