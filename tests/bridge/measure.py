"""How fast topics are pulled and pushed: from and to a store that another process serves, or a stock broker.

python -m tests.bridge.measure                 # beside `logstore serve`
python -m tests.bridge.measure --kafka         # beside Apache Kafka
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import logstore
from logstore import bridge

PARTITIONS = 2
VALUE_BYTES = 1_000
MEGABYTES = 200


@contextlib.contextmanager
def served(path: str) -> Iterator[str]:
    command = [
        sys.executable,
        "-m",
        "logstore",
        "serve",
        f"{path}/cluster",
        "--listen",
        "127.0.0.1:0",
        "--json",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["address"]
        finally:
            process.terminate()


@contextlib.contextmanager
def kafka(path: str) -> Iterator[str]:
    from tests.interop.kafka import KafkaBroker

    with KafkaBroker(Path(path, "kafka")) as broker:
        yield broker.bootstrap


def measure(address: str, path: str) -> None:
    value = bytes(range(250)) * (VALUE_BYTES // 250)
    count = MEGABYTES * 1_000_000 // VALUE_BYTES // PARTITIONS
    with logstore.open(f"{path}/edge") as store, logstore.connect(address) as cluster:
        topic = store.create_topic("t", partitions=PARTITIONS)
        for log in topic:
            for _ in range(0, count, 5_000):
                log.extend([value] * 5_000)
        push = bridge.push(store, cluster, "t", name="edge")
        began = time.monotonic()
        pushed = push.run(until_end=True)
        tell("push", pushed.byte_count, pushed.record_count, began)
    with logstore.open(f"{path}/copy") as store, logstore.connect(address) as cluster:
        pull = bridge.pull(cluster, store, "t")
        began = time.monotonic()
        pulled = pull.run(until_end=True)
        tell("pull", pulled.byte_count, count * PARTITIONS, began)


def tell(what: str, byte_count: int, record_count: int, began: float) -> None:
    seconds = time.monotonic() - began
    print(
        f"{what}: {byte_count / 1e6 / seconds:,.0f} MB/s, {record_count / seconds:,.0f} records/s "
        f"({byte_count / 1e6:,.0f} MB in {seconds:.1f} s)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kafka", action="store_true")
    arguments = parser.parse_args()
    begin = kafka if arguments.kafka else served
    with tempfile.TemporaryDirectory(prefix="logstore-bridge-") as path, begin(path) as address:
        measure(address, path)


if __name__ == "__main__":
    main()
