"""Edits and deploys that change schemas, on a real broker, registry and Spark: compatible, with `migrate=`, refused with the field."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

import kstreams_repl as ks
from kstreams_repl import serdes
from kstreams_repl.engine.serdes.schemas.schema_registry import default_registry, use_by_default
from kstreams_repl.engine.topology.differences.schema_diff import SchemaChange
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.kafka.embedded.registry import EmbeddedRegistry
from kstreams_repl.repl.session.session_directory import SessionDirectory
from kstreams_repl.system.errors import IncompatibleSchemaError, TopologyError
from tests.kafka.registry_gate import RegistryGate
from tests.kafka.schema_evolutions import YD, X, Y, avro
from tests.spark.hosting import spark

__all__ = ["spark"]
pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]
CONFIG = {
    "processing.guarantee": "exactly_once_v2", "commit.interval.ms": 50, "auto.offset.reset": "earliest", "num.stream.threads": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def registry() -> Iterator[EmbeddedRegistry]:
    before = default_registry()
    with EmbeddedRegistry() as running:
        with SchemaRegistryClient({"url": running.url}) as client:
            client.set_compatibility(None, "BACKWARD")  # as Confluent's
        yield running
    use_by_default(before)


@pytest.fixture
def session(broker: Any, registry: EmbeddedRegistry, spark: Any, tmp_path: Path) -> Iterator[ks.Session]:
    settings = {"schema.registry.url": registry.url}
    with ks.Session(
        ClientSettings(broker.bootstrap_servers), config=settings, spark=spark, directory=SessionDirectory(tmp_path)
    ) as session:
        session.topic_configs["retention.ms"] = "-1"
        yield session


def totals(topic: str, total: str, *, out: str = "", source: str = "") -> ks.StreamsBuilder:
    """Adds up the field x of each key; a field y, where the schema has one, says which key."""
    builder = ks.StreamsBuilder()
    kept, written = serdes.avro(total), serdes.avro(out or avro(X))
    stream = builder.stream(topic, key_serde="string", value_serde=serdes.avro(source or avro(X)))
    table = stream.group_by_key().aggregate(
        lambda: {"x": 0, "y": ""},
        lambda key, value, so_far: {"x": so_far["x"] + value["x"], "y": f"of {key}"},
        store="totals", key_serde="string", value_serde=kept,
    )  # fmt: skip
    changes = table.to_stream(name="changes").map_values(lambda total: {"x": total.get("x", 0), "y": 1, "z": ""}, name="plain")
    changes.to(f"{topic}-out", key_serde="string", value_serde=written, name="write")
    return builder


def names() -> tuple[str, str]:
    name = f"app-{uuid.uuid4().hex[:8]}"
    return name, f"{name}-in"


def rows(app: ks.Application) -> dict[str, Any]:
    return {key: app.store("totals").get(key) for key in ("a", "b")}


def test_an_edit_goes_on_with_a_compatible_schema_converts_rows_for_another_and_is_refused_with_the_field(
    session: ks.Session, registry: EmbeddedRegistry
) -> None:
    name, topic = names()
    subject = f"{name}-totals-changelog-value"
    records = [("a", {"x": 1}, 1000), ("b", {"x": 2}, 1000)]
    session.produce(topic, records, value_serde=serdes.avro(avro(X)))
    session.create_topic(f"{topic}-out", partitions=1)
    app = session.deploy(totals(topic, avro(X)), name, config=CONFIG)
    assert app.wait(120) and rows(app) == {"a": {"x": 1}, "b": {"x": 2}}

    # compatible: rows of both versions in one store
    plan = app.edit(totals(topic, avro(X, YD)), dry_run=True)
    assert [(schema.owner, schema.change) for schema in plan.diff.schemas] == [("totals", SchemaChange.COMPATIBLE)]
    assert plan.diff.schemas[0].reason == f"fits version 1 of {subject} (BACKWARD)"
    assert "value schema  " in repr(plan) and "compatible" in repr(plan) and not plan.diff.empty
    app.apply(plan)
    session.produce(topic, [("a", {"x": 10}, 2000)], value_serde=serdes.avro(avro(X)))
    assert app.wait(120) and rows(app) == {"a": {"x": 11, "y": "of a"}, "b": {"x": 2, "y": ""}}

    # needs migrate=
    renamed = avro(("x", "string"))
    plan = app.edit(totals(topic, renamed), dry_run=True)
    assert plan.diff.schemas[0].change is SchemaChange.MIGRATE and "'x'" in plan.diff.schemas[0].reason
    assert "refused as it is" in repr(plan) and "migrate={'totals'" in plan.diff.refused[0].hint
    with pytest.raises(TopologyError, match="store 'totals' cannot be kept: .*'x'"):
        app.edit(totals(topic, renamed))
    with SchemaRegistryClient({"url": registry.url}) as client:
        assert client.get_versions(subject) == [1, 2]
        with pytest.raises(TopologyError, match="the row of key 'b' raised"):
            app.edit(totals(topic, renamed), migrate={"totals": lambda key, value: {"x": "" if key == "a" else 1 / 0}})
        assert "long" in client.get_latest_version(subject).schema.schema_str, "the subject has the schema of the version that runs"
        client.clear_caches()
        app.edit(totals(topic, renamed), migrate={"totals": lambda key, value: {"x": f"{value['x']} {value['y']}"}})
        assert len(client.get_versions(subject)) == 1 and client.get_compatibility() == "BACKWARD"
    assert app.wait(120) and rows(app) == {"a": {"x": "11 of a"}, "b": {"x": "2 "}}

    # refused: an output topic that others read
    builder = totals(topic, renamed, out=avro(("z", "string")))
    plan = app.edit(builder, dry_run=True)
    assert [(schema.owner, schema.change) for schema in plan.diff.schemas] == [("write", SchemaChange.REFUSED)]
    with pytest.raises(IncompatibleSchemaError, match="sink 'write' .*'z'") as refused:
        app.edit(builder)
    assert refused.value.subject == f"{topic}-out-value"
    assert app.status == "running" and len(app.versions) == 3


def test_a_deploy_is_refused_before_anything_starts(session: ks.Session, registry: EmbeddedRegistry) -> None:
    name, topic = names()
    session.create_topic(topic, partitions=1)
    session.create_topic(f"{topic}-out", partitions=1)
    with SchemaRegistryClient({"url": registry.url}) as client:
        for version in (avro(X, Y), avro(("x", "long"))):
            client.register_schema(f"{topic}-value", Schema(version, "AVRO"))
    before = session.client.admin.topics()
    with pytest.raises(IncompatibleSchemaError, match="source .*field 'y'"):
        session.deploy(totals(topic, avro(X), source=avro(X, Y)), name, config=CONFIG)
    assert session.client.admin.topics() == before and name not in session.applications
    assert "compatible" in repr(session.plan(totals(topic, avro(X)), name))


def test_an_application_that_was_cleaned_up_begins_with_any_schema(session: ks.Session) -> None:
    name, topic = names()
    session.produce(topic, [("a", {"x": 1}, 1000)], value_serde=serdes.avro(avro(X)))
    session.create_topic(f"{topic}-out", partitions=1)
    app = session.deploy(totals(topic, avro(X)), name, config=CONFIG)
    assert app.wait(120)
    app.stop()
    session.cleanup(name)
    app = session.deploy(totals(topic, avro(Y)), name, config=CONFIG)
    assert app.wait(120), app
    assert app.store("totals").get("a") == {"y": "of a"}


PASSWORD = "open-sesame-41d7"  # noqa: S105 - what the test searches for


def files_with(text: bytes, *folders: Path) -> list[tuple[str, str]]:
    """Return files that contain a text, with the rights of others."""
    found = []
    for folder in folders:
        for path in folder.rglob("*"):
            try:
                if path.is_file() and not path.is_symlink() and text in path.read_bytes():
                    found.append((str(path), oct(path.stat().st_mode & 0o077)))
            except OSError:  # it was a temporary file
                continue
    return found


def test_a_detached_application_has_the_registrys_password_and_writes_it_nowhere(
    broker: Any, registry: EmbeddedRegistry, tmp_path: Path
) -> None:
    name, topic = names()
    with RegistryGate(registry.url, user_info=f"me:{PASSWORD}") as gate:
        secured = {"url": gate.url, "basic.auth.user.info": f"me:{PASSWORD}"}
        with ks.connect(
            broker.bootstrap_servers, schema_registry=secured, directory=tmp_path, prestart=False, report=lambda line: None
        ) as session:
            session.produce(topic, [("a", {"x": 1}, 1000)], value_serde=serdes.avro(avro(X)))
            session.create_topic(f"{topic}-out", partitions=1)
            app = session.deploy(totals(topic, avro(X)), name, detached=True, config=CONFIG)
            assert app.wait(120), app
            driver = app._core.driver_process.mailbox.driven  # type: ignore[union-attr]
            process = psutil.Process(driver.pid)
            for one in (process, *process.children(recursive=True)):
                with suppress(psutil.Error):  # it has just ended
                    shown = [*one.cmdline(), *one.environ().values()]
                    assert PASSWORD not in " ".join(shown)
            assert PASSWORD not in f"{session!r} {app!r} {app.config!r} {session.config!r}"
            process.kill()
            process.wait(60)
        with ks.connect(
            broker.bootstrap_servers, schema_registry=secured, directory=tmp_path, prestart=False, report=lambda line: None
        ) as session:
            session.produce(topic, [("a", {"x": 10}, 2000)], value_serde=serdes.avro(avro(X)))
            app = session.attach(name)
            app.resume()  # another process, which gets it again
            assert app.wait(120), app
            assert [record.value for record in session.read(f"{topic}-out")][-1] == {"x": 11}
            app.stop()
        assert not [path for path in files_with(PASSWORD.encode(), tmp_path)]
        assert {status for _, path, status in gate.requests if status in (401, 403)} == set()
