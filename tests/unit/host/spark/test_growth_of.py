"""Which topics a running application has to follow."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

from kstreams_repl.engine.dsl import StreamsBuilder
from kstreams_repl.host.spark.failures.partition_watcher import growth_of
from kstreams_repl.system.types import TopicPartition


def test_a_new_topic_that_matches_is_found_though_its_name_begins_with_the_application_s() -> None:
    """It was found at the next start only. What the application makes for itself matches, too, and is none."""
    builder = StreamsBuilder()
    builder.stream(re.compile("orders-.*")).group_by_key().count(store="counts")
    spec = SimpleNamespace(partitions={TopicPartition("orders-us", 0): "in"})
    plan: Any = SimpleNamespace(application_id="orders", assignment=((spec,),), global_partitions=(), partition_counts={"orders-us": 1})
    counts = {"orders-us": 1, "orders-counts-changelog": 1, "orders-journal": 1}
    assert growth_of(builder.build(), plan, counts) == {}
    assert growth_of(builder.build(), plan, counts | {"orders-eu": 3}) == {"orders-eu": (0, 3)}
