"""The demo's topology, as a user would write it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from kstreams_repl import StreamsBuilder, TimeWindows, serdes
from kstreams_repl.demo.data import AIRLINES_TOPIC, FLIGHTS_TOPIC

AIRLINE_DELAYS = "airline-delays"
FLIGHTS_PER_DAY = "flights-per-day"
DELAYED_TOPIC = "delayed-flights"
HEAVY_DELAY_MINUTES = 120
YEAR = timedelta(days=366)
CENTURY = timedelta(days=36_525)
"""The flights are of 2013, and a window store's changelog expires by the wall clock: this is long enough for old data."""


def name_airline(flight: dict[str, Any], airline: dict[str, Any]) -> dict[str, Any]:
    """Return the flight with its airline's name."""
    flight["airline"] = airline["name"]
    return flight


def add_delay(carrier: str, flight: dict[str, Any], so_far: dict[str, Any]) -> dict[str, Any]:
    """Count flights and sum up departure delays (minutes)."""
    flights = so_far["flights"] + 1
    total = so_far["delay_minutes"] + flight["dep_delay"]
    return {"airline": flight["airline"], "flights": flights, "delay_minutes": total, "mean_delay": total / flights}


def build(builder: StreamsBuilder | None = None) -> StreamsBuilder:
    """Build the topology: parse, drop cancelled flights, join the airline's name, two stores and a topic of heavily delayed
    flights."""
    builder = builder or StreamsBuilder()
    airlines = builder.table(AIRLINES_TOPIC, key_serde=serdes.string, value_serde=serdes.json, store="airlines")
    departed = (
        builder.stream(FLIGHTS_TOPIC, key_serde=serdes.string, value_serde=serdes.json)
        .filter(lambda carrier, flight: flight["dep_time"] is not None)
        .join(airlines, name_airline)
    )
    departed.group_by_key(key_serde=serdes.string, value_serde=serdes.json).aggregate(
        lambda: {"airline": "", "flights": 0, "delay_minutes": 0, "mean_delay": 0.0},
        add_delay,
        store=AIRLINE_DELAYS,
        key_serde=serdes.string,
        value_serde=serdes.json,
    )
    (
        departed.map(lambda carrier, flight: (flight["origin"], 1))
        .group_by_key(key_serde=serdes.string, value_serde=serdes.long)
        .windowed_by(TimeWindows.of_size(timedelta(days=1), grace=YEAR))
        .count(store=FLIGHTS_PER_DAY, key_serde=serdes.string, retention=CENTURY)
    )
    departed.filter(lambda carrier, flight: flight["dep_delay"] > HEAVY_DELAY_MINUTES).to(
        DELAYED_TOPIC, key_serde=serdes.string, value_serde=serdes.json
    )
    return builder
