"""Who has installed the core alone, or one extra, is told which other one is missing."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from kstreams_repl.repl.inspection import run_sql
from kstreams_repl.repl.session.topics.records import ReadRecord, Records
from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.system.extras import EXTRA_OF, extras, missing

ROOT = Path(__file__).resolve().parents[3]

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
from kstreams_repl.host.spark.startup.spark_session import get_session
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
        "See: docs/reference/errors.md#missingpackageerror",
    ]


def test_without_anything_native_topologies_run_and_the_rest_names_its_extra() -> None:
    said = run(
        {"confluent_kafka", "lmdb", "psutil", "pyarrow", "pandas", "duckdb", "pyspark", "IPython"},
        """
builder = ks.StreamsBuilder()
builder.stream("in", key_serde="string", value_serde="json").group_by_key().count(store="counts")
with ks.testing.TopologyTestDriver(builder.build()) as driver:
    driver.create_input_topic("in", "string", "json").pipe_input("a", 1)
    print(driver.state_store("counts").get("a").value)
assert "<svg" in builder._repr_mimebundle_()["text/html"] or "svg" in str(builder._repr_mimebundle_())
told(lambda: ks.connect())
""",
    )
    assert said.splitlines() == ["1", "confluent_kafka is not installed | pip install 'kstreams-repl[kafka]'"]


@pytest.mark.parametrize("files", ["cases/*.jsonl", pytest.param("random/*.jsonl.gz", marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
def test_the_conformance_cases_pass_without_anything_native(files: str) -> None:
    said = run(
        {"confluent_kafka", "lmdb", "psutil", "pyarrow", "pandas", "duckdb", "pyspark", "IPython", "numpy"},
        f"""
import gzip, json
from pathlib import Path
from workshop.conformance.runner import run_case
count = 0
for path in sorted(Path({str(ROOT / "tests/conformance")!r}).glob({files!r})):
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as lines:
        for outcome in (run_case(json.loads(line)) for line in lines):
            count += 1
            assert outcome.difference is None or outcome.waived is not None, outcome.difference
print(count >= 473)
""",
    )
    assert said == "True\n"


def test_a_command_for_those_who_work_on_the_project_says_that_it_needs_a_checkout() -> None:
    said = run(
        {"nothing"},
        """
from pathlib import Path
from kstreams_repl.cli import checkout, registry
checkout.find_checkout = lambda: None
entry = registry.CommandEntry("kstreams_repl.not_in_the_wheel", "main", "")
told(entry.load)
""",
    )
    assert said.startswith("kstreams not_in_the_wheel needs the project's checkout, and this package was installed without one. | clone")


def test_loading_the_extension_names_the_extra_that_it_needs() -> None:
    said = run({"duckdb"}, "told(lambda: ks.load_ipython_extension(None))")
    assert said == "duckdb is not installed | pip install 'kstreams-repl[sql]'\n"


def test_a_dataframe_without_pandas_names_the_extra_too() -> None:
    said = run({"pandas"}, "from kstreams_repl.repl.session.topics.records import Records\ntold(Records([]).df)")
    assert said == "pandas is not installed | pip install 'kstreams-repl[spark]'\n"


@pytest.mark.slow
def test_a_polars_dataframe_without_polars_names_the_extra() -> None:
    said = run(
        {"polars"},
        "from kstreams_repl.repl.session.topics.records import Records\n"
        "from kstreams_repl.repl.inspection import run_sql\n"
        "from types import SimpleNamespace\n"
        "told(Records([]).pl)\n"
        "told(run_sql('SELECT 1', SimpleNamespace(expect=lambda tables: None)).pl)\n",
    )
    assert said.splitlines() == 2 * ["polars is not installed | pip install 'kstreams-repl[polars]'"]


def test_results_and_records_are_polars_dataframes() -> None:
    polars = pytest.importorskip("polars")
    result = run_sql("SELECT 'a' AS word, 3 AS count", SimpleNamespace(expect=lambda tables: None)).pl()  # type: ignore[arg-type]
    assert isinstance(result, polars.DataFrame) and result.to_dicts() == [{"word": "a", "count": 3}]
    found = Records([ReadRecord("k", {"n": 1}, 1000, "t", 0, 5)]).pl()
    assert found.select("key", "value", "offset").to_dicts() == [{"key": "k", "value": {"n": 1}, "offset": 5}]


def test_connect_and_deploy_name_a_missing_extra_before_anything_starts(tmp_path: Path) -> None:
    said = run(
        {"pyspark", "jgo"},
        f"import os\nos.environ['KSTREAMS_CACHE'] = {str(tmp_path)!r}\n"
        "told(ks.connect)\n"
        "session = ks.Session(None)\n"
        "told(lambda: session.deploy(ks.StreamsBuilder(), 'x'))\n"
        "print(session.started)\n",
    )
    assert said.splitlines() == [
        "jgo is not installed | pip install 'kstreams-repl[broker]'",
        "pyspark is not installed | pip install 'kstreams-repl[spark]'",
        "False",
    ]


def test_all_is_everything_for_users_but_what_asks_for_a_collector_and_nothing_of_the_tests() -> None:
    extras_of = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    (named,) = re.findall(r"\[(.+)\]", "".join(extras_of["all"]))
    assert set(named.split(",")) == extras_of.keys() - {"all", "otel", "dev", "test", "docs"}
    assert set(EXTRA_OF.values()) <= extras_of.keys()


def test_other_imports_that_fail_stay_what_they_are() -> None:
    with pytest.raises(ModuleNotFoundError, match="my_own"), extras():
        import my_own  # type: ignore[import-not-found]  # noqa: F401
    assert missing(ImportError("cannot import name 'x' from 'duckdb'", name="duckdb")) is None
    told = missing(ModuleNotFoundError("No module named 'pyspark.sql'", name="pyspark.sql"))
    assert isinstance(told, KStreamsError) and told.module == "pyspark"
