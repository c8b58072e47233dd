"""``python -m benchmarks.listening.busy DIRECTORY COMPUTES INTERVAL_MS``: a process that serves a store, and
in which another thread computes in Python all the time (1) or not (0), with a switch interval. Prints the
address; ends when its standard input does."""

from __future__ import annotations

import sys
import threading

import logstore


def _compute(until: threading.Event) -> None:
    number = 0
    while not until.is_set():
        for _ in range(1_000):
            number = number * 31 % 1_000_003


def main() -> None:
    directory, computes, interval_ms = sys.argv[1:]
    sys.setswitchinterval(float(interval_ms) / 1000)
    ended = threading.Event()
    with logstore.open(directory) as store, store.listen("127.0.0.1:0") as listener:
        thread = threading.Thread(target=_compute, args=(ended,), daemon=True)
        if computes == "1":
            thread.start()
        print(listener.address, flush=True)
        sys.stdin.read()
        ended.set()


if __name__ == "__main__":
    main()
