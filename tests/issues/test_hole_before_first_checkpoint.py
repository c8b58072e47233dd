"""A partition that had never been checkpointed lost the unflushed end of its first segment in a power cut,
but not the segment behind it: the hole was taken for one of those that compaction leaves."""

from __future__ import annotations

import logstore
from logstore.testing import ManualClock


def test_a_segment_that_lost_its_end_ends_a_log_that_was_never_checkpointed(tmp_path):
    store = logstore.open(tmp_path, clock=ManualClock())
    log = store.create_topic("t")[0]
    log.extend([(None, b"a"), (None, b"b")])
    log.roll()
    store._directory.abandon()
    (tmp_path / "t-0" / "00000000000000000000.log").write_bytes(b"")
    with logstore.open(tmp_path, clock=ManualClock()) as store:
        assert store["t"][0].log_end_offset == 0
