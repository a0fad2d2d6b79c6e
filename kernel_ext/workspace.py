"""Resolves the names used in magics: the session, and topologies, applications, streams and tables by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from kstreams_repl.engine.dsl.builder import StreamsBuilder, builder_of
from kstreams_repl.engine.dsl.graph.call_log import Handle
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.repl.session import Application, Session, connect, current_session
from kstreams_repl.repl.session.left_applications import LeftApplication, left_applications
from kstreams_repl.repl.session.session_directory import PROJECT
from kstreams_repl.system.errors import did_you_mean

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


class Workspace:
    """The current session and the topologies of one shell: builders made by ``%%topo``, and the user's variables."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell = shell
        self.builders: dict[str, StreamsBuilder] = {}

    @property
    def current(self) -> Session | None:
        """Return the session that was connected last; the user's own variable ``session`` takes precedence."""
        own = self.shell.user_ns.get("session")
        session = own if isinstance(own, Session) and not own.closed else current_session()
        if session is not None:
            session.variables = self.shell.user_ns
        return session

    @property
    def session(self) -> Session:
        """Return the current session, or connect one with an embedded broker."""
        return self.current or self.connect()

    def connect(self, bootstrap_servers: str | None = None, **options: Any) -> Session:
        """Connect, and assign the session to the user's variable ``session``."""
        session = connect(bootstrap_servers, report=print, **options)
        session.variables = self.shell.user_ns
        self.shell.user_ns["session"] = session
        return session

    def builder(self, name: str) -> StreamsBuilder:
        """Return the builder of that name, or a new one."""
        own = self.shell.user_ns.get(name)
        if isinstance(own, StreamsBuilder):
            return own
        return self.builders.setdefault(name, StreamsBuilder())

    @property
    def left(self) -> tuple[LeftApplication, ...]:
        """Return the applications in the session's directory that are not attached; without a session, those of ``.kstreams``
        here."""
        if self.current is not None:
            return self.current.applications.left
        return left_applications(Path.cwd() / PROJECT / "state")

    def names(self) -> list[str]:
        """Return all names that `find` can resolve."""
        variables = [
            name
            for name, value in self.shell.user_ns.items()
            if not name.startswith("_") and isinstance(value, StreamsBuilder | Topology | Application)
        ]
        running = [] if self.current is None else list(self.current.applications)
        return list(dict.fromkeys([*running, *self.builders, *variables]))

    def find(self, name: str) -> StreamsBuilder | Topology | Application | Handle:
        """Return an application, builder, topology, stream or table by name.

        Raises:
            UsageError: nothing has that name.
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

    def source(self, name: str) -> Topology | Handle:
        """Return what can be deployed under that name: a builder, topology, stream or table; not the application itself."""
        for value in (self.builders.get(name), self.shell.user_ns.get(name)):
            if isinstance(value, Topology | Handle):
                return value
        running = {} if self.current is None else self.current.applications
        raise self._unknown("builder or topology", name, [known for known in self.names() if known not in running])

    def expression(self, name: str) -> str:
        """Return a Python expression for the result of `source`, for `session.program`."""
        return f"__builders__[{name!r}]" if name in self.builders else name

    def definition(self, app: Application, name: str) -> tuple[Handle, StreamsBuilder, str | None]:
        """Return (what the application was deployed with, its builder, Python for the builder or None if no variable holds it).

        Raises:
            UsageError: the notebook has no builder of this application.
        """
        for value in (app._core.definition, self.builders.get(name), self.shell.user_ns.get(name)):
            if isinstance(value, Handle):
                for known, builder in self.builders.items():
                    if builder._log is value._log:
                        return value, builder, self.expression(known)
                for variable, builder in self.shell.user_ns.items():
                    if isinstance(builder, StreamsBuilder) and builder._log is value._log and not variable.startswith("_"):
                        return value, builder, variable
                return value, builder_of(value), None
        raise UsageError(f"no builder of {name} in this notebook; run the cells that define it, then session.attach({app.name!r}, builder)")

    def application(self, name: str) -> Application:
        """Return an application by its name, or by the name of a variable that holds it.

        Raises:
            UsageError: nothing has that name.
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
        left = next((left for left in self.left if left.name == name), None)
        if left is not None:
            first = "" if self.current is not None else "session = kstreams_repl.connect(), then "
            return UsageError(f"{name} is {left.standing}; {first}session.attach({name!r}) attaches it")
        listed = f"there are {', '.join(known)}" if known else "none is defined yet"
        return UsageError(f"no {what} {name!r}; {did_you_mean(name, known) or listed}")
