"""Fixtures of the tests about one partition, in all folders."""

import pytest

from tests.partition.helpers import Partition


@pytest.fixture
def partition(tmp_path):
    """A partition that ends like after a crash."""
    made = Partition(tmp_path / "t-0")
    yield made
    made.crash()
