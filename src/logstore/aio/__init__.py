"""logstore for asyncio: the same calls, awaited.

::

    from logstore import aio

    async with aio.open("data") as store:
        orders = await store.require_topic("orders")
        await orders[0].append(b"paid", key=b"alice")
        async for record in orders[0].read():
            print(record.offset, record.key, record.value)

A shell around the synchronous classes: what may touch the disk runs in a few threads, and what waits for
records, deliveries or rebalances takes none. ``docs/aio.md`` says more.
"""

from logstore.aio.consumer import AsyncConsumer
from logstore.aio.groups import AsyncGroups
from logstore.aio.log import AsyncLog
from logstore.aio.producer import AsyncProducer, AsyncSent
from logstore.aio.queue import AsyncQueue, Joining
from logstore.aio.records import AsyncRecords
from logstore.aio.store import AsyncStore, Opening
from logstore.aio.store import open_store as open
from logstore.aio.topic import AsyncTopic

__all__ = [
    "AsyncConsumer",
    "AsyncGroups",
    "AsyncLog",
    "AsyncProducer",
    "AsyncQueue",
    "AsyncRecords",
    "AsyncSent",
    "AsyncStore",
    "AsyncTopic",
    "Joining",
    "Opening",
    "open",
]
