"""What goes wrong on the driver's disk, as errors of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from kstreams_repl.errors import StateStoreError
from kstreams_repl.spark.deployment import Deployment
from kstreams_repl.spark.failures.failure_translation import disk_errors
from kstreams_repl.topology import Topology


def test_a_state_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """It was a NotADirectoryError or PermissionError of Python's, at the deploy."""
    (tmp_path / "file").write_text("in the way")
    config = {"application.id": "app", "bootstrap.servers": "127.0.0.1:9", "state.dir": str(tmp_path / "file" / "state")}
    with pytest.raises(StateStoreError, match="state directory .*file/state cannot be used") as raised:
        Deployment(Topology().add_source("in", "in"), config)
    assert raised.value.hint and "state.dir" in raised.value.hint


@pytest.mark.parametrize("error", [FileNotFoundError(2, "No such file", "/usr/bin/java"), ConnectionResetError("gone")])
def test_errors_of_other_places_stay_what_they_are(error: OSError, tmp_path: Path) -> None:
    with pytest.raises(type(error)), disk_errors(tmp_path):
        raise error
