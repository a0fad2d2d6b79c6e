"""An application's state directory for queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kstreams_repl as ks
from tests.queried import State


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Callable[..., State]]:
    made = []

    def make(*builders: ks.StoreBuilder) -> State:
        made.append(State(tmp_path, *builders))
        return made[-1]

    yield make
    for one in made:
        one.local.close()
