"""Which queries a session uses: of the files on its host, or on a cluster of the query servers."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.control.file_channel import LEASE
from kstreams_repl.host.instance.state.state_directory import control_directory
from kstreams_repl.repl.session.views.stores.local_queries import strict_queries_of
from kstreams_repl.serving.local.queryable_state import QueryableState
from kstreams_repl.serving.remote.remote_state import RemoteState
from kstreams_repl.system.errors import StateStoreNotAvailableError
from tests.queried import APPLICATION, topology_of


class Client:
    """A cluster client that nothing is asked of."""


def application(root: Path, *, remote: bool, **settings: str) -> Any:
    config = ks.StreamsConfig({"application.id": APPLICATION, "bootstrap.servers": "localhost:1", "state.dir": str(root), **settings})
    control = control_directory(root, APPLICATION)
    control.mkdir(parents=True)
    (control / LEASE).write_text(json.dumps({"generation": 1, "signal": str(Signal.RUN), "remote": remote}))
    topology = topology_of(ks.Stores.persistent_key_value_store("counts"))
    discovery = SimpleNamespace(metadata_for_all_clients=list)
    return SimpleNamespace(name=APPLICATION, topology=topology, config=config, client=Client(), discovery=discovery)


def test_on_one_host_files_are_read(tmp_path: Path) -> None:
    assert isinstance(strict_queries_of(application(tmp_path, remote=False), "counts"), QueryableState)


def test_on_a_cluster_servers_are_asked_and_without_one_the_error_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(StateStoreNotAvailableError, match="runs on a cluster and has no query servers") as caught:
        strict_queries_of(application(tmp_path / "without", remote=True), "counts")
    assert not caught.value.retriable and "ks.queries.connect" in str(caught.value.hint)
    served = strict_queries_of(application(tmp_path / "with", remote=True, **{"application.server": "127.0.0.1:0"}), "counts")
    assert isinstance(served, RemoteState)
    with pytest.raises(StateStoreNotAvailableError, match="no query server of queried has reported") as later:
        served.store("counts", ks.queries.QueryableStoreTypes.key_value_store())
    assert later.value.retriable
