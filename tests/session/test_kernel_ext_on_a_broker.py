"""The magics on a real broker."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from kstreams_repl.session import Records
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


def test_peek_at_a_topic_and_at_a_stream(shell: InteractiveShell, topic: str) -> None:
    found = run(shell, f"%topo_peek {topic} -n 2")[0].result
    assert isinstance(found, Records) and [r.value["n"] for r in found] == [3, 4]
    run(
        shell,
        f"import kstreams_repl as ks; b = ks.StreamsBuilder(); s = b.stream('{topic}', value_serde='json').map_values(lambda v: v['n'])",
    )
    assert [r.value for r in run(shell, "%topo_peek s -n 1")[0].result] == [4]


def test_output_goes_into_a_dataframe(shell: InteractiveShell, topic: str) -> None:
    run(shell, f"%%topo_sql -o sums\nSELECT key, CAST(sum(n) AS BIGINT) AS total\nFROM {topic} GROUP BY key")
    assert shell.user_ns["sums"].to_dict("records") == [{"key": "a", "total": 10}]
    assert run(shell, "%topo_sql SELECT total FROM sums")[0].result.rows == ((10,),)


def test_a_query_keeps_its_braces_and_dollars(shell: InteractiveShell) -> None:
    run(shell, "x = 5")
    assert run(shell, "%topo_sql SELECT '{x} $x' AS t")[0].result.rows == (("{x} $x",),)


def test_tail_shows_what_holds_and_ends(shell: InteractiveShell, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    result = shell.run_cell(f"%topo_tail {topic} -n 3 --seconds 0.5 --where \"n > 2 AND key = 'a'\"")
    assert result.success
    shown = capsys.readouterr().out
    assert "key" in shown


def test_topics_and_status_are_listed(shell: InteractiveShell, topic: str) -> None:
    assert (topic, 4, 5) in run(shell, "%topo_topics")[0].result.rows
    assert "no applications" in run(shell, "%topo")[0].result.note


def test_a_dry_run_shows_the_plan(shell: InteractiveShell, topic: str) -> None:
    run(shell, f"%%topo demo\nbuilder.stream('{topic}').group_by_key().count(store='n')")
    rows = run(shell, "%topo_deploy demo --dry-run")[0].result.rows
    assert ("topic", "demo-n-changelog", 4, "to be made") in rows


def test_a_dry_run_from_a_date_shows_where_it_would_begin(shell: InteractiveShell, topic: str) -> None:
    run(shell, f"%%topo demo\nbuilder.stream('{topic}').group_by_key().count(store='n')")
    rows = run(shell, "%topo_deploy demo --dry-run --from 1970-01-01T00:00:01.003")[0].result.rows
    begins = {row[1]: row[2] for row in rows if row[0] == "partition"}
    assert sorted(begins.values()) == [0, 0, 0, 3], "records 3 and 4 of the five are of that time or later"
    result = shell.run_cell("%topo_deploy demo --dry-run --from yesterday")
    assert "no place to begin" in str(result.error_in_exec)


def test_topics_and_columns_complete_inside_sql(shell: InteractiveShell, topic: str) -> None:
    assert topic in completions(shell, f"%topo_sql SELECT * FROM {topic[:4]}")
    completions(shell, f"%%topo_sql\nSELECT * FROM {topic} WHERE timest")
    found = completions(shell, f"%%topo_sql\nSELECT * FROM {topic} WHERE timest")
    assert "timestamp" in found
