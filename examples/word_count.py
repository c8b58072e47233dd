"""Words counted exactly once: none is left out or counted twice, though the counter is killed now and then.

Each transaction reads some lines, writes the new counts of their words to a compacted topic, and commits the
offset behind the lines. All of that counts, or nothing. The counter is a process of its own. The next one
takes up the counts and the offset that were committed together. Run: python examples/word_count.py
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter

import logstore

WORDS = b"the quick brown fox jumps over the lazy dog".split()


def committed_counts(store: logstore.Store) -> Counter[bytes]:
    table = store["counts"][0].latest(isolation=logstore.Isolation.COMMITTED)
    return Counter({record.key or b"": int(record.value or 0) for record in table})


def count(path: str) -> None:
    with logstore.open(path) as store, store.producer(transactional_id="word count") as producer:
        consumer = store.consumer(partitions=[("lines", 0)], group="word count", max_poll_records=20)
        counts = committed_counts(store)
        while lines := consumer.poll(timeout=1):
            words = [word for line in lines for word in (line.value or b"").split()]
            counts.update(words)
            with producer.transaction() as transaction:
                for word in set(words):
                    producer.send("counts", b"%d" % counts[word], key=word)
                    if random.random() < 0.01:
                        os.kill(os.getpid(), signal.SIGKILL)
                transaction.commit_offsets(consumer)


if __name__ == "__main__" and len(sys.argv) == 2:
    count(sys.argv[1])
elif __name__ == "__main__":
    lines = [b" ".join(random.sample(WORDS, 5)) for _ in range(600)]
    with tempfile.TemporaryDirectory() as path:
        with logstore.open(path) as store:
            store.create_topic("lines")[0].extend(lines)
            store.create_topic("counts", config=logstore.TopicConfig(cleanup_policy="compact"))
        while subprocess.run([sys.executable, __file__, path], check=False).returncode:
            print("killed; the next one goes on")
        with logstore.open(path, read_only=True) as store:
            counts = committed_counts(store)
        print(f"{counts.total()} words, {counts[b'the']} of them are 'the'")
        print("as in the lines:", counts == Counter(b" ".join(lines).split()))
