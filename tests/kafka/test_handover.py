"""An application moves from Kafka Streams on the JVM to this project and back, live: real broker, real JVM, the same topics and group.

Its outputs and changelogs are compared, bytes, times and headers, with those of the same application that stayed on the JVM
and was restarted there at the same places.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings
from tests.kafka.handover.handing_over import Case, Jvm, topology
from workshop.bench.peers.kafka_streams import find_jdk

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def jvm(settings: ClientSettings) -> Iterator[Jvm]:
    jdk = find_jdk()
    if jdk is None:
        pytest.skip("no JDK (javac 17 or newer)")
    running = Jvm(jdk, settings.bootstrap_servers)
    yield running
    running.close()


@pytest.fixture
def case(admin: Admin, settings: ClientSettings, name: str, jvm: Jvm, tmp_path: Path) -> Case:
    return Case(admin, settings, name, jvm, tmp_path)


@pytest.mark.slow  # half a minute each; test_conformance_deployed.py compares with the JVM in the short tier
@pytest.mark.parametrize(
    ("guarantee", "stretches"),
    [
        ("exactly_once_v2", "here JVM here"),
        ("exactly_once_v2", "JVM here JVM"),
        ("at_least_once", "JVM here JVM"),
        ("at_least_once", "here JVM here"),
        ("at_least_once", "here JVM here JVM"),
    ],
)
def test_an_application_that_moves_leaves_what_one_leaves_that_stays(case: Case, guarantee: str, stretches: str) -> None:
    moved, stayed = f"{case.name}-moved", f"{case.name}-stayed"
    assert str(topology(moved, case.name).describe()) == case.jvm.ask("describe", moved, case.name)
    for application in (moved, stayed):
        case.create_sinks(application)
    for number, place in enumerate(stretches.split()):
        if number:
            assert case.times_read_by_the_jvm(moved) == case.times()
        case.write()
        run = case.on_the_jvm if place == "JVM" else case.here
        run(moved, guarantee, lambda: case.on_the_jvm(stayed, guarantee))
    want, got = case.results(stayed), case.results(moved)
    assert sorted(got) == sorted(want)
    for name in want:
        assert want[name] == got[name], f"{name}: {difference(want[name], got[name])}"
    assert all(want.values())


def difference(want: dict[object, object], got: dict[object, object]) -> list[object]:
    """The first few entries that are not the same."""
    for at in want:
        rows, found = want[at], got.get(at)
        if rows != found and isinstance(rows, list) and isinstance(found, list):
            wrong = [pair for pair in zip(rows, found, strict=False) if pair[0] != pair[1]]
            return [at, len(rows), len(found), *wrong[:3]]
    keys = [key for key in (want | got) if want.get(key) != got.get(key)]
    return [len(want), len(keys), *((key, want.get(key), got.get(key)) for key in keys[:5])]
