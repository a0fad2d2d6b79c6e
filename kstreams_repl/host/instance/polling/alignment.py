"""Event-time alignment: tasks whose records meet behind a repartition advance together, in the order of event time.

The records of each partition are in order, and history is fetched partition by partition: processed in that order, most of it would be
late for the windows behind a repartition. So the task with the oldest head goes first, and no task passes the time at which the oldest
head of the others would be late for an operator downstream (`engine.operators.lateness`). With hourly windows all tasks process an hour,
then the next one; with sliding windows, record by record.

Actors: *groups* of sub-topologies that feed the same time-sensitive operators; a *low* for each task, the event time of its oldest
record; *peers*, the other instances, which report their lows as of a commit, so that records in flight count. A partition at its end
has no low. One whose next records are on their way holds the others with the last time that it had, for at most `_FETCH_SECONDS` in
which the loop polled (a process that stood still has not waited); a peer without a report for `_PEER_SECONDS` is ignored. Without a
time-sensitive operator behind a repartition there are no groups, and nothing is done. Design: docs/design/022-event-time-alignment.md.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from kstreams_repl.host.instance.alignment_rules import NOTHING, AlignmentRule
from kstreams_repl.host.instance.control.channel import PeerTimes, ReportedTimes
from kstreams_repl.host.instance.polling.input_positions import InputPositions
from kstreams_repl.host.instance.tasks.active_task import SLICE_SECONDS, ActiveTask
from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.system.types import TaskId, TopicPartition

UNKNOWN = -1
_FETCH_SECONDS = 20.0
_ROUND_SECONDS = 0.5
"""Most of one round of the loop that counts as waiting for a fetch."""
_PEER_SECONDS = 10.0
_REPORT_SECONDS = 1.0
_ASK_SECONDS = 0.1
"""Shortest time between requests for the ends of intermediate topics, while records wait for them."""
_COMMIT_SECONDS = 0.2
"""Longest time between commits while others may wait for this instance."""
_LIVE_SECONDS = 0.1
"""An instance that has met all ends within this time does not hold its peers: its input is live."""


@dataclass(slots=True, eq=False)
class _Group:
    rule: AlignmentRule
    tasks: dict[TaskId, ActiveTask] = field(default_factory=dict)
    lows: dict[TaskId, int] = field(default_factory=dict)
    fetching: dict[TaskId, list[TopicPartition]] = field(default_factory=dict)
    """Partitions without a record whose next records are on their way; their task's low may change with them."""
    ignored: set[TopicPartition] = field(default_factory=set)
    """Partitions that were waited for too long."""
    peers_limit: int = NOTHING
    upstream_low: int = NOTHING
    held: bool = False
    held_by_peers: bool = False
    """Whether it waits for other instances, rather than for its own tasks."""
    waited: float = 0.0
    """Seconds for which it has been held."""


@dataclass(slots=True)
class _Arriving:
    """Lows that were reported, and the ends of intermediate topics as of later: the records below these lows are below these ends."""

    lows: Sequence[int]
    ask: Callable[[], dict[TopicPartition, int] | None]
    ends: dict[TopicPartition, int] | None = None

    def have_arrived(self, positions: InputPositions, tasks: Sequence[ActiveTask]) -> bool:
        """Raises KStreamsError if the broker could not say."""
        if self.ends is None:
            self.ends = self.ask()
        return self.ends is not None and all(positions.has_reached(task, self.ends) for task in tasks)


def _lowest(lows: Sequence[Sequence[int]], number: int) -> int:
    return min((times[number] for times in lows if number < len(times)), default=NOTHING)


def _run(group: _Group, count: int) -> int:
    done, until = 0, time.monotonic() + SLICE_SECONDS
    while done < count and time.monotonic() < until:
        for name in sorted(group.lows, key=group.lows.__getitem__):
            taken = group.tasks[name].process(count)
            if taken:
                done += taken
                break
        else:
            break
    return done


class Alignment:
    """The alignment of one instance. Lows are changed by whichever thread holds the task; any thread may read them.

    Args:
        slots: number of instances.
    """

    def __init__(self, rules: Sequence[AlignmentRule], positions: InputPositions, slots: int) -> None:
        self._groups = [_Group(rule) for rule in rules]
        self._positions = positions
        self._slots = slots
        self._peers: PeerTimes | None = None
        self._reported: list[int] | None = None
        self._latest: Sequence[int] | None = None
        """Lows of all instances by group, as they last reported them."""
        self._arriving: _Arriving | None = None
        self._arrived: Sequence[int] | None = None
        """Such lows, with all records below them in the queues of this instance."""
        self._reported_at = self._began = self._met_ends_at = self._round_at = self._asked_at = -math.inf

    def add(self, task: ActiveTask) -> None:
        """Add a running task, if it belongs to a group."""
        for group in self._groups:
            if task.id.subtopology in group.rule.parts:
                group.tasks[task.id] = task
                task.aligned_by(partial(self._limit, group, task), partial(self._update, group, task))
                self._update(group, task, False)

    def begin(self, peers: PeerTimes | None, now: float) -> None:
        """Begin with a loop: what was waited for before is waited for again."""
        self._peers = peers if self._slots > 1 else None
        self._reported = None
        self._began = now
        self._latest = self._arriving = self._arrived = None
        self._met_ends_at = -math.inf
        for group in self._groups:
            group.held, group.waited = False, 0.0
            group.ignored.clear()
        self.exchange(now, in_flight=False)

    def run(self, count: int) -> int:
        """Process records of the aligned tasks, those with the oldest record first, until none may go on, at least `count` records were
        processed, or a slice's time is over, as with one task's `process`; return how many were processed.
        """
        return sum(_run(group, count) for group in self._groups)

    @property
    def groups(self) -> int:
        """Number of groups."""
        return len(self._groups)

    @property
    def is_fetching(self) -> bool:
        """Whether the records of a partition are on their way, which others wait for."""
        return any(group.fetching or group.upstream_low != NOTHING for group in self._groups)

    @property
    def is_held(self) -> bool:
        """Whether records wait for other tasks or instances."""
        return any(group.held for group in self._groups)

    def wants_commit(self, seconds: float) -> bool:
        """Return whether to commit, `seconds` after the last commit, because other instances or groups may wait for it. One that waits
        for other instances itself commits at once: they take turns, so with small windows each commit is a step for all.
        """
        at_once = any(group.held and group.held_by_peers for group in self._groups)
        return self._is_waited_for and (at_once or seconds >= _COMMIT_SECONDS) and self._is_behind(time.monotonic())

    def exchange(self, now: float, *, in_flight: bool) -> None:
        """Report the lows to the other instances, and read theirs. Call it in every round of the loop.

        Args:
            in_flight: records were processed since the last commit; the lows as of that commit then hold on.
        """
        for group in self._groups:
            if group.held:
                group.waited += min(now - self._round_at, _ROUND_SECONDS)
        self._round_at = now
        ahead = self._upstream(now)
        lows = [min(self._lowest(group), low) for group, low in zip(self._groups, ahead, strict=True)]
        if all(low == NOTHING for low in lows):
            self._met_ends_at = now
        if not self._is_waited_for:
            return
        known = all(low != UNKNOWN or group.rule.upstream for group, low in zip(self._groups, lows, strict=True))
        if known and not in_flight:
            reported: list[int] | None = lows if self._is_behind(now) else [NOTHING] * len(lows)
        else:
            reported = self._reported
        if reported is not None and (reported != self._reported or now - self._reported_at >= _REPORT_SECONDS):
            if self._peers is not None:
                self._peers.report(reported)
            self._reported, self._reported_at = reported, now
        others = [] if self._peers is None else self._peers.others()
        theirs = [times for times in map(self._holding, others) if times is not None]
        ours = self._holding(None if reported is None else (reported, 0.0))
        every = theirs if ours is None else [*theirs, ours]
        self._latest = [_lowest(every, number) for number in range(len(self._groups))]
        for number, group in enumerate(self._groups):
            group.upstream_low = ahead[number]
            group.peers_limit = min(group.rule.limit(_lowest(theirs, number), peers=True), group.rule.limit(ahead[number]))

    def _upstream(self, now: float) -> list[int]:
        """Return for each group the event time up to which all output of the groups upstream is in the queues of its tasks: what all
        instances had committed before the ends of its topics were asked for, once these are reached.
        """
        behind = [group for group in self._groups if group.rule.upstream]
        tasks = [task for group in behind for task in group.tasks.values()]
        arriving = self._arriving
        if arriving is not None:
            try:
                if arriving.have_arrived(self._positions, tasks):
                    self._arrived, self._arriving = arriving.lows, None
            except KStreamsError:  # the consumer reports the cause; asked again later, as each failure may have made another admin client
                self._arriving, self._asked_at = None, now + _REPORT_SECONDS
        elif self._latest is not None and self._latest != self._arrived and now - self._asked_at >= _ASK_SECONDS:
            if tasks and (self._arrived is None or any(group.held for group in behind)):
                self._asked_at, self._arriving = now, _Arriving(self._latest, self._positions.ask_ends(tasks))
        if self._arrived is not None:
            times = self._arrived
        else:
            times = [UNKNOWN if self._is_behind(now) and now - self._began < _PEER_SECONDS else NOTHING] * len(self._groups)
        return [min((times[other] for other in group.rule.upstream), default=NOTHING) for group in self._groups]

    @property
    def _is_waited_for(self) -> bool:
        return self._peers is not None or any(group.rule.upstream for group in self._groups)

    def _holding(self, reported: ReportedTimes | None) -> Sequence[int] | None:
        """Return the lows of another instance; None if this one need not wait for it."""
        if reported is None:
            now = time.monotonic()
            return [UNKNOWN] * len(self._groups) if now - self._began < _PEER_SECONDS and self._is_behind(now) else None
        lows, age = reported
        return lows if age < _PEER_SECONDS else None

    def _is_behind(self, now: float) -> bool:
        return now - self._met_ends_at > _LIVE_SECONDS

    # ---- one task

    def _limit(self, group: _Group, task: ActiveTask) -> int:
        """Return the event time that the task must not process now."""
        limit = self._limit_now(group, task)
        head = task.task.head_time
        if head is None or head < limit:
            return limit
        group.held, group.held_by_peers = True, head >= group.peers_limit and not group.rule.upstream
        if group.waited > _FETCH_SECONDS:
            group.waited = 0.0
            group.ignored.update(partition for partitions in group.fetching.values() for partition in partitions)
            limit = self._limit_now(group, task)
        return limit

    def _limit_now(self, group: _Group, task: ActiveTask) -> int:
        for name in list(group.fetching):
            self._update(group, group.tasks[name], False)
        lowest = min((low for name, low in group.lows.items() if name != task.id), default=NOTHING)
        return min(group.rule.limit(lowest), group.peers_limit)

    def _update(self, group: _Group, task: ActiveTask, processed: bool) -> None:
        """Take the task's low after it received or processed records."""
        low, fetching = NOTHING, []
        for partition, queue in task.task.queues.items():
            if queue.has_head and not queue.corrupted:
                group.ignored.discard(partition)
                low = min(low, queue.head_ts)
            elif queue.size:  # its thread is in between two records
                low = min(low, queue.partition_time)
            elif not self._positions.is_at_end(task, partition):
                fetching.append(partition)
                if partition not in group.ignored:
                    low = min(low, queue.partition_time)
        group.lows[task.id] = low
        if fetching:
            group.fetching[task.id] = fetching
        else:
            group.fetching.pop(task.id, None)
        if processed:
            group.held, group.waited = False, 0.0

    def _lowest(self, group: _Group) -> int:
        for name in list(group.fetching):
            self._update(group, group.tasks[name], False)
        return min(group.lows.values(), default=NOTHING)
