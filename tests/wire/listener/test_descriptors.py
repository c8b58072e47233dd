"""A process that may have no more files open is told so, and what to do, by the call that needed one."""

from __future__ import annotations

import os
import resource
from contextlib import contextmanager, suppress

import pytest

import logstore
from logstore.errors import StorageError


@contextmanager
def spare_descriptors(count):
    """The process may open so many files more."""
    held = []
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 10, hard))
    try:
        with suppress(OSError):
            while True:
                held.append(os.dup(2))
        for _ in range(count):
            os.close(held.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for each in held:
            os.close(each)


@pytest.fixture
def used(store):
    """All that is imported with the first use is there."""
    with store.listen("127.0.0.1:0") as listener, logstore.connect(listener.address) as remote:
        remote.topics()
    return store


@pytest.mark.parametrize("count", range(4))
def test_who_listens(used, tmp_path, count):
    """The socket, what it waits with, and two to wake it."""
    for address in ("127.0.0.1:0", str(tmp_path / "s.sock")):
        with (
            spare_descriptors(count),
            pytest.raises(StorageError, match=r"cannot listen on .*: Too many open files \(allow this"),
        ):
            used.listen(address)
    with used.listen(str(tmp_path / "s.sock")):
        pass


@pytest.mark.parametrize("count", range(3))
def test_who_connects(used, count):
    with used.listen("127.0.0.1:0") as listener:
        with (
            spare_descriptors(count),
            pytest.raises(StorageError, match=r"cannot wait for brokers: Too many open files \(allow this"),
        ):
            logstore.connect(listener.address)
        with logstore.connect(listener.address) as remote:
            assert remote.topics() == {}
