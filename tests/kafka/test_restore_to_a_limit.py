"""A store whose log is an input of its task is restored up to what its task has committed, and no position runs ahead of its rows."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.host.instance.state.changelog_reader import ChangelogReader
from kstreams_repl.host.instance.state.changelogs import ChangelogPartition
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, make_producer
from kstreams_repl.system.types import TaskId, TopicPartition

pytestmark = pytest.mark.kafka


def test_a_restore_to_a_limit_is_gone_on_with_from_there(broker: Any, tmp_path: Path) -> None:
    """The consumer has fetched past the limit. Its position was kept, and the rows in between never came."""
    settings = ClientSettings(broker.bootstrap_servers)
    admin, at = Admin(settings), TopicPartition(f"table-{uuid.uuid4().hex[:6]}", 0)
    admin.create_topic(at.topic, 1)
    producer = make_producer(settings)
    for number in range(50):
        producer.produce(at.topic, b"v", b"k%d" % number)
    assert producer.flush(30) == 0
    producer.close()
    store = StoreBuilder("s", StoreKind.TIMESTAMPED_KEY_VALUE, persistent=True, source_topic=at.topic)
    environment = LmdbEnvironment(tmp_path / "0_0", map_bytes=64 << 20, lock_timeout=1.0)
    try:
        environment.take_ownership("owner")
        for limit in (10, 40):
            logs = [(environment, ChangelogPartition(TaskId(0, 0), store, at))]
            restore = ChangelogReader(settings, admin, logs, limits={at: limit}, floors={}, isolation="read_committed")
            restore.run(lambda: True, lambda progress: None)
            assert environment.positions[str(at)] == limit
            assert sum(1 for _ in environment.engine("s").range(None, None)) == limit
    finally:
        environment.close()
