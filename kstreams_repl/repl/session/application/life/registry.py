"""`ApplicationRegistry`: the applications of a session by name; it creates them, with what drives them: this process or a detached one."""

from __future__ import annotations

from typing import Any

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.instance.state.state_directory import state_root
from kstreams_repl.host.spark.fencing.generation_fencing import VersionText
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.application.detached.mailbox import Mailbox
from kstreams_repl.repl.session.application.edits.versions import VersionHistory
from kstreams_repl.repl.session.cluster_client import ClusterClient


class ApplicationRegistry(dict[str, ApplicationCore]):
    """The applications of a session by name."""

    def __init__(self, client: ClusterClient) -> None:
        super().__init__()
        self._client = client

    def create(
        self,
        name: str,
        topology: Topology,
        config: StreamsConfig,
        history: VersionHistory,
        *,
        version: VersionText | None = None,
        detached: bool = False,
        **known: Any,
    ) -> ApplicationCore:
        """Create the object for an application. It drives nothing yet, and is not registered yet.

        Args:
            version: to announce in the journal with the next start; None: the one that is there stays.
            detached: whether a process of its own drives it.
            **known: other attributes of `ApplicationCore`.
        """
        deployment = self.create_deployment(name, topology, config, detached=detached)
        deployment.version = version
        return ApplicationCore(self._client, self, name, topology, config, deployment, history, detached=detached, **known)

    def create_deployment(self, name: str, topology: Topology, config: StreamsConfig, *, detached: bool) -> Any:
        """Return what drives an application: a `Deployment`, or the client of a driver process."""
        # imported on the first deploy: they import Spark
        from kstreams_repl.host.spark.deployment import Deployment
        from kstreams_repl.repl.session.application.detached.client import DetachedDeployment

        client = self._client
        if detached:
            apart = DetachedDeployment(topology, config, client.settings, client.directory.path, client.spark.wanted)
            client.at_close.append(apart.close)
            return apart
        mailbox = Mailbox(state_root(config), name)
        if mailbox.driven is None:
            mailbox.forget()
        client.spark.used = True
        return Deployment(
            topology, config, spark=client.spark.given, master=client.spark.requested_master, settings=client.settings
        )
