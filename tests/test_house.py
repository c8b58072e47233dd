"""The shape of the source is what docs/architecture.md says. Costs 3 s."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks import house

from logstore import build, turns

HOT_LOOPS = ["logstore.format.plain:_decode_fast"]
MOST_MOVES = {
    "append": 8,
    "flush": 23,
    "extend": 16,
    "read": 11,
    "open after a crash": 156,
    "commit of Spark's": 545,
}


@pytest.mark.skipif(build.compiled is None, reason="what is counted goes through the compiled module")
def test_no_flow_moves_between_files_more_often_than_it_should():
    at_a_time = turns.FLUSHED_AT_A_TIME
    flows = house.trace_flows()
    assert at_a_time == turns.FLUSHED_AT_A_TIME  # what is counted in one thread leaves the rest as it was
    moves = {name: passed.moves for name, passed in flows.items()}
    assert {name: moves[name] for name in MOST_MOVES if moves[name] > MOST_MOVES[name]} == {}
    told = {name: house.columns_on_page()["now"][f"flow: {name}"][-1] for name in flows}
    more = {name: count for name, count in moves.items() if count > told[name]}
    assert more == {}, "python -m benchmarks.house --page writes the table"


def test_only_hot_loops_are_long_and_no_imports_run_in_circles():
    shape = house.shape_of(Path(house.SOURCE))
    assert shape.in_circles == []
    assert shape.long_functions == HOT_LOOPS
