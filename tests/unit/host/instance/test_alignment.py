"""Event-time alignment within an instance: partitions that meet behind a repartition advance together."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from kstreams_repl import (
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindows,
    Topology,
)
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.host.instance.alignment_rules import NOTHING, alignment_rules
from kstreams_repl.host.instance.control.channel import ReportedTimes, Signal
from kstreams_repl.host.instance.control.event_times import FileTimes, JournalTimes
from kstreams_repl.host.instance.instance import Instance
from kstreams_repl.host.instance.polling import alignment
from kstreams_repl.host.instance.polling.poll_loop import PollLoop
from kstreams_repl.host.instance.polling.processing_threads import ThreadedPollLoop
from kstreams_repl.host.journal.journal_records import InstanceHeartbeat
from kstreams_repl.system.types import TaskId, TopicPartition
from tests.unit.engine.runtime.rig import Outbox
from tests.unit.host.instance.rig import Client, instance_of, rows

HOUR = 3_600_000
MINUTE = 60_000
DAY = 24 * HOUR


def hourly(**options: Any) -> Topology:
    """A count per hour behind a repartition."""
    return windowed(TimeWindows.of_size_with_no_grace(HOUR))


def windowed(windows: Any) -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream("in").select_key(lambda key, value: "k").group_by_key()
    grouped.windowed_by(windows).count(store="counts")
    return builder.build()


def late(outbox: Outbox, size: int = HOUR) -> int:
    """How many of the records that were written are late for tumbling windows without grace, in the order in which they were."""
    lost, now = 0, -1
    for topic, _, _, timestamp, _, _ in outbox.sent:
        if topic.endswith("-repartition"):
            now = max(now, timestamp)
            lost += timestamp - timestamp % size + size <= now
    return lost


def partition_after_partition(times: list[list[int]]) -> Client:
    """History as a client brings it: a fetch of up to 500 records of one partition, then of the next."""
    polls = []
    for start in range(0, max(map(len, times)), 500):
        for partition, stamps in enumerate(times):
            chunk = stamps[start : start + 500]
            polls.append([
                row
                for at, stamp in enumerate(chunk)
                for row in rows("in", 1, partition=partition, start=start + at, timestamp=stamp - start - at)
            ])
    client = Client(*[poll for poll in polls if poll])
    client.fetched = {TopicPartition("in", partition): len(stamps) for partition, stamps in enumerate(times)}
    return client


def run(instance: Instance, records: int, loop: Callable[..., PollLoop] = PollLoop, seconds: float = 60) -> Signal:
    def signal(now: float) -> Signal:
        return Signal.PAUSE if instance.counters.records >= records else Signal.RUN

    return loop(instance, signal=signal, report=lambda _: None).run(time.monotonic() + seconds)


def in_a_day(count: int, seed: int = 0, *, begin: int = 0, end: int = DAY) -> list[int]:
    chance = random.Random(seed)
    return sorted(chance.randrange(begin, end) for _ in range(count))


SHAPES: dict[str, list[list[int]]] = {
    "even": [in_a_day(3_000, partition) for partition in range(4)],
    "skewed": [in_a_day(6_000, 0), *(in_a_day(600, partition) for partition in range(1, 4))],
    "one empty": [[], *(in_a_day(2_000, partition) for partition in range(1, 4))],
    "a gap": [
        in_a_day(2_000, 0, end=3 * DAY),
        in_a_day(1_000, 1) + in_a_day(1_000, 1, begin=2 * DAY, end=3 * DAY),
        in_a_day(2_000, 2, end=3 * DAY),
    ],
}


@pytest.mark.parametrize("loop", [PollLoop, ThreadedPollLoop])
@pytest.mark.parametrize("shape", SHAPES)
def test_history_in_order_in_each_partition_loses_nothing_without_grace(shape: str, loop: Callable[..., PollLoop]) -> None:
    times, outbox = SHAPES[shape], Outbox()
    instance = instance_of(hourly(), partition_after_partition(times), partitions=len(times), outbox=outbox, num_processing_threads=2)
    count = sum(map(len, times))
    assert run(instance, count, loop) is Signal.PAUSE, f"{instance.counters.records} of {count}"
    assert late(outbox) == 0


def test_the_loop_looks_at_its_signals_and_commits_between_slow_records_of_aligned_tasks() -> None:
    """A round took up to 4,000 records however long each took: a transaction timed out, and the instance began again for ever."""

    def slow(key: str, value: str) -> str:
        time.sleep(0.002)
        return "k"

    builder = StreamsBuilder()
    grouped = builder.stream("in").select_key(slow).group_by_key()
    grouped.windowed_by(TimeWindows.of_size_with_no_grace(DAY)).count(store="counts")
    times = [in_a_day(150, partition) for partition in range(4)]
    instance = instance_of(builder.build(), partition_after_partition(times), partitions=4, outbox=Outbox())
    seen = [0]

    def signal(now: float) -> Signal:
        seen.append(instance.counters.records)
        return Signal.PAUSE if seen[-1] >= 600 else Signal.RUN

    PollLoop(instance, signal=signal, report=lambda _: None).run(time.monotonic() + 60)
    assert seen[-1] == 600
    assert max(after - before for before, after in pairwise(seen)) <= 130, "a slice and the one that ends after its time"


def test_switched_off_most_of_the_same_history_is_late() -> None:
    times, outbox = SHAPES["even"], Outbox()
    config = {"repl_alignment_drift_ms": -1}
    instance = instance_of(hourly(), partition_after_partition(times), partitions=len(times), outbox=outbox, **config)
    assert instance.alignment is None
    run(instance, sum(map(len, times)))
    assert late(outbox) > 3_000


def test_sliding_windows_without_grace_get_their_records_in_the_exact_order() -> None:
    times, outbox = [in_a_day(400, partition) for partition in range(3)], Outbox()
    sliding = windowed(SlidingWindows.of_time_difference_with_no_grace(10 * MINUTE))
    instance = instance_of(sliding, partition_after_partition(times), partitions=3, outbox=outbox)
    run(instance, 1_200)
    stamps = [timestamp for topic, _, _, timestamp, _, _ in outbox.sent if topic.endswith("-repartition")]
    assert stamps == sorted(stamps) and len(stamps) == 1_200


def test_a_drift_of_the_application_s_own_replaces_what_follows_from_the_topology() -> None:
    times, outbox = [in_a_day(1_000, partition) for partition in range(3)], Outbox()
    instance = instance_of(
        hourly(), partition_after_partition(times), partitions=3, outbox=outbox, repl_alignment_drift_ms=5 * MINUTE
    )
    run(instance, 3_000)
    now = ahead = 0
    for _, _, _, timestamp, _, _ in outbox.sent:
        ahead, now = max(ahead, now - timestamp), max(now, timestamp)
    assert MINUTE < ahead <= 5 * MINUTE


def test_a_partition_whose_fetch_does_not_arrive_holds_the_others_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignment, "_FETCH_SECONDS", 0.3)
    client = partition_after_partition([in_a_day(100, 0), []])
    client.fetched[TopicPartition("in", 1)] = 10  # ten records are there, and none comes
    instance = instance_of(hourly(), client, partitions=2, outbox=Outbox())
    began = time.monotonic()
    assert run(instance, 100, seconds=20) is Signal.PAUSE
    assert time.monotonic() - began >= 0.3


@pytest.mark.parametrize("loop", [PollLoop, ThreadedPollLoop])
def test_a_process_that_stood_still_has_not_waited_for_a_fetch(
    loop: Callable[..., PollLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other work on the machine, or SIGSTOP: the time was taken for the partition's, and most of its records came out late."""
    monkeypatch.setattr(alignment, "_FETCH_SECONDS", 1.5)

    class Stopping(Client):
        """Stands still while the records of partition 1 are on their way."""

        rounds = 0

        def consume(self, count: int, seconds: float) -> list[Any]:
            self._next_round()
            return super().consume(count, seconds) if self.rounds == 1 or self.rounds > 25 else []

        def poll(self, seconds: float) -> Any:
            self._next_round()
            return super().poll(seconds) if self.rounds > 25 else None

        def _next_round(self) -> None:
            self.rounds += 1
            time.sleep(2.0 if self.rounds == 20 else 0.005)

    times, outbox = [in_a_day(400, 0), in_a_day(400, 1)], Outbox()
    plain = partition_after_partition(times)
    client = Stopping(*plain.polls)
    client.fetched = plain.fetched
    assert run(instance_of(hourly(), client, partitions=2, outbox=outbox, num_processing_threads=2), 800, loop) is Signal.PAUSE
    assert client.rounds > 25 and late(outbox) == 0


def test_the_same_partition_holds_the_others_while_there_is_time() -> None:
    client = partition_after_partition([in_a_day(100, 0), []])
    client.fetched[TopicPartition("in", 1)] = 10
    instance = instance_of(hourly(), client, partitions=2, outbox=Outbox())
    assert run(instance, 100, seconds=0.5) is Signal.RUN
    assert instance.counters.records == 0


@pytest.mark.parametrize("loop", [PollLoop, ThreadedPollLoop])
def test_live_records_wait_for_no_partition_that_is_at_its_end(loop: Callable[..., PollLoop]) -> None:
    client = Client(rows("in", 3, partition=0, timestamp=5 * DAY))
    client.fetched = {TopicPartition("in", 0): 3, TopicPartition("in", 1): 0}
    instance = instance_of(hourly(), client, partitions=2, outbox=Outbox(), num_processing_threads=2)
    began = time.monotonic()
    assert run(instance, 3, loop) is Signal.PAUSE
    assert time.monotonic() - began < 1.0


@pytest.mark.slow
def test_a_partition_far_ahead_is_paused_while_another_one_is_waited_for_and_resumed_later() -> None:
    ahead, behind = in_a_day(50_000, 0, begin=12 * HOUR), in_a_day(60_000, 1)
    client = partition_after_partition([ahead, behind])
    client.polls = [poll for poll in client.polls if poll[0].partition() == 0] + [
        poll for poll in client.polls if poll[0].partition() == 1
    ]
    outbox = Outbox()
    instance = instance_of(hourly(), client, partitions=2, outbox=outbox)
    assert run(instance, 110_000) is Signal.PAUSE
    assert late(outbox) == 0
    assert set(client.pauses) == {TopicPartition("in", 0)} and not client.paused


# ---- what follows from the topology


def rules(topology: Topology, **config: Any) -> tuple[Any, ...]:
    return alignment_rules(topology.subtopologies(), StreamsConfig({"application.id": "app"}, **config))


def test_windows_beside_a_foreign_key_join_align_nothing_and_windows_behind_one_do() -> None:
    """The join's own topics lead back into its sub-topology: each record waited for them, and live input came to a stand."""
    builder = StreamsBuilder()
    orders = builder.stream("orders")
    orders.group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(HOUR)).count(store="beside")
    joined = orders.to_table(store="orders").join(
        builder.table("users", store="users"), lambda order, user: user, foreign_key=lambda order: "u", key_serde="string"
    )
    assert rules(builder.build()) == ()
    joined.to_stream().group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(MINUTE)).count(store="behind")
    assert {lateness.size_ms for rule in rules(builder.build()) for lateness in rule.lateness} == {MINUTE}


def test_without_a_time_sensitive_operator_behind_a_repartition_there_is_nothing_to_align() -> None:
    builder = StreamsBuilder()
    builder.stream("in").select_key(lambda key, value: "k").group_by_key().count(store="counts")
    assert rules(builder.build()) == ()
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(HOUR)).count(store="counts")
    assert rules(builder.build()) == ()
    assert rules(hourly(), repl_alignment_drift_ms=-1) == ()


@pytest.mark.parametrize(
    ("windows", "head", "limit"),
    [
        (TimeWindows.of_size_with_no_grace(HOUR), HOUR + 1, 2 * HOUR),
        (TimeWindows.of_size_and_grace(HOUR, 10 * MINUTE), HOUR + 1, 2 * HOUR),
        (TimeWindows.of_size_with_no_grace(HOUR).advance_by(10 * MINUTE), HOUR + 1, HOUR + 10 * MINUTE),
        (SlidingWindows.of_time_difference_with_no_grace(5 * MINUTE), HOUR, HOUR + 1),
        (SlidingWindows.of_time_difference_and_grace(5 * MINUTE, 8 * MINUTE), HOUR, HOUR + 2 * MINUTE + 1),
        (SessionWindows.of_inactivity_gap_with_no_grace(5 * MINUTE), HOUR, HOUR + 5 * MINUTE + 1),
    ],
)  # fmt: skip
def test_a_task_stops_where_the_oldest_record_of_the_others_would_be_late(windows: Any, head: int, limit: int) -> None:
    [rule] = rules(windowed(windows))
    assert rule.parts == {0} and rule.limit(head) == limit
    assert rule.limit(NOTHING) == NOTHING


def test_two_streams_that_are_joined_behind_their_repartitions_are_one_group() -> None:
    builder = StreamsBuilder()
    left = builder.stream("left").select_key(lambda key, value: "k")
    right = builder.stream("right").select_key(lambda key, value: "k")
    left.join(right, lambda a, b: a + b, JoinWindows.of_time_difference_with_no_grace(5 * MINUTE)).to("out")
    [rule] = rules(builder.build())
    assert len(rule.parts) == 2 and rule.limit(HOUR) == HOUR + 5 * MINUTE + 1


def test_each_repartition_of_a_chain_is_a_group_of_its_own() -> None:
    builder = StreamsBuilder()
    counts = builder.stream("in").select_key(lambda key, value: "k").group_by_key()
    hours = counts.windowed_by(TimeWindows.of_size_with_no_grace(HOUR)).count(store="hours").to_stream()
    days = hours.select_key(lambda key, value: "all").group_by_key()
    days.windowed_by(TimeWindows.of_size_with_no_grace(DAY)).count(store="days")
    first, second = rules(builder.build())
    assert (first.parts, second.parts) == ({0}, {1})
    assert (first.upstream, second.upstream) == ((), (0,))
    assert first.limit(HOUR + 1) == 2 * HOUR and second.limit(HOUR + 1) == DAY


def test_behind_an_intermediate_topic_a_group_waits_until_the_records_have_arrived_however_long_it_takes() -> None:
    """It trusted that they come within 0.2 s of their commit; on a busy machine they did not."""
    builder = StreamsBuilder()
    hours = builder.stream("in").select_key(lambda key, value: "k").group_by_key()
    counts = hours.windowed_by(TimeWindows.of_size_with_no_grace(HOUR)).count(store="hours").to_stream()
    counts.select_key(lambda key, value: "all").group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(DAY)).count(store="days")
    asked: list[int] = []

    class Positions:
        arrived = False

        def is_at_end(self, task: Any, partition: TopicPartition) -> bool:
            return True

        def has_reached(self, task: Any, ends: Any) -> bool:
            return self.arrived

        def ask_ends(self, tasks: Any) -> Any:
            asked.append(len(list(tasks)))
            answers = iter((None, {TopicPartition("between", 0): 7}))
            return lambda: next(answers)

    def task_of(part: int, head: int) -> Any:
        queue = SimpleNamespace(has_head=True, corrupted=False, head_ts=head)
        held = SimpleNamespace(queues={TopicPartition("t", part): queue}, head_time=head)
        task = SimpleNamespace(id=TaskId(part, 0), task=held)
        task.aligned_by = lambda limit, update: setattr(task, "limit", limit)
        return task

    positions: Any = Positions()
    aligned = alignment.Alignment(rules(builder.build()), positions, slots=1)
    first, second = task_of(0, 3 * DAY), task_of(1, 2 * DAY)
    aligned.add(first)
    aligned.add(second)
    began = time.monotonic()
    aligned.begin(None, began)
    for after in (0.2, 1.0, 5.0):
        aligned.exchange(began + after, in_flight=False)
        assert second.limit() <= 0, "nothing is known of what has arrived"
    positions.arrived = True
    aligned.exchange(began + 5.1, in_flight=False)
    assert second.limit() == 4 * DAY and asked == [1]


def test_a_group_that_reads_what_it_writes_itself_does_not_wait_for_itself() -> None:
    builder = StreamsBuilder()
    left, right = builder.table("left"), builder.table("right")
    joined = left.join(right, lambda a, b: a + b, foreign_key=lambda value: value).to_stream()
    grouped = joined.select_key(lambda key, value: "k").group_by_key()
    grouped.windowed_by(TimeWindows.of_size_with_no_grace(HOUR)).count(store="counts")
    assert {rule.upstream for rule in rules(builder.build())} == {()}


def test_groups_that_read_what_each_other_write_do_not_wait_for_each_other() -> None:
    builder = StreamsBuilder()
    builder.stream(["in", "back"]).to("forth")
    grouped = builder.stream("forth").select_key(lambda key, value: "k").group_by_key()
    builder.stream("forth").to("back")
    grouped.windowed_by(TimeWindows.of_size_with_no_grace(HOUR)).count(store="hours")
    assert {rule.upstream for rule in rules(builder.build())} == {()}


# ---- several instances


class Peers:
    """What one other instance reported, and what this one tells."""

    def __init__(self, *others: ReportedTimes | None) -> None:
        self.theirs: list[ReportedTimes | None] = list(others)
        self.reported: list[list[int]] = []

    def report(self, times: Sequence[int]) -> None:
        self.reported.append(list(times))

    def others(self) -> list[ReportedTimes | None]:
        return self.theirs


def beside(peers: Peers, seconds: float, *, times: list[int] | None = None, windows: Any = None, more: int = 0) -> Instance:
    """One of two instances, which processes a day of one partition, for so long or until it has processed them and `more`."""
    stamps = in_a_day(500, 1) if times is None else times
    client = partition_after_partition([stamps])
    client.fetched[TopicPartition("in", 0)] = len(stamps)
    topology = hourly() if windows is None else windowed(windows)
    instance = instance_of(topology, client, outbox=Outbox(), instances=2)

    def signal(now: float) -> Signal:
        return Signal.PAUSE if instance.counters.records >= len(stamps) + more else Signal.RUN

    PollLoop(instance, signal=signal, report=lambda _: None, peers=peers).run(time.monotonic() + seconds)
    return instance


def newest(instance: Instance) -> int:
    return instance.tasks[0].task.services.clock.now


def test_an_instance_stops_where_the_oldest_record_of_another_one_would_be_late() -> None:
    instance = beside(Peers(([5 * HOUR + 1], 0.0)), 0.4)
    assert 5 * HOUR < newest(instance) < 6 * HOUR


def test_half_of_the_grace_is_used_between_instances() -> None:
    instance = beside(Peers(([5 * HOUR + 1], 0.0)), 0.4, windows=TimeWindows.of_size_and_grace(HOUR, 4 * HOUR))
    assert 7 * HOUR < newest(instance) < 8 * HOUR


def test_an_instance_that_has_met_its_ends_or_has_not_been_heard_of_for_long_holds_nobody() -> None:
    for reported in (([NOTHING], 0.0), ([5 * HOUR], alignment._PEER_SECONDS + 1)):
        assert beside(Peers(reported), 5.0).counters.records == 500


def test_history_waits_for_an_instance_that_has_not_begun_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    assert beside(Peers(None), 0.3).counters.records == 0
    monkeypatch.setattr(alignment, "_PEER_SECONDS", 0.3)
    began = time.monotonic()
    assert beside(Peers(None), 10.0).counters.records == 500
    assert time.monotonic() - began >= 0.3


def test_an_instance_tells_the_time_of_its_oldest_record_as_of_a_commit() -> None:
    peers = Peers(([5 * HOUR + 1], 0.0))
    instance = beside(peers, 0.4)
    head = instance.tasks[0].task.group.head_time
    assert head is not None and peers.reported[-1] == [head]
    assert peers.reported == sorted(peers.reported)


def test_live_input_holds_nobody() -> None:
    """It has met its end a moment ago: what has come since is live, whatever its event time is."""
    peers = Peers(([NOTHING], 0.0))
    instance = beside(peers, 0.3, times=[HOUR] * 100, more=1)
    assert instance.counters.records == 100
    assert peers.reported[-1] == [NOTHING]


def test_what_the_slots_of_a_host_report_to_each_other(tmp_path: Any) -> None:
    one, two, three = (FileTimes(tmp_path / "times-1", slot, 3, 2) for slot in range(3))
    assert one.others() == [None, None]
    one.report([5, NOTHING])
    three.report([-1, 7])
    seen = two.others()
    assert [reported and tuple(reported[0]) for reported in seen] == [(5, NOTHING), (-1, 7)]
    assert all(reported is not None and 0 <= reported[1] < 60 for reported in seen)


def test_instances_on_several_hosts_read_each_other_s_reports() -> None:
    def report(slot: int, generation: int, figures: str) -> InstanceHeartbeat:
        return InstanceHeartbeat(generation, slot, "w:1", "running", 0, host="h", done=False, failure=None, figures=figures)

    follower: Any = SimpleNamespace(state=SimpleNamespace(reports={}))
    times = JournalTimes(follower, 3, 0, 4)
    assert times.others() == [None, None, None]
    follower.state.reports = {1: report(1, 3, '{"event_times": [7]}'), 2: report(2, 2, '{"event_times": [9]}'), 3: report(3, 3, "[")}
    [one, two, three] = times.others()
    assert one is not None and list(one[0]) == [7] and two is None and three is None
