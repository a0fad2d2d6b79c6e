"""`peek`: the last values at a topic, a node, a stream or table, or one row for every node of a topology."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kstreams_repl.config import StreamsConfig
from kstreams_repl.display.table import Table
from kstreams_repl.display.wording import counted
from kstreams_repl.dsl.builder import StreamsBuilder
from kstreams_repl.dsl.call_log import Handle
from kstreams_repl.errors import KStreamsError, TopologyError, UnknownTopicError, did_you_mean
from kstreams_repl.session.application.application import Application
from kstreams_repl.session.source.error_source import with_source
from kstreams_repl.session.topics.read import refuse_no_number
from kstreams_repl.session.topics.records import Records
from kstreams_repl.session.topics.source_serdes import built_with_serdes
from kstreams_repl.session.views.sample_run import Sample, sample
from kstreams_repl.topology.graph import TopologyGraph
from kstreams_repl.topology.topology import Topology

if TYPE_CHECKING:
    from kstreams_repl.session.session import Session


def peek(session: Session, target: Any, n: int, *, seconds: float, topology: Any, config: Mapping[str, Any]) -> Records | Table:
    """Return the last values, as `Session.peek`."""
    refuse_no_number(n)
    if isinstance(target, str):
        if topology is None and target in session.admin.topics():
            return session.read(target, n)
        place = _place_of(session, target) if topology is None else topology
        return _at_node(session, place, target, n, seconds, _settings(session, place, config))
    if isinstance(target, StreamsBuilder | TopologyGraph | Application):
        return _everywhere(session, target, n, seconds, _settings(session, target, config))
    if isinstance(target, Handle):
        return _at_node(session, target, getattr(target, "name", ""), n, seconds, _settings(session, None, config))
    raise KStreamsError(
        f"cannot peek at a {type(target).__name__}", hint="a topic's or node's name, a stream, a table or a builder"
    )


def _settings(session: Session, place: Any, config: Mapping[str, Any]) -> StreamsConfig:
    """Return the settings of the call, then an application's own (for example default serdes), then the session's."""
    own = dict(place.config) if isinstance(place, Application) else {}
    return StreamsConfig({**session.config, **own, **config})


def _place_of(session: Session, node: str) -> Application:
    applications = session.applications.values()
    found = [app for app in applications if node in app.topology.nodes]
    if len(found) == 1:
        return found[0]
    if found:  # generated names occur in many topologies
        raise TopologyError(
            f"{node!r} is a node of {', '.join(app.name for app in found)}",
            hint=f"say of which: session.peek({node!r}, topology=session.applications[{found[0].name!r}])",
            node=node,
        )
    nodes = [name for app in applications for name in app.topology.nodes]
    raise UnknownTopicError(
        f"there is no topic {node!r}, nor a node of that name in an application",
        hint=did_you_mean(node, [*session.admin.topics(), *nodes])
        or "a node that is not deployed: session.peek(name, topology=builder)",
        topic=node,
    )


def _at_node(session: Session, thing: Any, node: str, n: int, seconds: float, config: StreamsConfig) -> Records:
    topology, config = built_with_serdes(session, thing, config)
    topology.node(node)
    taken = sample(session.admin, topology, node=node, n=n, seconds=seconds, config=config)
    found = taken.nodes[node]
    if taken.error is not None and not found.count:
        raise taken.error
    return Records(found.last, note=f"{node}: {counted(found.count, 'value')} from {_said_of(taken, topology)}", title=node)


def _everywhere(session: Session, thing: Any, n: int, seconds: float, config: StreamsConfig) -> Table:
    topology, config = built_with_serdes(session, thing, config)
    taken = sample(session.admin, topology, node=None, n=n, seconds=seconds, config=config)
    rows = [
        (name, found.count, found.last[-1].key if found.last else None, found.last[-1].value if found.last else None)
        for name, found in taken.nodes.items()
    ]
    return Table.of(("node", "records", "last key", "last value"), rows, note=_said_of(taken, topology))


def _said_of(taken: Sample, topology: Topology) -> str:
    """Return the description of the sample, for the line below it."""
    said = f"a sample of {counted(taken.fed, 'record')}{', all there are' if taken.whole else ''}"
    topics = topology.source_topics()
    if taken.fed == 0 and topics:
        said += f"; nothing is on {', '.join(topics)} yet: session.produce({topics[0]!r}, [...])"
    said = "\n".join([said, *taken.ended])
    return said if taken.error is None else f"{said}\nthe sample ended with {with_source(taken.error).message}"
