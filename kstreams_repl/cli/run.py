"""``./kstreams run MODULE:NAME``: run a topology of a module, as a stream until a signal, or as a bounded run that ends (``--batch``).

Exit status, for supervisors and schedulers: 0 done or stopped, at a commit · 1 failed, safe to run again: it goes on from its last
commit (a bounded run to the same stop offsets) · 2 refused, nothing was started: the command, the settings, the topology or the
application's state must change first, or another process drives it · 3 another process took it over · 4 the last commit took longer than
``--drain`` · 130 and 143 ended at once by a second signal.

A stream is driven by this process as a detached application is by its own (`detached.driver`): notebooks attach to it.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from kstreams_repl.cli.run_settings import COMMAND_KEYS, RunSettings, gather, pairs
from kstreams_repl.host.instance.metadata import HostInfo
from kstreams_repl.system.errors import (
    BrokerUnavailableError,
    ConfigError,
    DeployError,
    KStreamsError,
    SessionFileError,
    TopologyError,
    UnknownTopicError,
    did_you_mean,
)
from kstreams_repl.system.files import replacing
from kstreams_repl.system.log_context import write_to_stderr
from kstreams_repl.system.types import JsonMapping, SparkMaster

if TYPE_CHECKING:
    from kstreams_repl.host.spark.deployment import Deployment
    from kstreams_repl.repl.session import Session
    from kstreams_repl.repl.session.application.core import ApplicationCore
    from kstreams_repl.repl.session.application.detached.succession import Succession

_LOG = logging.getLogger("kstreams_repl.run")
FAILED, REFUSED = 1, 2
_say = partial(click.echo, err=True)
_REFUSALS = (ConfigError, TopologyError, UnknownTopicError, DeployError, SessionFileError)


def connection_options(command: Callable[..., object]) -> Callable[..., object]:
    """Add what ``run`` and ``plan`` share: which topology, with which settings, where."""
    for add in (
        click.option("--config", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of the application; repeatable."),
        click.option("--config-file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A file of key=value lines."),
        click.option("--directory", help="Where state is kept; default: .kstreams here."),
        click.option("--spark", help="A Spark master; without it local Spark."),
        click.option("--broker", help="host:port; without it an embedded Kafka."),
        click.option("--name", help="The application.id; default: NAME."),
        click.argument("topology", metavar="MODULE:NAME"),
    ):
        command = add(command)
    return command


@click.command()
@connection_options
@click.option("--print-config", is_flag=True, help="Show the settings and where each was given, and end.")
@click.option("--log", "log_format", type=click.Choice(["plain", "json"]), default="plain", show_default=True, help="Form of the log.")
@click.option("--http", metavar="HOST:PORT", help="Serve probes, metrics, queries and the live picture there.")
@click.option("--insecure", is_flag=True, help="Of --http: listen beyond loopback without TLS.")
@click.option("--certfile", type=click.Path(exists=True, dir_okay=False), help="Of --http: PEM file with the certificate, for TLS.")
@click.option("--keyfile", type=click.Path(exists=True, dir_okay=False), help="Of --http: PEM file with its key.")
@click.option("--drain", default=60.0, show_default=True, type=click.FloatRange(0), help="Seconds for the last commit after SIGTERM.")
@click.option("--standby", is_flag=True, help="If the application is driven elsewhere, wait, and drive it when that driver is gone.")
@click.option("--take-over", is_flag=True, help="If the application is driven elsewhere, end that at a commit and go on here.")
@click.option("--batch", is_flag=True, help="Run up to the present end of the input, and end.")
@click.option("--stop-at", default="eol", show_default=True, help="Of --batch: eol, a time, records:N, {topic: {partition: offset}}.")
@click.option(
    "--on-end", type=click.Choice(["keep", "close_windows"]), default="keep", show_default=True,
    help="Of --batch: keep open windows for the next run, or close and emit them.",
)  # fmt: skip
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), help="Of --batch: write what it did to this file, as JSON.")
@click.option("--create-topics", is_flag=True, help="Create topics that the topology only writes.")
def main(topology: str, print_config: bool, log_format: str, drain: float, batch: bool, report: Path | None, **options: Any) -> int:
    """Run the topology that MODULE:NAME names: a builder, a stream or table, a topology, or a function that returns one."""
    name = options["name"] or topology.rpartition(":")[2]
    try:
        given = settings_of(options)
        name = given.command.get("application.id", name)
        if print_config:
            click.echo("\n".join(given.lines()) or "nothing was given: docs/reference/defaults.md has the defaults")
            return 0
    except KStreamsError as error:
        return _ended(REFUSED, name, error, report)
    where: dict[str, Any] = {"broker": given.command.get("bootstrap.servers"), "spark": given.spark or None,
             "directory": given.command.get("repl.directory"), "client": given.client}  # fmt: skip
    if batch:
        ends = {key: options[key] for key in ("stop_at", "on_end", "create_topics")}
        within = partial(from_module, topology)
        return batch_run(lambda: load(topology), name, (), report, defaults=given.application, within=within, **where, **ends)
    write_to_stderr("INFO", as_json=log_format == "json")
    front = None
    try:
        http = given.command.get("repl.http")
        if http is not None:
            front = Front(_address(http), **{key: options[key] for key in ("certfile", "keyfile", "insecure")})
        thing = made(lambda: load(topology))
        session = _connected(**where, report=_LOG.info)
    except KStreamsError as error:
        return _ended(FAILED if isinstance(error, BrokerUnavailableError) else REFUSED, name, error, say=_LOG.error)
    from kstreams_repl.host.telemetry import exported_logs
    from kstreams_repl.repl.session.application.detached.succession import Succession

    succession = Succession(standby=options["standby"], take_over=options["take_over"])
    with exported_logs(given.application.get("repl.otlp.endpoint"), name, "INFO"), session, from_module(topology):
        serving = None if front is None else front.serve
        return drive(session, thing, name, given.application, drain, succession, create_topics=options["create_topics"], serving=serving)


def settings_of(options: Mapping[str, Any]) -> RunSettings:
    """Return the settings of a command with `connection_options`."""
    flags = dict(zip(COMMAND_KEYS, map(options.get, ("name", "broker", "spark", "directory", "http")), strict=True))
    return gather(options["config_file"], os.environ, options["settings"], flags)


def drive(
    session: Session,
    thing: object,
    name: str,
    settings: Mapping[str, object],
    drain_seconds: float,
    succession: Succession,
    *,
    create_topics: bool = False,
    serving: Callable[[ApplicationCore], object] | None = None,
) -> int:
    """Deploy a topology and drive it in this process until it ends, or a signal or another process stops it; return the exit status.

    Args:
        succession: what to do when another process drives it.
        serving: called with the application when it runs.
    """
    from kstreams_repl.host.instance.state.state_directory import state_root
    from kstreams_repl.repl.session.application.detached.driver import Driven, Driver
    from kstreams_repl.repl.session.application.detached.mailbox import Mailbox
    from kstreams_repl.repl.session.application.life.registry import ApplicationRegistry
    from kstreams_repl.repl.session.application.starting.deploy import deploy, preview
    from kstreams_repl.repl.session.application.starting.deploy_preview import check
    from kstreams_repl.repl.session.source.error_source import with_source

    client = session.client
    deployed: list[ApplicationCore] = []

    def prepare() -> Driven:
        app = deploy(
            client, ApplicationRegistry(client), thing, name, settings, None,
            create_topics=create_topics, is_needed=lambda *_: False, take_over=succession.take_over or succession.standby,
        )  # fmt: skip
        check(client.admin, app.topology, name, app.config)
        deployed.append(app)
        return Driven(cast("Deployment", app.deployment), app.config, app.versions[-1].number)

    def started() -> None:
        client.report(f"{name} runs, version {deployed[0].versions[-1].number}, process {os.getpid()}")
        if serving is not None:
            serving(deployed[0])

    try:
        mailbox = Mailbox(state_root(client.application_config(name, settings)), name).make()
        succession.take(mailbox, client, lambda: preview(client, ApplicationRegistry(client), thing, name, settings, None))
        driver = Driver(mailbox, client, session.close, stays=False, drain_seconds=drain_seconds)
        status = driver.run(prepare, started)
    except KStreamsError as error:
        return _ended(FAILED if deployed else REFUSED, name, error, say=_LOG.error)
    if driver.failed is not None:
        return _ended(status, name, with_source(driver.failed), say=_LOG.error)
    client.report(f"{name} is stopped at a commit")
    return status


class Front:
    """What answers at ``--http``: the probes at once, and the query server as soon as the application runs."""

    def __init__(self, bind: HostInfo, certfile: str | None, keyfile: str | None, insecure: bool) -> None:
        from kstreams_repl.serving.server.early_probes import EarlyProbes

        self._given = bind, certfile, keyfile, insecure
        self._probes = EarlyProbes(bind, certfile, keyfile, insecure=insecure) if bind.port else None

    def serve(self, app: ApplicationCore) -> None:
        from kstreams_repl.repl.session.application.serve import serve

        if self._probes is not None:
            self._probes.close()
        server = serve(app, *self._given)
        app.client.report(f"{server.url}, token in {server.token_path}")


def _address(text: str) -> HostInfo:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise ConfigError(f"--http expects HOST:PORT, got {text!r}", hint="--http 127.0.0.1:8080; port 0: a free one", key="repl.http")
    return HostInfo(host.strip("[]"), int(port))


def batch_run(
    topology: Callable[[], object],
    name: str,
    settings: Sequence[str],
    report: str | Path | None = None,
    *,
    defaults: Mapping[str, object] | None = None,
    broker: str | None = None,
    spark: SparkMaster = None,
    directory: str | None = None,
    client: Mapping[str, Any] | None = None,
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
        thing, config = made(topology), {**(defaults or {}), **pairs(settings)}
    except KStreamsError as error:
        return _ended(REFUSED, name, error, report)
    try:
        session = _connected(broker, spark, directory, client, prestart=False)  # a run without new input does not need Spark
    except KStreamsError as error:
        return _ended(FAILED, name, error, report)
    with session, within():
        given: dict[str, Any] = {"stop_at": stop_at, "on_end": on_end, "create_topics": create_topics}
        return _batch_status(session, lambda: session.run_batch(thing, name, config=config, **given), name, report)


def _connected(
    broker: str | None, spark: SparkMaster, directory: str | None, client: Mapping[str, Any] | None = None, **more: Any
) -> Session:
    from kstreams_repl import connect

    return connect(broker, spark=spark, directory=directory, **more, **(client or {}))


def _batch_status(session: Session, run: Callable[[], Any], name: str, report: str | Path | None) -> int:
    try:
        app = run()
    except KStreamsError as error:
        started = session.applications.get(name)
        refused = isinstance(error, _REFUSALS) and (started is None or started.status != "failed")  # such an error may end a run, too
        return _ended(REFUSED if refused else FAILED, name, error, report)
    click.echo(repr(app.batch_report))
    _write(report, app.batch_report.as_dict)
    return 0


def made(topology: Callable[[], object]) -> object:
    """Return what the user's module makes.

    Raises:
        TopologyError: it raises; its traceback is printed.
    """
    try:
        return topology()
    except KStreamsError:
        raise
    except Exception as error:  # the user's module
        traceback.print_exc()
        text = f"the topology cannot be made: {type(error).__name__}: {error}"
        raise TopologyError(text, hint="the traceback shows the line") from error


def load(text: str) -> object:
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


def _ended(
    status: int,
    name: str,
    error: KStreamsError,
    report: str | Path | None = None,
    *,
    say: Callable[[str], object] = _say,
) -> int:
    from kstreams_repl.cli.main import describe_error

    say(describe_error(error))
    state = "refused" if status == REFUSED else "failed"
    say(f"{name}: {state}; " + ("change it first" if status == REFUSED else "it is safe to run it again"))
    content = {"application": name, "state": state, "error": type(error).__name__, "message": error.message, "hint": error.hint}
    _write(report, lambda: content)
    return status


def _write(report: str | Path | None, content: Callable[[], JsonMapping]) -> None:
    """Write the report in one step: a reader finds the former one or all of this one."""
    if report is None:
        return
    with replacing(Path(report)) as file:
        file.write(f"{json.dumps(content(), indent=1)}\n".encode())
