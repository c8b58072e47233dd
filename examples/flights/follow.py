"""The reader process: follows every partition from its end, and measures how late it sees each record.

Run by demo.py as ``python follow.py DIRECTORY COUNT``. Says ``ready`` when it follows, and after COUNT
records the lag of each in milliseconds, as one JSON list.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from queue import SimpleQueue
from threading import Thread

import logstore
from logstore.errors import ClosedError

GIVE_UP_SECONDS = 20.0


def follow(log: logstore.Log, start: int, lags_ms: SimpleQueue[float]) -> None:
    """Wait for new records of one partition. Each says in a header when it was appended. Whoever still waits
    when the store is closed gets ClosedError: that is the end."""
    with contextlib.suppress(ClosedError):
        for record in log.follow(start, timeout=GIVE_UP_SECONDS):
            sent_ns = int(dict(record.headers)["sent_ns"] or 0)
            lags_ms.put((time.time_ns() - sent_ns) / 1e6)


def main(directory: str, count: int) -> None:
    lags_ms: SimpleQueue[float] = SimpleQueue()
    with logstore.open(directory, read_only=True) as store:
        for log in store["flights"]:
            Thread(target=follow, args=(log, log.log_end_offset, lags_ms), daemon=True).start()
        print("ready", flush=True)
        print(json.dumps([round(lags_ms.get(timeout=GIVE_UP_SECONDS), 3) for _ in range(count)]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
