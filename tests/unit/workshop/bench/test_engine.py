"""`bench engine`: the queries by functions, SQL and record batches are compared run by run."""

from __future__ import annotations

import json

from click.testing import CliRunner

from kstreams_repl.test_driver.driver import TopologyTestDriver
from workshop.bench.engine import main, query_topology
from workshop.bench.rig import workloads


def test_a_query_is_compared_with_the_functions_that_do_the_same() -> None:
    arguments = "--records 300 --runs 2 --keys 10 --fields 6 --case functions --case sql --case groups-functions --case groups-sql"
    result = CliRunner().invoke(main, arguments.split(), catch_exceptions=False)
    lines = {line["case"]: line for line in map(json.loads, result.output.splitlines()) if line["bench"] == "engine"}
    assert list(lines) == ["functions, 6 fields", "sql, 6 fields", "groups-functions, 10 keys", "groups-sql, 10 keys"]
    assert {case for case, line in lines.items() if "to_functions" in line} == {"sql, 6 fields", "groups-sql, 10 keys"}
    assert lines["sql, 6 fields"]["target"] == "to functions >= 1.5"


def test_the_ways_of_a_query_have_the_same_results() -> None:
    rows = workloads.input_rows(600, 5)[450:]
    for cases in (("functions", "sql", "map_batches"), ("groups-functions", "groups-sql")):
        found = []
        for case in cases:
            with TopologyTestDriver(query_topology(case)) as driver:
                driver.create_input_topic(workloads.INPUT, "bytes", "bytes").pipe_records(rows)
                found.append(driver.create_output_topic(workloads.OUTPUT, "string", "json").read_key_values())
        assert found[0] and all(other == found[0] for other in found[1:]), cases
