"""``./kstreams serve APPLICATION``: a query server for an application that runs elsewhere or has stopped."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import click


@click.command()
@click.argument("application")
@click.option("--bootstrap-servers", default=None, help="host:port of a broker; default: the embedded one of --directory.")
@click.option("--directory", type=click.Path(file_okay=False, path_type=Path), default=None, help="The session's directory.")
@click.option(
    "--state-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=None,
    help="The application's state.dir, if it is not in the session's directory: the stores are those of its catalogue.",
)
@click.option("--bind", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65_535), default=0, help="Port to listen on; 0: a free one.")
@click.option("--certfile", type=click.Path(exists=True, dir_okay=False), default=None, help="PEM file with the certificate, for TLS.")
@click.option("--keyfile", type=click.Path(exists=True, dir_okay=False), default=None, help="PEM file with its key.")
@click.option("--insecure", is_flag=True, help="Listen beyond loopback without TLS.")
def main(
    application: str, state_dir: Path | None, bind: str, port: int, certfile: str | None, keyfile: str | None, insecure: bool, **where: Any
) -> None:
    """Serve the state of APPLICATION over HTTP until Ctrl-C.

    The token is in a file that only you can read; its path is printed. If the source text of its topology is not on this host, its
    stores are known from the catalogue next to its state.
    """
    from kstreams_repl.host.instance.metadata import HostInfo
    from kstreams_repl.repl.session import connect
    from kstreams_repl.repl.session.application.serve import serve_catalogue
    from kstreams_repl.system.errors import SessionFileError

    with connect(where["bootstrap_servers"], directory=where["directory"], prestart=False) as session:
        server = None
        if state_dir is None:
            try:
                server = session.attach(application).serve(port, bind=bind, certfile=certfile, keyfile=keyfile, insecure=insecure)
            except SessionFileError as error:
                click.echo(f"{error.message}: the stores are those of the catalogue, and the picture of the application is empty", err=True)
        if server is None:
            server = serve_catalogue(
                session.client,
                application,
                HostInfo(bind, port),
                state_dir=state_dir,
                certfile=certfile,
                keyfile=keyfile,
                insecure=insecure,
            )
        click.echo(f"{server.url}, token in {server.token_path}")
        with contextlib.suppress(KeyboardInterrupt):
            while server.running:
                time.sleep(0.5)
