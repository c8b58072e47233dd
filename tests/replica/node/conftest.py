from __future__ import annotations

import pytest

from tests.replica.node.cluster import Cluster


@pytest.fixture
def cluster(tmp_path):
    """Three nodes."""
    made = Cluster(tmp_path)
    yield made
    made.close()
