"""Calls a method of a store in the middle of a write and of a flush, as a signal handler may, or of a
compaction or an erasure, as their callbacks may. Arguments: a directory, the method, and the operation of a
file or of the log in which it is called."""

import sys

import logstore
from logstore import TopicConfig
from logstore.errors import ClosedError, UsageError
from logstore.logdir import open_logs, upkeep
from tests.partition.helpers_rules import WatchedFiles

path, method, moment = sys.argv[1:]
for each in (open_logs, upkeep):
    each.flushed_at_a_time = lambda files: 8  # as on a disk
upkeep._is_long = lambda logs: True
files = WatchedFiles()
store = logstore.open(path, files=files)
topic = store.create_topic("t", partitions=3, config=TopicConfig(cleanup_policy="compact"))
for log in topic:
    log.extend([(b"key a", b"a")])


def call():
    files.before = lambda operation, path: None
    try:
        getattr(store, method)()
    except UsageError as error:
        print("refused:", str(error)[:40])


def before(operation, path):
    if operation == moment and path.endswith("t-1/00000000000000000000.log"):
        call()


files.before = before
try:
    topic[1].extend([(b"key b", b"b")], flush=True)
    if moment == "compact":
        topic.compact(now=True, on_progress=lambda progress: call())
    if moment == "erase":
        topic[1].erase(keys=[b"key a"], on_progress=lambda progress: call())
    topic[1].extend([(b"key c", b"c")], flush=True)
except ClosedError:
    print("closed")
store.close()
print([record.value for record in logstore.open(path, read_only=True)["t"][1].read()])
