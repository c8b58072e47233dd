"""The Spark benchmark measures what it says, and its lines turn into a page."""

import os
import subprocess
import sys

import pytest
from benchmarks import spark_page, spark_parts
from benchmarks.records import WrongDataError
from benchmarks.spark import merge
from benchmarks.spark_memory import WorkerMemory
from benchmarks.spark_places import Shape, make_rows, make_topic

import logstore

SMALL = spark_parts.SMALL.title


def line(
    part="scan", source=spark_parts.OURS, query=spark_parts.ALL_COLUMNS, number=1, records=100, seconds=1.0
):
    made = spark_parts._line(part, source, spark_parts.SMALL, query, number, records, seconds)
    return made | {"bytes": 12_700, "worker_bytes": 1_000_000}


def row_of(page, title):
    return next([cell.strip() for cell in row.split("|")[1:-1]] for row in page.splitlines() if title in row)


def page_of(lines):
    return spark_page.format_page({"machine": {"date": "today", "commit": "abc", "cpu": "x"}, "lines": lines})


def test_a_goal_is_the_ratio_of_the_rounds():
    ours = [line(number=number, seconds=seconds) for number, seconds in ((1, 1.0), (2, 4.0), (3, 1.0))]
    parquet = [line(source=spark_parts.PARQUET, number=number, seconds=0.25) for number in (1, 2, 3)]
    row = row_of(page_of([*ours, *parquet]), f"Scan of {SMALL}, all columns, vs Parquet")
    assert row[1:] == ["**missed**", "0.25 x (0.06 x to 0.25 x)", "0.50 x", "1.00 x"]


def test_a_ceiling_is_met_from_below():
    lines = [
        line("trigger", spark_parts.RATE, "one record", seconds=0.2),
        line("trigger", query="one record", seconds=0.25),
    ]
    assert row_of(page_of(lines), "Trigger with one record")[1:3] == ["met", "1.25 x"]


def test_growth_is_the_cost_of_a_record():
    lines = [line("sizes", query="100", records=100), line("sizes", query="1000", records=1000, seconds=20.0)]
    assert row_of(page_of(lines), "Time per record")[1:3] == ["**missed**", "2.00 x"]


def test_what_was_not_measured_is_said():
    assert row_of(page_of([line()]), "Read only values")[1] == "not measured"


def test_new_lines_take_the_place_of_the_same_part(tmp_path):
    old = {"machine": {"date": "old"}, "lines": [line("scan"), line("write")]}
    new = {"machine": {"date": "new"}, "lines": [line("scan", seconds=2.0)]}
    merged = merge(old, new, "scan")
    assert merged["machine"] == {"date": "new"}
    assert [(one["part"], one["seconds"]) for one in merged["lines"]] == [("write", 1.0), ("scan", 2.0)]


def test_the_picture_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    spark_page.plot(spark_page.Lines([line(), line("write", query=spark_parts.KEY_AND_VALUE)]), tmp_path)
    assert (tmp_path / "spark.svg").stat().st_size > 5_000


def test_rows_are_as_their_shape_says(tmp_path):
    pytest.importorskip("pyarrow")
    table = next(make_rows(Shape(100, "zstd"), 5, 3))
    assert table["key"].to_pylist() == [b"%016d" % number for number in (5, 6, 7)]
    assert {len(value) for value in table["value"].to_pylist()} == {100}
    with logstore.open(tmp_path) as store:
        make_topic(store, Shape(100, "zstd"), 2_000)
        logs = store["values-100-zstd"]
        assert [log.log_end_offset for log in logs] == [1_000, 1_000]
        assert logs[0].size_bytes < 1_000 * 100  # it does compress


def test_the_memory_of_the_processes_below_is_seen():
    program = "import time; held = bytearray(b'1') * 60_000_000; print('held', flush=True); time.sleep(20)"
    with (
        WorkerMemory(os.getpid()) as memory,
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process,
    ):
        assert process.stdout is not None
        process.stdout.readline()
        while memory.peak_bytes < 60_000_000:
            assert process.poll() is None, "it was not seen in 20 seconds"
        process.kill()


@pytest.mark.slow
def test_a_part_measures_and_checks_what_it_read(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(spark_parts, "SHAPES", spark_parts.SHAPES[:1])
    sizes = spark_parts.QUICK._replace(scanned={100: 2_000, 1024: 2_000})
    bench = spark_parts.Bench(spark, None, tmp_path, sizes, lambda text: None)
    lines = list(spark_parts.tasks(bench))
    assert [(one["query"], one["records"]) for one in lines] == [("1", 2_000), ("2", 2_000)]
    monkeypatch.setattr(
        spark_parts,
        "make_topic",
        lambda store, shape, count, **more: make_topic(store, shape, count - 1, **more),
    )
    with pytest.raises(WrongDataError, match="1 tasks read 1999 of 2000 records"):
        list(spark_parts.tasks(bench))
