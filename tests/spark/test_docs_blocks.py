"""The Python in docs/spark.md runs as it stands, from top to bottom. What is under "Pipelines" and "Brokers"
runs in ``test_docs_pipelines`` and ``test_served``."""

import pytest

import logstore
from tests.pages import python_of, run_blocks

pytestmark = pytest.mark.slow

ELSEWHERE = python_of("docs/spark.md", "Pipelines") + python_of("docs/spark.md", "Brokers")
BLOCKS = [block for block in python_of("docs/spark.md") if block not in ELSEWHERE]


@pytest.fixture
def data(tmp_path):
    with logstore.open(tmp_path / "shop") as store:
        store.create_topic("orders", partitions=2).extend([(b"ada", b"5"), (b"bob", b"17"), (b"ada", b"1")])
        store.create_topic("counts")
    return tmp_path


def test_the_blocks_run_and_do_what_they_say(spark, data):
    frame = spark.createDataFrame([(1, "x"), (2, "y")], "id int, text string")
    counts = (
        spark.readStream.format("rate")
        .option("rowsPerSecond", 100)
        .load()
        .selectExpr("string(value) as key", "string(value) as value")
    )
    names = {"spark": spark, "frame": frame, "counts": counts}
    before = spark.conf.get("spark.sql.pyspark.worker.logging.enabled")
    printed = ""
    try:
        for block in BLOCKS:
            printed += run_blocks([block.replace("/data/", f"{data}/")], names)
            if "query" in names:
                names["query"].processAllAvailable()
                names.pop("query").stop()
        assert names["values"].columns == ["offset", "value"]
    finally:
        spark.conf.set("spark.sql.pyspark.worker.logging.enabled", before)
    assert "decode(key, utf-8)" in printed
    assert len(list((data / "orders").glob("batch=*"))) == 1
    with logstore.open(data / "shop", read_only=True) as store:
        assert sum(len(list(log)) for log in store["orders"]) == 5
