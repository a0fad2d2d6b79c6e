from __future__ import annotations

from pathlib import Path

import pytest

from kstreams_repl.host.kafka.embedded.layout import BrokerDirectory
from kstreams_repl.system.errors import EmbeddedBrokerError
from kstreams_repl.system.java import find_java


def test_what_the_tool_cannot_format_is_told_with_its_reason(tmp_path: Path) -> None:
    directory = BrokerDirectory(tmp_path / "broker")
    directory.create()
    with pytest.raises(EmbeddedBrokerError, match="could not be formatted: .*kafka.tools.StorageTool"):
        directory.format(find_java().executable, [tmp_path])  # a class path without Kafka
    assert not directory.is_formatted()
