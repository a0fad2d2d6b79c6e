from __future__ import annotations

import pytest

from kstreams_repl.engine.topology.internal_topics import FOR_EVER, changelog_config, repartition_config
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.host.kafka.admin import NewTopicSpec
from kstreams_repl.host.kafka.internal_topics import check_internal_topic, journal_topic, lacking_settings
from kstreams_repl.system.errors import DeployError

WINDOWS = NewTopicSpec(
    "c", 3, changelog_config(StoreBuilder("s", StoreKind.TIMESTAMPED_WINDOW, retention_ms=1000, window_size_ms=10))
)
ROWS = NewTopicSpec("c", 3, changelog_config(StoreBuilder("s", StoreKind.TIMESTAMPED_KEY_VALUE)))


def test_the_journal_is_one_compacted_partition_named_after_the_application() -> None:
    spec = journal_topic("app")
    assert (spec.name, spec.partitions, spec.configs["cleanup.policy"]) == ("app-journal", 1, "compact")


def test_a_matching_topic_passes_whatever_the_order_of_its_policies() -> None:
    check_internal_topic(WINDOWS, 3, {"cleanup.policy": "delete,compact"})


def test_another_number_of_partitions_is_refused_with_the_ways_out() -> None:
    with pytest.raises(DeployError, match="has 4 partitions but the topology needs 3") as caught:
        check_internal_topic(NewTopicSpec("r", 3, repartition_config()), 4, {"cleanup.policy": "delete"})
    assert (caught.value.expected, caught.value.actual, caught.value.topic) == (3, 4, "r")
    assert "reset the application" in str(caught.value)


def test_a_policy_that_would_lose_state_is_refused() -> None:
    with pytest.raises(DeployError, match="state would be lost"):
        check_internal_topic(ROWS, 3, {"cleanup.policy": "compact,delete"})


def test_retention_by_the_clock_and_bounds_of_timestamps_are_raised_and_never_lowered() -> None:
    jvm = {"retention.ms": "86401000", "retention.bytes": "-1", "message.timestamp.after.max.ms": "3600000"}
    assert lacking_settings(WINDOWS, jvm) == {"retention.ms": FOR_EVER, "message.timestamp.after.max.ms": FOR_EVER}
    assert lacking_settings(WINDOWS, {"retention.ms": "-1", "retention.bytes": "7"}) == {"retention.bytes": "-1"}
    assert lacking_settings(ROWS, {"retention.ms": "5", "message.timestamp.after.max.ms": FOR_EVER}) == {}
    assert lacking_settings(NewTopicSpec("r", 1, {"retention.ms": "5"}), {"retention.ms": "-1"}) == {}
