"""`Cleanup`: what belongs to an application and can be deleted, displayed before the deletion."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from kstreams_repl.engine.topology.names import changelog_topic, internal_topic, validate_name
from kstreams_repl.host.instance.state.state_directory import application_directory
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.internal_topics import journal_topic_name
from kstreams_repl.pictures.frames import Frames
from kstreams_repl.pictures.table import Table
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.application.starting.driver_selection import refuse_driven, refuse_running
from kstreams_repl.repl.session.application.starting.journal_lookup import deployed_names
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.repl.session.session_file import SessionFiles
from kstreams_repl.repl.session.topics.internal_names import is_called_internal, journals
from kstreams_repl.system.errors import IllegalStateError, SessionFileError, TopicInUseError, UnknownTopicError, did_you_mean
from kstreams_repl.system.types import TopicPartition


class Cleanup(Frames):
    """Internal topics, consumer group and local state of an application. `apply()` deletes them; displaying it deletes nothing.

    Args:
        others: other known applications: a topic that may be theirs is kept, and `left` names it.
        own: names of topics that certainly belong to this application.
        used: names of topics that it reads or writes, which are the user's even if named like internal ones.
    """

    def __init__(
        self, admin: Admin, root: Path, name: str, others: Collection[str], own: Collection[str] = (), used: Collection[str] = ()
    ) -> None:
        self.name = name
        self._admin = admin
        self._root = root
        mine = [topic for topic in admin.topics() if is_called_internal(topic, name) and (topic in own or topic not in used)]
        # "orders" must not take what belongs to "orders-eu"
        longer = tuple(f"{other}-" for other in others if len(other) > len(name))
        self.left = tuple(topic for topic in mine if topic not in own and topic.startswith(longer))
        self.topics = tuple(topic for topic in mine if topic not in self.left)
        journal = journal_topic_name(name)
        if journal in journals(admin):
            self.topics += (journal,)
        self.group = name if name in admin.groups() else None
        directory = application_directory(root, name)
        self.directory = directory if directory.exists() else None
        self.applied = False

    def __bool__(self) -> bool:
        return bool(self.topics or self.group or self.directory)

    def apply(self) -> Cleanup:
        """Delete them. Applying it twice does nothing.

        Example:
            >>> session.cleanup("word-count", dry_run=True).apply().applied
            True
        """
        self._admin.delete_topics(self.topics)
        if self.group is not None:
            self._admin.delete_groups([self.group])
        if self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)
        self.applied = True
        return self

    def table(self) -> Table:
        """Return one row for each topic, group and directory.

        Example:
            >>> table = session.cleanup("word-count", dry_run=True).table()
        """
        rows = [("topic", topic) for topic in self.topics]
        rows += [("consumer group", self.group)] if self.group else []
        rows += [("local state", str(self.directory))] if self.directory else []
        stays = f"; {', '.join(self.left)} may belong to another application and stay" if self.left else ""
        if not rows:
            return Table.of((), (), note=f"{self.name}: nothing to delete{stays}")
        how = f"session.cleanup({self.name!r}), or %topo_remove {self.name}, deletes this"
        note = "deleted" if self.applied else f"nothing is deleted yet; {how}"
        return Table.of(("what", "name"), rows, note=note + stays)

    def __repr__(self) -> str:
        return self.table().text()

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return self.table()._repr_mimebundle_()


def _own_topics(app: ApplicationCore | None) -> set[str]:
    """Return the internal topics of an application's present topology."""
    if app is None:
        return set()
    changelogs = {changelog_topic(app.name, store) for store in app.topology.stores}
    return changelogs | {internal_topic(app.name, topic) for topic in app.topology.internal_topics}


_DESCRIBED = re.compile(r"\(topics: \[([^]]*)\]\)|\(topic: ([^)]*)\)")
"""Topics in the text of `describe()`."""


def _used_topics(files: SessionFiles, name: str, app: ApplicationCore | None) -> set[str]:
    """Return the names of the topics that its topology reads and writes, and its versions as far as the session file has them."""
    found = set() if app is None else {*app.topology.source_topics(), *app.topology.sink_topics()}
    with suppress(SessionFileError):
        for version in files.read(name).versions:
            for read, written in _DESCRIBED.findall(version.description):
                found |= {written, *read.split(", ")}
    return found


def delete_topic(client: ClusterClient, applications: Mapping[str, ApplicationCore], topic: str) -> None:
    """Delete a topic, as `Session.delete_topic`."""
    admin = client.admin
    known = admin.topics()
    if topic not in known:
        raise UnknownTopicError(
            f"there is no topic {topic!r}", hint=did_you_mean(topic, list(known)) or "session.topics() lists them", topic=topic
        )
    groups = set(admin.groups())
    partitions = [TopicPartition(topic, number) for number in range(known[topic])]

    def uses(name: str) -> bool:
        app = applications.get(name)
        if app is not None and topic in _own_topics(app) | _used_topics(client.files, name, app):
            return True
        return topic == journal_topic_name(name) or name in groups and bool(admin.committed_offsets(name, partitions, stable=False))

    users = tuple(name for name in sorted({*applications, *deployed_names(client), *groups}) if uses(name))
    if users:
        raise TopicInUseError(
            f"topic {topic!r} is used by {', '.join(users)}",
            hint=f"session.cleanup({users[0]!r}) first; session.admin.delete_topics([{topic!r}]) deletes it anyway",
            topic=topic,
            applications=users,
        )
    admin.delete_topics([topic])
    client.serdes.forget(topic)


def cleanup_of(client: ClusterClient, applications: Mapping[str, ApplicationCore], name: str) -> Cleanup:
    """List what belongs to an application, as `Session.cleanup`.

    Raises:
        IllegalStateError: it is running.
    """
    app = applications.get(name)
    if app is not None and app.status in ("starting", "running"):
        raise IllegalStateError(
            f"expected {name} to be stopped, paused or failed, but it is {app.status}",
            hint=f"stop it first: session.applications[{name!r}].stop()",
        )
    root = client.state_root
    if app is None:
        refuse_driven(name, root)
    refuse_running(name, root, attached=app is not None)
    # includes those of other kernels and hosts: their journals, and the groups of Kafka Streams applications
    others = {*applications, *deployed_names(client), *client.admin.groups()} - {name}
    used = _used_topics(client.files, name, app)
    return Cleanup(client.admin, root, validate_name(name, "application"), others, _own_topics(app), used)
