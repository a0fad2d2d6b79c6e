"""The queries of an application's state, from the session: of the files on this host (`QueryableState`), and on a cluster by requests to
the query servers (`RemoteState`).
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.topology.store_builder import StoreBuilder
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.instance.metadata import HostInfo
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.serving.local.local_parts import LocalPart
from kstreams_repl.serving.local.local_stores import LocalStores
from kstreams_repl.serving.local.queryable_state import QueryableState
from kstreams_repl.serving.queries.read import BEHIND, Read
from kstreams_repl.system.errors import (
    InvalidStateStorePartitionError,
    KStreamsError,
    StateStoreNotAvailableError,
    StreamsRebalancingError,
)

if TYPE_CHECKING:
    from kstreams_repl.serving.remote.client import QueryClient
    from kstreams_repl.serving.remote.remote_state import RemoteState
    from kstreams_repl.serving.remote.remote_stores import RemoteStores

_KNOWN: weakref.WeakKeyDictionary[Topology, tuple[StreamsConfig, QueryableState]] = weakref.WeakKeyDictionary()
_LOCK = threading.Lock()
_ASKED: weakref.WeakKeyDictionary[ClusterClient, dict[str, tuple[HostInfo, QueryClient]]] = weakref.WeakKeyDictionary()
"""The query server that answered last, by application."""
_SERVER_SECONDS = 2.0
"""Time within which a query server must answer a read of the session."""


def queries_of(application: ApplicationCore) -> QueryableState:
    """Return the queries of an application, with its present topology and settings."""
    with _LOCK:
        known = _KNOWN.get(application.topology)
        if known is None or known[0] is not application.config:
            known = (application.config, QueryableState(LocalStores(application.topology, application.config)))
            _KNOWN[application.topology] = known
        return known[1]


def value_at(application: ApplicationCore, builder: StoreBuilder, key: object) -> object:
    """Return what the local store has for a key as of its last commit, with its timestamp if it has one; None if it has nothing.

    A task that is being restored or taken over answers, too.

    Raises:
        InvalidStateStoreError: no part of the store is on this host, or the application runs on a cluster.
    """
    local = queries_of(application).local
    if local.lease is not None and local.lease.remote:
        raise InvalidStateStorePartitionError(
            f"{application.name} runs on a cluster: this host has a part of store {builder.name!r} at most",
            hint="ask its query servers",
            store=builder.name,
        )
    read = Read("get", builder.name, key, True)
    values = (LocalPart(local, builder, partition, stale=True).open(read)[1] for partition in local.expect_any(builder.name, stale=True))
    return next((value for value in values if value is not None), None)


def value_from_server(application: ApplicationCore, store: str, key: object) -> object:
    """Return what an application's query servers have for a key, with its timestamp if it has one; None if they have nothing.

    Raises:
        StateStoreNotAvailableError: it has no query servers, or none answers.
        InvalidStateStoreError: the store is in memory, or of another kind.
    """
    stores = _remote_stores(application, store)
    return stores.part(stores.builder(store)).open(Read("get", store, key, True))[1]


def strict_queries_of(application: ApplicationCore, store: str) -> QueryableState | RemoteState:
    """Return the queries of an application: of this host's files, or on a cluster by its query servers.

    Args:
        store: the store that is to be read.

    Raises:
        StateStoreNotAvailableError: it runs on a cluster, without query servers.
    """
    here = queries_of(application)
    if here.local.lease is None or not here.local.lease.remote:
        return here
    from kstreams_repl.serving.remote.remote_state import RemoteState

    return RemoteState(_remote_stores(application, store))


def _remote_stores(application: ApplicationCore, store: str) -> RemoteStores:
    from kstreams_repl.serving.remote.remote_stores import RemoteStores, no_servers

    if not application.config["application.server"]:
        raise no_servers(application.name, store)
    return RemoteStores(queries_of(application).local, partial(_call, application, store))


def _call(application: ApplicationCore, store: str, read: Callable[[QueryClient], object]) -> object:
    """Return what a read finds through a server: the one that answered last, else another.

    Raises:
        StateStoreNotAvailableError: none answers.
    """
    last: KStreamsError = StateStoreNotAvailableError(
        f"no query server of {application.name} has reported", hint="ask again: they start with the instances", store=store
    )
    hosts = [each.host_info for each in application.discovery.metadata_for_all_clients()]
    asked = _ASKED.get(application.client, {}).get(application.name)
    for host in sorted({host for host in hosts if host.port > 0}, key=lambda host: (asked is None or asked[0] != host, host)):
        try:
            return read(_client_of(application, host))
        except (StateStoreNotAvailableError, StreamsRebalancingError) as error:
            if isinstance(error, StateStoreNotAvailableError) and error.status == BEHIND:  # so is every other server
                raise
            last = error
    raise last


def _client_of(application: ApplicationCore, host: HostInfo) -> QueryClient:
    """Return a client of this server; it signs its requests, because the address is from the journal."""
    from kstreams_repl.serving.remote.client import QueryClient, verified_by
    from kstreams_repl.serving.remote.client_requests import token_of

    known = _ASKED.setdefault(application.client, {})
    asked = known.get(application.name)
    if asked is None or asked[0] != host:
        if asked is not None:
            asked[1].close()
        token, verify = token_of(Path(application.query_token_path)), verified_by(application.config["repl.server.certfile"])
        asked = (host, QueryClient(host.url, token, timeout=_SERVER_SECONDS, verify=verify, trusted=False))
        known[application.name] = asked
        application.client.at_close.append(asked[1].close)
    return asked[1]
