"""One process appends, another follows the same directory, with nothing between them but the files.

Run: python examples/follow_live.py
"""

import subprocess
import sys
import tempfile
import time

import logstore


def follow(directory: str) -> None:
    """The reader: no lock, nothing written; it ends when nothing came for a second."""
    with logstore.open(directory, read_only=True) as store:
        for record in store["ticks"].follow("earliest", timeout=1.0):
            late_ms = time.time() * 1000 - record.timestamp_ms
            print(f"reader: {record.value!r} arrived {late_ms:.0f} ms after it was appended", flush=True)


def append(directory: str) -> None:
    with logstore.open(directory) as store:
        ticks = store.create_topic("ticks", partitions=4)
        reader = subprocess.Popen([sys.executable, __file__, directory])
        for number in range(8):
            time.sleep(0.1)
            ticks.append(b"tick %d" % number)
        reader.wait()
        print("writer: appended 8 records")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        follow(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as directory:
            append(directory)
