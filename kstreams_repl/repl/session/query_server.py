"""The process of a query server: it reads its request from standard input, follows the journal, and serves until its owner ends.

The only module that joins the server with SQL over stores, which belongs to the session's views.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pickle
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import uvloop

from kstreams_repl.engine import serdes
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.metrics.prometheus import prometheus_text
from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.instance.control.journal_follower import Follower
from kstreams_repl.host.instance.metadata import HostInfo
from kstreams_repl.host.journal.journal_records import ServerAddress
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.reading import OffsetRange
from kstreams_repl.host.kafka.record_counter import RecordCounter
from kstreams_repl.host.spark.planning.plan_serialization import unpack
from kstreams_repl.host.spark.query_server_process import ServeRequest, write_record
from kstreams_repl.repl.inspection import Limits, run_sql
from kstreams_repl.repl.session.application.life.state import ApplicationState
from kstreams_repl.repl.session.views.counts.record_counts import Counts
from kstreams_repl.repl.session.views.picture.served_application import ServedApplication
from kstreams_repl.repl.session.views.tables.sql_catalog import SessionTables
from kstreams_repl.serving.local.local_stores import LocalStores
from kstreams_repl.serving.remote.client import verified_by
from kstreams_repl.serving.remote.discovery import DRIVER, Discovery
from kstreams_repl.serving.server.access import Traffic
from kstreams_repl.serving.server.application import make_application
from kstreams_repl.serving.server.changes import ChangelogFeed, ChangeReader, topic_of
from kstreams_repl.serving.server.limits import ServerLimits
from kstreams_repl.serving.server.local_reads import LocalReads
from kstreams_repl.serving.server.routes import Served
from kstreams_repl.serving.server.routing import Router
from kstreams_repl.serving.server.serving import host_names, listen, make_server, published_host, serve_until
from kstreams_repl.serving.server.subscriptions import subscribe
from kstreams_repl.system.errors import BrokerUnavailableError, KStreamsError, QueryLimitError
from kstreams_repl.system.types import JsonObject, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

_LOG = logging.getLogger("kstreams_repl.serving")
_FIRST_SECONDS = 10.0
_STOPPED_SECONDS = 2.0
_SILENT_SECONDS = 15.0
"""Instances report every five seconds, also between two epochs."""


class TabledApplication:
    """The application of a server, as `StoreTables` reads it."""

    metrics = ()
    as_of = ""

    def __init__(self, name: str, config: StreamsConfig, topology: object, drawn: ServedApplication) -> None:
        self.name, self.config, self.topology, self._drawn = name, config, topology, drawn

    @property
    def counts(self) -> Counts:
        return self._drawn.counts


class StoreTables(SessionTables):
    """The tables of ``/sql``: the named stores, and nothing else."""

    def __init__(self, client: Any, application: Any, named: Mapping[str, object]) -> None:
        super().__init__(client, {application.name: application}, {}, {})
        self._stores = named
        self._topics = {}

    def table(self, schema: str, name: str, limits: Limits) -> object:
        store = self._store(schema, name)
        if store is None or store[1].name not in self._stores:
            return None
        return self._read_store(*store, limits)

    def names(self) -> list[str]:
        return list(self._stores)


class SessionQueryServer:
    """One server process.

    Args:
        request: what to serve, and where.
        plan: the unpacked plan.
    """

    def __init__(self, request: ServeRequest, plan: ApplicationPlan, limits: ServerLimits | None = None) -> None:
        assert plan.topology is not None and plan.query_tokens is not None
        self.request, self.plan = request, plan
        self.limits = limits or ServerLimits()
        self.traffic = Traffic()
        self.tokens = plan.query_tokens
        self.config = StreamsConfig({**_given(plan.config), "state.dir": request.state_directory})
        self.admin = Admin(plan.settings)
        self.follower = Follower(plan.settings, plan.application_id, reports=True)
        topology = plan.topology
        self.discovery = Discovery(
            plan.application_id, topology.subtopologies(), topology.internal_topics, plan.config, lambda: self.follower.state
        )
        self.stores = LocalStores(
            topology, self.config, directory_of=lambda: self.discovery.placement.active, partitions=self.discovery.partitions_of
        )
        self.feeds: dict[str, ChangelogFeed] = {}
        self.published: tuple[int, str] | None = None
        self.address: HostInfo | None = None
        self._counter = RecordCounter()
        self._sql_slots = threading.BoundedSemaphore(4)
        self._stopped_at: float | None = None
        self._began = time.time()

    # ---- parts

    def application(self, hosts: Any) -> Any:
        """Return the ASGI application."""
        plan, topology = self.plan, self.plan.topology
        size = self.limits.page_bytes
        local = LocalReads(self.stores, lambda builder: topic_of(plan.application_id, builder), self._behind, most_bytes=size)
        trusted = verified_by(self.request.certfile)  # all hosts may have one certificate of their own
        router = Router(self.discovery, local, self.request.place, self.tokens, certificates=trusted, most_bytes=size)
        named = {name: self.stores.builder(name) for name in self.stores.names}
        client = SimpleNamespace(admin=self.admin, serdes_of=lambda topic: (serdes.bytes_, serdes.bytes_), report=lambda line: None)
        in_files = self.request.place == "driver" and not plan.remote
        drawn = ServedApplication(plan, self.config, self.admin, self.follower, in_files=in_files)
        application = TabledApplication(plan.application_id, self.config, topology, drawn)

        def sql(query: str, rows: int) -> tuple[pa.Table, list[str]]:
            return self._sql(StoreTables(client, application, named), query, rows)

        from kstreams_repl.serving.server.metrics import metrics_text
        from kstreams_repl.serving.server.page import Page, files

        page = Page(plan, self.discovery, drawn.picture)
        served = Served(
            plan.application_id,
            self.request.place,
            router,
            named,
            plan.config["default.key.serde"],
            self.limits,
            self.traffic,
            sql,
            page.state,
            lambda store, start, snapshot: subscribe(router, named[store], self.feed(store), start, snapshot),
            lambda: self._health(drawn),
            lambda: self._metrics(drawn) + metrics_text(self.traffic, self.feeds, self.discovery, router.hops),
            files(),
        )
        return make_application(served, self.tokens, hosts)

    def feed(self, store: str) -> ChangelogFeed:
        """Return the feed of a store's changes."""
        found = self.feeds.get(store)
        if found is None:
            builder = self.stores.builder(store)
            key = serdes.resolve(builder.key_serde, self.config["default.key.serde"])
            value = serdes.resolve(builder.value_serde, self.config["default.value.serde"])
            reader = ChangeReader(builder, key, value)
            found = self.feeds[store] = ChangelogFeed(self.plan.settings, topic_of(self.plan.application_id, builder), reader)
        return found

    def _behind(self, at: TopicPartition, position: int) -> int:
        end = self.admin.end_offsets([at], isolation="read_committed")[at]
        return self._counter.behind(self.admin.settings, [OffsetRange(at, position, end)])[at]

    def _sql(self, tables: StoreTables, query: str, rows: int) -> tuple[pa.Table, list[str]]:
        """Run one query with the limits on time, rows and queries at once. The sandbox limits its memory and reaches no file."""
        if not self._sql_slots.acquire(timeout=self.limits.seconds / 2):
            raise QueryLimitError("four queries run already", hint="ask again", status=429)
        try:
            result = run_sql(query, tables, limits=Limits())
            return result.limited(rows + 1, self.limits.seconds * 0.9), list(result.bounds)
        finally:
            self._sql_slots.release()

    def _metrics(self, application: ServedApplication) -> str:
        """Return the application's metrics if this server is beside its driver: one of the servers has them."""
        return prometheus_text(application.metrics, {"application": application.name}) if self.request.place == DRIVER else ""

    def _health(self, application: ServedApplication) -> JsonObject:
        state = self.follower.state
        desired, seen = state.desired, [report.at_ms for report in state.reports.values()]
        if (here := self.stores.last_report_ms()) is not None:
            seen.append(here)
        age = time.time() - max(seen) / 1000 if seen else None
        running = desired is not None and desired.state == "running" and age is not None and age < _SILENT_SECONDS
        return {
            "failed": application.status is ApplicationState.FAILED,
            "waits_for": application.waits_for() if running else ["the application, which does not run"],
            # after a kill -9 of the driver the last command is still "run", but no instance reports
            "running": running,
            "last_report_seconds": None if age is None else round(age, 1),
            "uptime_seconds": round(time.time() - self._began, 1),
            "serves_version": self.plan.version,
            "runs_version": None if desired is None else desired.version,
            "journal_position": self.follower.position,
            "subscriptions": sum(feed.listeners for feed in self.feeds.values()),
            "threads": threading.active_count(),
        }

    # ---- life

    async def run(self) -> None:
        """Serve until the owner ends, or the application is stopped if the server belongs to it."""
        request = self.request
        listening = listen(request.bind, tls=request.certfile is not None, insecure=request.insecure)
        port = listening.getsockname()[1]
        host = published_host(request.bind.host, self.plan.settings.bootstrap_servers)
        self.address = HostInfo(host, port, request.certfile is not None)
        hosts = host_names(request.bind.host, host)
        server = make_server(
            self.application(hosts), self.limits, self.traffic, certfile=_path(request.certfile), keyfile=_path(request.keyfile)
        )
        try:
            await serve_until(server, listening, self._is_over, self._publish)
        finally:
            if self.published is not None:
                self._send(0)
            self.stores.close()
            await asyncio.to_thread(self.follower.close)

    def _publish(self) -> None:
        """Write the address into the journal, again with each generation; the record on disk, once."""
        assert self.address is not None
        if self.published is None:
            write_record(self.request, self.address)
        generation = self.follower.state.generation
        if self.published is None or self.published[0] != generation:
            self.published = (generation, str(self.address))
            self._send(self.address.port)

    def _send(self, port: int) -> None:
        assert self.address is not None
        self.follower.writer.send(
            ServerAddress(
                self.follower.state.generation, self.request.place, self.address.host, port, self.address.tls, int(time.time() * 1000)
            )
        )

    def _is_over(self) -> bool:
        owner = self.request.owner
        if owner is not None and not owner.is_alive:
            return True
        desired = self.follower.state.desired
        if not self.request.with_application or desired is None or desired.state != "stopped":
            self._stopped_at = None
            return False
        self._stopped_at = self._stopped_at or time.monotonic()
        return time.monotonic() - self._stopped_at > _STOPPED_SECONDS


def _given(config: StreamsConfig) -> dict[str, object]:
    return {**{name: config[name] for name in config.given if name in config}, **config.client}


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def main() -> int:
    """Serve what standard input asks for."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # else every peer without a token could fill the log
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    request = pickle.load(sys.stdin.buffer)  # written by the process that started this one, never read from a topic
    assert isinstance(request, ServeRequest)
    try:
        server = SessionQueryServer(request, unpack(request.shipment))
        with contextlib.suppress(BrokerUnavailableError):
            server.follower.refresh(seconds=_FIRST_SECONDS)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(server.run())
    except KStreamsError as error:
        print(error.message, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
