"""What other users of this machine can reach of a local Spark that runs an application: no Python process, and no port without a secret."""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.spark.hosting import Host, counting, numbered, processed, running

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def listening(process: psutil.Process) -> list[int]:
    with suppress(psutil.Error):
        return [at.laddr.port for at in process.net_connections("inet") if at.status == psutil.CONN_LISTEN]
    return []


@pytest.mark.slow
def test_python_workers_have_no_ports_and_the_jvms_want_a_secret(host: Host) -> None:
    source, sink = host.topic("in"), host.topic("out")
    host.produce(source, numbered(100))
    deployment = host.deploy(counting(source, sink))
    processed(deployment, 100)
    running(deployment)
    context = host.spark.sparkContext
    jvm = psutil.Process(context._gateway.proc.pid)
    jvm = next((child for child in [jvm, *jvm.children()] if child.name() == "java"), jvm)
    everything = psutil.Process()  # workers are forks of a server beside the JVM
    workers = [child for child in everything.children(recursive=True) if "python" in child.name()]
    assert len(workers) >= 3  # a daemon and two instances
    assert {worker.pid: listening(worker) for worker in workers if listening(worker)} == {}
    listener = getattr(context._gateway, "_callback_server", None)  # of a user's own listener, if an earlier test had one; wants a token
    users = [] if listener is None else [listener.port]
    assert [port for port in listening(psutil.Process()) if port not in users] == []  # PySpark's accumulators
    folder = Path(context.getConf().get("spark.python.unix.domain.socket.dir"))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700 and folder.owner() == Path.home().owner() or os.getuid() == folder.stat().st_uid
    ports = listening(jvm)
    assert ports and context.getConf().get("spark.authenticate") == "true"
    before = {child.pid for child in everything.children(recursive=True)}
    for port in ports:  # what is no answer to its challenge ends the connection or is left waiting, and starts nothing
        with socket.create_connection(("127.0.0.1", port), 5) as stranger:
            stranger.sendall(b"\x00\x00\x00\x15" + b"c" * 64 + b"\n")
            stranger.settimeout(1.0)
            with suppress(TimeoutError, ConnectionError):
                assert b"!y" not in stranger.recv(1000)
    assert {child.pid for child in everything.children(recursive=True)} <= before
    host.produce(source, numbered(100, start=100))
    processed(deployment, 200)
    deployment.stop()
