"""`./kstreams test --changed` chooses what a change can break, and leaves out what it cannot."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kstreams_repl.cli.main import main
from kstreams_repl.system.errors import KStreamsError
from workshop.commands import test as command
from workshop.commands.changed import Checkout, changed_files

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def checkout() -> Checkout:
    return Checkout.read(ROOT)


def test_the_nearest_cheap_test_comes_first_and_a_notebook_that_uses_the_module_is_chosen(checkout: Checkout) -> None:
    chosen = checkout.choose(["kstreams_repl/engine/operators/streams/stream_filter.py"])
    assert chosen.index("tests/unit/engine/operators/test_stateless.py") < chosen.index("tests/unit/kernel_ext/test_extension.py")
    assert chosen.index("tests/conformance/test_conformance.py") < chosen.index("tests/spark/test_deployment.py")
    assert "tests/notebooks/test_notebooks.py" in chosen and "tests/unit/test_architecture.py" in chosen


def test_what_imports_nothing_of_the_change_is_left_out(checkout: Checkout) -> None:
    chosen = checkout.choose(["workshop/bench/latency.py"])
    assert "tests/unit/workshop/bench/test_control_and_latency.py" in chosen
    assert not {test.split("/")[1] for test in chosen} & {"kafka", "session", "faults", "browser", "notebooks"}


@pytest.mark.parametrize(
    ("file", "test"),
    [
        ("docs/reference/metrics.md", "tests/unit/test_docs.py"),
        ("docs/design/a-new-page.md", "tests/unit/test_docs.py"),
        ("notebooks/a-new-one.ipynb", "tests/notebooks/test_notebooks.py"),
        ("kstreams_repl/host/kafka/embedded/jars.lock", "tests/unit/host/kafka/test_jars.py"),
        ("kstreams_repl/pictures/static/panel.js", "tests/browser/test_jupyterlab.py"),
        ("tests/unit/cli/test_main.py", "tests/unit/cli/test_main.py"),
        ("tests/spark/hosting.py", "tests/faults/test_driver_killed.py"),
        ("tests/browser/conftest.py", "tests/browser/test_tables.py"),
        ("kstreams_repl/demo/questions.py", "tests/integration/test_demo.py"),
        ("kstreams_repl/repl/session/application/detached/driver.py", "tests/session/test_detached.py"),
        ("requirements.lock", "tests/spark/test_deployment.py"),
    ],
)
def test_a_change_chooses_the_tests_that_read_run_or_share_the_file(checkout: Checkout, file: str, test: str) -> None:
    assert test in checkout.choose([file])


def test_no_change_chooses_nothing_and_runs_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("workshop.commands.changed.changed_files", lambda root, since: [])
    assert main(["test", "--changed"]) == 0
    assert capsys.readouterr().out == "changed: nothing\nchosen: 0 test files\n"


def test_the_chosen_files_are_what_pytest_runs() -> None:
    assert command.pytest_command(False, (), ["tests/a.py"])[-1] == "tests/a.py"
    assert command.pytest_command(False, ("-x",), ["tests/a.py"])[-2:] == ["-x", "tests/a.py"]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet", "--initial-branch", "main")
    (tmp_path / "kept.py").write_text("")
    (tmp_path / "removed.py").write_text("")
    commit(tmp_path)
    return tmp_path


def git(where: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(where), "-c", "user.name=n", "-c", "user.email=n@localhost", *arguments], check=True)


def commit(where: Path) -> None:
    git(where, "add", ".")
    git(where, "commit", "--quiet", "--message", "m")


def test_changed_are_commits_of_this_branch_edits_removals_and_new_files(repository: Path) -> None:
    git(repository, "branch", "upstream")
    git(repository, "branch", "--quiet", "--set-upstream-to", "upstream")
    (repository / "committed.py").write_text("")
    commit(repository)
    (repository / "kept.py").write_text("edited = True")
    (repository / "removed.py").unlink()
    (repository / "new.py").write_text("")
    assert changed_files(repository) == ["committed.py", "kept.py", "new.py", "removed.py"]
    assert changed_files(repository, since="HEAD") == ["kept.py", "new.py", "removed.py"]


def test_a_commit_that_git_does_not_know_is_an_error_with_a_hint(repository: Path) -> None:
    with pytest.raises(KStreamsError, match="cannot compare") as error:
        changed_files(repository, since="nowhere")
    assert "--since HEAD~3" in str(error.value.hint)


def test_changed_runs_the_nearest_and_says_how_many_there_are(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    file = "kstreams_repl/engine/operators/streams/stream_filter.py"
    monkeypatch.setattr("workshop.commands.changed.changed_files", lambda root, since: [file])
    nearest = command.choose_changed(ROOT, None)
    assert nearest[0] == "tests/unit/engine/operators/test_stateless.py" and len(nearest) == command.NEAREST
    told = capsys.readouterr().out
    everything = command.choose_changed(ROOT, "HEAD")
    assert everything[: len(nearest)] == nearest and f"chosen: {len(nearest)} test files of {len(everything)}, the nearest" in told
