"""A store with one topic, and its listener: appends the records that are named, one by one, and waits."""

import sys

import logstore

_, path, address, *values = sys.argv
with logstore.open(path) as store, store.listen(address) as listener:
    log = store.require_topic("t", partitions=1)[0]
    for value in values:
        log.extend([value.encode()])
    print(listener.address, log.leader_epoch, flush=True)
    sys.stdin.read()
