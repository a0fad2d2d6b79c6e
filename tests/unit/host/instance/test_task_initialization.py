"""What a take-over leaves behind when it cannot go on."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kstreams_repl import StreamsBuilder
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.runtime.task import TaskSpec
from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment, is_open_here
from kstreams_repl.engine.stores.engine.memory import MemoryEnvironment
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.engine.topology.subtopologies import Subtopology
from kstreams_repl.host.instance.initialization.start_offsets import start_offsets
from kstreams_repl.host.instance.initialization.store_ownership import own_stores
from kstreams_repl.host.instance.instance import TakeOver
from kstreams_repl.host.instance.state.changelogs import changelogs_of
from kstreams_repl.host.instance.state.environment_attributes import remember_topics, set_as_of
from kstreams_repl.host.instance.state.owner_token import owner_token
from kstreams_repl.host.instance.state.state_directory import task_directory
from kstreams_repl.host.kafka.group_admin import CommittedOffset
from kstreams_repl.system.errors import BrokerUnavailableError
from kstreams_repl.system.types import TaskId, TopicPartition

CONFIG = StreamsConfig({"application.id": "app"})
SPEC = TaskSpec("app", Subtopology(0, (), (StoreBuilder("s", StoreKind.KEY_VALUE),)), TaskId(0, 0), {}, CONFIG, frozenset())
LOG = TopicPartition("app-s-changelog", 0)


def test_a_broker_that_goes_away_while_stores_are_looked_at_leaves_none_of_them_open(tmp_path: Path) -> None:
    """The next try met "already open in this process", and the application FAILED."""
    path = task_directory(tmp_path, "app", SPEC.task_id)
    former = LmdbEnvironment(path)
    former.take_ownership(owner_token(1, 0))
    remember_topics(former, changelogs_of(SPEC), {LOG.topic: "id"})
    set_as_of(former, time.time() - 48 * 3600)
    former.commit({str(LOG): 3}, 1)
    former.close()

    def away(*asked: Any) -> Any:
        raise BrokerUnavailableError("no broker answers")

    admin: Any = SimpleNamespace(
        beginning_offsets=lambda wanted: dict.fromkeys(wanted, 0),
        end_offsets=lambda wanted, isolation: dict.fromkeys(wanted, 9),
        describe_topics=lambda wanted: {name: SimpleNamespace(id="id") for name in wanted},
        committed_offsets=away,
    )
    plan = SimpleNamespace(state_directory=str(tmp_path), application_id="app", config=CONFIG)
    instance: Any = SimpleNamespace(plan=plan, executor="driver", clients=SimpleNamespace(admin=admin), take_over=TakeOver())
    with pytest.raises(BrokerUnavailableError) as raised, ExitStack() as undo:
        own_stores(instance, [SPEC], undo, owner_token(2, 0), {}, lambda: True)
    assert raised.value.message and not is_open_here(path)


@pytest.mark.parametrize(("committed", "start", "reset"), [(9, 9, False), (3, 3, False), (10, 3, True), (2, 3, True)])
def test_a_task_goes_on_at_its_committed_offset_up_to_the_end_of_the_log(committed: int, start: int, reset: bool) -> None:
    """At its end, too: all is processed. Outside the log the reset policy decides, here "earliest"."""
    at = TopicPartition("in", 0)
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    [part] = builder.build().subtopologies()
    spec = TaskSpec("app", part, TaskId(0, 0), {at: part.nodes[0].name}, CONFIG)
    admin: Any = SimpleNamespace(
        beginning_offsets=lambda wanted: dict.fromkeys(wanted, 3),
        end_offsets=lambda wanted, isolation: dict.fromkeys(wanted, 9),
        committed_offsets=lambda group, wanted: {at: CommittedOffset(committed)},
    )
    plan: Any = SimpleNamespace(application_id="app", config=CONFIG, stops=None)
    found = start_offsets(plan, [spec], {"0_0": MemoryEnvironment()}, admin)[at]
    assert (found.offset, found.reset) == (start, reset)
