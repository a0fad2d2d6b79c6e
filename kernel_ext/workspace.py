"""What the magics talk about: the session, and topologies by the names people gave them."""

from __future__ import annotations

from typing import Any

from IPython.core.error import UsageError

from kstreams_repl.dsl.build_log import Handle
from kstreams_repl.dsl.builder import StreamsBuilder
from kstreams_repl.errors import did_you_mean
from kstreams_repl.session import Application, Session, connect, current_session
from kstreams_repl.session.topologies import builder_of
from kstreams_repl.topology.topology import Topology


class Workspace:
    """The current session and the topologies of one shell: builders made by ``%%topo``, and the user's variables."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.builders: dict[str, StreamsBuilder] = {}

    @property
    def current(self) -> Session | None:
        """The session that was connected last; the user's own variable ``session`` goes first."""
        own = self.shell.user_ns.get("session")
        session = own if isinstance(own, Session) and not own.closed else current_session()
        if session is not None:
            session.variables = self.shell.user_ns
        return session

    @property
    def session(self) -> Session:
        """The current session; one with an embedded broker when there is none."""
        return self.current or self.connect()

    def connect(self, bootstrap_servers: str | None = None, **options: Any) -> Session:
        """Connect, and put the session into the user's variables."""
        session = connect(bootstrap_servers, report=print, **options)
        session.variables = self.shell.user_ns
        self.shell.user_ns["session"] = session
        return session

    def builder(self, name: str) -> StreamsBuilder:
        """The builder of that name, a new one when there is none."""
        own = self.shell.user_ns.get(name)
        if isinstance(own, StreamsBuilder):
            return own
        return self.builders.setdefault(name, StreamsBuilder())

    def names(self) -> list[str]:
        """Everything `find` finds."""
        variables = [
            name
            for name, value in self.shell.user_ns.items()
            if not name.startswith("_") and isinstance(value, StreamsBuilder | Topology | Application)
        ]
        running = [] if self.current is None else list(self.current.applications)
        return list(dict.fromkeys([*running, *self.builders, *variables]))

    def find(self, name: str) -> Any:
        """An application, builder, topology, stream or table by name.

        Raises:
            UsageError: there is none.
        """
        session = self.current
        if session is not None and name in session.applications:
            return session.applications[name]
        if name in self.builders:
            return self.builders[name]
        value = self.shell.user_ns.get(name)
        if isinstance(value, Topology | Application | Handle):
            return value
        raise self._unknown("topology or application", name, self.names())

    def source(self, name: str) -> Any:
        """What can be deployed under that name: a builder, topology, stream or table; not the application itself."""
        for value in (self.builders.get(name), self.shell.user_ns.get(name)):
            if isinstance(value, Topology | Handle):
                return value
        running = {} if self.current is None else self.current.applications
        raise self._unknown("builder or topology", name, [known for known in self.names() if known not in running])

    def expression(self, name: str) -> str:
        """Python for what `source` gives, in the terms of `session.program`."""
        return f"__builders__[{name!r}]" if name in self.builders else name

    def definition(self, app: Application, name: str) -> tuple[Handle, StreamsBuilder, str | None]:
        """(what the application was deployed with, its builder, Python for the builder: None when no variable holds it).

        Raises:
            UsageError: the notebook has no builder of it.
        """
        found = app.definition if isinstance(app.definition, Handle) else None
        for value in (found, self.builders.get(name), self.shell.user_ns.get(name)):
            if isinstance(value, Handle):
                for known, builder in self.builders.items():
                    if builder._log is value._log:
                        return value, builder, self.expression(known)
                for variable, builder in self.shell.user_ns.items():
                    if isinstance(builder, StreamsBuilder) and builder._log is value._log and not variable.startswith("_"):
                        return value, builder, variable
                return value, builder_of(value), None
        raise UsageError(f"no builder of {name} in this notebook; run the cells that make it, then session.attach({app.name!r}, builder)")

    def application(self, name: str) -> Application:
        """An application by name, or by the variable that holds it.

        Raises:
            UsageError: there is none.
        """
        session = self.current
        known = {} if session is None else session.applications
        if name in known:
            return known[name]
        value = self.shell.user_ns.get(name)
        if isinstance(value, Application):
            return value
        raise self._unknown("application", name, list(known))

    def _unknown(self, what: str, name: str, known: list[str]) -> UsageError:
        listed = f"there are {', '.join(known)}" if known else "there is none yet"
        return UsageError(f"no {what} {name!r}; {did_you_mean(name, known) or listed}")
