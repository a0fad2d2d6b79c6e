"""The values of ``topology.optimization``."""

from __future__ import annotations

from kstreams_repl.system.errors import ConfigError, did_you_mean

CONFIG_KEY = "topology.optimization"
REUSE_TABLE_SOURCE_TOPICS = "reuse.ktable.source.topics"
MERGE_REPARTITION_TOPICS = "merge.repartition.topics"
SINGLE_STORE_SELF_JOIN = "single.store.self.join"
ALL = frozenset({REUSE_TABLE_SOURCE_TOPICS, MERGE_REPARTITION_TOPICS, SINGLE_STORE_SELF_JOIN})


def parse_optimizations(setting: object) -> frozenset[str]:
    """Return the optimisations that a value of ``topology.optimization`` enables.

    Raises:
        ConfigError: an unknown optimisation, or ``none``/``all`` mixed with others.
    """
    if setting is None:
        return frozenset()
    names = [name.strip() for name in str(setting).split(",") if name.strip()]
    if names in (["none"], []):
        return frozenset()
    if names == ["all"]:
        return ALL
    for name in names:
        if name not in ALL:
            raise ConfigError(
                f"{CONFIG_KEY} has an unknown or misplaced value {name!r}",
                hint=did_you_mean(name, ALL) or f"use 'all', 'none' or a comma-separated list of: {', '.join(sorted(ALL))}",
            )
    return frozenset(names)
