import glob
import json
import os
import shutil

import pytest

from logstore.errors import CorruptionError, RetriableError, StorageError, UsageError

pytestmark = pytest.mark.slow


@pytest.fixture
def output(spark, tmp_path):
    from logstore.spark import ParquetOutput

    return ParquetOutput(tmp_path / "out")


def rows_of(spark, *numbers):
    return spark.createDataFrame([(number,) for number in numbers], "number long")


def numbers_in(spark, output):
    return sorted(row.number for row in spark.read.parquet(output.path).collect())


def test_rows_and_offsets_are_committed_together(spark, output):
    assert output.last() is None
    assert output.offsets == {}
    assert output.commit(rows_of(spark, 1, 2), {"a": {0: 2}}) == 0
    assert output.commit(rows_of(spark, 3), {"a": {1: 7}, "b": {0: 1}}) == 1
    assert output.offsets == {"a": {0: 2, 1: 7}, "b": {0: 1}}
    assert output.last().number == 1
    assert numbers_in(spark, output) == [1, 2, 3]


def test_pandas_and_arrow_read_it_too(spark, output):
    import pyarrow.dataset

    output.commit(rows_of(spark, 1, 2), {"a": {0: 2}})
    os.makedirs(f"{output.path}/_staged-dead")
    shutil.copy(glob.glob(f"{output.path}/batch=*/*.parquet")[0], f"{output.path}/_staged-dead/x.parquet")
    table = pyarrow.dataset.dataset(output.path, partitioning="hive").to_table()
    assert sorted(table["number"].to_pylist()) == [1, 2]


class Refusing:
    """The machine's files, until the operation that is to fail."""

    def __init__(self, name, path_part):
        from logstore.files import OsFiles

        self._files, self._name, self._part = OsFiles(), name, path_part

    def __getattr__(self, name):
        method = getattr(self._files, name)
        if name != self._name:
            return method

        def refuse(*arguments, **options):
            if any(self._part in str(argument) for argument in arguments):
                raise StorageError(28, "No space left on device", arguments[0])
            return method(*arguments, **options)

        return refuse


@pytest.mark.parametrize(
    ("operation", "path"),
    [("open", "_commit.json"), ("open", ".parquet"), ("flush_directory", "_staged-"), ("rename", "_staged-")],
)
def test_what_fails_before_the_commit_leaves_nothing(spark, output, operation, path):
    from logstore.spark import ParquetOutput

    output.commit(rows_of(spark, 1), {"a": {0: 1}})
    failing = ParquetOutput(output.path, files=Refusing(operation, path))
    with pytest.raises(StorageError):
        failing.commit(rows_of(spark, 2), {"a": {0: 2}})
    assert numbers_in(spark, output) == [1]
    assert output.offsets == {"a": {0: 1}}
    assert os.listdir(output.path) == ["batch=0000000000"]


def test_a_dead_attempt_is_removed_by_the_next(spark, output):
    output.commit(rows_of(spark, 1), {"a": {0: 1}})
    shutil.copytree(f"{output.path}/batch=0000000000", f"{output.path}/_staged-dead/nested")
    assert numbers_in(spark, output) == [1]
    output.commit(rows_of(spark, 2), {"a": {0: 2}})
    assert sorted(os.listdir(output.path)) == ["batch=0000000000", "batch=0000000001"]


def test_the_second_of_two_writers_is_refused(spark, output):
    output.commit(rows_of(spark, 1), {"a": {0: 1}}, after=-1)
    with pytest.raises(RetriableError, match="is 0 by now, not -1"):
        output.commit(rows_of(spark, 1), {"a": {0: 1}}, after=-1)
    assert numbers_in(spark, output) == [1]


def test_a_failing_job_commits_nothing(spark, output):
    rows = spark.range(2).selectExpr("raise_error('wrong') as number")
    with pytest.raises(Exception, match="wrong"):
        output.commit(rows, {"a": {0: 1}})
    assert output.last() is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda commit: commit[:-3],
        lambda commit: b"[]",
        lambda commit: json.dumps(json.loads(commit) | {"version": 9}).encode(),
        lambda commit: json.dumps(json.loads(commit) | {"batch": 5}).encode(),
        lambda commit: json.dumps(json.loads(commit) | {"offsets": {"a": {"x": 1}}}).encode(),
    ],
)
def test_a_damaged_commit_file_is_named(spark, output, damage):
    output.commit(rows_of(spark, 1), {"a": {0: 1}})
    path = f"{output.path}/batch=0000000000/_commit.json"
    with open(path, "rb+") as file:
        data = damage(file.read())
        file.seek(0)
        file.truncate()
        file.write(data)
    with pytest.raises(CorruptionError, match=r"batch=0000000000/_commit\.json"):
        output.offsets  # noqa: B018


def test_a_missing_batch_is_noticed(spark, output):
    for number in range(3):
        output.commit(rows_of(spark, number), {"a": {0: number}})
    shutil.rmtree(f"{output.path}/batch=0000000001")
    with pytest.raises(CorruptionError, match="batch 1 is missing before batch 2"):
        output.last()


# Streaming queries ------------------------------------------------------------------------------------------


def run_stream(spark, source, output, checkpoint, write=None):
    query = (
        spark.readStream.schema("number long")
        .option("maxFilesPerTrigger", 1)
        .json(str(source))
        .writeStream.foreachBatch(write or output.write_batch)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


@pytest.fixture
def source(tmp_path):
    directory = tmp_path / "source"
    directory.mkdir()
    for number in range(3):
        (directory / f"{number}.json").write_text(json.dumps({"number": number}))
    return directory


def test_each_batch_of_a_query_is_there_once(spark, source, output, tmp_path):
    attempts = []

    def write(rows, batch_id):
        output.write_batch(rows, batch_id)
        attempts.append(batch_id)
        if attempts == [0, 1]:
            raise RuntimeError("after the commit, before Spark knows")

    with pytest.raises(Exception, match="before Spark knows"):
        run_stream(spark, source, output, tmp_path / "checkpoint", write)
    run_stream(spark, source, output, tmp_path / "checkpoint", write)
    assert attempts == [0, 1, 1, 2]
    assert numbers_in(spark, output) == [0, 1, 2]
    assert output.last().query_id


def test_a_new_checkpoint_is_not_taken_for_the_old_query(spark, source, output, tmp_path):
    run_stream(spark, source, output, tmp_path / "checkpoint")
    with pytest.raises(Exception, match="give each query, and each new checkpoint, an output of its own"):
        run_stream(spark, source, output, tmp_path / "another")
    with pytest.raises(UsageError, match="written by the streaming query"):
        output.commit(rows_of(spark, 1), {})
    with pytest.raises(UsageError, match="for foreachBatch"):
        output.write_batch(rows_of(spark, 1), 3)


def test_a_query_that_goes_on_from_an_old_checkpoint_is_refused(spark, source, output, tmp_path):
    """2 s. Its next batch has what came later, and was left out as one that is there already."""
    run_stream(spark, source, output, tmp_path / "checkpoint")
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "old")
    for number in (3, 4):
        (source / f"{number}.json").write_text(json.dumps({"number": number}))
    run_stream(spark, source, output, tmp_path / "checkpoint")
    (source / "5.json").write_text(json.dumps({"number": 5}))
    with pytest.raises(Exception, match=r"batch 3 of .* comes after batch 4, which is in .*/out already"):
        run_stream(spark, source, output, tmp_path / "old")
    assert numbers_in(spark, output) == [0, 1, 2, 3, 4]
