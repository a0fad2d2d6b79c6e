"""`kstreams reset` lists what it changes; with ``--dry-run`` nothing else happens."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from click.testing import CliRunner

import kstreams_repl
from kstreams_repl.cli import reset
from kstreams_repl.host.kafka.admin import NewTopicSpec
from tests.unit.repl.session.small_cluster import PARTITIONS, SmallCluster, SmallSession
from tests.unit.repl.session.test_reset import IN, deployed


def test_a_dry_run_changes_nothing_and_the_command_without_it_does_what_it_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = SmallCluster()
    cluster.create_topics([NewTopicSpec(name, PARTITIONS) for name in ("in", "out")])
    cluster.logs[IN] += [(b"a", (1).to_bytes(8, "big"), time) for time in (1_000, 2_000)]
    session = SmallSession(cluster, tmp_path)
    deployed(session).stop()
    session._applications.clear()  # another process
    monkeypatch.setattr(kstreams_repl, "connect", lambda *args, **more: contextlib.nullcontext(session))
    command = ["app", "--broker", "localhost:1"]
    before, topics = dict(cluster.offsets), set(cluster.topics())
    listed = CliRunner().invoke(reset.main, [*command, "--dry-run"])
    assert listed.exit_code == 0 and "nothing is changed" in listed.output and "is reset" not in listed.output, listed.output
    assert (dict(cluster.offsets), set(cluster.topics())) == (before, topics)
    done = CliRunner().invoke(reset.main, command)
    assert done.exit_code == 0 and done.output.endswith("app is reset\n") and "nothing is changed" not in done.output, done.output
    assert cluster.offsets[IN].offset == 0 and topics - set(cluster.topics())
