"""One embedded broker for all tests of this folder that do not need one of their own; topics get names of their own."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import pytest

from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.kafka.embedded import EmbeddedBroker


@pytest.fixture(scope="session")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture(scope="session")
def settings(broker: EmbeddedBroker) -> ClientSettings:
    return ClientSettings(broker.bootstrap_servers)


@pytest.fixture(scope="session")
def admin(settings: ClientSettings) -> Admin:
    return Admin(settings)


_numbers = itertools.count()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    return f"t{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def topic(admin: Admin, name: str) -> Callable[..., str]:
    """Makes topics of this test: ``topic(partitions=2, **{"cleanup.policy": "compact"})``."""
    made = itertools.count()

    def make(partitions: int = 1, **configs: str) -> str:
        created = f"{name}-{next(made)}"
        admin.create_topic(created, partitions, configs=configs)
        return created

    return make
