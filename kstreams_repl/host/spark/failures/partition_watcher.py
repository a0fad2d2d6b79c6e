"""Watch input topics of a running application for new partitions, new topics that match a source's pattern, and deleted topics.

One thread per running application requests partition counts from the broker at intervals and passes changes to the deployment, which
creates a new plan: existing partition groups keep their tasks, new ones get new tasks (KIP-28). A changelog cannot grow, because its
partitions are tied to the tasks' keys; growth that would require it ends the application with an error and a hint. Continuing with the old
partitions would count some keys in two partitions and others not at all. A deleted topic ends the application too: the client would wait
for it forever.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence

from kstreams_repl.engine.topology.names import internal_topic
from kstreams_repl.engine.topology.nodes import SourceNode
from kstreams_repl.engine.topology.partitions import own_topics
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.system.errors import KStreamsError, PartitionsChangedError, UnknownTopicError

_SURE_SECONDS = 1.0
_LOG = logging.getLogger("kstreams_repl.host.spark")


def growth_of(topology: Topology, plan: ApplicationPlan, counts: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Return input topics with more partitions than planned: name -> (planned, now). New topics that match a pattern count from 0."""
    inputs = {partition.topic for specs in plan.assignment for spec in specs for partition in spec.partitions}
    inputs |= {partition.topic for partition in plan.global_partitions}
    own = own_topics(topology, plan.application_id)
    internal = {internal_topic(plan.application_id, name) for name in topology.internal_topics}
    grown = {
        topic: (plan.partition_counts[topic], counts[topic])
        for topic in sorted(inputs - internal)
        if counts.get(topic, 0) > plan.partition_counts.get(topic, 0)
    }
    for node in topology.nodes.values():
        if isinstance(node, SourceNode) and node.pattern is not None:
            for topic in sorted(counts):
                if topic not in inputs and topic not in own and node.pattern.fullmatch(topic):
                    grown[topic] = (0, counts[topic])
    return grown


def gone_topics(plan: ApplicationPlan, counts: Mapping[str, int]) -> tuple[str, ...]:
    """Return the topics of the plan's tasks, and global ones, that no longer exist."""
    inputs = {partition.topic for specs in plan.assignment for spec in specs for partition in spec.partitions}
    return tuple(sorted((inputs | {partition.topic for partition in plan.global_partitions}) - counts.keys()))


def loss(application_id: str, gone: Collection[str]) -> UnknownTopicError:
    """Return the error for topics that were deleted while the application was running."""
    several = len(gone) > 1
    return UnknownTopicError(
        f"{', '.join(map(repr, gone))}, which {application_id} reads, {'were' if several else 'was'} deleted while it was running",
        hint=f"state and other topics are unchanged; create {'them' if several else 'it'} again and resume: a recreated topic is read "
        "like a new one, starting at auto.offset.reset",
        topic=next(iter(gone)),
        topics=tuple(gone),
        application=application_id,
    )


def refusal(application_id: str, grown: Mapping[str, tuple[int, int]], cause: KStreamsError) -> PartitionsChangedError:
    """Return the error for new partitions that the application cannot read."""
    what = ", ".join(f"{topic} has {now} partitions instead of {before}" for topic, (before, now) in grown.items())
    return PartitionsChangedError(
        f"{what}, and {application_id} cannot read the new ones: {cause.message}",
        hint="stopped at a commit, no data are lost; put .repartition(partitions=<as many as before>) before the stateful step "
        "under another application.id, or reset the application, which recreates its state; "
        "or write to a topic with the old number of partitions",
        topic=next(iter(grown)),
    )


class PartitionWatch:
    """Polls the broker's partition counts in a thread until it is closed or has found a change.

    Args:
        seconds: interval between checks.
        found: called in the thread with the results of `growth_of` and `gone_topics`; the watch ends when it returns True.
        stay: called with each check, for periodic work while the application runs.
    """

    def __init__(
        self,
        admin: Admin,
        topology: Topology,
        plan: ApplicationPlan,
        *,
        seconds: float,
        found: Callable[[Mapping[str, tuple[int, int]], Sequence[str]], bool],
        stay: Callable[[], object],
    ) -> None:
        self._admin = admin
        self._topology = topology
        self._plan = plan
        self._seconds = seconds
        self._found = found
        self._stay = stay
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"partitions-{plan.application_id}", daemon=True)

    def start(self) -> PartitionWatch:
        self._thread.start()
        return self

    def close(self) -> None:
        """End the watch without waiting for its thread."""
        self._over.set()

    def _run(self) -> None:
        while not self._over.wait(self._seconds):
            try:
                self._stay()
                counts = self._admin.topics()
                grown, lost = growth_of(self._topology, self._plan, counts), gone_topics(self._plan, counts)
                if lost and not self._over.wait(_SURE_SECONDS):  # a broker that has just started may not list all of them yet
                    lost = tuple(topic for topic in gone_topics(self._plan, self._admin.topics()) if topic in lost)
            except KStreamsError as error:
                _LOG.info("cannot check the partitions of %s now: %s", self._plan.application_id, error)
                continue
            if (grown or lost) and not self._over.is_set() and self._found(grown, lost):
                return
