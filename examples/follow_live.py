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
        for record in store["ticks"][0].follow(0, timeout=1.0):
            late_ms = (time.time_ns() - int(record.value or 0)) / 1e6
            print(
                f"reader: offset {record.offset} arrived {late_ms:.1f} ms after it was appended", flush=True
            )


def append(directory: str) -> None:
    with logstore.open(directory) as store:
        log = store.create_topic("ticks")[0]
        reader = subprocess.Popen([sys.executable, __file__, directory])
        for _ in range(8):
            time.sleep(0.1)
            log.append(b"%d" % time.time_ns())
        reader.wait()
        print(f"writer: appended {log.log_end_offset} records")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        follow(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as directory:
            append(directory)
