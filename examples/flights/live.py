"""The live part: this process appends flights one by one while another process follows."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import logstore
from load import partition_of, record_of
from source import Flight

_PAUSE_SECONDS = 0.003


def append_live(store: logstore.Store, flights: Sequence[Flight], show: Callable[[int], None]) -> list[float]:
    """Append and be followed; returns the milliseconds that each record took to the other process."""
    command = [sys.executable, str(Path(__file__).with_name("follow.py")), store.path, str(len(flights))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        follower.stdout.readline()  # it says "ready"
        for count, flight in enumerate(flights, start=1):
            _append(store["flights"], flight)
            show(count)
            time.sleep(_PAUSE_SECONDS)
        answer = follower.stdout.readline()
    if follower.returncode:
        raise SystemExit(f"the follower failed with exit code {follower.returncode}")
    lags_ms: list[float] = json.loads(answer)
    return lags_ms


def _append(topic: logstore.Topic, flight: Flight) -> None:
    record = record_of(flight)
    topic.append(
        record.value,
        key=record.key,
        partition=partition_of(topic, flight),
        timestamp_ms=record.timestamp_ms,
        headers=(*record.headers, ("sent_ns", b"%d" % time.time_ns())),
    )
