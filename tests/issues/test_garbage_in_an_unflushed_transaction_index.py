"""A power cut behind an abort marker, before the flush, may leave anything in the transaction index.

Recovery drops an index that is damaged above the recovery point, and writes it anew from the markers. But
where the garbage began with an unknown version it refused to open the log, as if a newer logstore had written
it. Found by cutting the power in the middle of compactions.
"""

from pathlib import Path

from tests.partition.helpers_rules import add, crash, identity, open_log, values_of

from logstore.model import Isolation


def test_an_index_that_begins_with_another_version_is_written_anew(tmp_path):
    log = open_log(tmp_path / "t-0")
    add(log, b"aborted", producer=identity(0, transactional=True))
    marker = log.append_end_marker(7, 0, committed=False).base_offset
    add(log, b"kept")
    crash(log)
    index = Path(log.directory, f"{0:020}.txnindex")
    sound = index.read_bytes()
    index.write_bytes(b"\x6c" * len(sound))
    log = open_log(tmp_path / "t-0")
    assert values_of(log, isolation=Isolation.COMMITTED) == [b"kept"]
    assert [each.last_offset for each in log.fetch(0, isolation=Isolation.COMMITTED).aborted] == [marker]
    assert index.read_bytes() == sound
