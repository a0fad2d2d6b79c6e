"""The options that stores of the DSL and of the Processor API have in common, as one table: what each does, and which values it takes.

`Materialized` and `StoreBuilder` are made of its rows; each adds the options that only it has, as rows of the same form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, fields, replace
from typing import Any, TypeVar

from kstreams_repl.system.errors import TopologyError

S = TypeVar("S", bound="CachedAndLogged")

_UNVERSIONED = "all but versioned ones"


def _flag(name: str, flag: object) -> bool:
    if not isinstance(flag, bool):
        raise TopologyError(f"{name} must be True or False, got {flag!r}", hint=f"give {name}=True, or leave it out")
    return flag


def _topic_config(name: str, config: object) -> Mapping[str, str]:
    if not isinstance(config, Mapping):
        raise TopologyError(f"expected a dict of topic settings as {name}=, got {config!r}", hint='{"segment.ms": "60000"}')
    return config


_COMMON: Mapping[str, tuple[str, Callable[[str, object], object], str]] = {
    "caching": ("whether it has a record cache, which also collapses updates between commits", _flag, _UNVERSIONED),
    "logging": ("whether it has a changelog topic", _flag, "all"),
    "persistent": ("False: in memory, and restored from its changelog at every start; True: on disk", _flag, "all"),
    "topic_config": ("settings of the changelog topic", _topic_config, "all"),
    "headers": ("whether rows keep headers (KIP-1271); None = `dsl.store.format` decides", _flag, _UNVERSIONED),
}


def option(meaning: str, default: object, check: Callable[[str, object], object] | None = None, stores: str = "all") -> Any:
    """Return a row of the table: a field of `Materialized` or `StoreBuilder`.

    Args:
        meaning: what the option does, for the reference.
        default: None: the application or an operator upstream decides.
        check: (name, value) -> the value to keep; raises if the value cannot be used. None: it is checked elsewhere.
        stores: kinds of store that have the option.
    """
    kept = {"default_factory": dict} if default == {} else {"default": default}
    return field(**kept, metadata={"meaning": meaning, "check": check, "stores": stores})


def common(name: str, default: object, more: str = "") -> Any:
    """Return the row of an option that both have."""
    meaning, check, stores = _COMMON[name]
    return option(meaning + more, default, check, stores)


def check_options(options: Any) -> None:
    """Check the given options, and keep them in the form in which they are used."""
    for row in fields(options):
        value, check = getattr(options, row.name), row.metadata.get("check")
        if value is not None and check is not None:
            object.__setattr__(options, row.name, check(row.name, value))


def describe_options(cls: type) -> None:
    """Add the meaning of its options to the docstring of a class."""
    rows = "\n".join(f"        {row.name}: {row.metadata['meaning']}." for row in fields(cls))
    cls.__doc__ = f"{(cls.__doc__ or '').rstrip()}\n\n    Attributes:\n{rows}"


class CachedAndLogged:
    """The options of cache and changelog under Kafka Streams' names."""

    __slots__ = ()

    def with_caching_enabled(self: S) -> S:
        """Return a copy with a record cache over the store.

        Example:
            >>> import kstreams_repl as ks
            >>> options = ks.Materialized.as_("counts").with_caching_enabled()
        """
        return _changed(self, caching=True)

    def with_caching_disabled(self: S) -> S:
        """Return a copy without a record cache: every update is forwarded at once.

        Example:
            >>> import kstreams_repl as ks
            >>> options = ks.Materialized.as_("counts").with_caching_disabled()
        """
        return _changed(self, caching=False)

    def with_logging_enabled(self: S, topic_config: Mapping[str, str] | None = None) -> S:
        """Return a copy with a changelog topic.

        Args:
            topic_config: the topic's settings; None: the defaults.

        Example:
            >>> import kstreams_repl as ks
            >>> store = ks.Stores.persistent_key_value_store("seen").with_logging_enabled({"segment.ms": "60000"})
        """
        return _changed(self, logging=True, topic_config=dict(topic_config or {}))

    def with_logging_disabled(self: S) -> S:
        """Return a copy without a changelog topic: after a crash the store starts empty.

        Example:
            >>> import kstreams_repl as ks
            >>> store = ks.Stores.persistent_key_value_store("seen").with_logging_disabled()
        """
        return _changed(self, logging=False, topic_config={})


def _changed(options: S, **changes: object) -> S:
    changed: S = replace(options, **changes)  # type: ignore[type-var]
    return changed
