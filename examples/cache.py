"""A key-value cache that is warm again right after a restart, and a copy of it in another process.

Each change is a record of a compacted topic. A process that starts takes the table, the latest value of each
key, and follows the changes from there on. Run: python examples/cache.py
"""

import tempfile
from contextlib import suppress
from threading import Condition, Thread

import logstore
from logstore.errors import ClosedError

COMPACTED = logstore.TopicConfig(cleanup_policy="compact")


class Cache:
    """The value of each key. ``prices.append(value, key=...)`` changes one; None deletes it."""

    def __init__(self, topic: logstore.Topic) -> None:
        self.prices = topic.serialized(key="text", value="json")
        self.values, self.changed = self.prices.latest(), Condition()
        Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        with suppress(ClosedError):  # the store was closed
            for record in self.prices.follow(self.values.end_offsets):
                with self.changed:
                    self.values[record.key] = record.value
                    if record.value is None:
                        del self.values[record.key]
                    self.changed.notify_all()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        with logstore.open(directory) as store:
            prices = store.create_topic("prices", partitions=4, config=COMPACTED)
            prices.extend([(b"item %d" % (number % 1_000), b"%d" % number) for number in range(100_000)])
        with logstore.open(directory) as store, logstore.open(directory, read_only=True) as elsewhere:
            cache, copy = Cache(store["prices"]), Cache(elsewhere["prices"])
            print(f"warm: {len(cache.values)} keys, item 7 costs {cache.values['item 7']}")
            cache.prices.append(99, key="item 7")
            cache.prices.append(None, key="item 8")
            with copy.changed:
                copy.changed.wait_for(lambda: copy.values["item 7"] == 99 and "item 8" not in copy.values, 20)
                print(f"the copy: {len(copy.values)} keys, item 7 costs {copy.values['item 7']}")
            saved_bytes = sum(report.saved_bytes for report in store["prices"].compact(now=True).values())
            print(f"compacted: {saved_bytes} bytes less, same table: {cache.prices.latest() == copy.values}")
