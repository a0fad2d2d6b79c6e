"""``%topo_run_batch`` and ``%topo_reset``: bounded runs of an application, and its reset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments

from kernel_ext.magics.arguments import arguments, setting
from kernel_ext.workspace import Workspace
from kstreams_repl.repl.session.application.batch.batch_report import BatchReport
from kstreams_repl.repl.session.reset import Reset
from kstreams_repl.repl.session.source.source_slice import deployed_as

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


@magics_class
class BatchMagics(Magics):
    """Thin calls of `kstreams_repl.Session`."""

    def __init__(self, shell: InteractiveShell, workspace: Workspace) -> None:
        super().__init__(shell)
        self._workspace = workspace

    @magic_arguments()
    @argument("name", help="a builder, topology or stream: a variable, or the name given to %%%%topo")
    @argument("application", nargs="?", help="the application id; default: the name")
    @argument("--stop-at", default="eol", help="eol, a time, or records:N; default: the present end of the input")
    @argument("--on-end", choices=("keep", "close_windows"), default="keep", help="what becomes of open windows; default: keep")
    @argument("--create-topics", action="store_true", help="create missing output topics")
    @argument(
        "-c", "--config", action="append", default=[], metavar="KEY=VALUE", help="a setting by its Kafka Streams name; repeatable"
    )
    @line_magic
    def topo_run_batch(self, line: str) -> BatchReport | None:
        """`session.run_batch(topology, name, ...)`; returns the report when the run has ended."""
        given = arguments(self.topo_run_batch, line)
        settings = dict(map(setting, given.config))
        topology, name = self._workspace.source(given.name), given.application or given.name
        with deployed_as(self._workspace.expression(given.name)):
            options = {
                "stop_at": given.stop_at, "on_end": given.on_end, "config": settings, "create_topics": given.create_topics,
            }  # fmt: skip
            return self._workspace.session.run_batch(topology, name, **options).batch_report

    @magic_arguments()
    @argument("name", help="the application")
    @argument("--input-topics", help="comma separated; default: all that it has offsets of")
    @argument("--to", help="earliest (the default), latest, or a time")
    @argument("--to-offset", type=int, help="begin at this offset in each partition")
    @argument("--shift-by", type=int, help="move each offset by so many, forward or (negative) back")
    @argument("--delete-stopoffsets", action="store_true", help="drop the stop offsets of an open bounded run; alone only that")
    @argument("--dry-run", action="store_true", help="only list what would change")
    @line_magic
    def topo_reset(self, line: str) -> Reset:
        """`session.reset(name)`: let an application begin again with empty state."""
        given = arguments(self.topo_reset, line)
        if given.to is not None and given.to_offset is not None:
            raise UsageError("%topo_reset: expected --to or --to-offset, got both")
        return self._workspace.session.reset(
            given.name,
            input_topics=None if given.input_topics is None else given.input_topics.split(","),
            to=given.to if given.to_offset is None else given.to_offset,
            shift_by=given.shift_by,
            delete_stop_offsets=given.delete_stopoffsets,
            dry_run=given.dry_run,
        )
