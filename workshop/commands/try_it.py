"""The recipes as notebooks that run in a browser tab: a JupyterLite site inside the documentation's, of files only.

Its kernel is Pyodide, which the tab fetches from its own host. Everything else that the tab needs is in the site: the wheel of this
checkout, and comm, which the kernel needs and Pyodide's distribution lacks.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path
from tempfile import TemporaryDirectory

import kstreams_repl as ks
from kstreams_repl.system.types import JsonObject

ROOT = Path(__file__).resolve().parents[2]
PYODIDE = "https://cdn.jsdelivr.net/pyodide/v314.0.7/full/"
KERNEL = "@jupyterlite/pyodide-kernel-extension"
PRELOADED = ("click", "ipython", "jedi", "micropip", "mmh3", "msgspec", "orjson", "rich", "sortedcontainers")
"""What the kernel and the wheel need and Pyodide's distribution has; of the rest, micropip asks PyPI."""
NOT_IN_A_TAB = {
    "enrich-http": "it starts an HTTP server of its own",
    "schema-evolution": "its last block needs fastavro, which has no wheel for Pyodide",
}
"""Recipes that fail in a tab, each with the reason."""


def link(recipe: str) -> str:
    """Return the link from a recipe's page to its notebook, or the reason why there is none."""
    if recipe in NOT_IN_A_TAB:
        return f"*Not [in a browser tab](../start/browser.md): {NOT_IN_A_TAB[recipe]}.*"
    return f'<a class="md-button" href="../lite/notebooks/index.html?path={recipe}.ipynb">Try it in your browser</a>'


def build(folder: Path) -> None:
    """Build the JupyterLite site into a folder.

    Raises:
        CalledProcessError: the wheel or the site could not be built; the output was printed.
    """
    with TemporaryDirectory() as temporary:
        source = Path(temporary)
        for name, _ in ks.recipes.list().rows:
            if name not in NOT_IN_A_TAB:
                _for_a_tab(ks.recipes.open(str(name), folder=source / "files").path)
        wheels = source / "pypi"
        wheels.mkdir()
        _run(ROOT, "hatchling", "build", "-t", "wheel", "-d", str(wheels))
        _wheel_of("comm", wheels)
        kernel = {"pyodideUrl": f"{PYODIDE}pyodide.mjs", "loadPyodideOptions": {"packages": PRELOADED}}
        settings = {"litePluginSettings": {f"{KERNEL}:kernel": kernel}}
        (source / "jupyter-lite.json").write_text(json.dumps({"jupyter-lite-schema-version": 0, "jupyter-config-data": settings}))
        extensions = {  # the kernel's alone, whatever else is installed
            "ignore_sys_prefix": ["federated_extensions"],
            "federated_extensions": [f"{sys.prefix}/share/jupyter/labextensions/{KERNEL}"],
        }
        small = {"apps": ["notebooks"], "no_sourcemaps": True, "no_unused_shared_packages": True}
        (source / "jupyter_lite_config.json").write_text(json.dumps({"LiteBuildConfig": extensions | small}))
        _run(source, "jupyterlite_core", "build", "--output-dir", str(folder))


def _for_a_tab(path: Path) -> None:
    """Let a notebook's first cell install the site's wheel, and choose its kernel."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    cell: JsonObject = {"cell_type": "code", "execution_count": None, "id": "install", "metadata": {}, "outputs": []}
    notebook["cells"].insert(0, cell | {"source": "%pip install -q kstreams-repl"})
    notebook["metadata"]["kernelspec"] = {"display_name": "Python (Pyodide)", "language": "python", "name": "python"}
    path.write_text(json.dumps(notebook, ensure_ascii=False, indent=1), encoding="utf-8")


def _wheel_of(name: str, folder: Path) -> None:
    """Write an installed package, which the lock file checked by its hash, as the wheel that it was."""
    installed = distribution(name)
    with zipfile.ZipFile(folder / f"{name}-{installed.version}-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        for file in installed.files or ():
            if "__pycache__" not in file.parts:
                wheel.write(str(file.locate()), str(file))


def _run(folder: Path, *module: str) -> None:
    command = [sys.executable, "-P", "-m", *module]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        print(done.stdout, file=sys.stderr)
    done.check_returncode()
