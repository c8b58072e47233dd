"""The whole idea in a few lines. Run: python examples/quickstart.py"""

import tempfile

import logstore

with tempfile.TemporaryDirectory() as directory, logstore.open(directory) as store:
    orders = store.require_topic("orders", partitions=4)
    partition, offset = orders.append(b"paid", key=b"alice")  # the key decides the partition
    orders.extend([(b"alice", b"shipped"), (b"bob", b"paid"), (b"alice", b"returned")])
    orders.flush()  # now a power cut cannot take them
    for record in orders[partition].read(offset):
        print(partition, record.offset, record.timestamp_ms, record.key, record.value)
