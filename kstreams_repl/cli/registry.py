"""The commands by name: what each does, and the module it is imported from once it is asked for."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from types import ModuleType

import click


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command not yet imported: the module and attribute that hold its click command, and its line in ``--help``."""

    module: str
    attribute: str
    summary: str

    def load(self) -> click.Command:
        """Imports the command.

        Raises:
            TypeError: what is there is no click command (an error of ours, never of the user).
        """
        command = getattr(importlib.import_module(self.module), self.attribute, None)
        if command is None or isinstance(command, ModuleType):  # a package may keep its command in a module of that name
            command = getattr(importlib.import_module(f"{self.module}.{self.attribute}"), self.attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{self.module}.{self.attribute} is no click command but {command!r}")
        return command


COMMANDS: dict[str, CommandEntry] = {
    "demo": CommandEntry("kstreams_repl.demo", "main", "The main job: the flights of 2013 through Kafka and Spark, checked."),
    "lab": CommandEntry("kstreams_repl.cli.lab", "main", "Open JupyterLab on the example notebooks."),
    "repl": CommandEntry("kernel_ext.terminal", "main", "A terminal REPL (IPython) with the same magics and API."),
    "test": CommandEntry("kstreams_repl.cli.test", "main", "Run the checks and tests of this checkout."),
    "doctor": CommandEntry("kstreams_repl.cli.doctor", "main", "Show what this machine has, with a fix beside each miss."),
    "bench": CommandEntry("kstreams_repl.bench", "main", "Run a benchmark; one JSON line per measurement."),
    "conformance": CommandEntry(
        "kstreams_repl.testing.conformance", "main", "Run case files whose results Kafka Streams on the JVM produced."
    ),
    "broker": CommandEntry("kstreams_repl.cli.broker", "main", "Start, stop or fetch the embedded Kafka broker."),
    "detached": CommandEntry("kstreams_repl.cli.detached", "main", "List and stop applications that run without a notebook."),
}
