"""Put the application, instance and task that a log line is about into the line, for the loggers of this package.

    kstreams_repl.repl.session   what a notebook asks for        kstreams_repl.host.spark     an application, in the driver
    kstreams_repl.host.instance  instances and their tasks       kstreams_repl.host.kafka     topics and the journal

A line reads ``orders[0] 0_1: created -> running (...)`` (application, instance, task), and its record has the attributes ``application``,
``instance`` and ``task``, None where they do not apply. What a thread works at is set with `about`; a single line may say it
by ``extra={"task": "0_1"}``. There is no line per record: see the tests.
"""

from __future__ import annotations

import contextvars
import json
import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import TextIO

LOGGERS = ("kstreams_repl.host.instance", "kstreams_repl.host.kafka", "kstreams_repl.repl.session", "kstreams_repl.host.spark")
OFF = "OFF"
LEVELS = (OFF, "ERROR", "WARNING", "INFO", "DEBUG")
FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"
_ABOUT: contextvars.ContextVar[tuple[str | None, int | None]] = contextvars.ContextVar("kstreams_repl_about", default=(None, None))


class _Context(logging.Filter):
    """Adds the attributes and the prefix; lets every record pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        application, instance = _ABOUT.get()
        fields = vars(record)
        application = fields.setdefault("application", application)
        instance = fields.setdefault("instance", instance)
        task = fields.setdefault("task", None)
        prefix = f"{application or ''}{'' if instance is None else f'[{instance}]'}{'' if task is None else f' {task}'}".strip()
        if prefix and not fields.setdefault("about", ""):
            record.about = prefix
            prefix = prefix.replace("%", "%%") if record.args else prefix
            record.msg = f"{prefix}: {record.msg}"
        return True


def about(application: str, instance: int | None = None) -> None:
    """Say what the lines of this thread are about from now on."""
    _ABOUT.set((application, instance))


def carried(target: Callable[..., object]) -> Callable[..., object]:
    """Return a thread's target whose lines are about the same as those of the thread that starts it."""
    return partial(contextvars.copy_context().run, target)


class JsonLines(logging.Formatter):
    """One JSON object a line: time (UTC), level, logger, message; application, instance and task where they apply; error with its trace."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **{name: value for name in ("application", "instance", "task") if (value := getattr(record, name, None)) is not None},
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def write_to_stderr(level: str, *, as_json: bool = False) -> None:
    """Write the lines of a level and above to this process's stderr, which Spark keeps for its workers; called again, replace that.

    They go there only: a library that calls `logging.basicConfig` would double each. `OFF` gives them back to the root logger.

    Args:
        level: one of `LEVELS`.
    """
    package = logging.getLogger("kstreams_repl")
    for handler in [handler for handler in package.handlers if isinstance(handler, _StderrHandler)]:
        package.removeHandler(handler)
    package.propagate = level == OFF
    if level == OFF:
        package.setLevel(logging.NOTSET)
        return
    handler = _StderrHandler(sys.stderr)
    handler.setFormatter(JsonLines() if as_json else logging.Formatter(FORMAT))
    package.addHandler(handler)
    package.setLevel(level)


class _StderrHandler(logging.StreamHandler[TextIO]):
    """A filter of this package, as opposed to a filter that a user adds."""


for _name in LOGGERS:
    logging.getLogger(_name).addFilter(_Context())
