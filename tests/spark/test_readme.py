"""The README's example for Spark runs as it stands, behind the others."""

import pytest

import logstore
from tests.pages import python_of, run_blocks

pytestmark = pytest.mark.slow


def test_the_copy_is_what_was_ordered(spark, tmp_path, monkeypatch):
    """With absolute paths: the tests' session was begun in another directory."""
    monkeypatch.chdir(tmp_path)
    blocks = [
        block.replace('"data"', f'"{tmp_path}/data"').replace('"checkpoint"', f'"{tmp_path}/checkpoint"')
        for block in python_of("README.md")
    ]
    names = {}
    run_blocks(blocks, names)
    query = names["query"]
    query.processAllAvailable()
    query.stop()
    with logstore.open("data", read_only=True) as store:
        copied = [[record.value for record in log] for log in store["copy"]]
        assert copied == [[record.value for record in log] for log in store["orders"]]
        assert sum(map(len, copied)) == 3
