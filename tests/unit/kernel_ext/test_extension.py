"""The extension in a real IPython shell, without a broker."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas
import pytest
from confluent_kafka import KafkaError, KafkaException
from IPython.core.interactiveshell import ExecutionResult, InteractiveShell
from traitlets.config import Config

import kernel_ext.magics.completion
import kstreams_repl as ks
from kernel_ext.cell_tracker import cell_of
from kernel_ext.errors import error_lines, recovery_lines
from kernel_ext.extension import Extension
from kernel_ext.magics.topo_magics import TopoMagics, _split_options
from kernel_ext.workspace import Workspace
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.kafka.failures import kafka_errors
from kstreams_repl.repl.session.topics.records import ReadRecord
from kstreams_repl.system.errors import BrokerUnavailableError


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    shell = new_shell()
    shell.run_cell("%load_ext kstreams_repl", silent=True)
    yield shell
    shell.run_cell("%unload_ext kstreams_repl", silent=True)


def new_shell() -> InteractiveShell:
    """A shell that writes no history: that would be a thread and a file in the user's home."""
    return InteractiveShell(config=Config({"HistoryManager": {"enabled": False}}))


def run(shell: InteractiveShell, cell: str, cell_id: str | None = None) -> tuple[ExecutionResult, str]:
    out = io.StringIO()
    with redirect_stdout(out):
        result = shell.run_cell(cell, cell_id=cell_id)
    return result, out.getvalue()


def test_loading_says_broker_spark_and_what_next() -> None:
    shell = new_shell()
    _, printed = run(shell, "%load_ext kstreams_repl")
    assert [line.split()[0] for line in printed.splitlines()] == ["broker", "Spark", "next"]


def test_loading_twice_adds_nothing_twice(shell: InteractiveShell) -> None:
    before = len(shell.Completer.custom_matchers)
    ks.load_ipython_extension(shell)
    assert len(shell.Completer.custom_matchers) == before


def test_unloading_takes_everything_away_and_loading_brings_it_back(shell: InteractiveShell) -> None:
    names = {name for name in shell.magics_manager.magics["line"] if name.startswith("topo")}
    assert names >= {
        "topo", "topo_connect", "topo_deploy", "topo_look", "topo_pause", "topo_values", "topo_query", "topo_remove", "topo_resume",
        "topo_sql", "topo_stop", "topo_stores", "topo_tail", "topo_topics",
    }  # fmt: skip
    ks.unload_ipython_extension(shell)
    ks.unload_ipython_extension(shell)
    assert not [name for name in shell.magics_manager.magics["line"] if name.startswith("topo")]
    assert not shell.Completer.custom_matchers
    ks.load_ipython_extension(shell)
    assert "topo" in shell.magics_manager.magics["line"]


def test_help_shows_the_pages_that_answer_a_question(shell: InteractiveShell) -> None:
    result, _ = run(shell, "%topo_help why's my join empty")
    assert result.result.rows[0][0] == "docs/tasks/empty-results.md"
    assert type(shell.run_cell("%topo_help").error_in_exec).__name__ == "UsageError"


@pytest.mark.parametrize(
    "magic",
    [
        "topo", "topo_connect", "topo_deploy", "topo_pause", "topo_values", "topo_remove", "topo_reset", "topo_run_batch", "topo_sql",
        "topo_tail", "topo_topics",
    ],  # fmt: skip
)
def test_every_magic_names_the_call_it_is(shell: InteractiveShell, magic: str) -> None:
    documented = shell.find_line_magic(magic).__doc__ or ""
    assert "session." in documented or "app." in documented or "connect" in documented or "picture" in documented


def test_a_cell_that_runs_again_replaces_what_it_made(shell: InteractiveShell) -> None:
    run(shell, "import kstreams_repl as ks; b = ks.StreamsBuilder()")
    run(shell, "words = b.stream('words')", "one")
    run(shell, "long = words.filter(lambda k, v: len(v) > 3, name='long'); long.to('out')", "two")
    for _ in range(3):
        run(shell, "long = words.filter(lambda k, v: len(v) > 5, name='long'); long.to('out')", "two")
    run(shell, "words = b.stream('other-words')", "one")
    topology = shell.user_ns["b"].build()
    assert topology.source_topics() == ("other-words",)
    assert [name for name in topology.nodes if name == "long"] == ["long"]
    assert topology.node("long").origin.cell == "two"


def test_a_node_made_in_topo_belongs_to_the_cell_that_runs_it(shell: InteractiveShell) -> None:
    for _ in range(2):
        result, _ = run(shell, "%%topo demo\nbuilder.stream('words').filter(lambda k, v: True, name='f').to('out')", "cell-7")
        assert result.success
    topology = shell.user_ns["builder"].build()
    assert topology.node("f").origin.cell == "cell-7"
    assert len(topology.nodes) == 3


def test_cells_without_an_id_are_known_by_their_text() -> None:
    class Info:
        cell_id = None
        raw_cell = "x = 1"

    class Other:
        cell_id = None
        raw_cell = "x = 2"

    assert cell_of(Info) == cell_of(Info) != cell_of(Other)


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("%topo_pause", "expects either"),
        ("%topo_pause nope", "no application 'nope'"),
        ("%topo_deploy nope", "no builder or topology 'nope'"),
        ("%topo nope", "no topology or application 'nope'"),
        ("%topo_sql", "expects a query"),
        ("%%topo\nx = 1", "expects one name"),
        ("%topo_deploy b -c nonsense", "expects KEY=VALUE"),
        ("%topo_run_batch b -c nonsense", "expects KEY=VALUE"),
        ("%topo_run_batch nope", "no builder or topology 'nope'"),
        ("%topo_run_batch b --on-end now", "invalid choice: 'now'"),
        ("%topo_reset app --to latest --to-offset 3", "expected --to or --to-offset"),
    ],
)
def test_a_mistake_of_the_user_is_a_usage_error(
    shell: InteractiveShell, cell: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(shell, "import kstreams_repl; b = kstreams_repl.StreamsBuilder()")
    result = shell.run_cell(cell)
    assert type(result.error_in_exec).__name__ == "UsageError"
    assert said in str(result.error_in_exec)
    assert "Traceback" not in capsys.readouterr().err


def test_an_error_of_ours_takes_four_lines_with_the_users_line_a_hint_and_its_page(shell: InteractiveShell) -> None:
    _, printed = run(shell, "import kstreams_repl as ks\nb = ks.StreamsBuilder()\nb.stream('words').to('bad name!')")
    lines = printed.strip().splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("InvalidNameError: the topic name 'bad name!'")
    assert lines[1].strip().endswith("line 3: b.stream('words').to('bad name!')")
    assert lines[2].startswith("Hint: ")
    assert lines[3] == "See: docs/reference/errors.md#invalidnameerror"


def test_an_error_names_the_cell_of_the_function_and_its_record_wherever_it_is_shown(shell: InteractiveShell) -> None:
    """The function was defined in one cell and called from another: "this cell, line 3" named the wrong one."""
    shell.run_cell("import kstreams_repl as ks\n\ndef double(order):\n    return order['price'] * 2", store_history=True)
    defined = shell.execution_count - 1
    shell.run_cell(
        "builder = ks.StreamsBuilder()\n"
        "doubled = builder.stream('in', key_serde='string', value_serde='json').map_values(lambda o: double(o), name='double')\n"
        "driver = ks.testing.TopologyTestDriver(builder.build())\n"
        "orders = driver.create_input_topic('in', 'string', 'json')",
        store_history=True,
    )
    _, printed = run(shell, "orders.pipe_input('b', {'prize': 3}, 2)")
    lines = printed.strip().splitlines()
    assert lines[0] == "StreamsProcessingError: KeyError: 'price'"
    assert lines[1] == f"  cell [{defined}], line 4: return order['price'] * 2"
    assert lines[2] == "  in node double, task 0_0, record in-0@0"
    _, trace = run(shell, "%tb")
    assert f"cell [{defined}], line 4: return order" in trace, "the whole trace says the same"


def test_the_ways_out_of_a_failure_are_calls_and_the_record_is_inert(shell: InteractiveShell) -> None:
    record = ReadRecord("k\x1b[2J", "v" * 5000, 0, "in", 0, 7)
    about = {"application": "shop", "node": "double", "task": "0_0", "topic": "in", "partition": 0, "offset": 7, "record": record}
    error = ks.errors.StreamsProcessingError("KeyError: 'price'", hint="fix it", **about)
    lines = [*error_lines(error, None), *recovery_lines(error, {})]
    assert lines[1].startswith("  in node double, task 0_0, record in-0@7: key 'k\\x1b[2J', value 'vvv") and len(lines[1]) < 1000
    assert "skip it: session.applications['shop'].skip('in-0@7') · edit the function: %%topo_edit shop double" in lines[-1]
    assert not any("\x1b" in line for line in lines)


def test_the_line_of_an_error_is_the_users_and_no_librarys(shell: InteractiveShell) -> None:
    """An error that a context manager of ours had translated showed a line of contextlib."""
    shell.user_ns["ask"] = ask_nobody
    result, printed = run(shell, "x = 1\nask()", "one")
    assert isinstance(result.error_in_exec, BrokerUnavailableError)
    assert 'kafka_errors("asking"' in printed and "gen.throw" not in printed


def test_the_line_of_an_error_shows_no_password_that_was_written_into_the_cell() -> None:
    line = ("cell.py", 1, "connect('b:1', sasl_username='me', sasl_password='hunter2')")
    (_, shown, _) = error_lines(ks.KStreamsError("no broker", user_line=line), None)
    assert shown.endswith("line 1: connect('b:1', sasl_username='me', sasl_password='********')")


def ask_nobody() -> None:
    with kafka_errors("asking", topic="t"):
        raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))


def test_the_whole_trace_is_there_on_request(shell: InteractiveShell) -> None:
    run(shell, "import kstreams_repl as ks; ks.StreamsBuilder().stream('bad name!')")
    _, printed = run(shell, "%tb")
    assert "Traceback (most recent call last)" in printed and "validate_name" in printed


def test_an_error_of_the_users_own_is_left_alone(shell: InteractiveShell) -> None:
    _, printed = run(shell, "1 / 0")
    assert "Traceback (most recent call last)" in printed


@pytest.mark.parametrize("hostile", ["\x1b[2J", "\u202e", "<script>"])
def test_hostile_text_in_an_error_is_inert(hostile: str) -> None:
    lines = error_lines(ks.KStreamsError(f"bad {hostile}", hint=hostile), None)
    assert not any("\x1b" in line or "\u202e" in line for line in lines)


@pytest.mark.parametrize(
    ("line", "options", "query"),
    [
        ("SELECT * FROM t", "", "SELECT * FROM t"),
        ("-o df SELECT 'a -n b'", "-o df", "SELECT 'a -n b'"),
        ('-n 5 -o df SELECT "x" FROM t', "-n 5 -o df", 'SELECT "x" FROM t'),
        ("--output=df -n5 SELECT 1", "--output=df -n5", "SELECT 1"),
        ("", "", ""),
    ],
)
def test_options_stand_before_a_query_that_is_left_as_it_is(line: str, options: str, query: str) -> None:
    assert _split_options(line) == (options, query)


def test_config_sets_how_much_is_shown(shell: InteractiveShell) -> None:
    run(shell, "import pandas; numbers = pandas.DataFrame({'n': range(5)})")
    assert run(shell, "%topo_sql SELECT n FROM numbers")[0].result.table().rows == ((0,), (1,), (2,), (3,), (4,))
    assert run(shell, "%config TopoMagics.sql_rows = 2")[0].success
    assert run(shell, "%topo_sql SELECT n FROM numbers")[0].result.table().rows == ((0,), (1,))
    assert len(run(shell, "%topo_sql -n 4 SELECT n FROM numbers")[0].result.table().rows) == 4
    magics = [one for one in shell.configurables if type(one).__name__ == "TopoMagics"]
    assert len(magics) == 1
    ks.unload_ipython_extension(shell)
    assert not [one for one in shell.configurables if type(one).__name__ == "TopoMagics"]


def test_evaluating_a_builder_shows_text_and_picture(shell: InteractiveShell) -> None:
    run(shell, "import kstreams_repl as ks; b = ks.StreamsBuilder(); b.stream('words').to('copy')")
    bundle, _ = shell.display_formatter.format(shell.user_ns["b"])  # type: ignore[union-attr]
    assert bundle["text/plain"].startswith("Topologies:")
    assert "data:image/svg+xml;base64," in bundle["text/html"]


def completions(shell: InteractiveShell, text: str) -> list[str]:
    from IPython.core.completer import provisionalcompleter

    with provisionalcompleter():
        return [completion.text for completion in shell.Completer.completions(text, len(text))]


def test_magics_complete_topologies_and_settings(shell: InteractiveShell) -> None:
    run(shell, "%%topo word_count\nbuilder.stream('words').to('copy')")
    assert "word_count" in completions(shell, "%topo_deploy word")
    assert "processing.guarantee=" in completions(shell, "%topo_deploy word_count -c processing.g")
    assert "word_count" in completions(shell, "%topo_compare app word") and "--records" in completions(shell, "%topo_compare app --r")


def test_a_query_in_one_line_of_a_cell_leaves_the_other_lines_to_python(shell: InteractiveShell) -> None:
    """Topics and stores were all that was offered below it."""
    shell.user_ns["session"] = SimpleNamespace()
    shell.user_ns["orders_frame"] = 1
    matcher: Any = Extension.of(shell)._matcher  # type: ignore[union-attr]
    matcher._sql_names = lambda text, before: ["orders"]
    assert "orders_frame" in completions(shell, "%topo_sql SELECT 1\nx = orde")
    assert completions(shell, "x = 1\n%topo_sql SELECT * FROM orde") == ["orders"]
    assert completions(shell, "%%topo_sql\nSELECT * FROM\norde") == ["orders"]


def test_completion_starts_no_broker(shell: InteractiveShell) -> None:
    run(shell, "import kstreams_repl as ks; session = ks.connect(directory='temporary')")
    session: Any = shell.user_ns["session"]
    completions(shell, "%topo_values wo")
    completions(shell, "%topo_sql SELECT * FROM w")
    assert not session.started
    session.close()


def test_names_of_the_magics_own_hide_none_of_the_users(shell: InteractiveShell) -> None:
    """A dataframe called `history`, `options` or `line` was not found: the magic has such names itself."""
    frames = {name: pandas.DataFrame({"n": [1, 2]}) for name in ("history", "options", "line", "query", "given", "display")}
    shell.user_ns.update(frames)
    session = ks.Session(ClientSettings("nowhere:9092"))
    session.client._admin = SimpleNamespace(settings=session.settings, topics=dict)
    shell.user_ns["session"] = session
    for name in frames:
        result, _ = run(shell, f"%topo_sql SELECT sum(n) AS total FROM {name}")
        assert result.success and result.result.fetchall() == [(3,)], name


def test_quotes_that_keep_words_together_are_no_part_of_an_argument(shell: InteractiveShell, tmp_path: Path) -> None:
    """`--directory "my data"` made a directory with quotes in its name, `--start "2013-03-01 12:00"` was no place to begin."""
    asked: list[Any] = []
    workspace: Any = SimpleNamespace(
        connect=lambda *place, **options: asked.append((place, options)) or SimpleNamespace(start=lambda: None),
        source=lambda name: name,
        session=SimpleNamespace(plan=lambda *about, **options: asked.append((about, options))),
    )
    magics = TopoMagics(shell, workspace)
    magics.topo_connect(f"'host:9092' --directory \"{tmp_path}/my data\"")
    magics.topo_deploy('words "my app" --dry-run --start "2013-03-01 12:00" -c "client.id=a b"')
    assert asked == [
        (("host:9092",), {"spark": None, "directory": f"{tmp_path}/my data"}),
        (("words", "my app"), {"config": {"client.id": "a b"}, "start": "2013-03-01 12:00"}),
    ]


def test_every_magic_answers_help_with_its_arguments(shell: InteractiveShell) -> None:
    """All of them said "unrecognized arguments"."""
    names = [name for name in shell.magics_manager.magics["line"] if name.startswith("topo")]
    assert len(names) >= 18
    for name in names:
        result, printed = run(shell, f"%{name} --help")
        assert result.success and result.result is None and f"%{name}" in printed, name
    result, printed = run(shell, "%topo_values kept --help")
    assert result.success and "--timeout" in printed
    result, printed = run(shell, "%%topo_sql --help\nSELECT 1")
    assert result.success and "--output" in printed


def test_a_missing_output_topic_is_told_with_the_flag_of_the_magic(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
    def plan(*_: Any, **__: Any) -> None:
        raise ks.errors.UnknownTopicError("no topic", hint="session.deploy(..., create_topics=True) creates it", topic="out")

    shell.user_ns["session"] = SimpleNamespace(plan=plan)
    monkeypatch.setattr(Workspace, "session", property(lambda self: shell.user_ns["session"]))
    run(shell, "%%topo shop\nbuilder.stream('in').to('out')")
    result, _ = run(shell, "%topo_deploy shop --dry-run")
    error: Any = result.error_in_exec
    assert error.hint == "%topo_deploy ... --create-topics creates it"


def test_a_refused_skip_does_not_offer_that_skip_again() -> None:
    """And `%%topo_edit failing None`."""
    about = {"application": "shop", "topic": "orders", "partition": 0, "offset": 857}
    refused = ks.errors.DeployError("shop did not fail at orders-0@857: it failed at orders-0@9", hint="app.skip('orders-0@9')", **about)
    assert recovery_lines(refused, {}) == []


def test_a_savepoint_is_completed_by_savepoints_and_not_by_files(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = [SimpleNamespace(application="shop", name=name) for name in ("monday", "tuesday")]
    monkeypatch.setattr(kernel_ext.magics.completion, "all_savepoints", lambda directory: saved)
    shell.user_ns["session"] = ks.Session(ClientSettings("nowhere:9092"))
    assert completions(shell, 'session.deploy(builder, "shop", from_savepoint="') == ["shop/monday", "shop/tuesday"]
    assert completions(shell, 'session.deploy(builder, "shop", from_savepoint="shop/m')[-1].endswith("monday")


IN_SESSION = {"topo_look", "topo_tail"}
"""Magics that only a test with a broker sees: `tests/session/test_kernel_ext_on_a_broker.py`."""


def test_every_magic_has_a_row_in_the_page_and_a_unit_test(shell: InteractiveShell) -> None:
    root = Path(__file__).resolve().parents[3]
    page = (root / "docs/tasks/notebook.md").read_text(encoding="utf-8")
    table = "\n".join(line for line in page.splitlines() if line.startswith("| `%"))
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (root / "tests/unit").rglob("*.py"))
    names = {name for kind in ("line", "cell") for name in shell.magics_manager.magics[kind] if name.startswith("topo")}
    assert {name for name in names if not re.search(rf"`%%?{name}\b", table)} == set(), "add a row to docs/tasks/notebook.md"
    untested = {name for name in names if not re.search(rf"[%.]{name}\b", tests.replace(f'"{name}"', ""))}
    assert untested == IN_SESSION, "add a unit test of what it shows"
