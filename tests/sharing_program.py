"""One of several processes that use a directory together: sends records, and writes down what was
acknowledged. Run as ``python -m tests.sharing_program DIRECTORY NOTES NAME``; ends when its input does."""

from __future__ import annotations

import sys
import threading

import logstore


def main(directory: str, notes: str, name: str) -> None:
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    with (
        open(notes, "a", buffering=1, encoding="ascii") as acknowledged,
        logstore.open_or_connect(directory, request_timeout_ms=10_000) as store,
        store.producer(linger_ms=1, retry_backoff_ms=10) as producer,
    ):
        store.require_topic("t", partitions=2)
        print("owner" if store.is_owner else "guest", flush=True)
        number = 0
        waiting = []
        while not ended.is_set():
            value = f"{name} {number}"
            waiting.append((value, producer.send("t", value.encode(), key=name.encode())))
            number += 1
            if len(waiting) >= 50:
                for sent, result in waiting:
                    result.result(30)
                    acknowledged.write(f"{sent}\n")
                waiting.clear()
        for sent, result in waiting:
            result.result(30)
            acknowledged.write(f"{sent}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
