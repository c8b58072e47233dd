"""What ``new_records`` asks a read for, without Spark."""

from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from tests.spark.conftest import missing_python

if missing_python() is not None:
    pytest.skip(missing_python(), allow_module_level=True)

import logstore
from logstore.errors import OffsetOutOfRangeError
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
