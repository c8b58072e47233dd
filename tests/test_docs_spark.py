"""What docs/spark.md says of options and columns is what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.spark.conftest import missing_python

if missing_python() is not None:
    pytest.skip(missing_python(), allow_module_level=True)

from logstore.spark.columns import COLUMNS
from logstore.spark.options import OPTIONS, Use

TEXT = (Path(__file__).parent.parent / "docs" / "spark.md").read_text()
USES = {
    "all": Use.ANY,
    "reads": Use.READ,
    "batch reads": Use.BATCH_READ,
    "streams": Use.STREAM_READ,
    "writes": Use.WRITE,
    "batch writes": Use.BATCH_WRITE,
    "stream writes": Use.STREAM_WRITE,
}


def table_of(heading):
    """The rows of the first table under a heading, as lists of cells."""
    section = TEXT.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\|(.*)\|$", section, re.MULTILINE)
    return [[cell.strip() for cell in row.split("|")] for row in rows[2:]]


def test_the_table_of_options_has_every_option_and_no_other():
    assert {cells[0].strip("`"): USES[cells[1]] for cells in table_of("Options")} == {
        option.name: option.uses for option in OPTIONS
    }


def test_the_table_of_columns_has_every_column_and_its_type():
    found = {name: cells[1] for cells in table_of("Schema") for name in re.findall(r"`(\w+)`", cells[0])}
    assert list(found) == list(COLUMNS)
    for name, kind in COLUMNS.items():
        assert found[name].split()[0] == {"bigint": "long"}.get(
            kind.simpleString(), kind.simpleString().split("<")[0]
        )
