"""Serdes travel to workers inside topologies: made again from their recipe, not from their functions."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from kstreams_repl import serdes
from kstreams_repl.engine.serdes.change import change
from kstreams_repl.engine.serdes.foreign_key import Subscription, SubscriptionResponse, subscription, subscription_response
from kstreams_repl.system.types import Windowed


@pytest.mark.parametrize(
    ("serde", "value"),
    [
        (serdes.string, "a"),
        (serdes.time_windowed(serdes.string, 10), Windowed("a", 5, 15)),
        (serdes.session_windowed(serdes.time_windowed(serdes.long, 3)), Windowed(Windowed(1, 2, 5), 7, 9)),
        (change(serdes.json), ({"a": 1}, [2], True)),
        (subscription(serdes.string), Subscription(b"h" * 16, 2, "a", 3)),
        (subscription_response(serdes.long), SubscriptionResponse(None, 7, None)),
    ],
    ids=repr,
)
def test_a_serde_of_ours_survives_the_journey(serde: Any, value: Any) -> None:
    arrived = pickle.loads(pickle.dumps(serde))
    assert arrived.deserialize(arrived.serialize(value)) == value
    assert repr(arrived) == repr(serde)
    assert arrived.base_key_suffix == serde.base_key_suffix


def test_a_deferred_serde_survives_the_journey() -> None:
    arrived = pickle.loads(pickle.dumps(change()))
    assert arrived.bind(serdes.string, serdes.long).serialize((None, 1, True)) == serdes.long.serialize(1) + b"\x00"


def test_window_bounds_have_no_say_in_the_partition_of_a_key() -> None:
    for serde, key in (
        (serdes.time_windowed(serdes.string, 10), Windowed("abc", 5, 15)),
        (serdes.session_windowed(serdes.string), Windowed("abc", 5, 15)),
    ):
        data = serde.serialize(key)
        assert data is not None and data[: -serde.base_key_suffix] == b"abc"
    assert serdes.string.base_key_suffix == 0


def test_a_serde_of_the_users_keeps_what_it_says_of_itself() -> None:
    windowed = serdes.Serde(bytes, bytes, base_key_suffix=8, deserialize_many=list, ascii_safe=True, layout="q", none_safe=True)
    arrived = pickle.loads(pickle.dumps(windowed))
    assert (arrived.base_key_suffix, arrived.deserialize_many, arrived.ascii_safe, arrived.layout) == (8, list, True, "q")
