"""What an exported package calls its own hides nothing of the program's."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.host.kafka.admin import NewTopicSpec
from kstreams_repl.repl.session.source import export
from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.test_driver.recording import RecordedRecord, Recording
from tests.unit.repl.session.small_cluster import PARTITIONS, SmallCluster, SmallSession

SCRIPT = """
import kstreams_repl as ks
CONFIG = {"suffix": "!"}
NAME = "ann"
def main(word):
    return NAME + word
builder = ks.StreamsBuilder()
builder.stream("in", value_serde="string").map_values(lambda word: main(word) + CONFIG["suffix"]).to("out", value_serde="string")
app = session.deploy(builder, "app", config={"commit.interval.ms": 50})
app._core.finish_start()
app.stop()
"""


def test_the_program_keeps_its_own_constants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its functions read the package's CONFIG and NAME, and called its main."""
    cluster = SmallCluster()
    cluster.create_topics([NewTopicSpec(name, PARTITIONS) for name in ("in", "out")])
    recording = Recording([RecordedRecord("in", 0, 0, 1, None, b"x")], {"in": 1})
    monkeypatch.setattr(export, "_recorded", lambda admin, topology, records: recording)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    space: dict[str, Any] = runpy.run_path(str(script), {"session": SmallSession(cluster, tmp_path)})
    folder = space["app"].export(tmp_path / "package")
    exported = runpy.run_path(str(folder / "app.py"))
    with ks.testing.TopologyTestDriver(exported["topology"]().build()) as driver:
        driver.create_input_topic("in", value_serde="string").pipe_input(value="x")
        assert driver.create_output_topic("out", value_serde="string").read_value() == "annx!"
    assert exported["APPLICATION_CONFIG"] == {"commit.interval.ms": 50} and exported["APPLICATION_NAME"] == "app"
    assert "from app import APPLICATION_CONFIG, topology" in (folder / "test_app.py").read_text()


def test_settings_that_cannot_be_written_down_are_not_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package was written without them, and did something else."""
    cluster = SmallCluster()
    cluster.create_topics([NewTopicSpec(name, PARTITIONS) for name in ("in", "out")])
    monkeypatch.setattr(export, "_recorded", lambda admin, topology, records: Recording([], {"in": 1}))
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace('{"commit', '{"default.timestamp.extractor": lambda record, before: 1, "commit'))
    space: dict[str, Any] = runpy.run_path(str(script), {"session": SmallSession(cluster, tmp_path)})
    with pytest.raises(KStreamsError, match="expected texts and numbers, got functions or objects for default.timestamp.extractor"):
        space["app"].export(tmp_path / "package")
    assert not (tmp_path / "package").exists()
