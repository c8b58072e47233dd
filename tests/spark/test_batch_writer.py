"""One job's write from its options to its commit, without Java."""

import pytest

from tests.spark.conftest import missing_python

if missing_python() is not None:
    pytest.skip(missing_python(), allow_module_level=True)

import pyarrow as pa
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

import logstore
from logstore.errors import InvalidConfigError
from logstore.spark.batch_writer import BatchWriter
from logstore.spark.options import Options, Use


@pytest.fixture
def path(tmp_path):
    with logstore.open(tmp_path / "store") as store:
        store.create_topic("a")
        store.create_topic("b")
    return str(tmp_path / "store")


def write(path, table, **options):
    types = {"value": BinaryType(), "topic": StringType()}
    schema = StructType([StructField(name, types[name]) for name in table.column_names])
    writer = BatchWriter(Options({"path": path} | options, Use.BATCH_WRITE), schema, overwrite=False)
    writer.commit([writer.write(iter(table.to_batches()))])


def counts(path):
    with logstore.open(path, read_only=True) as store:
        return [store[name][0].log_end_offset for name in ("a", "b")]


ROWS = pa.table({"value": pa.array([b"1", b"2"], pa.binary())})


def test_an_id_is_for_the_topic_that_the_write_names(path):
    """As in a batch of a query that goes into two topics with one id."""
    for _ in range(2):
        for topic in ("a", "b"):
            write(path, ROWS, topic=topic, writeId="query/7")
    assert counts(path) == [2, 2]


def test_an_id_is_for_the_whole_store_where_a_column_names_the_topics(path):
    rows = ROWS.append_column("topic", pa.array(["a", "b"]))
    for each in (rows, rows.slice(1), rows):
        write(path, each, writeId="query/7")
    assert counts(path) == [1, 1]


@pytest.mark.parametrize("write_id", ["", " "])
def test_an_empty_id_is_refused(path, write_id):
    """Taken for no id, it would let a program that has lost its id write its rows twice."""
    with pytest.raises(InvalidConfigError, match=r"option writeId is '.?': it must not be empty"):
        write(path, ROWS, topic="a", writeId=write_id)
    assert counts(path) == [0, 0]


def test_writes_without_an_id_are_different_ones(path):
    for _ in range(2):
        write(path, ROWS, topic="a")
    assert counts(path) == [4, 0]
