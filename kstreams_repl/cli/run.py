"""``./kstreams run MODULE:NAME``: run a topology of a module, as a stream until Ctrl-C, or as a bounded run that ends (``--batch``).

Exit status of a bounded run, for cron and schedulers: 0 done, also when there was nothing new (the output says so) · 1 failed, safe
to run again: it goes on from its last commit to the same stop offsets · 2 refused, nothing was started: the command, the settings, the
topology or the application's state must change first · 130 interrupted, as 1.
"""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import click

from kstreams_repl.system.errors import (
    ConfigError,
    DeployError,
    KStreamsError,
    SessionFileError,
    TopologyError,
    UnknownTopicError,
    did_you_mean,
)
from kstreams_repl.system.types import JsonMapping

FAILED, REFUSED = 1, 2
_REFUSALS = (ConfigError, TopologyError, UnknownTopicError, DeployError, SessionFileError)


@click.command()
@click.argument("topology", metavar="MODULE:NAME")
@click.option("--name", help="The application.id; default: NAME.")
@click.option("--broker", help="host:port; without it an embedded Kafka.")
@click.option("--spark", help="A Spark master; without it local Spark.")
@click.option("--directory", help="Where state is kept; default: .kstreams here.")
@click.option("--config", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of the application; repeatable.")
@click.option("--batch", is_flag=True, help="Run up to the present end of the input, and end.")
@click.option("--stop-at", default="eol", show_default=True, help="Of --batch: eol, a time, records:N, {topic: {partition: offset}}.")
@click.option(
    "--on-end", type=click.Choice(["keep", "close_windows"]), default="keep", show_default=True,
    help="Of --batch: keep open windows for the next run, or close and emit them.",
)  # fmt: skip
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), help="Of --batch: write what it did to this file, as JSON.")
@click.option("--create-topics", is_flag=True, help="Create topics that the topology only writes.")
def main(
    topology: str,
    name: str | None,
    broker: str | None,
    spark: str | None,
    directory: str | None,
    settings: tuple[str, ...],
    batch: bool,
    stop_at: str,
    on_end: str,
    report: Path | None,
    create_topics: bool,
) -> int:
    """Run the topology that MODULE:NAME names: a builder, a stream or table, a topology, or a function that returns one."""
    application = name or topology.rpartition(":")[2]
    if batch:
        return batch_run(
            lambda: load(topology), application, settings, report, broker=broker, spark=spark, directory=directory, stop_at=stop_at,
            on_end=on_end, create_topics=create_topics, within=lambda: from_module(topology),
        )  # fmt: skip
    try:
        thing, config = load(topology), _settings(settings)
    except KStreamsError as error:
        return _ended(REFUSED, application, error, report)
    try:
        session = _connected(broker, spark, directory)
    except KStreamsError as error:
        return _ended(FAILED, application, error, report)
    with session, from_module(topology):
        app = session.deploy(thing, application, config=config, create_topics=create_topics)
        try:
            app.wait(until=lambda app: False)
        except KeyboardInterrupt:
            app.pause()
        click.echo(repr(app))
        return 0


def batch_run(
    topology: Callable[[], object],
    name: str,
    settings: Sequence[str],
    report: str | Path | None = None,
    *,
    defaults: Mapping[str, Any] | None = None,
    broker: str | None = None,
    spark: str | None = None,
    directory: str | None = None,
    stop_at: str = "eol",
    on_end: str = "keep",
    create_topics: bool = False,
    within: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> int:
    """Make a bounded run, print and write its report, and return the exit status; also the command of an exported application.

    Args:
        topology: returns what to run; called before a connection is made.
        settings: texts ``KEY=VALUE``, added to the defaults.
        report: file to write; also after a failure.
        within: returns a context in which the run is made.
    """
    try:
        thing, config = topology(), {**(defaults or {}), **_settings(settings)}
    except KStreamsError as error:
        return _ended(REFUSED, name, error, report)
    except Exception as error:  # the user's module
        traceback.print_exc()
        failed = TopologyError(f"the topology cannot be made: {type(error).__name__}: {error}", hint="the traceback shows the line")
        return _ended(REFUSED, name, failed, report)
    try:
        session = _connected(broker, spark, directory, prestart=False)  # a run without new input does not need Spark
    except KStreamsError as error:
        return _ended(FAILED, name, error, report)
    with session, within():
        given = {"stop_at": stop_at, "on_end": on_end, "create_topics": create_topics}
        return _batch_status(session, lambda: session.run_batch(thing, name, config=config, **given), name, report)


def _connected(broker: str | None, spark: str | None, directory: str | None, *, prestart: bool | None = None) -> Any:
    from kstreams_repl import connect

    return connect(broker, spark=spark, directory=directory, prestart=prestart)


def _batch_status(session: Any, run: Callable[[], Any], name: str, report: str | Path | None) -> int:
    try:
        app = run()
    except KStreamsError as error:
        started = session.applications.get(name)
        refused = isinstance(error, _REFUSALS) and (started is None or started.status != "failed")  # such an error may end a run, too
        return _ended(REFUSED if refused else FAILED, name, error, report)
    click.echo(repr(app.batch_report))
    _write(report, app.batch_report.as_dict)
    return 0


def load(text: str) -> Any:
    """Return what ``module:name`` names; a function is called.

    Raises:
        ConfigError: there is no such module or name.
    """
    module, _, name = text.partition(":")
    if not module or not name:
        raise ConfigError(f"expected MODULE:NAME, got {text!r}", hint="./kstreams run flights:topology --batch")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0] and error.name != module:
            raise
        raise ConfigError(f"there is no module {module!r} here", hint="run the command in the module's directory") from error
    if not hasattr(found, name):
        names = [each for each in vars(found) if not each.startswith("_")]
        raise ConfigError(f"module {module!r} has no {name!r}", hint=did_you_mean(name, names) or "name a builder or a function")
    thing = getattr(found, name)
    return thing() if _returns_topology(thing) else thing


def _returns_topology(thing: object) -> bool:
    return callable(thing) and not hasattr(thing, "build") and not hasattr(thing, "subtopologies")


def from_module(text: str) -> AbstractContextManager[None]:
    """Return the context in which a version's source text is that of the module in ``module:name``, loaded before."""
    from kstreams_repl.repl.session.source.source_slice import deployed_as

    module, _, name = text.partition(":")
    found = sys.modules[module]
    return deployed_as(f"{name}()" if _returns_topology(getattr(found, name)) else name, found)


def _settings(given: Sequence[str]) -> dict[str, str]:
    lacking = [item for item in given if "=" not in item]
    if lacking:
        raise ConfigError(f"expected KEY=VALUE, got {lacking[0]!r}", hint="--config processing.guarantee=exactly_once_v2")
    return dict((item.split("=", 1)[0], item.split("=", 1)[1]) for item in given)


def _ended(status: int, name: str, error: KStreamsError, report: str | Path | None) -> int:
    from kstreams_repl.cli.main import describe_error

    click.echo(describe_error(error), err=True)
    state = "refused" if status == REFUSED else "failed"
    click.echo(f"{name}: {state}; " + ("change it first" if status == REFUSED else "it is safe to run it again"), err=True)
    content = {"application": name, "state": state, "error": type(error).__name__, "message": error.message, "hint": error.hint}
    _write(report, lambda: content)
    return status


def _write(report: str | Path | None, content: Callable[[], JsonMapping]) -> None:
    """Write the report in one step: a reader finds the former one or all of this one."""
    if report is None:
        return
    path = Path(report)
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(json.dumps(content(), indent=1) + "\n", encoding="utf-8")
    draft.replace(path)
