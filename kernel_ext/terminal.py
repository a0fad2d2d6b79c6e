"""``./kstreams repl``: plain IPython with the extension, a session and the package loaded."""

from __future__ import annotations

import click


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--broker", metavar="HOST:PORT", help="host:port; default: an embedded broker, started when it is first needed.")
@click.option("--spark", metavar="MASTER", help="A Spark master; default: local Spark.")
@click.option("--directory", help='Directory of data and state; "temporary": a temporary one. Default: ./.kstreams')
@click.argument("ipython_arguments", nargs=-1, type=click.UNPROCESSED)
def main(broker: str | None, spark: str | None, directory: str | None, ipython_arguments: tuple[str, ...]) -> None:
    """A terminal REPL (IPython) with the same magics and API.

    `ks` is the package, `session` the session. All other arguments go to IPython: ./kstreams repl -c 'session.topics()'
    """
    from IPython import start_ipython
    from traitlets.config import Config

    import kstreams_repl

    session = kstreams_repl.connect(broker, spark=spark, directory=directory)
    config = Config()
    config.InteractiveShellApp.extensions = ["kstreams_repl"]
    config.TerminalInteractiveShell.banner1 = "Kafka Streams topologies in Python: ks is kstreams_repl, session is connected\n"
    try:
        start_ipython(argv=list(ipython_arguments), user_ns={"ks": kstreams_repl, "session": session}, config=config)
    finally:
        session.close()
