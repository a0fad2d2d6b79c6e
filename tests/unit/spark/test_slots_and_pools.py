"""Who holds Spark slots and worker pools: deployments, not names."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kstreams_repl.errors import DeployError
from kstreams_repl.spark import spark_session as hosting
from kstreams_repl.spark.spark_session import claim_pool, claim_slots, release_slots

EIGHT: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="local[8,1]"))
"""All that is asked of a local session is its address."""


@pytest.fixture(autouse=True)
def nothing_held(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(hosting, "_used", {})
    monkeypatch.setattr(hosting, "_pools", {})
    yield


def test_applications_that_were_paused_find_their_own_workers_in_whatever_order_they_resume() -> None:
    first, second = object(), object()
    pools = claim_pool("a", 2, first), claim_pool("b", 2, second)
    release_slots(first)
    release_slots(second)
    assert claim_pool("b", 2, second) == pools[1]
    assert claim_pool("a", 2, first) == pools[0]


def test_another_application_takes_over_a_pool_that_is_free_and_as_large() -> None:
    first = object()
    pool = claim_pool("a", 2, first)
    release_slots(first)
    assert claim_pool("b", 3, object()) != pool
    assert claim_pool("c", 2, object()) == pool


def test_whoever_was_taken_over_gives_back_only_what_is_its_own() -> None:
    before, after = object(), object()
    claim_slots(EIGHT, "a", 4, before)
    claim_pool("a", 4, before)
    claim_slots(EIGHT, "a", 4, after)  # the former ones do not count: they are about to go
    pool = claim_pool("a", 4, after)
    release_slots(before)
    with pytest.raises(DeployError, match="needs 3 Spark slots and 2 are free"):
        claim_slots(EIGHT, "b", 3, object())
    assert claim_pool("b", 4, object()) not in (pool,)
    release_slots(after)
    claim_slots(EIGHT, "b", 3, object())
