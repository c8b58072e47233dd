"""Each test of the conformance suite runs with files, and with a real ZooKeeper where there is one."""

from __future__ import annotations

import pytest

from tests.replica.coordination import places, server


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory):
    """One for all tests that do it no harm; it takes a second to start."""
    reason = server.unavailable_reason()
    if reason is not None:
        pytest.skip(reason)
    started = server.ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"))
    started.start()
    yield started
    started.kill()


@pytest.fixture(params=["files", pytest.param("zookeeper", marks=pytest.mark.interop)])
def place(request, tmp_path):
    if request.param == "files":
        found = places.directory(tmp_path)
    else:
        found = places.chroot(request.getfixturevalue("zookeeper"))
    yield found
    found.close()
