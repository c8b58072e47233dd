"""A key-value cache that is warm again right after a restart, and never stale.

Each change is a record of a compacted topic. A process that starts takes the table view, the latest value of
each key, and goes on from exactly where that ends: no change is missed, none comes twice. Others may keep a
copy of the cache at the same time, in any process. Run: python examples/cache.py
"""

import tempfile
import time

import logstore

TOPIC = "prices"
COMPACTED = logstore.TopicConfig(cleanup_policy="compact")


class Cache:
    """The value of each key, as the log has it up to ``next_offset``."""

    def __init__(self, log: logstore.Log) -> None:
        view = log.latest()
        self.log = log
        self.values = {record.key: record.value for record in view}
        self.next_offset = view.end_offset

    def set(self, key: bytes, value: bytes | None) -> None:
        """None deletes the key."""
        self.log.append(value, key=key)
        self.catch_up()

    def catch_up(self, timeout: float = 0) -> None:
        """Take in all changes, whoever made them; returns when none came for ``timeout`` seconds."""
        for record in self.log.follow(self.next_offset, timeout=timeout):
            self.next_offset = record.offset + 1
            if record.value is None:
                self.values.pop(record.key, None)
            else:
                self.values[record.key] = record.value


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        with logstore.open(directory) as store:
            log = store.create_topic(TOPIC, config=COMPACTED)[0]
            log.extend([(b"item %d" % (number % 1_000), b"%d" % number) for number in range(100_000)])
        with logstore.open(directory) as store:
            started = time.perf_counter()
            cache = Cache(store[TOPIC][0])
            milliseconds = (time.perf_counter() - started) * 1e3
            print(f"warm: {len(cache.values)} keys of {cache.next_offset} records in {milliseconds:.0f} ms")
            with logstore.open(directory, read_only=True) as elsewhere:
                copy = Cache(elsewhere[TOPIC][0])
                cache.set(b"item 7", b"99")
                cache.set(b"item 8", None)
                copy.catch_up(timeout=0.2)
                print("the copy:", copy.values[b"item 7"], b"item 8" in copy.values, len(copy.values))
            report, is_same = cache.log.compact(now=True), Cache(cache.log).values == cache.values
            sizes = f"{report.size_bytes_before} to {report.size_bytes_after} bytes"
            print(f"compacted: {sizes}, the same table: {is_same}")
