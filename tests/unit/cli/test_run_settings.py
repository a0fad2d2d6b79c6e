"""Settings of a service: which place wins, what is a secret, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from kstreams_repl.cli.run import main
from kstreams_repl.cli.run_settings import gather
from kstreams_repl.system.errors import ConfigError
from kstreams_repl.system.log_context import write_to_stderr
from kstreams_repl.system.secrets import SecretReference

FILE = r"""
# of the service
processing.guarantee=exactly_once_v2
num.stream.threads = 2
consumer.fetch.min.bytes: 5
bootstrap.servers=one:9092,\
    two:9092
sasl.password=${env:PASSWORD}
ssl.key.password=hunter2
"""


def test_flags_override_the_environment_and_that_the_file(tmp_path: Path) -> None:
    file = tmp_path / "app.properties"
    file.write_text(FILE)
    environment = {"KSTREAMS_CONFIG_NUM_STREAM_THREADS": "3", "KSTREAMS_CONFIG_COMMIT_INTERVAL_MS": "200", "KSTREAMS_DEBUG": "1"}
    flags = ["commit.interval.ms=300", "spark.executor.memory=1g"]
    found = gather(file, environment, flags, {"application.id": "orders", "repl.http": None})
    assert found.command == {"application.id": "orders", "bootstrap.servers": "one:9092,two:9092"}
    assert found.application == {
        "processing.guarantee": "exactly_once_v2", "num.stream.threads": "3", "consumer.fetch.min.bytes": "5", "commit.interval.ms": "300",
    }  # fmt: skip
    assert isinstance(found.client["sasl.password"], SecretReference) and found.client["ssl.key.password"] == "hunter2"
    assert found.spark == {"spark.executor.memory": "1g"}
    shown = "\n".join(found.lines())
    assert "hunter2" not in shown and "ssl.key.password = ********" in shown
    assert "num.stream.threads = 3  (KSTREAMS_CONFIG_NUM_STREAM_THREADS)" in shown and "commit.interval.ms = 300  (--config)" in shown


@pytest.mark.parametrize(
    ("text", "flags", "said"),
    [
        ("proccessing.guarantee=x", [], "unknown configuration key"),
        ("num.stream.threads=many", [], "num.stream.threads"),
        ("num.stream.threads", [], "not a properties file"),
        ("a=1\na=2", [], "not a properties file"),
        ("", ["num.stream.threads"], "expected KEY=VALUE"),
    ],
)
def test_what_is_wrong_is_refused_before_anything_starts(tmp_path: Path, text: str, flags: list[str], said: str) -> None:
    file = tmp_path / "app.properties"
    file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        gather(file, {}, flags, {})
    options = [option for flag in flags for option in ("--config", flag)]
    ended = CliRunner().invoke(main, ["no_such_module:topology", "--config-file", str(file), *options], standalone_mode=False)
    assert ended.return_value == 2 and said in ended.output


def test_print_config_needs_neither_module_nor_broker(tmp_path: Path) -> None:
    ended = CliRunner().invoke(main, ["no_such_module:topology", "--broker", "nowhere:1", "--print-config"], standalone_mode=False)
    assert ended.return_value == 0 and "bootstrap.servers = nowhere:1  (flag)" in ended.output


def test_a_module_that_raises_is_refused_and_not_started_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "raising_job.py").write_text("def topology():\n    return 1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        ended = CliRunner().invoke(main, ["raising_job:topology", "--broker", "nowhere:1"], standalone_mode=False)
    finally:
        write_to_stderr("OFF")
    assert ended.return_value == 2
