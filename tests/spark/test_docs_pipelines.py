"""The Python under "Pipelines" in docs/spark.md runs as it stands, from top to bottom."""

import pytest

import logstore
from tests.pages import python_of, run_blocks

pytestmark = pytest.mark.slow

BLOCKS = python_of("docs/spark.md", "Pipelines")
COMPACTED = logstore.TopicConfig(cleanup_policy="compact")


def run(blocks, names, data):
    """What they print. ``/data`` is another directory in a test."""
    return run_blocks([block.replace("/data/", f"{data}/") for block in blocks], names)


@pytest.fixture
def data(tmp_path):
    with logstore.open(tmp_path / "shop") as store:
        store.create_topic("orders", partitions=2).extend([(b"ada", b"5"), (b"bob", b"7"), (b"ada", b"1")])
        customers = store.create_topic("customers", partitions=2, config=COMPACTED)
        customers.extend(
            [(b"ada", b"FR"), (b"bob", b"FR"), (b"cleo", b"EG"), (b"ada", b"UK"), (b"cleo", None)]
        )
        store.create_topic("totals", config=COMPACTED)
    return tmp_path


def test_the_lines_run_twice_and_nothing_comes_twice(spark, data):
    names = {"spark": spark}
    first = run(BLOCKS, names, data)
    with logstore.open(data / "shop") as store:
        store["orders"].extend([(b"bob", b"30"), (b"cleo", b"900")])
    second = run(BLOCKS, names, data)

    assert len(BLOCKS) >= 6
    assert "sound: " in second
    assert [line.split("|")[1:3] for line in first.splitlines() if "FR" in line] == [["     FR", "     7"]]
    rows = spark.read.parquet(names["output"].path).groupBy("customer").sum("amount").collect()
    assert {tuple(row) for row in rows} == {("ada", 6), ("bob", 37), ("cleo", 900)}
    rows = spark.read.parquet(names["parquet"].path).collect()
    assert {(row.country, row.amount) for row in rows} == {("UK", 6), ("FR", 7), ("FR", 37)}
    with logstore.open(data / "shop", read_only=True) as store:
        assert {record.key: record.value for record in store["totals"][0].latest()} == {
            b"UK": b"6",
            b"FR": b"37",
        }
        assert store["totals"][0].log_end_offset == 3
    assert names["new"].after == 0
    run(BLOCKS[:1], names, data)
    assert names["new"].is_empty
