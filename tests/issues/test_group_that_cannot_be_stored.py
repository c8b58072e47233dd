"""A consumer of a group whose topic takes nothing: it joined again and again, and polled without end."""

from __future__ import annotations

import pytest

import logstore
from logstore.errors import StorageError
from logstore.format.names import OFFSETS_TOPIC
from logstore.testing import FAULTS, FaultyFiles, MemoryFiles


@pytest.mark.damaged
@pytest.mark.parametrize("fault", ["ENOSPC", "EIO"])
def test_poll_says_so(fault):
    files = FaultyFiles(MemoryFiles())
    with logstore.open("/store", files=files) as store:
        store.create_topic("t")[0].extend([b"a", b"b"])
        store.offsets("g").commit({("t", 0): 1})  # the topic of the groups is there
        with store.consumer("t", group="g") as consumer:
            files.fail(FAULTS[fault], at=1, times=10**6, path=OFFSETS_TOPIC)
            for _ in range(2):
                with pytest.raises(StorageError, match="group 'g' cannot be stored"):
                    consumer.poll(timeout=30.0)
            files.heal()
            store[OFFSETS_TOPIC].reopen(0)
            assert [record.value for record in consumer.poll(timeout=30.0)] == [b"b"]
