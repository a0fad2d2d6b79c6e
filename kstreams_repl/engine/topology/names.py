"""Names: which ones Kafka accepts, which ones Kafka Streams generates, and the names of internal topics.

Generated names come from one counter per builder that processors and stores share. A given name also consumes a number, so that
naming one node does not rename the others. Sources: Kafka Streams' `Named`, `NamedInternal`, `InternalStreamsBuilder`; Kafka's
`Topic`.
"""

from __future__ import annotations

import re
from typing import Any

from kstreams_repl.system.errors import InvalidNameError

MAX_NAME_LENGTH = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)
GENERATED_STREAM_NAME = re.compile(r"KSTREAM.*-[0-9]{10}", re.ASCII)
STATE_STORE = "STATE-STORE-"
REPARTITION_SUFFIX = "-repartition"


def validate_name(name: object, kind: str) -> str:
    """Return `name` if Kafka accepts it for a node, store or topic.

    Raises:
        InvalidNameError: not text, empty, ``.`` or ``..``, longer than 249 characters, or with a character that is not an ASCII
            letter, digit, dot, underscore or hyphen.
    """
    if not isinstance(name, str):
        raise InvalidNameError(
            f"a {kind} name must be text, got {type(name).__name__}: {name!r}", hint=f"pass the {kind}'s name as str"
        )
    if not name:
        raise InvalidNameError(f"a {kind} name must not be empty", hint="leave the argument out to get a generated name")
    if name in (".", ".."):
        raise InvalidNameError(f"{name!r} is not a legal {kind} name", hint="choose a name that is not '.' or '..'", name=name)
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidNameError(
            f"the {kind} name {name[:40]}… has {len(name)} characters", hint=f"Kafka allows at most {MAX_NAME_LENGTH}", name=name
        )
    if not _LEGAL.fullmatch(name):
        legal = re.sub(r"[^a-zA-Z0-9._-]", "-", name)
        raise InvalidNameError(
            f"the {kind} name {name!r} has a character that Kafka does not allow",
            hint=f"letters, digits, '.', '_' and '-' are allowed: {legal!r} would do",
            name=name,
        )
    return name


def validate_application_id(name: Any, kind: str = "application") -> str:
    """Return `name` if `validate_name` accepts it and it is short enough for the application's own topics (the journal has the
    shortest suffix) and files.

    Raises:
        InvalidNameError: as `validate_name`, or longer than 241 characters.
    """
    validate_name(name, kind)
    most = MAX_NAME_LENGTH - len("-journal")
    if len(name) > most:
        raise InvalidNameError(
            f"the {kind} name {name[:40]}… has {len(name)} characters: no room for what its topics add, as -journal",
            hint=f"give the application a shorter name, of {most} characters at most",
            name=name,
        )
    return str(name)


class NameProvider:
    """The counter for generated names."""

    def __init__(self) -> None:
        self._next = 0

    def _number(self) -> int:
        number = self._next
        self._next = number + 1
        return number

    def new_processor_name(self, prefix: str) -> str:
        return f"{prefix}{self._number():010d}"

    def new_store_name(self, prefix: str) -> str:
        return f"{prefix}{STATE_STORE}{self._number():010d}"

    def name_or_generate(self, name: str | None, prefix: str) -> str:
        """Return the given name, or a generated one; either consumes a number."""
        generated = self.new_processor_name(prefix)
        return generated if name is None else validate_name(name, "node")

    def suffix_or_generate(self, name: str | None, suffix: str, prefix: str) -> str:
        """Return the given name with a suffix, or a generated name; either consumes a number."""
        generated = self.new_processor_name(prefix)
        return generated if name is None else validate_name(name + suffix, "node")


def changelog_topic(application_id: str, store: str) -> str:
    """Return ``<application.id>-<store>-changelog``."""
    return f"{application_id}-{store}-changelog"


def internal_topic(application_id: str, logical_name: str) -> str:
    """Return the broker's name of an internal topic that nodes refer to by its logical name."""
    return f"{application_id}-{logical_name}"
