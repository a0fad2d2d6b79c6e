"""Old argument names, accepted for one release with a DeprecationWarning."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any, TypeVar, cast

from kstreams_repl.errors import CallError

F = TypeVar("F", bound=Callable[..., Any])
Renaming = str | tuple[str, Callable[[Any], Any]]
"""The new name of an argument and, if its value changes too, a function from the old value to the new one."""


def renamed(**names: Renaming) -> Callable[[F], F]:
    """Accept keyword arguments under their old names too: `@renamed(old="new")`, for a function or a class.

    It must be the outermost decorator of a function, so that the warning points to the caller's line. `checked_calls` keeps it outermost.

    Example:
        >>> @renamed(seconds="timeout")
        ... def wait(*, timeout):
        ...     return timeout
        >>> wait(timeout=3)
        3
    """

    def decorate(function: F) -> F:
        if inspect.isclass(function):
            function.__init__ = decorate(cast("Any", function).__init__)  # type: ignore[method-assign]
            return cast("F", function)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            for old in names.keys() & kwargs.keys():
                called = type(args[0]).__name__ if function.__name__ == "__init__" else function.__name__
                kwargs |= _under_new_name(called, old, names[old], kwargs.pop(old), kwargs)
            return function(*args, **kwargs)

        call.__renamed__ = names  # type: ignore[attr-defined]
        return cast("F", call)

    return decorate


def _under_new_name(called: str, old: str, renaming: Renaming, value: Any, others: dict[str, Any]) -> dict[str, Any]:
    new, convert = (renaming, None) if isinstance(renaming, str) else renaming
    if new in others:
        raise CallError(f"{called}() got both {old}= and {new}=, which mean the same", hint=f"omit {old}=", argument=old)
    became = value if convert is None else convert(value)
    shown = f"{new}=" if convert is None else f"{new}={became!r}"
    warnings.warn(f"{called}({old}=) is now {called}({shown})", DeprecationWarning, stacklevel=3)
    return {new: became}
