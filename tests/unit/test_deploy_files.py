"""The files with which `kstreams run` is supervised: systemd's unit, Kubernetes' manifests, the image. Their commands are parsed by the
command itself, with their settings; that a tool accepts the manifests and the Dockerfile, tests/integration/test_release_files.py shows."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from kstreams_repl.cli.registry import COMMANDS
from kstreams_repl.cli.run import REFUSED, main, settings_of
from kstreams_repl.cli.run_settings import VARIABLE, RunSettings
from kstreams_repl.engine.metrics.catalogue import SPECS
from kstreams_repl.engine.metrics.prometheus import metric_name
from kstreams_repl.serving.server.access import PROBES

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "deploy" / "kstreams@.service"
IMAGE = re.split(r"^FROM \S+ AS service$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)[1].partition("\nFROM ")[0]
ENTRY = json.loads(re.findall(r"^ENTRYPOINT (.+)$", IMAGE, re.MULTILINE)[0])
VARIABLES = dict(re.findall(r"^(?:ENV| +) ?(KSTREAMS_\w+)=(\S+)", IMAGE, re.MULTILINE))
MANIFESTS = {each["kind"]: each for each in yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yaml").read_text(encoding="utf-8"))}
POD = MANIFESTS["StatefulSet"]["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
SHOWN = re.findall(r"^ *kstreams-service (\w+:.+)$", (ROOT / "docs/tasks/service.md").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.fixture
def etc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder /etc of the files' commands."""
    for folder in ("kstreams", "kstreams-tls"):
        (tmp_path / folder).mkdir()
    for name, text in MANIFESTS["ConfigMap"]["data"].items():
        (tmp_path / "kstreams" / name).write_text(text)
    for name in ("tls.crt", "tls.key"):
        (tmp_path / "kstreams-tls" / name).touch()
    return tmp_path


def parsed(words: list[str], etc: Path) -> tuple[click.Context, RunSettings]:
    assert words[:2] == ["kstreams", "run"] and "run" in COMMANDS
    context = main.make_context("run", [word.replace("/etc/", f"{etc}/") for word in words[2:]])
    return context, settings_of(context.params)


def test_the_unit_runs_a_command_that_parses_and_waits_longer_than_it_drains(etc: Path) -> None:
    text = UNIT.read_text(encoding="utf-8").replace("%i", "orders").replace("%S", "/var/lib").replace("\\\n", "")
    service = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
    program, *words = shlex.split(service["ExecStart"])
    context, settings = parsed([Path(program).name, *words], etc)
    assert context.params["topology"] == "orders:topology" and settings.command["application.id"] == "orders"
    assert settings.command["repl.directory"] == f"/var/lib/{service['StateDirectory']}"
    assert float(service["TimeoutStopSec"]) > context.params["drain"]
    assert (service["Restart"], service["RestartPreventExitStatus"], service["KillMode"]) == ("on-failure", str(REFUSED), "mixed")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze: install the package systemd")
@pytest.mark.parametrize(("before", "after"), [("", ""), ("KillMode=", "KilMode="), ("TimeoutStopSec=90", "TimeoutStopSec=soon")])
def test_systemd_accepts_the_unit_and_rates_it_as_hardened(tmp_path: Path, before: str, after: str) -> None:
    file = tmp_path / UNIT.name
    text = UNIT.read_text(encoding="utf-8").replace("/opt/kstreams/bin/kstreams", sys.executable)
    file.write_text(text.replace(before, after) if before else text)
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", file], capture_output=True, text=True)
    assert (done.returncode == 0 and str(file) not in done.stderr) == (not before), done.stderr
    rated = ["systemd-analyze", "security", "--offline=true", "--threshold=20", file]
    assert subprocess.run(rated, capture_output=True).returncode == 0  # 2.0 of 10, where 0 is best


def test_the_pods_command_parses_with_its_settings_and_may_end_later_than_it_drains(etc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KSTREAMS_CONFIG_REPL_DIRECTORY", VARIABLES["KSTREAMS_CONFIG_REPL_DIRECTORY"])
    context, settings = parsed([*ENTRY[2:], *CONTAINER["args"]], etc)
    assert settings.command["application.id"] == MANIFESTS["StatefulSet"]["metadata"]["name"] == "orders"
    assert POD["terminationGracePeriodSeconds"] > context.params["drain"]
    secrets = re.findall(r"\$\{env:(\w+)\}", "".join(MANIFESTS["ConfigMap"]["data"].values()))
    assert secrets == [each["name"] for each in CONTAINER["env"] if "secretKeyRef" in each["valueFrom"]]
    written = [mount["mountPath"] for mount in CONTAINER["volumeMounts"] if not mount.get("readOnly")]
    for path in (settings.command["repl.directory"], VARIABLES["KSTREAMS_CACHE"], "/tmp/x"):
        assert any(path.startswith(f"{each}/") for each in written), path
    (port,) = CONTAINER["ports"]
    assert settings.command["repl.http"] == f"0.0.0.0:{port['containerPort']}"
    probes = [CONTAINER[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")]
    live, ready = PROBES
    assert [probe["path"] for probe in probes] == [live, live, ready] and context.params["certfile"] and not context.params["insecure"]
    assert all((probe["port"], probe["scheme"]) == (port["name"], "HTTPS") for probe in probes)


def test_the_manifests_name_each_other() -> None:
    state = MANIFESTS["StatefulSet"]["spec"]
    labels = state["template"]["metadata"]["labels"]
    service, budget = MANIFESTS["Service"], MANIFESTS["PodDisruptionBudget"]
    assert labels == state["selector"]["matchLabels"] == service["spec"]["selector"] == budget["spec"]["selector"]["matchLabels"]
    assert state["serviceName"] == service["metadata"]["name"]
    assert service["spec"]["ports"][0]["targetPort"] == CONTAINER["ports"][0]["name"]
    volumes = {each["name"]: each for each in POD["volumes"]} | {each["metadata"]["name"]: each for each in state["volumeClaimTemplates"]}
    assert {mount["name"] for mount in CONTAINER["volumeMounts"]} == set(volumes)
    assert volumes["settings"]["configMap"]["name"] == MANIFESTS["ConfigMap"]["metadata"]["name"]


def test_the_pod_has_no_rights_and_its_group_is_given_no_access_to_the_tokens() -> None:
    user: dict[str, Any] = POD["securityContext"]
    assert user["runAsNonRoot"] and f"USER {user['runAsUser']}\n" in IMAGE and f"--uid {user['runAsUser']} " in IMAGE
    assert user["fsGroupChangePolicy"] == "OnRootMismatch"
    expected = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    assert CONTAINER["securityContext"] == expected


@pytest.mark.parametrize("arguments", ["orders:topology", *SHOWN])
def test_the_images_command_parses_with_its_variables(etc: Path, monkeypatch: pytest.MonkeyPatch, arguments: str) -> None:
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    assert ENTRY[:2] == ["tini", "--"] and SHOWN
    _, settings = parsed([*ENTRY[2:], *shlex.split(arguments)], etc)
    assert f"http://{settings.command['repl.http']}{PROBES[0]}" in IMAGE
    assert settings.origins["repl.directory"] == f"{VARIABLE}REPL_DIRECTORY"


def test_the_board_and_the_alerts_ask_for_metrics_that_exist() -> None:
    known = {metric_name(group, name) for group, name in SPECS}
    known |= {name.removesuffix("_total") for name in known}
    board = json.loads((ROOT / "deploy/grafana/kstreams.json").read_text())
    rules = yaml.safe_load((ROOT / "deploy/prometheus/rules.yml").read_text())["groups"][0]["rules"]
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]] + [rule["expr"] for rule in rules]
    names = {name for expression in asked for name in re.findall(r"kafka_streams_[a-z0-9_]+", expression)}
    assert len(names) > 15 and names <= known
    assert all({"summary"} == set(rule["annotations"]) and rule["labels"]["severity"] in ("critical", "warning") for rule in rules)
