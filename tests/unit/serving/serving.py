"""A query server over a real state directory, without a broker: its journal is folded from records that the test writes."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from kstreams_repl.host.instance.metadata import HostInfo
from kstreams_repl.host.journal.journal_records import Assignment, Claim, DesiredState, ServerAddress, encode
from kstreams_repl.host.journal.journal_state import JournalState
from kstreams_repl.host.query_tokens import QueryTokens, tokens_in
from kstreams_repl.serving.local.local_stores import LocalStores
from kstreams_repl.serving.remote.discovery import Discovery
from kstreams_repl.serving.server.access import Traffic
from kstreams_repl.serving.server.application import make_application
from kstreams_repl.serving.server.limits import ServerLimits
from kstreams_repl.serving.server.local_reads import LocalReads
from kstreams_repl.serving.server.metrics import metrics_text
from kstreams_repl.serving.server.page import files
from kstreams_repl.serving.server.routes import Served
from kstreams_repl.serving.server.routing import Router
from kstreams_repl.serving.server.serving import listen, make_server
from kstreams_repl.serving.server.subscriptions import subscribe
from kstreams_repl.system.errors import SqlError

SECONDS = 20.0


class Journal:
    """A journal as a topic would hold it."""

    def __init__(self) -> None:
        self.state = JournalState()
        self._offset = 0

    def write(self, *records: Any) -> Journal:
        for record in records:
            self.state.apply(*encode(record), self._offset)
            self._offset += 1
        return self

    def assign(self, tasks: dict[str, tuple[str, ...]], *, standbys: Any = None, generation: int = 1) -> Journal:
        return self.write(
            DesiredState(generation, "running", 1, len(tasks)), Assignment(generation, tasks, dict(standbys or {}))
        )

    def claim(self, slot: int, place: str, *, generation: int = 1, epoch: int = 0) -> Journal:
        return self.write(Claim(generation, slot, epoch, f"{place}:1", place=place))

    def serve(self, place: str, port: int, *, generation: int = 1) -> Journal:
        return self.write(ServerAddress(generation, place, "127.0.0.1", port))


class Server:
    """The server of one place; `app` is its ASGI application. `start` runs it with uvicorn on loopback."""

    def __init__(self, state: Any, journal: Journal, place: str = "driver", *, limits: ServerLimits | None = None, ends: int = 0) -> None:
        self.traffic, self.limits = Traffic(), limits or ServerLimits()
        self.tokens: QueryTokens = tokens_in(Path(state.root) / "tokens")
        topology = state.topology
        self.discovery = Discovery("queried", topology.subtopologies(), (), state.config, lambda: journal.state)
        self.local = LocalStores(
            topology, state.config, directory_of=lambda: self.discovery.placement.active, partitions=self.discovery.partitions_of
        )
        size = self.limits.page_bytes
        reads = LocalReads(
            self.local, lambda builder: f"queried-{builder.name}-changelog", lambda at, start: max(0, ends - start), most_bytes=size
        )
        self.router = Router(self.discovery, reads, place, self.tokens, most_bytes=size)
        self.asked: list[str] = []
        self.served = Served(
            "queried",
            place,
            self.router,
            {name: self.local.builder(name) for name in self.local.names},
            state.config["default.key.serde"],
            self.limits,
            self.traffic,
            self._sql,
            lambda view: {"view": repr(view)},
            self._subscribe,
            lambda: {"failed": False, "waits_for": []},
            lambda: metrics_text(self.traffic, {}, self.discovery, self.router.hops),
            files(),
        )
        self.app: ASGIApp = make_application(self.served, self.tokens, {"127.0.0.1", "localhost"})
        self.port = 0
        self.tls = False
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return HostInfo("127.0.0.1", self.port, self.tls).url

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.tokens.view.reveal()}"}

    @property
    def connections(self) -> int:
        return 0 if self._server is None else len(self._server.server_state.connections)

    def start(self, *, tls: tuple[Path, Path] | None = None) -> Server:
        self.tls = tls is not None
        certfile, keyfile = tls or (None, None)
        server = self._server = make_server(self.app, self.limits, self.traffic, certfile=certfile, keyfile=keyfile)
        listening: socket.socket = listen(HostInfo("127.0.0.1", self.port), tls=self.tls)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)  # else the kernel takes megabytes that nobody reads
        self.port = listening.getsockname()[1]

        def run() -> None:
            asyncio.run(server.serve(sockets=[listening]))
            listening.close()

        self._thread = threading.Thread(target=run, name="test-server")
        self._thread.start()
        deadline = time.monotonic() + SECONDS
        while not server.started:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return self

    def stop(self) -> None:
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(SECONDS)
            assert not self._thread.is_alive()
        self.local.close()

    def _sql(self, query: str, rows: int) -> Any:
        self.asked.append(query)
        raise SqlError("no tables here")

    def _subscribe(self, store: str, start: str | None, snapshot: bool) -> Any:
        return subscribe(self.router, self.served.builder(store), _NoChanges(), start, snapshot)  # type: ignore[arg-type]


class _NoChanges:
    """The changes of a store that nobody writes."""

    def join(self, offer: Any) -> dict[int, int]:
        return {0: 5}

    def leave(self, offer: Any) -> None:
        pass

    def between(self, start: Any, end: Any) -> Any:
        yield from ()
