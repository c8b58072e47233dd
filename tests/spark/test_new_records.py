"""What ``new_records`` asks a read for, without Spark."""

from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from tests.spark.conftest import missing_python

if missing_python() is not None:
    pytest.skip(missing_python(), allow_module_level=True)

import logstore
from logstore.errors import InvalidConfigError, OffsetOutOfRangeError, UsageError
from logstore.spark import new_records


@pytest.fixture
def path(tmp_path):
    """A store in which a topic was deleted and created again."""
    with logstore.open(tmp_path / "store") as store:
        store.create_topic("t").extend([b"1", b"2", b"3"])
        store.delete_topic("t")
        store.create_topic("t").extend([b"4"])
    return str(tmp_path / "store")


def output_up_to(offset):
    last = SimpleNamespace(number=7, offsets={"t": {0: offset}})
    return SimpleNamespace(path="/out", last=lambda: last)


def test_a_log_that_ends_below_what_the_output_has_is_a_loss(path):
    with pytest.raises(OffsetOutOfRangeError, match=r"t-0 in .* ends at offset 1, and /out continues at 3"):
        new_records(MagicMock(), output_up_to(3), path=path, topics=["t"])


def test_without_fail_on_data_loss_it_continues_at_the_end(path):
    spark = MagicMock()
    new = new_records(spark, output_up_to(3), path=path, topics=["t"], failOnDataLoss="false")
    wanted = spark.read.format.return_value.options.call_args.kwargs
    assert (wanted["startingOffsets"], wanted["endingOffsets"]) == ('{"t": {"0": 1}}',) * 2
    assert not new.is_empty
    assert (new.offsets, new.after) == ({"t": {0: 1}}, 7)


def test_a_log_that_has_not_grown_has_nothing_new(path):
    assert new_records(MagicMock(), output_up_to(1), path=path, topics=["t"]).is_empty


@pytest.mark.parametrize(
    "option",
    ["startingTimestamp", "startingOffsets", "ENDINGTIMESTAMP", "assign", "endingOffsetsByTimestamp"],
)
def test_what_would_read_other_records_is_refused(path, option):
    """A time takes precedence over the offsets of the output: its records came again, or were passed over."""
    with pytest.raises(InvalidConfigError, match=f"option {option} is '0': .* leave the option out"):
        new_records(MagicMock(), output_up_to(0), path=path, topics=["t"], **{option: "0"})


def test_options_are_given_as_spark_takes_them(path):
    spark = MagicMock()
    new_records(spark, output_up_to(3), path=path, topics=["t"], failOnDataLoss=False, minPartitions=2)
    wanted = spark.read.format.return_value.options.call_args.kwargs
    assert (wanted["failOnDataLoss"], wanted["minPartitions"]) == ("false", "2")


def test_a_path_in_place_of_the_output_is_refused(path):
    with pytest.raises(UsageError, match="output is '/out'; it must be a ParquetOutput"):
        new_records(MagicMock(), "/out", path=path, topics=["t"])
