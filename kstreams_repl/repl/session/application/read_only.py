"""`ReadOnlyApplication`: what views, logs and checks read of an `Application`; they control nothing, so they take this."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.instance.metadata import StreamsMetadata
from kstreams_repl.repl.inspection.result import SqlResult
from kstreams_repl.repl.session.application.edits.versions import Version
from kstreams_repl.repl.session.application.life.state import ApplicationState
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.repl.session.views.counts.metrics_view import MetricsView
from kstreams_repl.repl.session.views.counts.record_counts import Counts
from kstreams_repl.system.errors import KStreamsError

if TYPE_CHECKING:
    from kstreams_repl.host.spark.instance_reports import ApplicationReport


class ReadOnlyApplication(Protocol):
    """The state of an application; `Application` documents each member."""

    name: str
    topology: Topology
    config: StreamsConfig
    client: ClusterClient
    detached: bool
    stale: frozenset[str]
    running_code: Mapping[str, Any]

    def metadata_for_all_clients(self) -> list[StreamsMetadata]: ...
    @property
    def query_token_path(self) -> str: ...
    @property
    def status(self) -> ApplicationState: ...
    @property
    def standing(self) -> str: ...
    @property
    def error(self) -> KStreamsError | None: ...
    @property
    def versions(self) -> list[Version]: ...
    @property
    def generation(self) -> int: ...
    @property
    def reports(self) -> ApplicationReport: ...
    @property
    def restarts(self) -> list[str]: ...
    @property
    def counts(self) -> Counts: ...
    @property
    def metrics(self) -> MetricsView: ...
    @property
    def log(self) -> Path | None: ...

    def remaining(self) -> int: ...
    def sql(self, query: str, *, store_limit: int | None = None) -> SqlResult: ...
