"""What an application offers for queries from elsewhere: discovery, and a server. The base of `ApplicationView`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.topology.names import changelog_topic
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.instance.control.file_channel import read_lease
from kstreams_repl.host.instance.metadata import HostInfo, KeyQueryMetadata, LagInfo, StreamsMetadata
from kstreams_repl.host.instance.state.state_directory import control_directory, state_root
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.reading import OffsetRange
from kstreams_repl.host.query_tokens import FILE, tokens_in
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.serving.discovery import Discovery
from kstreams_repl.system.errors import DeployError, QueryServerError
from kstreams_repl.system.extras import require
from kstreams_repl.system.processes import ProcessMark
from kstreams_repl.system.types import TopicPartition

_KEPT_SECONDS = 15.0
"""Time that a server of the instances may take to start."""

if TYPE_CHECKING:
    from kstreams_repl.host.instance.control.journal_follower import Follower
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

    require("starlette", "uvicorn", "httpx")
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


class QueryView:
    """Discovery and the server of an application."""

    name: str
    topology: Topology
    config: StreamsConfig
    client: ClusterClient
    _deployment: Any
    _follower: Follower | None = None
    _discovery: Discovery | None = None

    def metadata_for_all_clients(self) -> list[StreamsMetadata]:
        """Return the hosts of the running application, each with its stores and partitions, and its standby copies.

        The answer comes from the application's journal, which a thread follows; it contacts no host.

        Example:
            >>> [host.state_store_names for host in app.metadata_for_all_clients()]     # doctest: +SKIP
            [frozenset({'counts'})]
        """
        return self._discover().metadata_for_all_clients()

    def streams_metadata_for_store(self, store: str) -> list[StreamsMetadata]:
        """Return the hosts that hold partitions of a store; all hosts, for a global store.

        Args:
            store: its name.

        Raises:
            InvalidStateStoreError: the application has no such store.

        Example:
            >>> app.streams_metadata_for_store("counts")     # doctest: +SKIP
        """
        return self._discover().streams_metadata_for_store(store)

    def query_metadata_for_key(
        self, store: str, key: Any, *, serializer: Any = None, partitioner: Callable[..., Any] | None = None
    ) -> KeyQueryMetadata:
        """Return the hosts that have the row of a key: with the active task, and with standby copies.

        Args:
            store: name of the store.
            key: the key; of a window or session store the plain one.
            serializer: serde of the key, or its name; None: the store's own.
            partitioner: function (topic, key, value, partitions) by which the input is partitioned; None: Kafka's default.

        Raises:
            InvalidStateStoreError: the application has no such store.

        Example:
            >>> app.query_metadata_for_key("counts", "a").partition     # doctest: +SKIP
            2
        """
        return self._discover().query_metadata_for_key(store, key, serializer=serializer, partitioner=partitioner)

    def all_local_store_partition_lags(self) -> dict[str, dict[int, LagInfo]]:
        """Return for each store and partition on this host how many records its copy is behind the changelog.

        Example:
            >>> app.all_local_store_partition_lags()["counts"][0].offset_lag     # doctest: +SKIP
            0
        """
        from kstreams_repl.serving.local_stores import LocalStores

        positions: dict[tuple[str, int], tuple[TopicPartition, int]] = {}
        with LocalStores(self.topology, self.config) as stores:
            for store in stores.names:
                builder = stores.builder(store)
                if not builder.logging and builder.source_topic is None:
                    continue
                topic = builder.source_topic or changelog_topic(self.name, store)
                for partition in stores.partitions(store):
                    at = TopicPartition(topic, partition)
                    with stores.view(store, partition, stale=True) as view:
                        positions[store, partition] = at, max(0, view.positions.get(str(at), 0))
        ends = self.client.admin.end_offsets([at for at, _ in positions.values()], isolation="read_committed") if positions else {}
        lags: dict[str, dict[int, LagInfo]] = {}
        ranges = [OffsetRange(at, position, ends[at]) for at, position in positions.values()]
        behind = self.client.counter.behind(self.client.admin.settings, ranges)
        for (store, partition), (at, _) in sorted(positions.items()):
            lags.setdefault(store, {})[partition] = LagInfo(ends[at] - behind[at], ends[at])
        return lags

    def serve(
        self,
        port: int = 0,
        *,
        bind: str = "127.0.0.1",
        certfile: str | None = None,
        keyfile: str | None = None,
        insecure: bool = False,
    ) -> QueryServer:
        """Start a server for the state of this application, as a process of its own, and return it. It answers for every host.

        Calling it again returns the server that runs; where the instances on this host keep one (``application.server``), that one.

        Args:
            port: where it listens; 0: a free one.
            bind: the address; beyond loopback it needs TLS or `insecure`.
            certfile, keyfile: PEM files for TLS.
            insecure: let others reach it without TLS, on a network that you trust.

        Raises:
            DeployError: the application was never started.
            QueryServerError: it did not start; the hint names its log.
            ConfigError: the address needs TLS.

        Example:
            >>> server = app.serve()                                    # doctest: +SKIP
            >>> ks.queries.connect(server.url, token=server.token_path).get("counts", "a").value     # doctest: +SKIP
            2
        """
        require("starlette", "uvicorn", "httpx")
        request = self._serve_request(HostInfo(bind, port), certfile, keyfile, insecure)
        kept = self._server_of_instances(request)
        if kept is None:
            return _started(self.client, request)
        _expect_port(self.name, kept, port)
        return QueryServer(kept.address, self.query_token_path, kept)

    def _server_of_instances(self, request: ServeRequest) -> ServerRecord | None:
        """Return the server that the instances on this host keep running (``application.server``); None if there is to be none."""
        from kstreams_repl.host.spark.query_server_process import read_record, record_path

        deadline = time.monotonic() + _KEPT_SECONDS
        while self.config["application.server"] and self._discover().placement.running:
            lease = read_lease(control_directory(state_root(self.config), self.name))
            if lease is None or lease.remote or time.monotonic() > deadline:
                break
            record = read_record(record_path(request))
            if record is not None:
                return record
            time.sleep(0.1)
        return None

    def _serve_request(self, bind: HostInfo, certfile: str | None, keyfile: str | None, insecure: bool) -> ServeRequest:
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

        admin: Admin = self.client.admin
        state = self._follow().state
        if state.desired is None or not state.desired.generation:
            raise DeployError(f"{self.name} was never started: there is no state to serve", hint="app.start()")
        root = state_root(self.config)
        settings = self._deployment.settings
        plan = make_plan(self.topology, self.config, settings, admin=admin, generation=state.generation, state_root=root)
        plan = with_queries(plan, self.topology, state.desired.version)
        version = f"{plan.version}/{bind.host}/{certfile}"
        return ServeRequest(
            pack(plan), self.name, "driver", str(root), bind, version=version, certfile=certfile, keyfile=keyfile, insecure=insecure
        )

    @property
    def query_token_path(self) -> str:
        """The file with the tokens of its query servers, which only its owner can read.

        Example:
            >>> app.query_token_path.endswith("query-tokens.json")     # doctest: +SKIP
            True
        """
        return str(control_directory(state_root(self.config), self.name) / FILE)

    def _follow(self) -> Follower:
        from kstreams_repl.host.instance.control.journal_follower import Follower

        follower = self._follower
        if follower is None or follower.over:
            follower = self._follower = Follower(self._deployment.settings, self.name, reports=True)
            self.client.at_close.append(follower.close)
            follower.refresh()
        return follower

    def _discover(self) -> Discovery:
        if self._discovery is None or self._topology_discovered is not self.topology:
            self._topology_discovered = self.topology
            self._discovery = Discovery(
                self.name, self.topology.subtopologies(), self.topology.internal_topics, self.config, lambda: self._follow().state
            )
        return self._discovery

    _topology_discovered: Topology | None = None
