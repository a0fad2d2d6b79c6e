"""Offsets that the broker has forgotten: kept in the journal at rest, given back when the application is put to work."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kstreams_repl import StreamsBuilder
from kstreams_repl.engine.commit import offset_metadata
from kstreams_repl.engine.commit.committed_counts import committed_counts, written_counts
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.runtime.nodes.node_counts import NodeCount
from kstreams_repl.engine.runtime.task import TaskSpec
from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.journal.journal_records import encode, source_hash
from kstreams_repl.host.journal.journal_state import JournalState
from kstreams_repl.host.kafka.admin import TopicDescription
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.kafka.group_admin import CommittedOffset
from kstreams_repl.host.spark import deployment as deployment_module
from kstreams_repl.host.spark.application_state import Status
from kstreams_repl.host.spark.deployment import Deployment
from kstreams_repl.host.spark.epochs import generation_run
from kstreams_repl.host.spark.epochs.generation_run import GenerationRun
from kstreams_repl.host.spark.fencing import driver_control
from kstreams_repl.host.spark.fencing import generation_fencing as module
from kstreams_repl.host.spark.fencing.driver_control import DriverControl
from kstreams_repl.host.spark.fencing.generation_fencing import Generations, VersionText
from kstreams_repl.host.spark.planning.plan_serialization import Shipment
from kstreams_repl.system.errors import BrokerUnavailableError, KStreamsError, ProducerFencedError
from kstreams_repl.system.types import TaskId, TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("a", 1)


class World:
    """The group, the topic, the journal and the instances' reports of one application."""

    settings = ClientSettings("nowhere:1")

    def __init__(self) -> None:
        self.group = {A: CommittedOffset(5, "five"), B: CommittedOffset(7, "seven")}
        self.topic_id = "first"
        self.journal = JournalState()
        self.told: dict[int, dict[str, Any]] = {0: {"state": "stopped"}}
        self.fenced: list[int] = []
        self.writes = 0
        self.away = False
        self.signalled = 0

    def committed_offsets(
        self, name: str, partitions: list[TopicPartition] | None = None, *, stable: bool = True
    ) -> dict[TopicPartition, CommittedOffset]:
        return {at: said for at, said in self.group.items() if partitions is None or at in partitions}

    def end_offsets(self, partitions: list[TopicPartition], *, isolation: str) -> dict[TopicPartition, int]:
        if self.away:
            raise BrokerUnavailableError("away")
        return dict.fromkeys(partitions, self.writes)

    def describe_topics(self, names: Any) -> dict[str, TopicDescription]:
        return {name: TopicDescription(name, self.topic_id, 2, False) for name in names}

    def write(self, *records: Any, topic_records: object = (), offsets: Mapping[TopicPartition, tuple[int, str]] | None = None) -> None:
        self.writes += 1
        for record in records:
            self.journal.apply(*encode(record), self.journal.position)
        self.group |= {at: CommittedOffset(*said) for at, said in (offsets or {}).items()}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    control = SimpleNamespace(write=made.write, close=lambda: None, broken=None)
    reader = SimpleNamespace(catch_up=lambda admin: made.journal, close=lambda: None)
    monkeypatch.setattr(module, "ensure_journal", lambda admin, name: None)
    monkeypatch.setattr(module, "JournalControl", lambda *args, **more: control)
    monkeypatch.setattr(module, "JournalReader", lambda *args: reader)
    monkeypatch.setattr(module, "fence_instances", lambda settings, name, slots, timeout_ms: made.fenced.extend(slots))
    return made


@pytest.fixture
def opened(world: World) -> Callable[[], Generations]:
    lease = SimpleNamespace(
        generation=lambda: world.signalled,
        signal=lambda generation, signal: None,
        reports=lambda generation: world.told,
        executors=dict,
        attach=lambda start, send: None,
        close=lambda: None,
    )
    return lambda: Generations(world.settings, world, "app", lease)  # type: ignore[arg-type]


def test_a_generation_that_was_signalled_but_is_not_in_the_journal_is_not_used_again(
    world: World, opened: Callable[[], Generations]
) -> None:
    world.signalled = 7
    assert opened().next() == 8


def plan(generation: int) -> ApplicationPlan:
    builder = StreamsBuilder()
    builder.stream("a").to("b")
    [part] = builder.build().subtopologies()
    config = StreamsConfig({"application.id": "app"})
    specs = tuple(TaskSpec("app", part, TaskId(0, at.partition), {at: part.nodes[0].name}, config) for at in (A, B))
    return ApplicationPlan("app", generation, config, World.settings, (specs,), str(Path("state")), "control")


def test_after_a_version_that_could_not_be_started_the_former_one_runs_under_its_own_number(
    world: World, opened: Callable[[], Generations]
) -> None:
    generations = opened()
    generations.raise_to(plan(1), VersionText(3, "three", ""))
    before = generations.version
    generations.raise_to(plan(2), VersionText(4, "four", ""))  # and then its query does not start
    generations.go_back(before)
    generations.raise_to(plan(3))
    desired = world.journal.desired
    assert desired is not None and (desired.generation, desired.version) == (3, 3)


def passed(**nodes: int) -> dict[TopicPartition, CommittedOffset]:
    """Committed offsets of two tasks that have counted this, half of it each."""
    half = offset_metadata.encode(7, {offset_metadata.COMMIT_ID: 1}, written_counts({name: NodeCount(n // 2) for name, n in nodes.items()}))
    return {at: CommittedOffset(9, half) for at in (A, B)}


def begun_with(world: World, version: int) -> dict[str, NodeCount]:
    return committed_counts(base64.b64decode(world.journal.versions[version].counts), ["a", "b"])


def test_a_version_has_the_counts_of_the_commit_at_which_it_took_effect(world: World, opened: Callable[[], Generations]) -> None:
    generations = opened()
    generations.raise_to(plan(1), VersionText(1, "one", ""))
    assert begun_with(world, 1) == {}
    world.group = passed(a=10)
    generations.tell(plan(1), Signal.PAUSE)
    generations.raise_to(plan(2), VersionText(2, "two", ""))
    world.group = passed(a=30, b=2)
    generations.tell(plan(2), Signal.STOP)
    opened().raise_to(plan(3), VersionText(2, "two", ""))  # another kernel goes on with it
    assert begun_with(world, 2) == {"a": NodeCount(10)}
    killed = opened()  # it could keep nothing
    killed.raise_to(plan(4), VersionText(3, "one", ""))  # a rollback
    assert begun_with(world, 3) == {"a": NodeCount(30), "b": NodeCount(2)}


def test_an_edit_that_is_tried_again_begins_when_it_succeeds(world: World, opened: Callable[[], Generations]) -> None:
    generations = opened()
    generations.raise_to(plan(1), VersionText(1, "one", ""))
    world.group = passed(a=10)
    generations.tell(plan(1), Signal.PAUSE)
    generations.raise_to(plan(2), VersionText(2, "two", ""))  # and then its query does not start
    generations.go_back(1)
    generations.raise_to(plan(3), VersionText(1, "one", ""))
    world.group = passed(a=20)
    generations.tell(plan(3), Signal.PAUSE)
    opened().declare(VersionText(2, "two", ""))
    assert begun_with(world, 1) == {} and begun_with(world, 2) == {"a": NodeCount(20)}


def rested(opened: Callable[[], Generations], signal: Signal = Signal.STOP) -> Generations:
    generations = opened()
    generations.raise_to(plan(1))
    generations.tell(plan(1), signal)
    return generations


def test_a_new_kernel_gives_back_what_the_group_has_forgotten_and_only_that(
    world: World, opened: Callable[[], Generations]
) -> None:
    rested(opened)
    world.group = {B: CommittedOffset(8)}
    opened().raise_to(plan(2))
    assert world.group == {A: CommittedOffset(5, "five"), B: CommittedOffset(8)}


def test_a_resume_in_the_same_generation_gives_them_back_too(world: World, opened: Callable[[], Generations]) -> None:
    generations = rested(opened, Signal.PAUSE)
    before, world.group = world.group, {}
    generations.resume(plan(1))
    assert world.group == before


def test_what_was_kept_before_later_work_is_never_used(world: World, opened: Callable[[], Generations]) -> None:
    generations = rested(opened)
    generations.raise_to(plan(2))
    world.group = {}
    generations.resume(plan(2))
    opened().raise_to(plan(3))
    assert not world.group


def test_offsets_of_a_topic_that_was_made_anew_do_not_come_back(world: World, opened: Callable[[], Generations]) -> None:
    rested(opened)
    world.group, world.topic_id = {}, "second"
    opened().raise_to(plan(2))
    assert not world.group


def test_an_application_whose_journal_was_deleted_begins_anew(world: World, opened: Callable[[], Generations]) -> None:
    rested(opened)
    world.group, world.journal = {}, JournalState()
    opened().raise_to(plan(1))
    assert not world.group


def test_who_did_not_say_that_it_has_ended_is_fenced_before_its_offsets_are_kept(
    world: World, opened: Callable[[], Generations], monkeypatch: pytest.MonkeyPatch
) -> None:
    rested(opened)
    assert world.fenced == []
    world.told = {0: {"state": "running"}}
    monkeypatch.setattr(world, "committed_offsets", lambda name, at: {A: CommittedOffset(6)} if world.fenced else {})
    generations = opened()
    generations.tell(plan(1), Signal.STOP)
    kept = world.journal.kept_offsets
    assert world.fenced == [0] and kept is not None and kept.offsets["a"]["0"].offset == 6


def test_a_hold_on_the_journal_is_used_before_the_broker_forgets_it(
    world: World, opened: Callable[[], Generations], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its transactional id goes after a week without a write; a stop after that was not written down, nor the offsets with it."""
    now = [0.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0], time_ns=lambda: 0))
    generations = opened()
    generations.stay()
    generations.raise_to(plan(1))
    before = world.writes
    now[0] = module.STAY_SECONDS - 1
    generations.stay()
    assert world.writes == before
    now[0], world.away = module.STAY_SECONDS + 1, True
    with pytest.raises(BrokerUnavailableError):
        generations.stay()
    assert world.writes == before, "a write that fails would end the hold"
    world.away = False
    generations.stay()
    generations.stay()
    assert world.writes == before + 1
    assert world.journal.desired is not None and world.journal.desired.state == "running"


class _Hold:
    """A driver's hold on the journal, whose writes are refused."""

    def __init__(self, lost: KStreamsError) -> None:
        self._lost: KStreamsError | None = lost
        self.is_broken = False

    def resume(self, plan: ApplicationPlan) -> None:
        self.is_broken = not isinstance(self._lost, ProducerFencedError)
        assert self._lost is not None
        raise self._lost


@pytest.mark.parametrize(
    ("lost", "goes_on"),
    [(KStreamsError("a producer id which is not currently assigned"), True), (ProducerFencedError("another session has it"), False)],
)
def test_a_resume_after_the_broker_has_forgotten_the_hold_starts_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: KStreamsError, goes_on: bool
) -> None:
    """After more than a week's pause every resume was refused, until somebody thought of stopping it first."""

    class AnewError(Exception):
        pass

    def reachable(settings: ClientSettings) -> None:
        raise AnewError

    for name in ("reserve_slots", "release_slots"):
        monkeypatch.setattr(generation_run, name, lambda *args: None)
    monkeypatch.setattr(deployment_module, "ensure_reachable", reachable)
    builder = StreamsBuilder()
    builder.stream("a").to("b")
    config = {"application.id": "app", "bootstrap.servers": "nowhere:1", "state.dir": str(tmp_path)}
    paused: Any = Deployment(builder.build(), config)
    paused._life.state, paused._control.generations = Status.PAUSED, _Hold(lost)
    paused._run = GenerationRun(None, plan(1), Shipment(b"", "", ()), paused._control.lease)
    paused._run.confirmed = True
    with pytest.raises(AnewError if goes_on else ProducerFencedError):
        paused.start()
    assert paused.status is Status.PAUSED


def test_an_edit_at_rest_opens_the_journal_if_the_open_one_is_broken(
    world: World, opened: Callable[[], Generations], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rested(opened)
    monkeypatch.setattr(driver_control, "Admin", lambda settings: world)
    control: Any = DriverControl(world.settings, "app", tmp_path, timeout_ms=1_000)
    control.generations = SimpleNamespace(is_broken=True)
    control.declare(VersionText(2, "two", ""))
    assert world.journal.desired is not None and world.journal.desired.version == 2


@pytest.mark.parametrize(("source", "description"), [("界" * 390_000, "d"), ("s" * 1000, "ö" * 600_000)], ids=["source", "description"])
def test_of_a_version_that_is_too_long_for_the_journal_the_hash_is_kept(
    world: World, opened: Callable[[], Generations], source: str, description: str
) -> None:
    """The source was measured in characters, the description not at all: the client refused the record, and the deploy with it."""
    generations = opened()
    generations.raise_to(plan(1), VersionText(1, source, description))
    (written,) = world.journal.versions.values()
    assert len(encode(written)[1]) < 1_000_000 and written.source_hash == source_hash(source)
