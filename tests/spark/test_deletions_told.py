"""What goes of staged files is one line at the level INFO for each operation; no Spark in it."""

import logging

import pytest

from logstore.config import StoreConfig
from logstore.partition.encoding.row_encoder import RowEncoder
from logstore.spark import commits
from logstore.spark.staging import StagedWriter, staged_name
from tests.spark.staged import PATH, SINK, Place

ROWS = {0: [b"a", b"b", b"c"], 1: [b"x", b"y"]}


@pytest.fixture
def place():
    place = Place()
    place.create()
    return place


@pytest.fixture
def told(caplog):
    caplog.set_level(logging.INFO, "logstore")

    def messages():
        found = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return found

    return messages


def test_a_commit_tells_of_its_files_once_and_of_those_of_losers(place, told):
    size_bytes = place.stage(ROWS).size_bytes
    staged = place.stage(ROWS)
    place.commit(staged)
    (line,) = told()
    assert line == (
        f"{PATH}: removed 2 staged files, {size_bytes + staged.size_bytes} bytes: "
        f"those of {SINK!r} up to batch 0, and of dead jobs, which are not needed"
    )
    assert place.staged_names() == []


def test_files_of_dead_jobs_are_told_of(place, told):
    place.stage(ROWS)
    place.clock.advance(commits.STRAY_AFTER_MS + 1)
    place.finish_all()
    (line,) = told()
    assert "removed 1 staged files" in line
    assert "dead jobs" in line
    place.finish_all()
    assert told() == []


def test_a_task_that_failed_tells_of_what_it_had_written(place, told):
    writer = StagedWriter(place.files, PATH, lambda: staged_name(SINK, 0, 0))
    writer.discard()
    assert told() == []
    with place.open(read_only=True) as store:
        target = place.target(0)
        batches = RowEncoder(StoreConfig(), store["t"].config).encode([(b"k", b"v")], 5)
        writer.append(target, batches, 1 << 20)
    writer.discard()
    (line,) = told()
    assert line.startswith(f"{PATH}: removed 1 staged files, ")
    assert line.endswith("their task failed")


def test_parquet_files_of_an_attempt_that_died_are_told_of(tmp_path, told):
    pytest.importorskip("pyspark")
    from logstore.spark.parquet_output import ParquetOutput

    staged = tmp_path / "out" / "_staged-dead" / "nested"
    staged.mkdir(parents=True)
    (staged / "x.parquet").write_bytes(b"twelve bytes")
    output = ParquetOutput(tmp_path / "out")
    output._remove_staged()
    output._remove_staged()
    assert told() == [f"{tmp_path}/out: removed 1 files, 12 bytes: left by a dead attempt"]
    assert not staged.exists()
