"""Partitions that are added to input topics while an application runs, and new topics that match a source's pattern.

A thread per running application asks the broker for partition counts now and then. What it finds it hands to the deployment, which
plans anew: groups of partitions that existed keep their tasks, new ones get new tasks (KIP-28). A changelog cannot follow: its
partitions are tied to the tasks' keys, so growth that would need more of them ends the application with an error that tells the
way out. Going on with the old partitions would count some keys twice in two places and others not at all.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from kstreams_repl.errors import KStreamsError, PartitionsChangedError
from kstreams_repl.instance.plan import ApplicationPlan
from kstreams_repl.kafka.admin import Admin
from kstreams_repl.topology.names import internal_topic
from kstreams_repl.topology.nodes import SourceNode
from kstreams_repl.topology.partitions import own_topics

_LOG = logging.getLogger("kstreams_repl.spark")


def growth_of(topology: Any, plan: ApplicationPlan, counts: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Input topics with more partitions than planned: name -> (planned, now). A topic that a pattern has come to match counts from 0."""
    inputs = {at.topic for specs in plan.assignment for spec in specs for at in spec.partitions}
    inputs |= {at.topic for at in plan.global_partitions}
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


def refusal(application_id: str, grown: Mapping[str, tuple[int, int]], cause: KStreamsError) -> PartitionsChangedError:
    """The error of growth that the application cannot follow."""
    what = ", ".join(f"{topic} has {now} partitions instead of {before}" for topic, (before, now) in grown.items())
    return PartitionsChangedError(
        f"{what}, and {application_id} cannot follow: {cause.message}",
        hint="stopped at a commit, nothing is lost; put .repartition(partitions=<as many as before>) before the stateful step "
        "under another application.id, or reset the application, which makes its state anew; "
        "or write to a topic with the old number of partitions",
        topic=next(iter(grown)),
    )


class PartitionWatch:
    """Looks at the broker's partition counts in a thread until it is closed or has found growth.

    Args:
        seconds: how far apart looks are.
        found: called in the thread with what `growth_of` tells; the watch is over when it returns True.
        stay: called with each look, for what has to be done now and then while the application runs.
    """

    def __init__(
        self,
        admin: Admin,
        topology: Any,
        plan: ApplicationPlan,
        *,
        seconds: float,
        found: Callable[[Mapping[str, tuple[int, int]]], bool],
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
        """Look no more; does not wait."""
        self._over.set()

    def _run(self) -> None:
        while not self._over.wait(self._seconds):
            try:
                self._stay()
                grown = growth_of(self._topology, self._plan, self._admin.topics())
            except KStreamsError as error:
                _LOG.info("%s cannot be looked after now: %s", self._plan.application_id, error)
                continue
            if grown and not self._over.is_set() and self._found(grown):
                return
