"""A base offset is outside the checksum. Where a flipped bit made that of the last batch negative, an index
that had to be built anew from the log was refused its closing entry: the reader got a UsageError about an
index, and not the CorruptionError about the batch."""

import pytest

from logstore.errors import CorruptionError

pytestmark = pytest.mark.damaged


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_the_damaged_batch_is_named_and_not_the_index(partition, suffix):
    partition.write_segments(30, 5)
    partition.close()
    position, _ = partition.batches()[-1]
    data = bytearray(partition.file().read_bytes())
    data[position] ^= 0x80
    partition.write_file(data)
    partition.file(0, suffix).unlink()
    log = partition.open()
    assert [record.offset for record in log.read(0, 15)] == list(range(15))
    with pytest.raises(CorruptionError) as caught:
        list(log.read())
    assert caught.value.position in (position, partition.batches()[-2][0])
    assert caught.value.path == str(partition.file())
