"""`Secret`: a setting value that is never shown.

Its repr, str and format are masked, and therefore logs, exceptions and progress output too; it is not a str, so no JSON encoder writes it.
It *can* be pickled, because client settings travel inside Spark closures to the workers that need them; `reveal` is called only where a
client is created.

`secret("env:NAME")` and `secret("file:/path")` are references: only the reference is pickled, and each process that creates a client reads
the value.
"""

from __future__ import annotations

import hmac
import os
import re
from pathlib import Path
from typing import Any

from kstreams_repl.system.errors import ConfigError

MASK = "********"


_LITERAL = re.compile(
    r"""(?ix)
    ([\w.-]* (?:password|secret|private|jaas|token|key\.pem|user\.info|user_info|credential) [\w.-]* ["']? \s*[:=,]\s* [rbuf]{0,2})
    ("{3}.*?"{3} | '{3}.*?'{3} | "(?:[^"\\]|\\.)*"? | '(?:[^'\\]|\\.)*'?)
    """
)


def without_secrets(line: str) -> str:
    """Return a line of source text with the literals of settings that are secret by their name masked.

    Example:
        >>> without_secrets('connect("broker:9092", sasl_password="hunter2")')
        'connect("broker:9092", sasl_password="********")'
    """
    return _LITERAL.sub(lambda found: f'{found[1]}{found[2][0]}{MASK}{found[2][0]}', line)


class Secret:
    """A string that is displayed as ``********``.

    Example:
        >>> Secret("hunter2")
        Secret(********)
        >>> f"{Secret('hunter2')}"
        '********'
    """

    __slots__ = ("_text",)

    def __init__(self, text: str | Secret) -> None:
        self._text: str = text.reveal() if isinstance(text, Secret) else text

    def reveal(self) -> str:
        """Return the value itself, for the client that needs it."""
        return self._text

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    def __str__(self) -> str:
        return MASK

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        return Secret, (self._text,)


class SecretReference(Secret):
    """A setting stored elsewhere; created by `secret`. Its value is never pickled, stored or shown, its location is."""

    __slots__ = ()

    @property
    def source(self) -> str:
        """``env:NAME`` or ``file:/path``."""
        return self._text

    def reveal(self) -> str:
        """Read the value in this process, now.

        Raises:
            ConfigError: the variable is not set, or the file cannot be read.

        Example:
            >>> import os
            >>> import kstreams_repl as ks
            >>> os.environ["EXAMPLE_PASSWORD"] = "hunter2"
            >>> ks.secret("env:EXAMPLE_PASSWORD").reveal()
            'hunter2'
            >>> del os.environ["EXAMPLE_PASSWORD"]
        """
        kind, _, where = self._text.partition(":")
        if kind == "env":
            found = os.environ.get(where)
            if found is None:
                raise ConfigError(
                    f"the secret {self._text} is not set in process {os.getpid()}",
                    hint=f"set the environment variable {where} before Spark and its workers start, or store the secret in a file: "
                    "secret('file:/path'), which each new client reads again",
                    key=self._text,
                )
            return found
        try:
            return Path(where).expanduser().read_text().removesuffix("\n").removesuffix("\r")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"the secret {self._text} cannot be read: {getattr(error, 'strerror', None) or error}",
                hint="the file must exist on every machine that connects and be readable by the user that runs the processes",
                key=self._text,
            ) from error

    def __repr__(self) -> str:
        return f"secret({self._text!r})"

    def __str__(self) -> str:
        return f"secret({self._text!r})"

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return secret, (self._text,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SecretReference) and other._text == self._text

    def __hash__(self) -> int:
        return hash((SecretReference, self._text))


def secret(source: str) -> SecretReference:
    """Return a reference to a client setting that is read where it is needed and never written to a notebook, file, log or topic.

    Args:
        source: ``env:NAME``, an environment variable of each process that connects (this one and Spark's workers, which inherit the
            environment that Spark was started with); or ``file:/path``, a file on each machine that connects; one trailing newline is
            removed. The value is read each time a client is created.

    Raises:
        ConfigError: ``source`` has neither form.

    Example:
        >>> secret("env:KAFKA_PASSWORD")
        secret('env:KAFKA_PASSWORD')
        >>> session = kstreams_repl.connect("broker:9093", sasl_password=secret("env:KAFKA_PASSWORD"))   # doctest: +SKIP
    """
    kind, _, where = str(source).partition(":")
    if kind not in ("env", "file") or not where or "\x00" in where:
        raise ConfigError(  # without the given text, which may be the secret itself
            "expected the location of a secret: secret('env:NAME') or secret('file:/path')", hint="do not write the secret itself into code"
        )
    return SecretReference(str(source))


def to_plain(value: object) -> object:
    """Return a setting for a process of this user on this machine: secrets in clear text, references unchanged."""
    if isinstance(value, SecretReference):
        return {"secret": value.source}
    return value.reveal() if isinstance(value, Secret) else value


def from_plain(value: object) -> object:
    """Return the value that was given to `to_plain`, with references as `SecretReference`."""
    return secret(value["secret"]) if isinstance(value, dict) else value
