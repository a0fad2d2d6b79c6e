"""The probes of a service whose application does not run yet."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import httpx
import pytest

from kstreams_repl.host.instance.metadata import HostInfo
from kstreams_repl.host.kafka.embedded.broker import free_port
from kstreams_repl.serving.server.early_probes import EarlyProbes
from kstreams_repl.system.errors import ConfigError, QueryServerError
from tests.unit.serving.test_server_limits import certificate


@pytest.mark.parametrize("tls", [False, True])
def test_a_service_that_waits_is_alive_and_not_ready(tmp_path: Path, tls: bool) -> None:
    own = tuple(map(str, certificate(tmp_path, "own"))) if tls else (None, None)
    bind = HostInfo("127.0.0.1", free_port())
    probes = EarlyProbes(bind, *own, insecure=False)
    verify = ssl.create_default_context(cafile=own[0]) if own[0] else True
    url = f"{'https' if tls else 'http'}://{bind}"
    with socket.create_connection((bind.host, bind.port)), httpx.Client(verify=verify, trust_env=False, timeout=10) as web:  # one is silent
        assert web.get(f"{url}/health/live").json() == {"live": True}
        ready = web.get(f"{url}/health/ready")
        assert ready.status_code == 503 and not ready.json()["ready"] and ready.json()["waits_for"]
        assert web.get(f"{url}/state/stores/counts/a").status_code == 404
    probes.close()
    probes.close()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/health/live", trust_env=False, verify=verify)
    EarlyProbes(bind, *own, insecure=False).close()  # the address is free


def test_an_address_that_cannot_be_served_is_told_before_anything_starts(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(QueryServerError, match="cannot listen"):
            EarlyProbes(HostInfo("127.0.0.1", taken.getsockname()[1]), None, None, insecure=False)
    with pytest.raises(ConfigError, match="can be reached from other machines"):
        EarlyProbes(HostInfo("0.0.0.0", free_port()), None, None, insecure=False)
    one, other = certificate(tmp_path, "one"), certificate(tmp_path, "other")
    with pytest.raises(ConfigError, match="certificate cannot be used"):
        EarlyProbes(HostInfo("127.0.0.1", free_port()), str(one[0]), str(other[1]), insecure=False)
