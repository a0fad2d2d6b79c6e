"""The commands by name: a description of each, and the module from which it is imported on request."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from types import ModuleType

import click

from kstreams_repl.cli.checkout import require_checkout


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command that is not imported yet: the module and attribute of its click command, and its line in ``--help``."""

    module: str
    attribute: str
    summary: str

    def load(self) -> click.Command:
        """Import the command.

        Raises:
            KStreamsError: the command is for developers of the project, and this package was installed without a checkout.
            TypeError: the attribute is not a click command (a defect of this package).
        """
        try:
            command = getattr(importlib.import_module(self.module), self.attribute, None)
        except ModuleNotFoundError as error:
            if error.name != self.module:
                raise
            require_checkout(f"kstreams {self.module.rpartition('.')[2]}")
            raise
        if command is None or isinstance(command, ModuleType):  # a package may define its command in a module of that name
            command = getattr(importlib.import_module(f"{self.module}.{self.attribute}"), self.attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{self.module}.{self.attribute} is not a click command: {command!r}")
        return command


COMMANDS: dict[str, CommandEntry] = {
    "demo": CommandEntry("kstreams_repl.demo", "main", "Run the flights of 2013 through Kafka and Spark, and check the results."),
    "tutorial": CommandEntry("kstreams_repl.cli.tutorial", "main", "Learn it in 45 minutes: a notebook whose steps check themselves."),
    "lab": CommandEntry("kstreams_repl.cli.lab", "main", "Open JupyterLab on the example notebooks."),
    "repl": CommandEntry("kernel_ext.terminal", "main", "Open a terminal REPL (IPython) with the same magics and API."),
    "run": CommandEntry("kstreams_repl.cli.run", "main", "Run a topology of a module: as a stream, or as a bounded run that ends."),
    "plan": CommandEntry("kstreams_repl.cli.plan", "main", "Show what a run would change, without changing anything."),
    "compare": CommandEntry("kstreams_repl.cli.compare", "main", "Show which rows a changed topology would write otherwise, and why."),
    "reset": CommandEntry("kstreams_repl.cli.reset", "main", "Reset an application: offsets, internal topics, local state, stop offsets."),
    "test": CommandEntry("workshop.commands.test", "main", "Run the checks and tests of this checkout."),
    "docs": CommandEntry("workshop.commands.docs", "main", "Build the documentation as a site."),
    "licences": CommandEntry("workshop.commands.licences", "main", "List the licences of all dependencies; refuse unknown ones."),
    "doctor": CommandEntry("kstreams_repl.cli.doctor", "main", "Check this machine, with a fix for each missing item."),
    "prepare": CommandEntry("kstreams_repl.cli.prepare", "main", "Download jars and write class archives: faster first starts."),
    "bench": CommandEntry("workshop.bench", "main", "Run a benchmark; one JSON line per measurement."),
    "conformance": CommandEntry(
        "workshop.conformance", "main", "Run case files whose results Kafka Streams on the JVM produced."
    ),
    "compact": CommandEntry("kstreams_repl.cli.compact", "main", "Rewrite small data files of a table as few large ones."),
    "serve": CommandEntry("kstreams_repl.cli.serve", "main", "Serve the state of a deployed application over HTTP."),
    "broker": CommandEntry("kstreams_repl.cli.broker", "main", "Start, stop or fetch the embedded Kafka broker."),
    "apps": CommandEntry("kstreams_repl.cli.apps", "main", "List, look at and stop applications that run without a notebook."),
}
