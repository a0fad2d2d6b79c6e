"""Checks of the calls of public functions: an unknown argument or one of the wrong type raises one sentence with the most similar name,
instead of the error of some internal function.

Names are checked before the call. Types are checked only after a call failed with an error from outside this package, because many
functions raise better messages than "expected int". Only simple annotations are checked (`str`, `int`, `float`, `bool`, `None` and their
unions).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import TypeVar

from kstreams_repl.engine.config import is_key
from kstreams_repl.system.errors import CallError, KStreamsError, did_you_mean
from kstreams_repl.system.types import UserFunction

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., object])
_KINDS: dict[str, tuple[type, ...]] = {"str": (str,), "int": (Integral,), "float": (Real,), "bool": (bool,), "None": (type(None),)}


def checked_calls(cls: C) -> C:
    """Check the calls of a class's public methods."""
    for name, function in list(vars(cls).items()):
        if inspect.isfunction(function) and not name.startswith("_"):
            setattr(cls, name, _checked(function))
    return cls


def spelled_out(function: F) -> F:
    """Give a function with options of a `TypedDict` (``**options: Unpack[TableOptions]``) the signature that names each of them, so that
    completion, help and the checks of its calls know them. Only for options of which None means that they are left out.
    """
    signature = inspect.signature(function)
    *others, last = signature.parameters.values()
    if last.kind is inspect.Parameter.VAR_KEYWORD and str(last.annotation).startswith("Unpack["):
        listed = function.__globals__[last.annotation.removeprefix("Unpack[").removesuffix("]")].__annotations__
        types = {name: each.__forward_arg__ for name, each in listed.items()}
        if all(text == "object" or text.endswith("None") for text in types.values()):
            only = inspect.Parameter.KEYWORD_ONLY
            options = [inspect.Parameter(name, only, default=None, annotation=text) for name, text in types.items()]
            function.__signature__ = signature.replace(parameters=[*others, *options])  # type: ignore[attr-defined]
    return function


def check_names(function: UserFunction, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
    """Check that a public function has the arguments of a call; `args` begin with its `self`.

    Raises:
        CallError: an argument is unknown, or a required one is missing.
    """
    signature = _signature(function)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise _misfit(function, signature, args, kwargs, error) from None
    if "settings" in signature.parameters:
        parameters = _by_name(signature)
        for name in kwargs.keys() - parameters:
            if not is_key(name) and (hint := did_you_mean(name, parameters)) is not None:
                raise CallError(f"{_name(function)}() has no argument {name!r}", hint=hint, argument=name)


def check_kinds(function: UserFunction, args: tuple[object, ...], kwargs: Mapping[str, object], broken: Exception) -> None:
    """Check, after a call failed with an error from outside this package, whether an argument of the wrong type is the reason.

    Raises:
        CallError: it is.
    """
    signature = _signature(function)
    for name, value in signature.bind(*args, **kwargs).arguments.items():
        annotation = signature.parameters[name].annotation
        kinds = _kinds(annotation)
        if kinds is not None and not isinstance(value, kinds) and signature.parameters[name].kind not in _STARRED:
            raise CallError(
                f"{_name(function)}() cannot take {name}={_shown(value)}: expected {annotation.replace(' | ', ' or ')}, "
                f"got {_kind_of(value)}",
                hint=f"{_name(function)}{_shape(signature)}",
                argument=name,
            ) from broken


BREAKS = (TypeError, AttributeError, ValueError)
_STARRED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _checked(function: UserFunction) -> UserFunction:
    @functools.wraps(function)
    def call(*args: object, **kwargs: object) -> object:
        check_names(function, args, kwargs)
        try:
            return function(*args, **kwargs)
        except BREAKS as error:
            if not isinstance(error, KStreamsError):
                check_kinds(function, args, kwargs, error)
            raise

    return call


@functools.lru_cache(maxsize=1024)
def _signature(function: UserFunction) -> inspect.Signature:
    return inspect.signature(function)


def _by_name(signature: inspect.Signature) -> list[str]:
    """Return the names of the parameters that can be passed by name."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [name for name, each in signature.parameters.items() if each.kind in named and name != "self"]


def _misfit(
    function: UserFunction, signature: inspect.Signature, args: tuple[object, ...], kwargs: Mapping[str, object], error: TypeError
) -> CallError:
    parameters, method = _by_name(signature), _name(function)
    unknown = [name for name in kwargs if name not in parameters]
    if unknown:
        hint = did_you_mean(unknown[0], parameters) or f"{method}{_shape(signature)}"
        return CallError(f"{method}() has no argument {unknown[0]!r}", hint=hint, argument=unknown[0])
    positional = [each for each in signature.parameters.values() if each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    if len(args) > len(positional):
        at_most = len(positional) - 1
        what = f"{method}() takes {at_most or 'no'} argument{'s' * (at_most != 1)} without a name, got {len(args) - 1}"
        return CallError(what, hint=f"give the others by name: {method}{_shape(signature)}")
    return CallError(f"{method}(): {error}", hint=f"{method}{_shape(signature)}")


def _kinds(annotation: object) -> tuple[type, ...] | None:
    """Return the classes of a simple annotation; None for any other."""
    if not isinstance(annotation, str):
        return None
    parts = annotation.split(" | ")
    return tuple(kind for part in parts for kind in _KINDS[part]) if all(part in _KINDS for part in parts) else None


def _name(function: UserFunction) -> str:
    return function.__name__.lstrip("_")


def _shape(signature: inspect.Signature) -> str:
    """Return the parameters without annotations, for a hint: ``(topic, n=10, *, start=None)``."""
    bare = [each.replace(annotation=inspect.Parameter.empty) for name, each in signature.parameters.items() if name != "self"]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))


def _shown(value: object) -> str:
    text = repr(value) if isinstance(value, str | int | float | bool | bytes | None) else f"<{type(value).__name__}>"
    return text if len(text) <= 60 else f"{text[:57]}…"


def _kind_of(value: object) -> str:
    return "None" if value is None else type(value).__name__
