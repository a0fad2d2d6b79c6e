"""Who holds Spark slots and worker pools: deployments, not names."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kstreams_repl.host.spark.slots import spark_slots, worker_pools
from kstreams_repl.host.spark.slots.spark_slots import release_slots, reserve_slots
from kstreams_repl.host.spark.slots.worker_pools import release_pool, take_pool
from kstreams_repl.system.errors import DeployError

EIGHT: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="local[8,1]"))
"""All that is asked of a local session is its address."""


@pytest.fixture(autouse=True)
def nothing_held(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(spark_slots, "_reservations", {})
    monkeypatch.setattr(worker_pools, "_pools", {})
    yield


def test_applications_that_were_paused_find_their_own_workers_in_whatever_order_they_resume() -> None:
    first, second = object(), object()
    pools = take_pool("a", 2, first), take_pool("b", 2, second)
    release_pool(first)
    release_pool(second)
    assert take_pool("b", 2, second) == pools[1]
    assert take_pool("a", 2, first) == pools[0]


def test_another_application_takes_over_a_pool_that_is_free_and_as_large() -> None:
    first = object()
    pool = take_pool("a", 2, first)
    release_pool(first)
    assert take_pool("b", 3, object()) != pool
    assert take_pool("c", 2, object()) == pool


def test_a_background_pool_is_never_an_applications_own() -> None:
    first = object()
    pool = take_pool("a.next", 1, first, kind="background")
    release_pool(first)
    assert take_pool("a", 1, object()) != pool
    assert take_pool("a.other", 1, object(), kind="background") == pool


def test_whoever_was_taken_over_gives_back_only_what_is_its_own() -> None:
    before, after = object(), object()
    reserve_slots(EIGHT, "a", 4, before)
    take_pool("a", 4, before)
    reserve_slots(EIGHT, "a", 4, after)  # the former ones do not count: they are about to go
    pool = take_pool("a", 4, after)
    release_slots(before)
    release_pool(before)
    with pytest.raises(DeployError, match="needs 3 Spark slots and 2 are free"):
        reserve_slots(EIGHT, "b", 3, object())
    assert take_pool("b", 4, object()) not in (pool,)
    release_slots(after)
    reserve_slots(EIGHT, "b", 3, object())


def test_a_cluster_without_executors_is_another_case_than_one_that_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """It said "0 slots are free (0 in all)" and advised to lower the threads."""
    monkeypatch.setattr(spark_slots, "_EXECUTOR_SECONDS", 0.0)
    monkeypatch.setattr(spark_slots, "total_slots", lambda session: session.slots)
    cluster: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="spark://host:7077"), slots=0)
    with pytest.raises(DeployError, match="no executor of spark://host:7077 has registered within") as refused:
        reserve_slots(cluster, "a", 1, object())
    assert "num.stream.threads" not in str(refused.value.hint) and "spark.executor.memory" in str(refused.value.hint)
    cluster.slots = 3
    with pytest.raises(DeployError, match="needs 4 Spark slots and 1 are free"):
        reserve_slots(cluster, "a", 4, object())
