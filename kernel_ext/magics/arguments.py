"""Parse the arguments of magics: IPython's parser keeps the quotes around an argument of several words, which this module removes, and
has no ``--help``.
"""

from __future__ import annotations

import functools
import inspect
from argparse import Namespace
from collections.abc import Callable
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics
from IPython.core.magic_arguments import parse_argstring

from kstreams_repl.engine.config import KEYS
from kstreams_repl.system.errors import KStreamsError

_CREATES_TOPICS = "session.deploy(..., create_topics=True)"


def give_help(magics: Magics) -> None:
    """Give each magic of an object ``--help``, and errors whose hints name the magic's own flags."""
    for calls in magics.magics.values():
        calls.update({name: _helped(name, call) for name, call in calls.items()})


def _helped(name: str, call: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(call)
    def run(line: str, *cell: str) -> object:
        words = line.split()
        if "--help" in (*words[:1], *words[-1:]):
            print(inspect.getdoc(call))
            return None
        try:
            return call(line, *cell)
        except KStreamsError as error:
            error.hint = error.hint and error.hint.replace(_CREATES_TOPICS, f"%{name} ... --create-topics")
            raise

    return run


def arguments(magic: object, line: str) -> Namespace:
    """Parse a magic's line as `parse_argstring` does, and remove those quotes."""
    given: Namespace = parse_argstring(magic, line)
    for name, value in vars(given).items():
        setattr(given, name, [_unquoted(item) for item in value] if isinstance(value, list) else _unquoted(value))
    return given


def _unquoted(value: Any) -> object:
    quoted = isinstance(value, str) and len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value


def setting(text: str) -> tuple[str, str]:
    """Return name and value of a setting, KEY=VALUE."""
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"-c expects KEY=VALUE, got {text!r}; for example {next(iter(KEYS))}=…")
    return name.strip(), value.strip()
