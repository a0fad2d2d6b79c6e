"""The example notebooks run from top to bottom on a real broker and real Spark, and are committed clean.

Imported in the tests: nbformat takes some four seconds, which each process of a run would spend.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.notebooks.displayed import CHECKS, Displayed

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
names = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def run(path: Path, folder: Path) -> Any:
    """The notebook, executed in a folder of its own by this Python."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    path_of_package = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    client = NotebookClient(notebook, timeout=400, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    client.execute(env={**os.environ, "PYTHONPATH": path_of_package, "JUPYTER_PREFER_ENV_PATH": "1"})
    return notebook


def outputs(notebook: Any, mime: str) -> list[str]:
    found = []
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if mime in output.get("data", {}):
                found.append(output["data"][mime])
    return found


def test_there_are_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == [
        "01_first_topology", "02_windows_and_joins", "03_edit_on_the_fly", "04_looking_inside", "05_your_own_processor", "06_when_it_fails",
        "07_state_for_other_programs", "08_nightly_runs", "09_calling_a_service", "10_on_a_cluster",
        "11_what_happened_here", "12_try_it_beside", "tutorial",
    ]  # fmt: skip


@names
def test_notebook_is_committed_clean(path: Path) -> None:
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.timeout(600)
@pytest.mark.slow  # in the short tier: the first one below, the third in the browser (test_edit_on_the_fly.py)
@names
def test_notebook_runs_from_top_to_bottom(path: Path, tmp_path: Path) -> None:
    notebook = run(path, tmp_path)
    pictures = [html for html in outputs(notebook, "text/html") if "data:image/svg+xml;base64," in html]
    assert pictures
    assert all("<script" not in html for html in outputs(notebook, "text/html"))
    CHECKS[path.stem](Displayed(notebook, tmp_path))


def test_every_notebook_has_a_check_of_what_it_displays() -> None:
    assert list(CHECKS) == [path.stem for path in NOTEBOOKS]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.timeout(600)
def test_first_notebook_counts_every_departure(tmp_path: Path) -> None:
    notebook = run(NOTEBOOKS[0], tmp_path)
    texts = outputs(notebook, "text/plain")
    CHECKS[NOTEBOOKS[0].stem](Displayed(notebook, tmp_path))
    assert any("United Air Lines" in text for text in texts)
    assert "'flight-delays', running" in texts[-1], "it ends with the picture of what runs"
