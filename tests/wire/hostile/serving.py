"""A store that listens, in a process of its own, whose memory and descriptors can be counted.

Run as ``python -m tests.wire.hostile.serving DIRECTORY``: prints its address, and ends when its input does.
"""

from __future__ import annotations

import sys

import logstore
from tests.wire.hostile.clients import HOSTILE_TOPIC

CHECKED_TOPIC = "checked"
STEP_TIMEOUT_MS = 3_000
"""Shorter than many a client stalls, so that both sides end connections."""


def main(directory: str) -> None:
    with logstore.open(directory) as store:
        store.require_topic(CHECKED_TOPIC, partitions=2)
        store.require_topic(HOSTILE_TOPIC)[0].extend(
            [bytes(100_000)] * 50
        )  # for those that fetch and do not read
        # Changed names must not become topics: each would keep memory and descriptors, as it should.
        with store.listen(
            auto_create_topics_enable=False, socket_step_timeout_ms=STEP_TIMEOUT_MS
        ) as listener:
            print(listener.address, flush=True)
            sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
