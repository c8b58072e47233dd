"""Consumer groups in an event loop: the calls of ``store.groups()``, in threads."""

import asyncio

import pytest

from logstore import aio
from logstore.errors import ClosedError, UnknownGroupError, UsageError
from logstore.testing.memory import MemoryFiles
from logstore.testing.operations import Write
from tests.aio.helpers import HeldDisk, check_threads_end, run


def test_the_calls_are_those_of_the_store():
    async def main():
        async with aio.open("/s", files=MemoryFiles()) as store:
            await (await store.create_topic("t", partitions=2)).extend([b"x"] * 4)
            store.sync.offsets("g").commit({("t", 0): 0, ("t", 1): 0})
            groups, synchronous = store.groups(), store.sync.groups()
            assert isinstance(groups, aio.AsyncGroups)
            assert await groups.names() == ["g"]
            assert await groups.describe("g") == synchronous["g"]
            assert await groups.describe_all() == dict(synchronous)
            planned = await groups.reset("g", "latest", topics=["t"], dry_run=True)
            assert await groups.reset("g", "latest", partitions=list(planned)) == planned
            assert await groups.delete_offsets("g", [("t", 0)]) == (("t", 0),)
            await groups.delete("g")
            with pytest.raises(UnknownGroupError, match="there is no group 'g'"):
                await groups.describe("g")
            assert repr(groups) == "<AsyncGroups of '/s': none>"
        with pytest.raises(ClosedError):
            await groups.names()
        with pytest.raises(ClosedError):
            store.groups()
        return groups

    groups = run(main())
    with pytest.raises(UsageError, match="another event loop"):
        asyncio.run(groups.names())
    check_threads_end()


def test_the_loop_goes_on_while_the_disk_does_not():
    async def main():
        files = HeldDisk(Write)
        async with aio.open("/s", files=files) as store:
            await store.create_topic("t")
            store.sync.offsets("g").commit({("t", 0): 0})
            files.hold()
            deleting = asyncio.ensure_future(store.groups().delete("g"))
            await files.reached()
            assert not deleting.done()
            files.release()
            await deleting
            assert await store.groups().names() == []

    run(main())
