"""Where partitions without a committed offset begin: the policies and their texts."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kstreams_repl import AutoOffsetReset, StreamsBuilder, StreamsConfig
from kstreams_repl.engine.topology.bounds.offset_reset import duration_ms
from kstreams_repl.engine.topology.nodes import SourceNode
from kstreams_repl.system.errors import ConfigError, TopologyError


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("by_duration:PT1H", 3_600_000), ("by_duration:P2D", 172_800_000), ("by_duration:P1DT30M", 88_200_000),
        ("by_duration:PT0.25S", 250), ("by_duration:PT0S", 0), ("by_duration:pt10m", 600_000),
        ("by_duration:", None), ("by_duration:P", None), ("by_duration:PT", None), ("by_duration:-PT1H", None),
        ("by_duration:1h", None), ("PT1H", None), ("latest", None),
    ],
)  # fmt: skip
def test_durations_are_those_of_iso_8601(text: str, ms: int | None) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize("duration", [timedelta(hours=36), timedelta(0), timedelta(milliseconds=1500), timedelta(days=10)])
def test_a_timedelta_comes_back(duration: timedelta) -> None:
    assert duration_ms(AutoOffsetReset.by_duration(duration)) == duration.total_seconds() * 1000


def test_sources_and_the_configuration_take_every_policy_and_nothing_else() -> None:
    hour = AutoOffsetReset.by_duration(timedelta(hours=1))
    for policy in (AutoOffsetReset.earliest(), AutoOffsetReset.latest(), AutoOffsetReset.none(), hour):
        builder = StreamsBuilder()
        builder.stream("in", offset_reset=policy).to("out")
        node = next(node for node in builder.build().nodes.values() if isinstance(node, SourceNode))
        assert node.offset_reset == policy and StreamsConfig({"consumer.auto.offset.reset": policy})["auto.offset.reset"] == policy
    with pytest.raises(TopologyError, match="timedelta"):
        AutoOffsetReset.by_duration(timedelta(hours=-1))
    with pytest.raises(TopologyError, match="is unknown"):
        StreamsBuilder().stream("in", offset_reset="by_duration:1h")
    with pytest.raises(ConfigError, match="by_duration"):
        StreamsConfig({"auto.offset.reset": "by_duration:1h"})
