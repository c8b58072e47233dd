"""A fetch gave nothing of the good batches in front of a damaged one.

It looked at the batch behind the last that it took and raised what was wrong with that; rows and columns give
all that is in front of damage first. A consumer that fetches stood still one batch too early, or many,
however small a piece it asked for.

And where a segment ends in a gap, it looked into the next one even if that begins at the limit of what it may
give, and raised what was wrong there.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.partition.helpers import Partition

from logstore.errors import CorruptionError
from logstore.model import Isolation, NewRecord, ProducerIdentity

pytestmark = pytest.mark.damaged


@pytest.mark.parametrize("max_bytes", [1, 10**6])
def test_a_fetch_gives_what_is_in_front_of_damage(tmp_path: Path, max_bytes: int) -> None:
    partition = Partition(tmp_path / "t-0")
    partition.write(6, batch=2)
    position = partition.corrupt_batch(2)
    log, at, found = partition.log, 0, b""
    while at < 4:
        fetched = log.fetch(at, max_bytes=max_bytes)
        found, at = found + fetched.data, fetched.next_offset
    assert found == partition.file().read_bytes()[:position]
    with pytest.raises(CorruptionError) as raised:
        log.fetch(at, max_bytes=max_bytes)
    assert raised.value.position == position
    partition.crash()


def test_a_fetch_does_not_look_beyond_its_limit(tmp_path: Path) -> None:
    partition = Partition(tmp_path / "t-0")
    log = partition.log
    partition.write(4, batch=4)
    log.truncate_to(3)  # the batch goes whole: nothing is left below the end
    log.roll()
    log.extend([NewRecord(b"undecided")], producer=ProducerIdentity(7, 0, 0, True))
    assert log.last_stable_offset == 3
    path = tmp_path / "t-0" / "00000000000000000003.log"
    path.write_bytes(b"\1" + path.read_bytes()[1:])
    assert log.fetch(1, isolation=Isolation.COMMITTED).data == b""
    assert not [*log.read(1, isolation=Isolation.COMMITTED)]
    with pytest.raises(CorruptionError):
        log.fetch(1, isolation=Isolation.HIGH_WATERMARK)
    partition.crash()
