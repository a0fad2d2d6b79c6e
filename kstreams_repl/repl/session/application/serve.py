"""Servers for the state of an application, for queries from elsewhere."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kstreams_repl.engine.topology.names import changelog_topic
from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.instance.control.file_channel import read_lease
from kstreams_repl.host.instance.metadata import HostInfo, LagInfo
from kstreams_repl.host.instance.state.state_directory import control_directory, state_root
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.reading import OffsetRange
from kstreams_repl.host.query_tokens import FILE, tokens_in
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.system.errors import DeployError, QueryServerError
from kstreams_repl.system.extras import require
from kstreams_repl.system.processes import ProcessMark
from kstreams_repl.system.types import TopicPartition

_KEPT_SECONDS = 15.0
"""Time that a server of the instances may take to start."""

if TYPE_CHECKING:
    from kstreams_repl.host.spark.query_server_process import ServeRequest, ServerRecord


@dataclass(frozen=True, slots=True)
class QueryServer:
    """A query server that `Application.serve` has started. `close` ends it; it ends with its session, too.

    Attributes:
        host_info: where it listens.
        token_path: the file with its tokens, ``look`` and ``control``, which only its owner can read.

    Example:
        >>> server = app.serve()                                            # doctest: +SKIP
        >>> ks.queries.connect(server.url, token=server.token_path)         # doctest: +SKIP
    """

    host_info: HostInfo
    token_path: str
    _record: ServerRecord

    @property
    def url(self) -> str:
        """The base URL.

        Example:
            >>> server.url             # doctest: +SKIP
            'http://127.0.0.1:8081'
        """
        return self.host_info.url

    @property
    def running(self) -> bool:
        """Whether its process is alive.

        Example:
            >>> server.running         # doctest: +SKIP
            True
        """
        return self._record.process.is_alive

    def close(self) -> None:
        """End it. Closing twice does nothing.

        Example:
            >>> server.close()         # doctest: +SKIP
        """
        from kstreams_repl.host.spark.query_server_process import end_server

        end_server(self._record)

    def __repr__(self) -> str:
        return f"QueryServer({self.url!r}, token in {self.token_path!r}{'' if self.running else ', ended'})"


def serve_catalogue(
    client: ClusterClient,
    name: str,
    bind: HostInfo,
    *,
    state_dir: Path | None = None,
    certfile: str | None = None,
    keyfile: str | None = None,
    insecure: bool = False,
) -> QueryServer:
    """Start a server for an application whose topology is not at hand, from the catalogue of its stores on this host.

    Args:
        name: the application.
        bind: where it listens.
        state_dir: the application's ``state.dir``; None: the session's.
        certfile, keyfile: PEM files for TLS.
        insecure: let others reach it without TLS.

    Raises:
        StreamsNotStartedError: the application was never started on this host.
        QueryServerError: the server did not start.
    """
    from kstreams_repl.host.instance.store_catalogue import read_catalogue
    from kstreams_repl.host.spark.planning.plan_serialization import pack
    from kstreams_repl.host.spark.query_server_process import ServeRequest

    require("starlette", "uvicorn", "uvloop", "httptools", "httpx")
    given = {} if state_dir is None else {"state.dir": str(state_dir)}
    root = state_root(client.application_config(name, given))
    catalogue, settings = read_catalogue(root, name)
    config = client.application_config(name, {**settings, **given})
    control = control_directory(root, name)
    plan = ApplicationPlan(name, 0, config, client.settings, (), str(root), str(control), query_tokens=tokens_in(control))
    plan = replace(plan, topology=catalogue)  # type: ignore[arg-type]  # a server reads its stores only
    version = f"catalogue/{bind.host}/{certfile}"
    return _started(
        client,
        ServeRequest(pack(plan), name, "driver", str(root), bind, version=version, certfile=certfile, keyfile=keyfile, insecure=insecure),
    )


def serve(app: ApplicationCore, bind: HostInfo, certfile: str | None, keyfile: str | None, insecure: bool) -> QueryServer:
    """Start a server, as `Application.serve`."""
    require("starlette", "uvicorn", "uvloop", "httptools", "httpx")
    request = _serve_request(app, bind, certfile, keyfile, insecure)
    kept = _server_of_instances(app, request)
    if kept is None:
        return _started(app.client, request)
    _expect_port(app.name, kept, bind.port)
    return QueryServer(kept.address, app.query_token_path, kept)


def partition_lags(app: ApplicationCore) -> dict[str, dict[int, LagInfo]]:
    """Return how far the copies on this host are behind, as `Application.all_local_store_partition_lags`."""
    from kstreams_repl.serving.local.local_stores import LocalStores

    positions: dict[tuple[str, int], tuple[TopicPartition, int]] = {}
    with LocalStores(app.topology, app.config) as stores:
        for store in stores.names:
            builder = stores.builder(store)
            if not builder.logging and builder.source_topic is None:
                continue
            topic = builder.source_topic or changelog_topic(app.name, store)
            for partition in stores.partitions(store):
                at = TopicPartition(topic, partition)
                with stores.view(store, partition, stale=True) as view:
                    positions[store, partition] = at, max(0, view.positions.get(str(at), 0))
    ends = app.client.admin.end_offsets([at for at, _ in positions.values()], isolation="read_committed") if positions else {}
    lags: dict[str, dict[int, LagInfo]] = {}
    ranges = [OffsetRange(at, position, ends[at]) for at, position in positions.values()]
    behind = app.client.counter.behind(app.client.admin.settings, ranges)
    for (store, partition), (at, _) in sorted(positions.items()):
        lags.setdefault(store, {})[partition] = LagInfo(ends[at] - behind[at], ends[at])
    return lags


def _server_of_instances(app: ApplicationCore, request: ServeRequest) -> ServerRecord | None:
    """Return the server that the instances on this host keep running (``application.server``); None if there is to be none."""
    from kstreams_repl.host.spark.query_server_process import read_record, record_path

    deadline = time.monotonic() + _KEPT_SECONDS
    while app.config["application.server"] and app.discovery.placement.running:
        lease = read_lease(control_directory(state_root(app.config), app.name))
        if lease is None or lease.remote or time.monotonic() > deadline:
            break
        record = read_record(record_path(request))
        if record is not None:
            return record
        time.sleep(0.1)
    return None


def _serve_request(app: ApplicationCore, bind: HostInfo, certfile: str | None, keyfile: str | None, insecure: bool) -> ServeRequest:
    """Return what a server process of this application needs.

    Args:
        bind: where it listens.
        certfile, keyfile: PEM files for TLS.
        insecure: let others reach it without TLS.

    Raises:
        DeployError: the application was never started.
    """
    from kstreams_repl.host.spark.planning.plan_builder import make_plan, with_queries
    from kstreams_repl.host.spark.planning.plan_serialization import pack
    from kstreams_repl.host.spark.query_server_process import ServeRequest

    admin: Admin = app.client.admin
    state = app.follow().state
    if state.desired is None or not state.desired.generation:
        raise DeployError(f"{app.name} was never started: there is no state to serve", hint="app.start()")
    root = state_root(app.config)
    settings = app.deployment.settings
    now = state.desired
    plan = make_plan(
        app.topology, app.config, settings, admin=admin, generation=now.generation, state_root=root, version=now.version
    )
    plan = with_queries(plan, app.topology)
    version = f"{plan.version}/{bind.host}/{certfile}"
    return ServeRequest(
        pack(plan), app.name, "driver", str(root), bind, version=version, certfile=certfile, keyfile=keyfile, insecure=insecure
    )


def _started(client: ClusterClient, request: ServeRequest) -> QueryServer:
    """Return the server of a request, which ends with this process."""
    from kstreams_repl.host.spark.query_server_process import end_server, start_server

    record, name = start_server(replace(request, owner=ProcessMark.own())), request.application_id
    _expect_port(name, record, request.bind.port)
    client.at_close.append(lambda: end_server(record))
    return QueryServer(record.address, str(control_directory(Path(request.state_directory), name) / FILE), record)


def _expect_port(name: str, record: ServerRecord, port: int) -> None:
    if port and record.port != port:
        raise QueryServerError(
            f"a server of {name} listens on port {record.port} already", hint="close it first", host=record.host, port=record.port
        )
