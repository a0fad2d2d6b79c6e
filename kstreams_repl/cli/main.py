"""The root command, which also turns errors into exit codes.

Exit codes: 0 success, 1 failed with a typed error (one line and a hint; the traceback only with ``--debug``), 2 wrong usage, 130
interrupted. An exception that is not a `KStreamsError` is a defect of this package and shows its traceback.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Sequence

import click

from kstreams_repl import __version__
from kstreams_repl.cli.checkout import compile_sources
from kstreams_repl.cli.registry import COMMANDS
from kstreams_repl.pictures.markup import clean_text
from kstreams_repl.system.errors import KStreamsError, did_you_mean
from kstreams_repl.system.extras import missing

INTERRUPTED = 130


class LazyGroup(click.Group):
    """A group that imports a command only when it is run, so that ``./kstreams`` starts quickly."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        return entry.load() if entry else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            hint = did_you_mean(args[0], COMMANDS) or f"one of {', '.join(COMMANDS)}"
            ctx.fail(f"No such command {args[0]!r}.\nHint: {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, envvar="KSTREAMS_DEBUG", help="Show the traceback of an error.")
@click.version_option(__version__, prog_name="kstreams")
def root(debug: bool) -> None:
    """Kafka Streams topologies in Python, run on Spark and queried with DuckDB.

    `./kstreams demo` shows everything in two minutes.
    """


def describe_error(error: KStreamsError) -> str:
    """Return the lines that the user sees: ``Error: ...`` and, if the error has them, ``Hint: ...`` and ``See: ...``."""
    return "\n".join(map(clean_text, [f"Error: {error.message}", *error.advice]))


def wants_traceback(arguments: Sequence[str]) -> bool:
    """Return whether ``--debug`` is given before the command, or ``KSTREAMS_DEBUG`` is set to anything but 0."""
    for argument in arguments:
        if not argument.startswith("-"):
            break
        if argument == "--debug":
            return True
    return os.environ.get("KSTREAMS_DEBUG", "").lower() not in ("", "0", "false", "no")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (default: the process's own) and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    compile_sources()
    try:
        result = root.main(given, prog_name="kstreams", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except KStreamsError as error:
        if wants_traceback(given):
            traceback.print_exception(error)
        click.echo(describe_error(error), err=True)
        return 1
    except ModuleNotFoundError as error:
        missing_package = missing(error)
        if missing_package is None:
            raise
        if wants_traceback(given):
            traceback.print_exception(error)
        click.echo(describe_error(missing_package), err=True)
        return 1
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe (`| head`) has ended: not an error, and there is no one to report to
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
