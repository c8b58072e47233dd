"""One changed digit in ``log-start-offset-checkpoint`` and the next open removed all segments of a whole log.

After a crash a log may end below its start: its last records were deleted and then lost. Everything that is
left was deleted then, and recovery begins an empty log at the start. After a clean stop nothing is lost, so a
start beyond the end is damage: no checksum covers that file.
"""

import pytest

from logstore.config import StoreConfig
from logstore.partition.log import Log
from logstore.partition.state.home import LOG_STARTS_NAME
from logstore.testing import ManualClock, MemoryFiles

PATH = "/t-0"
CHECKPOINT = f"{PATH}/{LOG_STARTS_NAME}"


def open_log(files):
    return Log.open(PATH, files=files, clock=ManualClock(), store_config=StoreConfig(linger_ms=0))


def offsets(log):
    return [record.offset for record in log.read()]


@pytest.mark.damaged
def test_a_start_beyond_the_end_of_a_log_that_was_closed_is_not_believed(caplog):
    files = MemoryFiles()
    with open_log(files) as log:
        log.extend([b"value"] * 8)
        log.delete_before(3)
    file = files.open(CHECKPOINT, write=True)
    text = file.read_at(0, file.size_bytes())
    assert text.endswith(b" 3\n")
    file.truncate(0)
    file.write_at(0, [text.replace(b" 3\n", b" 93\n")])
    with open_log(files) as log:
        assert offsets(log) == list(range(8))
        log.extend([b"more"] * 100)
    assert "log start" in caplog.text
    with open_log(files) as log:  # and it is not believed later, where it would lie inside
        assert offsets(log) == list(range(108))
        assert log.verify()
