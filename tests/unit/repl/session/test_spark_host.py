"""What a session is told of Spark."""

from __future__ import annotations

import pytest

from kstreams_repl.repl.session.spark_host import SparkHost
from kstreams_repl.system.errors import ConfigError


def test_settings_of_spark_have_its_master_and_no_speculation() -> None:
    given = {"spark.master": "spark://host:7077", "spark.executor.memory": "2g"}
    assert SparkHost(None, given).master == "spark://host:7077" and SparkHost(None, given).wanted == given
    assert SparkHost(None, {"spark.executor.memory": "2g"}).master is None
    with pytest.raises(ConfigError, match="a slow task a second time"):
        SparkHost(None, given | {"spark.speculation": "true"})
