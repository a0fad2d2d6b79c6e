"""The last values at a topic, a node, a stream or table, or one row for every node of a topology."""

from __future__ import annotations

from collections.abc import Mapping

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.dsl.builder import StreamsBuilder
from kstreams_repl.engine.dsl.graph.call_log import Handle
from kstreams_repl.engine.dsl.kip28 import TopologyBuilder
from kstreams_repl.engine.topology.graph import TopologyGraph
from kstreams_repl.pictures.table import Table
from kstreams_repl.repl.session.application.application import Application
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.repl.session.topics.read import refuse_no_number
from kstreams_repl.repl.session.topics.records import Records
from kstreams_repl.repl.session.topics.source_serdes import built_with_serdes
from kstreams_repl.repl.session.views.values.sample_run import sample, sample_note, sampled_values
from kstreams_repl.system.errors import CallError, TopologyError, UnknownTopicError, did_you_mean


def last_values(
    client: ClusterClient,
    applications: Mapping[str, ApplicationCore],
    target: object,
    n: int,
    *,
    seconds: float,
    topology: object,
    config: Mapping[str, object],
) -> Records | Table:
    """Return what `Session.values` returns."""
    refuse_no_number(n)
    if isinstance(target, str):
        if topology is None and target in client.admin.topics():
            return client.read(target, n)
        owner = _owner_of(client, applications, target) if topology is None else topology
        return sampled_values(client, owner, target, n, seconds, _settings(client, owner, config))
    if isinstance(target, StreamsBuilder | TopologyBuilder | TopologyGraph | Application):
        return _everywhere(client, target, n, seconds, _settings(client, target, config))
    if isinstance(target, Handle):
        return sampled_values(client, target, getattr(target, "name", ""), n, seconds, _settings(client, None, config))
    raise CallError(
        f"expected the name of a topic or node, a stream, table, builder, topology or application, got a {type(target).__name__}",
        hint='session.values("topic"), session.values(stream)',
    )


def _settings(client: ClusterClient, owner: object, config: Mapping[str, object]) -> StreamsConfig:
    """Return the settings of the call, then an application's own (for example default serdes), then the session's."""
    own = dict(owner.config) if isinstance(owner, Application | ApplicationCore) else {}
    return StreamsConfig({**client.config, **own, **config})


def _owner_of(client: ClusterClient, applications: Mapping[str, ApplicationCore], node: str) -> ApplicationCore:
    found = [app for app in applications.values() if node in app.topology.nodes]
    if len(found) == 1:
        return found[0]
    if found:  # generated names occur in many topologies
        raise TopologyError(
            f"several applications have a node {node!r}: {', '.join(app.name for app in found)}",
            hint=f"name one: session.values({node!r}, topology=session.applications[{found[0].name!r}])",
            node=node,
        )
    nodes = [name for app in applications.values() for name in app.topology.nodes]
    raise UnknownTopicError(
        f"there is no topic {node!r}, and no application has a node of that name",
        hint=did_you_mean(node, [*client.admin.topics(), *nodes])
        or f"of a builder that is not deployed: session.values({node!r}, topology=builder)",
        topic=node,
    )


def _everywhere(client: ClusterClient, thing: object, n: int, seconds: float, config: StreamsConfig) -> Table:
    topology, config = built_with_serdes(client, thing, config)
    taken = sample(client.admin, topology, node=None, n=n, seconds=seconds, config=config)
    rows = [
        (name, found.count, found.last[-1].key if found.last else None, found.last[-1].value if found.last else None)
        for name, found in taken.nodes.items()
    ]
    return Table.of(("node", "records", "last key", "last value"), rows, note=sample_note(taken, topology))
