"""A process that commits what is staged, by two threads, and kills itself after so many pieces:
``python -m tests.spark.commit_victim <store> <staged files, pickled> <pieces>``."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from pathlib import Path

from logstore.spark import commits, staging
from tests.spark.staged import SINK


def main(path: str, staged: str, piece_count: str) -> None:
    left = [None] * int(piece_count)

    def reached(step: str) -> None:
        if step == "mid-adoption":
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
            left.pop()

    commits.reached = reached
    staging.PIECE_BYTES = 2_000  # type: ignore[misc]
    commits.AHEAD_BYTES = 1  # type: ignore[misc]
    commits.os.cpu_count = lambda: 2  # type: ignore[attr-defined]
    commits.commit(path, SINK, 0, pickle.loads(Path(staged).read_bytes()))


if __name__ == "__main__":
    main(*sys.argv[1:])
