"""What one generation of an application runs: the same frozen value for every instance. Pure data; `tasks` contains the user's
functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.kafka_streams_keys import CLIENT
from kstreams_repl.engine.runtime.task import TaskSpec
from kstreams_repl.engine.topology.subtopologies import Subtopology
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.instance.alignment_rules import AlignmentRule, alignment_rules
from kstreams_repl.host.kafka.clients import ClientSettings, Isolation
from kstreams_repl.host.query_tokens import QueryTokens
from kstreams_repl.system.errors import ConfigError
from kstreams_repl.system.types import TopicPartition


@dataclass(frozen=True, slots=True)
class ApplicationPlan:
    """One generation of one application.

    Attributes:
        generation: increases with every start, resume, edit and change of instances; an instance whose plan has a lower
            generation than the control signal is a zombie.
        assignment: tasks by slot; one slot is one instance.
        partition_counts: of the topics known at deploy.
        global_subtopologies, global_partitions: held completely by each instance.
        control_directory: directory of signals and reports, on the driver's host.
        standbys: by slot, tasks whose stores it keeps a copy of.
        places: by slot, the executor directory of its last run (`executor_directory`; None: not run yet).
        remote: instances run on other hosts than the driver: signals and reports go through the journal, from offset
            `journal_start` on, and each executor finds its state directory itself.
        failpoints: armed in the worker, for tests.
        stops: of a bounded run (`batch`), the offset at which each input partition stops; partitions without one are intermediate
            topics, which are read to their end. None: the application runs as a stream.
        closes: number of the bounded run, if it closes windows at its end (`batch.window_closing`); else None.
        version: of the topology.
        topology, query_tokens: for the query servers that start with the instances (``application.server``); else None.
    """

    application_id: str
    generation: int
    config: StreamsConfig
    settings: ClientSettings
    assignment: tuple[tuple[TaskSpec, ...], ...]
    state_directory: str
    control_directory: str
    partition_counts: Mapping[str, int] = field(default_factory=dict)
    global_subtopologies: tuple[Subtopology, ...] = ()
    global_partitions: tuple[TopicPartition, ...] = ()
    failpoints: str = ""
    standbys: tuple[tuple[TaskSpec, ...], ...] = ()
    places: tuple[str | None, ...] = ()
    remote: bool = False
    journal_start: int = 0
    stops: Mapping[TopicPartition, int] | None = None
    closes: int | None = None
    version: int = 1
    topology: Topology | None = None
    query_tokens: QueryTokens | None = None

    @property
    def instances(self) -> int:
        """Number of instance slots."""
        return len(self.assignment)

    @property
    def alignment(self) -> tuple[AlignmentRule, ...]:
        """Which sub-topologies advance together in event time."""
        parts = {spec.subtopology.id: spec.subtopology for tasks in self.assignment for spec in tasks}
        return alignment_rules(parts.values(), self.config)

    @property
    def isolation(self) -> Isolation:
        """The isolation level for input, and for changelogs, because an input may be a changelog."""
        return "read_committed" if self.config.exactly_once else self.settings.isolation or "read_uncommitted"

    def transactional_id(self, slot: int) -> str:
        """Return the transactional id of a slot."""
        return transactional_id(self.application_id, slot)

    def changelogs(self) -> frozenset[str]:
        """Return the real names of all changelog topics that tasks write."""
        return frozenset(
            f"{self.application_id}-{store.name}-changelog"
            for tasks in self.assignment
            for spec in tasks
            for store in spec.subtopology.stores
            if store.logging and store.source_topic is None
        )


def transactional_id(application_id: str, slot: int) -> str:
    """Return the transactional id of an instance slot. It has no generation: a successor that takes the id over fences its
    predecessor.
    """
    return f"{application_id}-{slot}"


_KINDS = ("consumer.", "main.consumer.", "restore.consumer.", "global.consumer.", "producer.", "admin.", "sasl.", "ssl.", "security.")


def client_settings(config: StreamsConfig, session: ClientSettings | None = None) -> ClientSettings:
    """Return the client settings of an application's configuration.

    Args:
        session: the session's settings: its brokers, and defaults for what the configuration does not set.

    Raises:
        ConfigError: there is no ``bootstrap.servers``, or a setting contradicts the application's guarantees.
    """
    servers = config["bootstrap.servers"] if session is None else session.bootstrap_servers
    if not servers:
        raise ConfigError("bootstrap.servers is not set", hint="set it to host:port of a broker", key="bootstrap.servers")
    properties = {} if session is None else dict(session.properties)
    for name, value in config.client.items():
        if name.startswith(_KINDS) or name in CLIENT.values():
            properties[name] = value
        elif name.startswith("repl.client."):
            properties[name.removeprefix("repl.client.")] = value
    settings = ClientSettings(servers, properties)
    if config.exactly_once and settings.isolation == "read_uncommitted":
        raise ConfigError(
            "isolation.level = 'read_uncommitted' contradicts exactly_once_v2: records of aborted transactions would be processed",
            hint="remove the setting, or set processing.guarantee = 'at_least_once'",
            key="isolation.level",
        )
    return settings
