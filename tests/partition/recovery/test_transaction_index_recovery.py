"""What a crash leaves of a transaction index above the recovery point says nothing: the entries are cut, and
written anew for the markers that are still in the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from logstore.format.index import decode_aborted_transactions
from logstore.model import Isolation, ProducerIdentity
from tests.partition.helpers import Partition

ENTRY_BYTES = 34


def stored(partition: Partition, base: int = 0) -> list[int]:
    """The offsets of the markers in a segment's index."""
    path = partition.file(base, ".txnindex")
    data = path.read_bytes() if path.exists() else b""
    return [entry.last_offset for entry in decode_aborted_transactions(data, base)]


def abort(partition: Partition, sequence: int) -> None:
    """Offsets n and n + 1 are data, n + 2 the marker."""
    by = ProducerIdentity(7, 0, sequence, True)
    partition.log.extend([b"a", b"b"], producer=by)
    partition.log.append_end_marker(7, 0, committed=False)


def seen(partition: Partition) -> list[int]:
    return [record.offset for record in partition.log.read(isolation=Isolation.COMMITTED)]


@pytest.mark.parametrize("checkpoint_after", [0, 1, 2])
def test_an_entry_goes_with_its_marker(tmp_path: Path, checkpoint_after: int) -> None:
    """Three aborted transactions; the log loses the marker of the last. It is open then, not aborted."""
    partition = Partition(tmp_path / "t-0")
    for number in range(3):
        abort(partition, 2 * number)
        if number + 1 == checkpoint_after:
            partition.checkpoint()
    assert stored(partition) == [2, 5, 8]
    partition.crash()
    *_, (position, header) = partition.batches()
    assert header.base_offset == 8
    partition.truncate_file(position)
    partition.open()
    assert stored(partition) == [2, 5]
    partition.log.append_end_marker(7, 0, committed=True)
    assert seen(partition) == [6, 7]
    assert partition.log.verify()
    partition.close()


@pytest.mark.parametrize("is_below", [True, False])
def test_the_entry_at_the_recovery_point(tmp_path: Path, is_below: bool) -> None:
    """The one right below it stays as it is; the one that is right at it is written anew."""
    partition = Partition(tmp_path / "t-0")
    by = ProducerIdentity(7, 0, 0, True)
    partition.log.extend([b"a", b"b"], producer=by)
    if not is_below:
        partition.checkpoint()  # the recovery point is the marker's offset
    partition.log.append_end_marker(7, 0, committed=False)
    if is_below:
        partition.checkpoint()
    partition.crash()
    partition.open()
    assert stored(partition) == [2]
    assert seen(partition) == []
    assert partition.log.verify()
    partition.close()


def test_an_entry_right_at_the_recovery_point_goes_with_its_marker(tmp_path: Path) -> None:
    partition = Partition(tmp_path / "t-0")
    by = ProducerIdentity(7, 0, 0, True)
    partition.log.extend([b"a", b"b"], producer=by)
    partition.checkpoint()
    size_bytes = partition.file().stat().st_size
    partition.log.append_end_marker(7, 0, committed=False)
    partition.crash()
    partition.truncate_file(size_bytes)
    partition.open()
    assert stored(partition) == []
    partition.log.append_end_marker(7, 0, committed=True)
    assert seen(partition) == [0, 1]
    partition.close()


def test_entries_in_sealed_segments_above_it_go_too(tmp_path: Path) -> None:
    """Garbage behind the right entries of each: a power cut may leave what was written there before."""
    partition = Partition(tmp_path / "t-0")
    for number in range(3):
        abort(partition, 2 * number)
        partition.log.roll()
        if not number:
            partition.checkpoint()
    partition.crash()
    for base in (3, 6):
        path = partition.file(base, ".txnindex")
        entry = bytearray(path.read_bytes())
        assert len(entry) == ENTRY_BYTES
        entry[25] ^= 1  # of the last offset: another marker, above the one that is there
        path.write_bytes(path.read_bytes() + bytes(entry))
    partition.open()
    assert [stored(partition, base) for base in (0, 3, 6)] == [[2], [5], [8]]
    assert seen(partition) == []
    assert partition.log.verify()
    partition.close()


def test_the_entries_of_a_log_that_is_empty_then_go_too(tmp_path: Path) -> None:
    """A power cut takes all records and leaves the index: what comes next is committed."""
    partition = Partition(tmp_path / "t-0")
    abort(partition, 0)
    partition.crash()
    partition.truncate_file(0)
    partition.open()
    assert stored(partition) == []
    partition.log.extend([b"c", b"d"], producer=ProducerIdentity(7, 1, 0, True))
    partition.log.append_end_marker(7, 1, committed=True)
    assert seen(partition) == [0, 1]
    assert partition.log.verify()
    partition.close()


def test_the_entries_of_what_is_lost_below_the_recovery_point_go_too(tmp_path: Path) -> None:
    partition = Partition(tmp_path / "t-0")
    abort(partition, 0)
    size_bytes = partition.file().stat().st_size
    abort(partition, 2)
    partition.checkpoint()
    partition.crash()
    partition.truncate_file(size_bytes)
    partition.open(accept_loss=True)
    assert stored(partition) == [2]
    partition.log.extend([b"c", b"d"], producer=ProducerIdentity(7, 1, 0, True))
    partition.log.append_end_marker(7, 1, committed=True)
    assert seen(partition) == [3, 4]
    assert partition.log.verify()
    partition.close()
