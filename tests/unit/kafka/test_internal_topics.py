from __future__ import annotations

import pytest

from kstreams_repl.errors import DeployError
from kstreams_repl.kafka.internal_topics import changelog_topic, check_internal_topic, journal_topic, repartition_topic

DAY = 86_400_000


def test_a_key_value_changelog_is_compacted_and_never_deleted_by_time() -> None:
    assert changelog_topic("c", 3).configs == {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}


@pytest.mark.parametrize("kind", ["window", "session"])
def test_a_windowed_changelog_is_compacted_and_deleted_a_day_after_its_retention(kind: str) -> None:
    configs = changelog_topic("c", 3, kind=kind, retention_ms=1000).configs
    assert configs["cleanup.policy"] == "compact,delete" and configs["retention.ms"] == str(1000 + DAY)


def test_a_join_changelog_keeps_duplicates_so_it_is_not_compacted() -> None:
    assert changelog_topic("c", 3, kind="stream_join", retention_ms=1000).configs["cleanup.policy"] == "delete"


def test_a_versioned_changelog_is_not_compacted_within_its_history() -> None:
    configs = changelog_topic("c", 3, kind="versioned", retention_ms=1000).configs
    assert configs["cleanup.policy"] == "compact" and configs["min.compaction.lag.ms"] == str(1000 + DAY)


def test_a_windowed_changelog_without_retention_is_a_programming_error() -> None:
    with pytest.raises(ValueError, match="retention"):
        changelog_topic("c", 3, kind="window")


def test_the_journal_is_one_compacted_partition_named_after_the_application() -> None:
    spec = journal_topic("app")
    assert (spec.name, spec.partitions, spec.configs["cleanup.policy"]) == ("app-journal", 1, "compact")


def test_a_matching_topic_passes_whatever_the_order_of_its_policies() -> None:
    check_internal_topic(changelog_topic("c", 3, kind="window", retention_ms=1), 3, {"cleanup.policy": "delete,compact"})


def test_another_number_of_partitions_is_refused_with_the_ways_out() -> None:
    with pytest.raises(DeployError, match="has 4 partitions and the topology needs 3") as caught:
        check_internal_topic(repartition_topic("r", 3), 4, {"cleanup.policy": "delete"})
    assert (caught.value.expected, caught.value.actual, caught.value.topic) == (3, 4, "r")
    assert "reset the application" in str(caught.value)


def test_a_policy_that_would_lose_state_is_refused() -> None:
    with pytest.raises(DeployError, match="or state would be lost"):
        check_internal_topic(changelog_topic("c", 3), 3, {"cleanup.policy": "compact,delete"})
