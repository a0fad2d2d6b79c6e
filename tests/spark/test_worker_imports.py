"""What Spark's Python workers can import: a package they lack is named, and this one is found wherever it lies."""

from __future__ import annotations

import ast
import os
import socket
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import psutil
import pytest

from kstreams_repl.host.spark.failures.failure_translation import python_error
from kstreams_repl.host.spark.startup.fork_server import DAEMON_MODULE, PATH_VARIABLE
from kstreams_repl.system.errors import DeployError
from tests.spark.hosting import Host, failed, numbered, passing, processed

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture
def installed_here_only() -> Iterator[ModuleType]:
    """A package that this process has among its installed ones, and no worker can find."""
    module = ModuleType("absent_package")
    module.__file__ = os.path.join(sysconfig.get_path("purelib"), "absent_package.py")
    exec("def shape(value):\n    return str(value)\n", module.__dict__)
    sys.modules["absent_package"] = module
    yield module
    del sys.modules["absent_package"]


@pytest.mark.slow
def test_a_package_that_workers_lack_is_named_with_the_python_they_run(host: Host, installed_here_only: ModuleType) -> None:
    source, sink = host.topic("in"), host.topic("out")
    host.produce(source, numbered(10))
    deployment = host.deploy(passing(source, sink, installed_here_only.shape))
    failed(deployment)
    error = deployment.error
    assert isinstance(error, DeployError)
    assert error.message == (
        "Spark's Python workers could not load the application: ModuleNotFoundError: No module named 'absent_package'"
    )
    assert f"the workers run {host.spark.sparkContext.pythonExec}: install absent_package there" in (error.hint or "")
    assert error.fields["module"] == "absent_package"


@pytest.mark.skipif(sys.platform != "linux", reason="threads are listed in /proc")
def test_no_thread_runs_where_workers_are_forked() -> None:
    """A lock that another thread holds at a fork stays locked in the child; once a worker hung so, and its daemon's end left it behind."""
    script = (
        "import os; from kstreams_repl.host.spark.startup import daemon; daemon.import_modules(); "
        "print([open(f'/proc/self/task/{task}/comm').read().strip() for task in os.listdir('/proc/self/task')])"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert len(ast.literal_eval(done.stdout)) == 1, done.stdout


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="prctl")
def test_a_worker_that_was_just_forked_ends_with_its_daemon() -> None:
    """It has not read Spark's secret yet, so it would wait for it as long as Spark keeps the connection."""
    environment = {name: value for name, value in os.environ.items() if name != PATH_VARIABLE}
    environment |= {"PYTHON_WORKER_FACTORY_SECRET": "secret", "PYTHON_UNIX_DOMAIN_ENABLED": "false", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", DAEMON_MODULE, "pyspark.worker"]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as daemon:
        assert daemon.stdout is not None
        (port,) = struct.unpack(">i", daemon.stdout.read(4))
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            (pid,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
            worker = psutil.Process(pid)
            assert worker.ppid() == daemon.pid
            daemon.kill()
            _, stay = psutil.wait_procs([worker], timeout=10)
            assert not stay


def test_workers_are_forks_of_the_process_that_imported_their_modules(host: Host) -> None:
    """What Spark starts is not recognised by the server if Spark, or its start script, sets more variables than the server expects."""
    source, sink = host.topic("in"), host.topic("out")
    host.produce(source, numbered(10))
    deployment = host.deploy(passing(source, sink, str))
    processed(deployment, 10)
    for report in deployment.reports.instances.values():
        daemon, server = psutil.Process(report.pid).parents()[:2]
        assert server.parent() == psutil.Process() and server.cmdline()[-2:] == ["-m", "kstreams_repl.host.spark.startup.daemon"]
        assert [thread.id for thread in daemon.threads()] == [daemon.pid]
    deployment.stop()


SCRIPT = """
import sys
sys.path.insert(0, {root!r})
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[6,2]").config("spark.ui.enabled", "false").config("spark.log.level", "OFF").getOrCreate()
import kstreams_repl as ks
with ks.connect(spark=spark, directory="temporary", report=lambda line: None) as session:
    session.produce("words", ["to be", "or not"])
    builder = ks.StreamsBuilder()
    builder.stream("words", value_serde=ks.serdes.string).group_by(
        lambda key, word: word, key_serde=ks.serdes.string, value_serde=ks.serdes.string).count(store="counts")
    app = session.deploy(builder, "app", num_stream_threads=1)
    assert app.wait(90)
    print("COUNTED", session.sql("SELECT sum(value) FROM counts").fetchall())
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_a_session_started_by_somebody_else_finds_this_checkout(tmp_path: Path) -> None:
    """The package is on the driver's `sys.path` only, as in a notebook beside a checkout."""
    from kstreams_repl.system.java import spark_environment

    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | spark_environment()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(root=str(ROOT))], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=180
    )
    assert "COUNTED [(2" in done.stdout, done.stderr[-2000:]


def test_the_python_error_is_found_in_what_spark_tells() -> None:
    told = (
        "Job aborted due to stage failure: ... org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        '  File "worker.py", line 1, in main\n    process()\nModuleNotFoundError: No module named \'x.y\'\n\n\tat org.apache.spark'
    )
    assert python_error(told) == "ModuleNotFoundError: No module named 'x.y'"
    assert python_error("Error from python worker:\n  /usr/bin/python3: No module named kstreams_repl\nPYTHONPATH was:\n  /x") == (
        "/usr/bin/python3: No module named kstreams_repl"
    )
    assert python_error("Python worker exited unexpectedly (crashed)") is None
