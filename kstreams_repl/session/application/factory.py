"""Create the `Application` for a deployed topology, and choose what drives it: this process or a detached one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstreams_repl.config import StreamsConfig
from kstreams_repl.instance.state.state_directory import state_root
from kstreams_repl.session.application.application import Application
from kstreams_repl.session.application.detached.mailbox import Mailbox
from kstreams_repl.session.application.versions import VersionHistory
from kstreams_repl.topology.topology import Topology

if TYPE_CHECKING:
    from kstreams_repl.session.session import Session


def make_application(
    session: Session,
    name: str,
    topology: Topology,
    config: StreamsConfig,
    history: VersionHistory,
    known: Application | None = None,
    *,
    found: str | None = None,
    detached: bool | None = None,
) -> Application:
    """Create the object for an application. It drives nothing yet.

    Args:
        known: the session's present object for it; it is stopped.
        found: its status according to the journal, for an application that was attached.
        detached: whether a process of its own drives it; None: as it was deployed.
    """
    # imported on the first deploy: they import Spark
    from kstreams_repl.session.application.detached.client import DetachedDeployment
    from kstreams_repl.spark.deployment import Deployment

    mailbox = Mailbox(state_root(config), name)
    if detached is None:
        detached = mailbox.record is not None
    if known is not None:
        known.stop()
    if detached:
        apart = DetachedDeployment(topology, config, session.settings, session.directory.path, session.master)
        return Application(session, name, topology, config, apart, history, found=found, detached=True)
    if mailbox.driven is None:
        mailbox.forget()
    deployment = Deployment(topology, config, spark=session._spark, master=session._master, settings=session.settings)
    return Application(session, name, topology, config, deployment, history, found=found)
