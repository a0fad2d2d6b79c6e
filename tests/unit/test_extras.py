"""Who has installed the core alone, or one extra, is told which other one is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kstreams_repl.errors import KStreamsError
from kstreams_repl.extras import extras, missing

WITHOUT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
import kstreams_repl as ks

def told(call):
    try:
        call()
    except ks.KStreamsError as error:
        print(error.message, "|", error.hint)
"""


def run(absent: set[str], code: str) -> str:
    done = subprocess.run([sys.executable, "-c", WITHOUT.format(absent=absent) + code], capture_output=True, text=True)
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout + done.stderr


def test_each_call_names_the_extra_that_it_needs() -> None:
    """They ended with ModuleNotFoundError."""
    said = run(
        {"duckdb", "IPython", "pyspark", "pandas"},
        """
told(lambda: ks.connect())
from kstreams_repl.spark.session import get_session
told(get_session)
from kstreams_repl.cli.main import main
print(main(["repl"]))
""",
    )
    assert said.splitlines() == [
        "duckdb is not installed | pip install 'kstreams-repl[sql]'",
        "pyspark is not installed | pip install 'kstreams-repl[spark]'",
        "1",
        "Error: IPython is not installed",
        "Hint: pip install 'kstreams-repl[notebook]'",
    ]


def test_loading_the_extension_names_the_extra_that_it_needs() -> None:
    said = run({"duckdb"}, "told(lambda: ks.load_ipython_extension(None))")
    assert said == "duckdb is not installed | pip install 'kstreams-repl[sql]'\n"


def test_a_dataframe_without_pandas_names_the_extra_too() -> None:
    said = run({"pandas"}, "from kstreams_repl.session.records import Records\ntold(Records([]).df)")
    assert said == "pandas is not installed | pip install 'kstreams-repl[spark]'\n"


def test_other_imports_that_fail_stay_what_they_are() -> None:
    with pytest.raises(ModuleNotFoundError, match="my_own"), extras():
        import my_own  # type: ignore[import-not-found]  # noqa: F401
    assert missing(ImportError("cannot import name 'x' from 'duckdb'", name="duckdb")) is None
    told = missing(ModuleNotFoundError("No module named 'pyspark.sql'", name="pyspark.sql"))
    assert isinstance(told, KStreamsError) and told.module == "pyspark"
