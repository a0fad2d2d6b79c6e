"""The magics on a real broker."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from kstreams_repl.host.instance.control.control_files import write_whole
from kstreams_repl.host.instance.control.file_channel import LEASE
from kstreams_repl.host.instance.state.state_directory import control_directory
from kstreams_repl.repl.session import Records
from kstreams_repl.system.types import TopicPartition
from tests.unit.kernel_ext.test_extension import completions, new_shell, run

pytestmark = pytest.mark.kafka


@pytest.fixture
def topic() -> str:
    return f"m{uuid.uuid4().hex[:8]}"


@pytest.fixture
def shell(broker: Any, topic: str) -> Iterator[InteractiveShell]:
    shell = new_shell()
    run(shell, "%load_ext kstreams_repl")
    run(shell, f"%topo_connect {broker.bootstrap_servers} --directory temporary")
    shell.user_ns["session"].produce(topic, [("a", {"n": i}, 1000 + i) for i in range(5)])
    yield shell
    shell.user_ns["session"].close()
    run(shell, "%unload_ext kstreams_repl")


def test_values_at_a_topic_and_at_a_stream(shell: InteractiveShell, topic: str) -> None:
    found = run(shell, f"%topo_values {topic} -n 2")[0].result
    assert isinstance(found, Records) and [r.value["n"] for r in found] == [3, 4]
    run(
        shell,
        f"import kstreams_repl as ks; b = ks.StreamsBuilder(); s = b.stream('{topic}', value_serde='json').map_values(lambda v: v['n'])",
    )
    assert [r.value for r in run(shell, "%topo_values s -n 1")[0].result] == [4]


def test_output_goes_into_a_dataframe(shell: InteractiveShell, topic: str) -> None:
    run(shell, f"%%topo_sql -o sums\nSELECT key, CAST(sum(n) AS BIGINT) AS total\nFROM {topic} GROUP BY key")
    assert shell.user_ns["sums"].to_dict("records") == [{"key": "a", "total": 10}]
    assert run(shell, "%topo_sql SELECT total FROM sums")[0].result.fetchall() == [(10,)]


def test_a_query_keeps_its_braces_and_dollars(shell: InteractiveShell) -> None:
    run(shell, "x = 5")
    assert run(shell, "%topo_sql SELECT '{x} $x' AS t")[0].result.fetchall() == [("{x} $x",)]


def test_tail_shows_what_holds_and_ends(shell: InteractiveShell, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    result = shell.run_cell(f"%topo_tail {topic} -n 3 --timeout 0.5 --where \"n > 2 AND key = 'a'\"")
    assert result.success
    shown = capsys.readouterr().out
    assert "key" in shown


def test_an_application_elsewhere_is_looked_at(shell: InteractiveShell, topic: str, tmp_path: Path) -> None:
    session, app = shell.user_ns["session"], f"their-{topic}"
    session.create_topic(f"{app}-seen-changelog", partitions=1, configs={"cleanup.policy": "compact"})
    session.produce(f"{app}-seen-changelog", [("a", "1", 5), ("b", "2", 6), ("a", "3", 7)], key_serde="string", value_serde="string")
    assert run(shell, f"%topo_look {app}")[0].result.sql("SELECT count(*) FROM seen").fetchall() == [(2,)]  # before its first commit
    session.admin.commit_offsets(app, {TopicPartition(topic, 0): 0})
    their = run(shell, f"their = %topo_look {app}")[0]
    assert their.success and shell.user_ns["their"].sql("SELECT key, value FROM seen ORDER BY key").fetchall() == [("a", "3"), ("b", "2")]
    assert run(shell, "their.sql('FROM seen', as_of=6)")[0].result.df().value.tolist() == ["1", "2"]
    (tmp_path / "text").write_text("Topologies: none")
    assert "line 1" in str(shell.run_cell(f"%topo_look {app} --describe {tmp_path}/text").error_in_exec)
    assert app in completions(shell, f"%topo_look {app[:8]}")


def test_topics_and_status_are_listed(shell: InteractiveShell, topic: str) -> None:
    assert (topic, 4, 5, 5) in run(shell, "%topo_topics")[0].result.rows
    assert "no applications" in run(shell, "%topo")[0].result.note


def test_a_dry_run_shows_the_plan(shell: InteractiveShell, topic: str) -> None:
    run(shell, f"%%topo demo\nbuilder.stream('{topic}').group_by_key().count(store='n')")
    rows = run(shell, "%topo_deploy demo --dry-run")[0].result.rows
    assert ("topic", "demo-n-changelog", 4, "to be created") in rows


def test_a_dry_run_from_a_date_shows_where_it_would_begin(shell: InteractiveShell, topic: str) -> None:
    run(shell, f"%%topo demo\nbuilder.stream('{topic}').group_by_key().count(store='n')")
    rows = run(shell, "%topo_deploy demo --dry-run --start 1970-01-01T00:00:01.003")[0].result.rows
    begins = {row[1]: row[2] for row in rows if row[0] == "partition"}
    assert sorted(begins.values()) == [0, 0, 0, 3], "records 3 and 4 of the five are of that time or later"
    result = shell.run_cell("%topo_deploy demo --dry-run --start yesterday")
    assert "start must be 'earliest', 'latest' or a time" in str(result.error_in_exec)


def test_topics_and_columns_complete_inside_sql(shell: InteractiveShell, topic: str) -> None:
    assert topic in completions(shell, f"%topo_sql SELECT * FROM {topic[:4]}")
    completions(shell, f"%%topo_sql\nSELECT * FROM {topic} WHERE timest")
    found = completions(shell, f"%%topo_sql\nSELECT * FROM {topic} WHERE timest")
    assert "timestamp" in found


def test_names_complete_inside_strings_of_calls(shell: InteractiveShell, topic: str) -> None:
    """Topics, columns and serdes where our methods take them; jedi and file names stay away, and other people's methods get nothing."""
    run(shell, "import kstreams_repl as ks; builder = ks.StreamsBuilder(); class_of = type('Other', (), {'read': print})()")

    def found(text: str) -> list[str]:
        for _ in range(20):  # what was looked up too late, because the machine is busy, is there another time
            if names := completions(shell, text):
                break
        return names

    start = topic[:4]
    calls = ("session.read('", 'session.values("', "x = session.record('a', '", 'builder.stream("', 'builder.table("')
    for before in (*calls, 'builder.stream(["a", "'):
        assert found(before + start) == [topic], before
    assert topic in found('builder.stream("')
    assert found(f"builder.stream('{topic}').map_values(lambda v: v['n']).to(\"{start}") == [topic]
    assert "timestamp" in found(f'session.sql("SELECT timest FROM {topic} WHERE timest')
    assert found(f"session.sql('SELECT n, FROM {topic} ORDER BY n, ti") == ["timestamp"]
    assert found(f'session.sql("""\nSELECT n\nFROM {start}') == [topic]
    assert found("builder.stream('a', value_serde='js") == ["json"]
    assert topic not in found(f"class_of.read('{start}") and topic not in found(f"open('{start}")


def test_a_dead_application_is_listed_and_removed_once_it_is_confirmed(
    shell: InteractiveShell, broker: Any, topic: str, tmp_path: Path
) -> None:
    shell.user_ns["session"].close()
    run(shell, f"%topo_connect {broker.bootstrap_servers} --directory {tmp_path}")
    session, name = shell.user_ns["session"], f"{topic}-dead"
    changelog = f"{name}-n-changelog"
    session.create_topic(changelog)
    folder = control_directory(session.client.state_root, name)
    folder.mkdir(parents=True)
    write_whole(folder / LEASE, {"generation": 3, "signal": "stopped", "pid": 0})
    assert f"%topo_remove {name}" in run(shell, "%topo")[0].result.note
    assert name in completions(shell, f"%topo_remove {name[:4]}")
    listed = run(shell, f"%topo_remove {name} --dry-run")[0].result
    assert listed.topics == (changelog,) and "nothing is deleted yet" in repr(listed)
    assert f"%topo_remove {name}, deletes this" in repr(listed)
    assert changelog in session.admin.topics() and folder.exists()
    removed = run(shell, f"%topo_remove {name}")[0].result
    assert removed.applied and "deleted" in repr(removed)
    assert changelog not in session.admin.topics() and not folder.exists()
    assert "no applications" in run(shell, "%topo")[0].result.note
    assert "nothing to delete" in repr(run(shell, f"%topo_remove {name}")[0].result)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_bounded_runs_and_a_reset_by_magic(shell: InteractiveShell, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = f"b.stream('{topic}', value_serde='json').map_values(lambda v: v['n'], name='n').to('{topic}-out', value_serde='long')"
    run(shell, f"import kstreams_repl as ks; b = ks.StreamsBuilder(); {text}")
    how = "-c processing.guarantee=exactly_once_v2 --create-topics"
    first = run(shell, f"%topo_run_batch b daily-{topic} --stop-at records:1 {how}")[0].result
    assert (first.state, first.records_in, first.records_out) == ("finished", 1, 1), "all five have one key, so one partition"
    whole = run(shell, f"%topo_run_batch b daily-{topic} {how}")[0].result
    assert (whole.state, whole.records_in, whole.records_out) == ("finished", 4, 4)
    assert run(shell, f"%topo_run_batch b daily-{topic} {how}")[0].result.state == "nothing new"
    listed = run(shell, f"%topo_reset daily-{topic} --dry-run")[0].result
    assert run(shell, f"%topo_run_batch b daily-{topic} {how}")[0].result.state == "nothing new", "a list changes nothing"
    assert listed.table().rows
    nothing = run(shell, f"%topo_reset daily-{topic} --delete-stopoffsets")[0].result
    assert not nothing, "no run is open, and nothing else was asked for"
    assert run(shell, f"%topo_run_batch b daily-{topic} --on-end keep {how}")[0].result.state == "nothing new"
    offsets = run(shell, f"%topo_reset daily-{topic} --input-topics {topic} --to-offset 2 --dry-run")[0].result.offsets
    assert max(new for _, new in offsets.values()) == 2
    run(shell, f"%topo_reset daily-{topic}")
    assert run(shell, f"%topo_run_batch b daily-{topic} {how}")[0].result.records_in == 5
