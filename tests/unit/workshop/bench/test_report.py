"""docs/reference/benchmarks.md from measured lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kstreams_repl.system.errors import KStreamsError
from workshop.bench.main import BENCHES, main
from workshop.bench.rig.report import read_lines, render


def line(bench: str, case: str, value: float, **fields: Any) -> dict[str, Any]:
    return {"bench": bench, "case": case, "value": value, "unit": "records/s", **fields}


RUN = {"min": 900, "max": 1100, "runs": 3, "records": 5000, "cpu_seconds": 2.5, "peak_rss_mb": 700}
LINES = [
    line("machine", "A processor", 2, memory_gb=8, load=[0.5, 1, 2], at="2026-01-02 03:04 UTC", system="Linux", versions={"python": "3"}),
    line("throughput", "count exactly_once_v2", 1200, **RUN),
    line("throughput", "count exactly_once_v2 kafka-streams", 400, **RUN),
    line("throughput", "count exactly_once_v2 ratio", 3, same_output=True),
    line("control", "pause", 0.1, min=0.05, max=0.2, runs=5),
]


def test_peer_and_ratio_stand_in_the_row_of_their_case() -> None:
    page = render(LINES)
    (row,) = [text for text in page.splitlines() if text.startswith("| count exactly_once_v2")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[:2] == ["count exactly_once_v2", "1,200 (900-1,100) / 400 (900-1,100)"]
    assert cells[2:] == ["3.00", ">= 2.71, same output: yes", "2.5 / 2.5", "700 / 700"]


def test_a_difference_in_the_output_cannot_be_overlooked() -> None:
    page = render([*LINES, line("throughput", "count exactly_once_v2 ratio", 3, same_output=False)])
    assert "| 3.00 NO: other output NO: >= 2.71, same output | >= 2.71, same output: NO |" in page


def test_targets_stand_behind_the_value_and_a_miss_cannot_be_overlooked() -> None:
    page = render([*LINES, line("control", "stop", 0.7), line("control", "edit to first record", 0.7)])
    assert "| case | value | target |" in page
    assert "| pause | 0.1 (0.05-0.2) records/s | <= 0.3: yes |" in page
    assert "| stop | 0.7 records/s | <= 0.5: NO |" in page
    assert "| edit to first record | 0.7 records/s |  |" in page


def test_lines_of_before_are_judged_by_todays_targets() -> None:
    page = render([line("control", "pause", 0.1, target=99.0, met=False), line("control", "withdrawn", 0.1, target="<= 1", met=False)])
    assert "| <= 0.3: yes |" in page
    assert "| withdrawn | 0.1 records/s |  |" in page


def test_a_table_of_which_nothing_is_asked_has_no_columns_for_it() -> None:
    assert "target" not in render([line("engine", "count", 5)]).partition("## Engine alone")[2]


def test_a_load_that_is_not_held_cannot_be_overlooked() -> None:
    tried = line("lag-trend", "uc1 at 5,000/s", 80.5, held=False, below=50.0)
    held = line("lag-trend", "uc1 load held", 2500, not_held=5000, limited_by="lag")
    other = tried | {"case": "uc1 at 2,500/s", "held": True, "below": 25.0}
    assert "| uc1 at 5,000/s | 80.5 records/s | NO | 50 |" in render([tried, other])
    assert "| uc1 | 2,500 |  |  | 5,000 (lag) |  |" in render([tried, held])


def test_a_section_names_the_machine_and_the_time_of_its_lines_and_ends_with_its_notes() -> None:
    other = LINES[0] | {"case": "Another", "at": "2026-01-03 05:00 UTC"}
    note = {"bench": "control", "note": "A quiet afternoon."}
    page = render([*LINES, note, other, line("engine", "count", 5), line("control", "stop", 0.1)])
    throughput, engine = page.partition("## Throughput")[2], page.partition("## Engine alone")[2].partition("## ")[0]
    control = page.partition("## Control")[2]
    assert "- Machine A: A processor, 2 cores, 8 GB, Linux; python 3." in page and "- Machine B: Another, 2 cores" in page
    assert "Measured: Machine A, 2026-01-02, load 0.50." in throughput
    assert "Measured: Machine B, 2026-01-03, load 0.50." in engine
    assert "Measured: Machine A, 2026-01-02, load 0.50; Machine B, 2026-01-03, load 0.50." in control
    assert control.endswith("A quiet afternoon.\n")


def test_a_query_of_another_format_is_a_ratio_in_its_row_and_a_miss_cannot_be_overlooked() -> None:
    query = {"what": "filter", "records": 5000, "peak_rss_mb": 700, "same_output": True}
    lines = [line("nexmark", f"q2{format}{of}", 2, **query) for format in ("", " avro") for of in ("", " kafka-streams", " ratio")]
    assert "| q2: filter | 2 / 2 | 2.00 |  | 2.00 |" in render(lines)
    missed = [*lines[:-1], lines[-1] | {"value": 1.2, "same_output": False}]
    assert "| 1.20 NO: other output NO: >= 1.3, same output |" in render(missed)


def test_a_query_at_defaults_has_its_rates_and_bounds_of_its_own() -> None:
    query = {"what": "filter", "records": 5000, "peak_rss_mb": 700, "same_output": True}
    lines = [line("nexmark", f"q2{which}{of}", 2.5, **query) for which in ("", " defaults") for of in ("", " kafka-streams", " ratio")]
    page = render(lines)
    assert "| q2: filter | 2.5 / 2.5 | 2.50 |  | 2.5 / 2.5 | 2.50 NO: >= 3, same output |" in page
    assert "1 queries: 2.50 (target >= 3, NOT met)" in page and "1 queries, defaults: 2.50 (target >= 4, NOT met)" in page


def test_a_system_in_python_is_a_column() -> None:
    page = render([line("python-peers", f"count exactly_once_v2 {name}", 5) for name in ("kstreams_repl", "quix-streams")])
    assert "| workload | kstreams_repl exactly_once_v2 | quix-streams exactly_once_v2 | ratio | target |" in page
    assert "| count | 5 | 5 |  |  |" in page


def test_what_most_rows_share_stands_once_and_the_rest_as_details() -> None:
    lines = [line("control", "pause", 0.1, instances=2, restored=7), line("control", "stop", 0.1, instances=2)]
    page = render([*lines, line("control", "edit", 0.1, instances=3)])
    assert "Unless a row says otherwise: instances 2." in page
    assert "| pause | 0.1 records/s | <= 0.3: yes | restored 7 |" in page
    assert "| edit | 0.1 records/s |  | instances 3 |" in page


def test_a_peer_is_a_column_with_its_details() -> None:
    ours, peer = line("queries", "HTTP get", 5, keys=7, per_core=6), line("queries", "HTTP get kafka-streams", 8, keys=7, per_core=9)
    page = render([peer, ours, line("queries", "scan", 3, keys=7)])
    assert "| HTTP get | 5 records/s | per core >= 3,300: NO | 8 (per core 9) | per core 6 |" in page
    assert "| scan | 3 records/s |  |  |  |" in page and "| HTTP get kafka-streams |" not in page


def test_growth_has_a_column_for_each_number_of_keys() -> None:
    one = {"bench": "state-growth", "unit": "us/record", "keys": 1000, "disk_bytes_per_key": 80.5}
    page = render(
        [
            one | {"case": "rekeyed, 1,000 keys, 2 stores", "value": 2.0},
            one | {"case": "rekeyed, 1,000 keys, 2 stores kafka-streams", "value": 4.0, "commit_ms": 7.0},
            one | {"case": "rekeyed, 20,000 keys, 2 stores", "value": 3.0, "keys": 20_000},
            {"bench": "state-growth", "case": "rekeyed, 2 stores, largest to smallest", "value": 1.5, "unit": "x"},
        ]
    )
    assert "| keys | 1,000 | 20,000 |" in page
    assert "| rekeyed, 2 stores, us/record | 2 / 4 | 3 |" in page
    assert "| rekeyed, 2 stores, disk bytes per key | 80.5 / 80.5 | 80.5 |" in page
    assert "| rekeyed, 2 stores, ms per commit | 7 |  |" in page
    assert "| rekeyed, 2 stores, largest to smallest | 1.5 x |" in page


def test_later_lines_replace_earlier_ones() -> None:
    page = render([*LINES, line("control", "pause", 0.7)])
    assert "| pause | 0.7 records/s |" in page
    assert "| pause | 0.1" not in page


def test_benches_without_a_text_of_their_own_still_get_a_table() -> None:
    assert "## other" in render([line("other", "thing", 3)])


def test_lines_that_are_no_measurement_are_skipped(tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    note = {"bench": "control", "note": "quiet"}
    file.write_text("starting ...\n" + json.dumps(LINES[4]) + "\n{}\n" + json.dumps(note))
    assert read_lines([file]) == [LINES[4], note]


def test_a_file_without_measurements_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "empty.jsonl"
    file.write_text("nothing\n")
    with pytest.raises(KStreamsError, match="no measurements"):
        read_lines([file])


def test_report_is_written_where_it_is_asked_for(tmp_path: Path) -> None:
    file, page = tmp_path / "lines.jsonl", tmp_path / "page.md"
    file.write_text("\n".join(map(json.dumps, LINES)))
    done = CliRunner().invoke(main, ["report", str(file), "--output", str(page)])
    assert done.exit_code == 0, done.output
    assert page.read_text() == render(LINES)


@pytest.mark.parametrize("name", sorted(BENCHES))
def test_every_benchmark_explains_itself(name: str) -> None:
    done = CliRunner().invoke(main, [name, "--help"])
    assert done.exit_code == 0, done.output
    assert "Usage:" in done.output


def test_the_page_is_what_the_report_makes_of_the_committed_measurements() -> None:
    docs = Path(__file__).resolve().parents[4] / "docs"
    page = (docs / "reference" / "benchmarks.md").read_text(encoding="utf-8")
    assert page == render(read_lines(sorted((docs / "measurements").glob("*.jsonl")))), (
        "run ./kstreams bench report docs/measurements/*.jsonl --output docs/reference/benchmarks.md"
    )


def test_the_steps_of_a_record_are_a_table_of_their_own() -> None:
    lines = [
        {"bench": "latency", "case": "50/s", "value": 9, "unit": "ms", "p50": 9},
        {"bench": "latency", "case": "50/s, steps", "value": 9, "unit": "ms", "polled": 1.5, "committed": 6.25},
        {"bench": "latency", "case": "50/s, steps of the slowest percent", "value": 40, "unit": "ms", "polled": 20},
    ]
    page = render(lines)
    assert "| 50/s | 9 ms | 9 |" in page and "| step | 50/s | 50/s, the slowest percent |" in page
    assert "| polled | 1.5 | 20 |" in page and "| committed | 6.25 |  |" in page
