"""What belongs to an application, and what to another one whose name begins with its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kstreams_repl.session.cleanup import Cleanup

COMPACT, DELETED = {"cleanup.policy": "compact"}, {"cleanup.policy": "delete"}


class Cluster:
    """Topics and their settings."""

    def __init__(self, **configs: dict[str, str]) -> None:
        self._configs = {name.replace("_", "-"): config for name, config in configs.items()}

    def topics(self) -> dict[str, int]:
        return dict.fromkeys(self._configs, 1)

    def topic_configs(self, names: Any) -> dict[str, dict[str, str]]:
        return {name: self._configs[name] for name in names}

    def groups(self) -> tuple[str, ...]:
        return ()


def test_the_topics_of_an_application_that_another_session_runs_stay(tmp_path: Path) -> None:
    """This session does not know of it; its journal tells."""
    cluster: Any = Cluster(
        orders_counts_changelog=COMPACT,
        orders_journal=COMPACT,
        orders_eu_counts_changelog=COMPACT,
        orders_eu_by_key_repartition=DELETED,
        orders_eu_journal=COMPACT,
    )
    assert set(Cleanup(cluster, tmp_path, "orders", frozenset()).topics) == {"orders-counts-changelog", "orders-journal"}


def test_a_topic_that_is_only_called_like_a_journal_keeps_nothing(tmp_path: Path) -> None:
    cluster: Any = Cluster(
        orders_audit_journal=DELETED, orders_audit_x_changelog=COMPACT, orders_eu_journal=COMPACT, orders_eu_changelog=COMPACT
    )
    found = Cleanup(cluster, tmp_path, "orders", frozenset()).topics
    assert set(found) == {"orders-audit-x-changelog", "orders-eu-changelog"}
