"""`Cleanup`: what belongs to an application and would be deleted, shown before it is."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kstreams_repl.display.table import Table
from kstreams_repl.errors import KStreamsError
from kstreams_repl.instance.state_directory import application_directory
from kstreams_repl.kafka.admin import Admin
from kstreams_repl.kafka.internal_topics import journal_topic_name
from kstreams_repl.session.driving import refuse_driven
from kstreams_repl.topology.names import validate_name

if TYPE_CHECKING:
    from kstreams_repl.session.session import Session

SUFFIXES = ("-changelog", "-repartition")


class Cleanup:
    """Internal topics, consumer group and local state of an application. `apply()` deletes them; looking deletes nothing."""

    def __init__(self, admin: Admin, root: Path, name: str, others: frozenset[str]) -> None:
        self.name = name
        self._admin = admin
        self._root = root
        there = admin.topics()
        mine = [topic for topic in there if topic.startswith(f"{name}-") and topic.endswith(SUFFIXES)]
        # "orders" must not take what belongs to "orders-eu", whoever runs that
        longer = {other for other in others | journal_holders(admin, there) if other.startswith(f"{name}-")}
        self.topics = tuple(topic for topic in mine if not any(_is_of(topic, other) for other in longer))
        journal = journal_topic_name(name)
        if journal in there:
            self.topics += (journal,)
        self.group = name if name in admin.groups() else None
        directory = application_directory(root, name)
        self.directory = directory if directory.exists() else None
        self.applied = False

    def __bool__(self) -> bool:
        return bool(self.topics or self.group or self.directory)

    def apply(self) -> Cleanup:
        """Delete them; doing it again does nothing more."""
        self._admin.delete_topics(self.topics)
        if self.group is not None:
            self._admin.delete_groups([self.group])
        if self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)
        self.applied = True
        return self

    def table(self) -> Table:
        rows = [("topic", topic) for topic in self.topics]
        rows += [("consumer group", self.group)] if self.group else []
        rows += [("local state", str(self.directory))] if self.directory else []
        if not rows:
            return Table.of((), (), note=f"{self.name}: nothing to delete")
        note = "deleted" if self.applied else f"nothing is deleted yet; cleanup({self.name!r}, confirm=True) deletes this"
        return Table.of(("what", "name"), rows, note=note)

    def __repr__(self) -> str:
        return self.table().text()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return self.table()._repr_mimebundle_()


def journal_holders(admin: Admin, topics: Mapping[str, int]) -> set[str]:
    """Every application that has a journal on the cluster, as all do that ever ran here."""
    ending = journal_topic_name("")
    found = [topic for topic, partitions in topics.items() if partitions == 1 and topic.endswith(ending) and topic != ending]
    configs = admin.topic_configs(found)
    return {topic.removesuffix(ending) for topic in found if configs.get(topic, {}).get("cleanup.policy") == "compact"}


def _is_of(topic: str, application: str) -> bool:
    """Whether it can be an internal topic of that application: ``<application>-<store>-changelog``."""
    rest = topic.removeprefix(f"{application}-")
    return rest != topic and rest.endswith(SUFFIXES)


def cleanup_of(session: Session, name: str, *, confirm: bool) -> Cleanup:
    """As `Session.cleanup`."""
    app = session._applications.get(name)
    if app is not None and app.status in ("starting", "running"):
        raise KStreamsError(f"{name} is {app.status}", hint=f"session.applications[{name!r}].stop() first")
    if app is None:
        refuse_driven(name, session._state_root())
    others = frozenset(session._applications) - {name}
    found = Cleanup(session.admin, session._state_root(), validate_name(name, "application"), others)
    if confirm:
        if app is not None:
            app.stop()
            del session._applications[name]
        found.apply()
    return found
