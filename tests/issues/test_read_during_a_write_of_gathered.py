"""A thread appends, and reads while the background is writing what it appended.

The writing begins by noting that it was tried, so that a refused write is not tried again by each reader. A
reader took the note of a write that was under way for that of a refused one, and went on without: it did not
find what it had appended. Found by threads that append and read beside killed writers.
"""

import threading

from tests.partition.helpers_rules import WatchedFiles, open_log


def test_a_reader_waits_for_what_is_being_written(tmp_path):
    files = WatchedFiles()
    log = open_log(tmp_path / "t-0", files=files, linger_ms=1_000)
    log.append(b"mine")
    reached, go_on, found = threading.Event(), threading.Event(), []

    def before(operation, path):
        if operation == "write" and path.endswith(".log"):
            reached.set()
            go_on.wait(5)

    files.before = before
    writer = threading.Thread(target=log.flush)
    writer.start()
    assert reached.wait(5)
    reader = threading.Thread(target=lambda: found.extend(record.value for record in log.read()))
    reader.start()
    reader.join(0.1)
    go_on.set()
    writer.join()
    reader.join()
    assert found == [b"mine"]
