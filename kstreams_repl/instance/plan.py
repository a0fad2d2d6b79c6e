"""What one generation of an application runs: the same frozen value for every instance. Pure data; user functions are inside
`tasks`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kstreams_repl.config import StreamsConfig
from kstreams_repl.errors import ConfigError
from kstreams_repl.kafka.clients import ClientSettings, Isolation
from kstreams_repl.runtime.task import TaskSpec
from kstreams_repl.topology.subtopologies import Subtopology
from kstreams_repl.types import TopicPartition


@dataclass(frozen=True, slots=True)
class ApplicationPlan:
    """One generation of one application.

    Attributes:
        generation: rises with every start, resume, edit and change of instances; the numbers of a plan that are lower than
            the control
            signal's belong to a zombie.
        assignment: tasks by slot; one slot is one instance.
        partition_counts: topics known at deploy.
        global_subtopologies, global_partitions: what each instance holds in full.
        control_directory: where signals come from and reports go, on the driver's host.
        standbys: by slot, tasks whose stores it keeps a copy of.
        places: by slot, where it ran last (None: nowhere yet).
        remote: instances run on other hosts than the driver: signals and reports go through the journal, from `journal_start`
            on, and each executor finds its state directory itself.
        failpoints: armed in the worker, for tests.
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

    @property
    def instances(self) -> int:
        return len(self.assignment)

    @property
    def isolation(self) -> Isolation:
        """Which records of its input the application sees; of changelogs, too, for an input may be one."""
        return "read_committed" if self.config.exactly_once else self.settings.isolation or "read_uncommitted"

    def transactional_id(self, slot: int) -> str:
        return transactional_id(self.application_id, slot)

    def changelogs(self) -> frozenset[str]:
        """Real names of all changelog topics that tasks write."""
        return frozenset(
            f"{self.application_id}-{store.name}-changelog"
            for tasks in self.assignment
            for spec in tasks
            for store in spec.subtopology.stores
            if store.logging and store.source_topic is None
        )


def transactional_id(application_id: str, slot: int) -> str:
    """Application and instance slot, without a generation: a successor takes the id over and so fences its predecessor."""
    return f"{application_id}-{slot}"


_KINDS = ("consumer.", "main.consumer.", "restore.consumer.", "global.consumer.", "producer.", "admin.", "sasl.", "ssl.", "security.")


def client_settings(config: StreamsConfig, session: ClientSettings | None = None) -> ClientSettings:
    """The clients' settings of an application's configuration.

    Args:
        session: whose brokers they are, and what is not said of clients in the configuration.

    Raises:
        ConfigError: there is no ``bootstrap.servers``, or a setting contradicts what the application promises.
    """
    servers = config["bootstrap.servers"] if session is None else session.bootstrap_servers
    if not servers:
        raise ConfigError("bootstrap.servers is not set", hint="give host:port of a broker", key="bootstrap.servers")
    properties = {} if session is None else dict(session.properties)
    for name, value in config.client.items():
        if name.startswith(_KINDS):
            properties[name] = value
        elif name.startswith("repl.client."):
            properties[name.removeprefix("repl.client.")] = value
    settings = ClientSettings(servers, properties)
    if config.exactly_once and settings.isolation == "read_uncommitted":
        raise ConfigError(
            "isolation.level = 'read_uncommitted' contradicts exactly_once_v2: records of aborted transactions would have effects",
            hint="leave it out, or processing.guarantee = 'at_least_once'",
            key="isolation.level",
        )
    return settings
