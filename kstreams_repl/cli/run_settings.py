"""Settings of ``./kstreams run`` and ``plan``: from a file, then the environment, then flags; a later one overrides an earlier one.

The file is a properties file, as those of Kafka: ``key=value`` lines, ``#`` comments, ``\\`` at the end of a line that goes on. An
environment variable is ``KSTREAMS_CONFIG_`` and the key in capitals with ``_`` for ``.``: ``KSTREAMS_CONFIG_PROCESSING_GUARANTEE``.
A value ``${env:NAME}`` or ``${file:/path}`` is a secret that each process reads where it is (`kstreams_repl.secret`).
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kstreams_repl.engine.config import StreamsConfig, shown_address
from kstreams_repl.host.kafka.clients import is_secret_name
from kstreams_repl.system.errors import ConfigError
from kstreams_repl.system.secrets import MASK, Secret, secret

VARIABLE = "KSTREAMS_CONFIG_"
COMMAND_KEYS = ("application.id", "bootstrap.servers", "spark.master", "repl.directory", "repl.http")
"""What the command itself takes; each has a flag."""
_CONNECTION = ("security.", "sasl.", "ssl.")
_REFERENCE = re.compile(r"\$\{((?:env|file):[^}]+)\}")


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What was given, validated.

    Attributes:
        command: the values of `COMMAND_KEYS` that were given.
        application: settings of the application.
        client: settings with which every client connects.
        spark: settings of Spark, its master included.
        origins: where each key was given last.
    """

    command: Mapping[str, str]
    application: Mapping[str, Any]
    client: Mapping[str, Any]
    spark: Mapping[str, str]
    origins: Mapping[str, str] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """Return one line for each setting, with where it was given; secrets masked."""
        given: dict[str, object] = {**self.command, **self.application, **self.client, **self.spark}
        return [f"{key} = {_shown(key, given[key])}  ({self.origins[key]})" for key in sorted(given)]


def gather(file: Path | None, environment: Mapping[str, str], flags: Sequence[str], command: Mapping[str, str | None]) -> RunSettings:
    """Return the settings of a run.

    Args:
        flags: texts ``KEY=VALUE``.
        command: values of flags by `COMMAND_KEYS`; None: not given.

    Raises:
        ConfigError: an unknown key, a value that it does not take, or a file that cannot be read.
    """
    given: dict[str, str] = {}
    origins: dict[str, str] = {}

    def take(more: Mapping[str, str], origin: str) -> None:
        given.update(more)
        origins.update(dict.fromkeys(more, origin))

    if file is not None:
        take(_properties(file), str(file))
    for name in sorted(environment):
        if name.startswith(VARIABLE):
            take({name.removeprefix(VARIABLE).lower().replace("_", "."): environment[name]}, name)
    take(pairs(flags), "--config")
    take({key: value for key, value in command.items() if value is not None}, "flag")
    spark = {key: text for key, text in given.items() if key.startswith("spark.")}
    rest: dict[str, object] = {key: _value(text) for key, text in given.items() if key not in COMMAND_KEYS and key not in spark}
    StreamsConfig({key: MASK if isinstance(value, Secret) else value for key, value in rest.items()})
    return RunSettings(
        {key: given[key] for key in COMMAND_KEYS if key in given},
        {key: value for key, value in rest.items() if not key.startswith(_CONNECTION)},
        {key: value for key, value in rest.items() if key.startswith(_CONNECTION)},
        spark,
        origins,
    )


def pairs(texts: Sequence[str]) -> dict[str, str]:
    """Return the settings of texts ``KEY=VALUE``.

    Raises:
        ConfigError: a text without ``=``.
    """
    lacking = [text for text in texts if "=" not in text]
    if lacking:
        raise ConfigError(f"expected KEY=VALUE, got {lacking[0]!r}", hint="--config processing.guarantee=exactly_once_v2")
    return {key: value for key, _, value in (text.partition("=") for text in texts)}


def _properties(path: Path) -> dict[str, str]:
    parser = configparser.RawConfigParser(delimiters=("=", ":"), comment_prefixes=("#", "!"), empty_lines_in_values=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # keys as they are written
    try:
        text = path.read_text(encoding="utf-8")
        parser.read_string("[settings]\n" + re.sub(r"\\\n\s*", "", text), str(path))
    except OSError as error:
        raise ConfigError(f"the settings in {path} cannot be read: {error.strerror or error}", path=str(path)) from error
    except (configparser.Error, UnicodeDecodeError) as error:
        first = str(error).partition("\n")[0]
        raise ConfigError(f"{path} is not a properties file: {first}", hint="one key=value a line", path=str(path)) from error
    return dict(parser["settings"])


def _value(text: str) -> object:
    reference = _REFERENCE.fullmatch(text.strip())
    return text if reference is None else secret(reference[1])


def _shown(key: str, value: object) -> str:
    if isinstance(value, Secret):
        return str(value)
    return MASK if is_secret_name(key) else shown_address(str(value)) if "://" in str(value) else str(value)
