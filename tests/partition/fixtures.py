"""Fixtures of the tests about one partition, also of those in other folders."""

import pytest

from tests.partition.helpers import Partition


@pytest.fixture
def partition(tmp_path):
    """A partition that is given up at the end as a crash would."""
    made = Partition(tmp_path / "t-0")
    yield made
    made.crash()
