"""``%topo_fork``, ``%topo_promote`` and ``%topo_drop``: a change that runs beside the application."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments

from kernel_ext.magics.arguments import arguments
from kernel_ext.workspace import Workspace
from kstreams_repl.repl.session.application.edits.edit import EditPlan
from kstreams_repl.repl.session.application.forks.fork import Fork
from kstreams_repl.repl.session.application.forks.fork_plan import ForkPlan
from kstreams_repl.repl.session.source.source_slice import deployed_as

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


@magics_class
class ForkMagics(Magics):
    """Thin calls of `kstreams_repl.Application.fork` and of what it returns."""

    def __init__(self, shell: InteractiveShell, workspace: Workspace) -> None:
        super().__init__(shell)
        self._workspace = workspace

    @magic_arguments()
    @argument("application", help="the application")
    @argument("name", help="name of the fork")
    @argument("topology", nargs="?", help="the changed builder or topology; default: the application's, as its cells are now")
    @argument("--dry-run", action="store_true", help="show what it would write, leave out, and begin with; make nothing")
    @argument("--allow", action="append", default=[], metavar="NODE", help="a node whose effect is not left out; repeatable")
    @line_magic
    def topo_fork(self, line: str) -> Fork | ForkPlan:
        """`app.fork(name, topology)`: run a changed topology beside the application, on its input and from a copy of its state."""
        given = arguments(self.topo_fork, line)
        app, name = self._workspace.application(given.application), given.topology or given.application
        with deployed_as(self._workspace.expression(name)):
            source = self._workspace.source(name)
            if given.dry_run:
                return app.fork(given.name, source, allow=given.allow, dry_run=True)
            return app.fork(given.name, source, allow=given.allow)

    @magic_arguments()
    @argument("fork", help="APPLICATION.FORK")
    @argument(
        "--emit", choices=("from-now", "diff"), default="from-now", help="whether readers get corrections, too; default: from-now"
    )
    @argument("--timeout", type=float, default=60.0, help="seconds to wait until both are at the same offsets; default: 60")
    @line_magic
    def topo_promote(self, line: str) -> EditPlan:
        """`fork.promote()`: make the fork the application, in one transaction."""
        given = arguments(self.topo_promote, line)
        return self._fork(given.fork).promote(given.emit, timeout=given.timeout)

    @magic_arguments()
    @argument("fork", help="APPLICATION.FORK")
    @line_magic
    def topo_drop(self, line: str) -> None:
        """`fork.drop()`: stop the fork and delete all of it; dropping twice does nothing."""
        fork = self._fork(arguments(self.topo_drop, line).fork)
        fork.drop()
        print(f"{fork.id}: dropped")

    def _fork(self, name: str) -> Fork:
        forks = self._workspace.session.forks
        found = [fork for fork in forks.values() if name in (fork.id, fork.name)]
        if len(found) != 1:
            known = ", ".join(forks) or "none: %topo_fork APPLICATION NAME makes one"
            raise UsageError(f"expected a fork, got {name!r}; the forks are {known}")
        return found[0]
