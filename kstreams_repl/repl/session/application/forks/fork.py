"""`Fork`: a change that runs beside the application, on the same input and with its state, until it is promoted or dropped."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from kstreams_repl.engine.config import KEYS, SNAPSHOT_DIR, StreamsConfig
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.instance.state.snapshot_directory import shown_address
from kstreams_repl.host.instance.state.state_directory import state_root
from kstreams_repl.host.kafka.admin import Admin, NewTopicSpec
from kstreams_repl.pictures.frames import Frames
from kstreams_repl.pictures.table import Table
from kstreams_repl.pictures.wording import moment
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.application.edits.edit import EditPlan
from kstreams_repl.repl.session.application.forks.dropping import Registry, drop_fork, drop_orphans
from kstreams_repl.repl.session.application.forks.fork_plan import SNAPSHOTS, ForkPlan
from kstreams_repl.repl.session.application.forks.fork_record import ForkRecord, read_records, write_record
from kstreams_repl.repl.session.application.forks.fork_start import ForkStart
from kstreams_repl.repl.session.application.forks.promotion import promote_fork
from kstreams_repl.repl.session.application.forks.written_since import LiveDifferences
from kstreams_repl.repl.session.application.life.registry import ApplicationRegistry
from kstreams_repl.repl.session.application.starting.deploy import deploy
from kstreams_repl.repl.session.cleanup import cleanup_of
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.system.durations import Seconds, as_seconds
from kstreams_repl.system.errors import DeployError, IllegalStateError
from kstreams_repl.system.processes import ProcessMark
from kstreams_repl.system.types import TopicPartition

if TYPE_CHECKING:
    from kstreams_repl.repl.session.views.compare.comparison import Comparison

_COPIED = ("cleanup.policy", "max.message.bytes", "compression.type")
"""Settings of an output that the fork's topic in its place has, too."""


class Fork(Frames):
    """A change that runs beside the application. Get one from `Application.fork`, or from `Session.forks`.

    It is an application of its own, ``<application>.<fork>``: `application` shows its state, stores and numbers like those of any other.
    It reads no further than its parent has committed, so it is always a little behind.

    Attributes:
        name: its name, without its parent's.
        parent: its parent's name.
        application: what runs; None in a session that did not make it.
        plan: what it changes; None in a session that did not make it.

    Example:
        >>> fork = app.fork("cheaper", builder)        # doctest: +SKIP
        >>> fork.drop()                                # doctest: +SKIP
    """

    def __init__(
        self, client: ClusterClient, registry: Registry, record: ForkRecord, application: Any = None, plan: ForkPlan | None = None
    ) -> None:
        self._client, self._registry, self._record = client, registry, record
        self.name, self.parent = record.name, record.application
        self.application, self.plan = application, plan
        self._live: LiveDifferences | None = None

    @property
    def id(self) -> str:
        """Its application id.

        Example:
            >>> fork.id     # doctest: +SKIP
            'word-count.cheaper'
        """
        return self._record.id

    @property
    def outputs(self) -> dict[str, str]:
        """The topics that it writes, by the topic that its parent writes.

        Example:
            >>> fork.outputs     # doctest: +SKIP
            {'counted': 'word-count.cheaper-counted'}
        """
        return dict(self._record.outputs)

    @property
    def status(self) -> str:
        """As `Application.status`; "orphan" when the process that made it is gone, "held by process N" in another session.

        Example:
            >>> fork.status     # doctest: +SKIP
            'running'
        """
        if self.application is not None:
            return str(self.application.status)
        return "orphan" if self._record.is_orphan else f"held by process {self._record.pid}"

    def compare(self, *, end: object = None, calls: bool = False, samples: int = 20) -> Comparison:
        """Return what it makes of the records since it was made, compared with what its parent makes of them.

        Both topologies process the records again, from the commit that the fork began with, as `Application.compare`: so what differs is
        the change, and nothing else. It ends at a commit of the parent, which the fork may not have reached yet.

        Args:
            end: the commit of the parent where it ends, as `as_of` of `Session.sql`; None: the last one.
            calls: whether functions of asynchronous nodes may be called where no answer is recorded.
            samples: how many rows that differ are kept of each output and store.

        Raises:
            InvalidStateStoreError: nothing was processed since, or the records are not known any more.
            IllegalStateError: the parent was edited since, or this session did not make the fork.

        Example:
            >>> fork.compare().first     # doctest: +SKIP
        """
        from kstreams_repl.repl.session.views.compare.of_application import compare_from

        parent, _, plan = self._made_here("compare")
        if parent.versions[-1].number != self._record.base_version:
            raise IllegalStateError(
                f"{self.parent} was edited since the fork {self.name!r} was made", hint="drop it, or use app.compare(builder)"
            )
        return compare_from(parent, plan.edit, self._record.commits, end=end, calls=calls, samples=samples)

    def live(self) -> Table:
        """Return how what it has written differs so far from what its parent has written since it began.

        One row for each store and output: keys whose last record is equal, changed, or there on one side only, and records per second
        since the last call. Both go on meanwhile, so keys of records that only one of them has processed yet may differ; the note says how
        far the fork is behind. `compare` tells it exactly, and from which node on. All keys that were written are held in memory.

        Raises:
            IllegalStateError: this session did not make the fork.

        Example:
            >>> fork.live()     # doctest: +SKIP
        """
        if self._live is None:
            parent, core, plan = self._made_here("watch")
            self._live = LiveDifferences(parent, core, self._record, plan)
        return self._live.table()

    def promote(self, emit: str = "from-now", *, timeout: Seconds = 60.0) -> EditPlan:
        """Make it the application: its topology is the next version of its parent, its stores' rows are the parent's, in one transaction.

        The parent is paused at a commit, the fork follows to the same offsets, and the parent's next generation goes on from there.
        Then the fork is dropped. A crash leaves the old application or the new one. `Application.rollback` goes back as after an edit.

        Args:
            emit: what readers of the parent's outputs get: "from-now": results of later records only; "diff": before these, for each key
                whose last value since the fork began is another one in the fork, that value (if the fork wrote none: the one from
                before, or a deletion).
            timeout: seconds to wait until both are at the same offsets.

        Returns:
            The edit of the parent, with its version.

        Raises:
            IllegalStateError: the parent was edited since, is driven by another process or has failed, the fork has failed, or the two did
                not reach the same offsets in time. Nothing was changed.
            TopologyError: a store of the fork has rows that cannot be written to the parent's changelog.

        Example:
            >>> fork.promote().version     # doctest: +SKIP
            2
        """
        seconds = as_seconds(timeout, "timeout")
        parent, core, plan = self._made_here("promote")
        applied = promote_fork(parent, core, self._record, plan, emit, seconds)
        self.drop()
        return applied

    def _made_here(self, what: str) -> tuple[ApplicationCore, ApplicationCore, ForkPlan]:
        parent, core = self._registry.get(self.parent), self._registry.get(self.id)
        if parent is None or core is None or self.plan is None:
            raise IllegalStateError(
                f"this session has not made the fork {self.id}, or its parent is not attached",
                hint=f"{what} it where it was made",
            )
        return parent, core, self.plan

    def drop(self) -> None:
        """Stop it and delete all of it: topics, group, state, files. Dropping twice does nothing.

        A drop that was interrupted is finished by another one; a session drops the forks whose process is gone.

        Raises:
            IllegalStateError: another process holds it.

        Example:
            >>> fork.drop()     # doctest: +SKIP
        """
        drop_fork(self._client, self._registry, self._record)

    def table(self) -> Table:
        """Return what it is, as rows.

        Example:
            >>> fork.table()     # doctest: +SKIP
        """
        record = self._record
        rows: list[tuple[object, ...]] = [
            ("status", self.status),
            ("version of the parent", record.base_version),
            ("made", moment(record.at_ms / 1000)),
            ("seconds until it was started", round(record.seconds, 2)),
            ("seconds for which the parent was paused", round(record.gap_seconds, 2)),
            *((f"writes in place of {topic}", own) for topic, own in record.outputs.items()),
            *((f"{node} does not", effect) for node, effect in record.left_out.items()),
            *(("began empty", store) for store in record.empty),
        ]
        return Table.of(("what", ""), rows, title=self.id, note=f"fork {self.name!r} of {self.parent}")

    def __repr__(self) -> str:
        return f"Fork({self.name!r} of {self.parent}, version {self._record.base_version}, {self.status})"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return self.table()._repr_mimebundle_()


class Forks(Frames, dict[str, Fork]):
    """The forks in a session's directory by id, displayed as a table."""

    def table(self) -> Table:
        """Return one row for each fork.

        Example:
            >>> session.forks.table()     # doctest: +SKIP
        """
        rows = [(fork.parent, fork.name, fork.status, len(fork.outputs)) for fork in self.values()]
        return Table.of(
            ("application", "fork", "status", "outputs"),
            rows,
            note="" if rows else 'no forks; app.fork("name", builder) makes one',
        )

    def __repr__(self) -> str:
        return f"Forks({', '.join(f'{fork.id} {fork.status}' for fork in self.values())})"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return self.table()._repr_mimebundle_()


def forks_of(client: ClusterClient, registry: Registry, handle: Callable[[ApplicationCore], object]) -> Forks:
    """Return the forks in a session's directory.

    Args:
        handle: returns the user's handle on an application.
    """
    forks = Forks()
    for record in read_records(client.directory.path):
        core = registry.get(record.id)
        application, plan = (None, None) if core is None else (handle(core), core.forked)
        forks[record.id] = Fork(client, registry, record, application, plan)
    return forks


def begin_fork(parent: ApplicationCore, plan: ForkPlan) -> tuple[ForkRecord, ApplicationCore]:
    """Make a fork and start it, as `Application.fork`; return its record and the application that it is.

    Raises:
        DeployError: there is a fork of that name, or something of an application with its id.
    """
    client, registry, began = parent.client, cast(ApplicationRegistry, parent.registry), time.monotonic()
    parent.finish_start()
    drop_orphans(client, registry)
    if any(record.id == plan.id for record in read_records(client.directory.path)) or plan.id in registry:
        raise DeployError(
            f"{parent.name} has a fork {plan.name!r} already",
            hint=f"drop it: session.forks[{plan.id!r}].drop(); or choose another name",
        )
    uri = plan.config[SNAPSHOT_DIR]
    own, mark = cleanup_of(client, registry, plan.id), ProcessMark.own()
    record = ForkRecord(
        parent.name,
        plan.name,
        parent.versions[-1].number,
        time.time_ns() // 1_000_000,
        mark.pid,
        mark.born,
        socket.gethostname(),
        str(state_root(plan.config)),
        "" if uri.endswith(SNAPSHOTS) or shown_address(uri) != uri else uri,
        dict(plan.runs.outputs),
        left_out=dict(plan.runs.left_out),
        empty=plan.empty,
    )
    if own.topics or own.group or own.directory:
        raise DeployError(
            f"there is something of an application {plan.id} already", hint=f"session.cleanup({plan.id!r}, dry_run=True) lists it"
        )
    write_record(client.directory.path, record)
    try:
        _create_outputs(client.admin, plan)
        started: list[ForkStart] = []

        def begin(topology: Topology, config: StreamsConfig) -> ForkStart:
            started.append(ForkStart(parent, plan.runs, plan.empty, plan.id, topology, config, own))
            return started[0]

        settings = {
            key: plan.config[key] for key in plan.config.given if key in KEYS and key != "application.id"
        } | plan.config.client
        settings.pop("bootstrap.servers", None)
        core = deploy(client, registry, plan.topology, plan.id, settings, None, beginning=begin, share_outputs=True)
        core.forked = plan
        cut = started[0].cut
        assert cut is not None
        record = replace(
            record, since=_by_topic(cut.since), bases=_by_topic(started[0].bases),
            commits={str(task): commit.commit_id for task, commit in cut.commits.items()},
            seconds=time.monotonic() - began, gap_seconds=cut.gap_seconds,
        )  # fmt: skip
        write_record(client.directory.path, record)
    except BaseException:
        drop_fork(client, registry, record)
        raise
    return record, core


def _create_outputs(admin: Admin, plan: ForkPlan) -> None:
    counts = admin.topics()
    known = [topic for topic in plan.runs.outputs if topic in counts]  # the deploy names those that are missing
    configs = admin.topic_configs(known)
    admin.create_topics([
        NewTopicSpec(plan.runs.outputs[topic], counts[topic], {key: configs[topic][key] for key in _COPIED if key in configs[topic]})
        for topic in known
    ])  # fmt: skip


def _by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for at, offset in offsets.items():
        found.setdefault(at.topic, {})[at.partition] = offset
    return found
