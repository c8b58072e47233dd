"""Every bit of a segment changed in turn, and every length it may be cut to.

The segment lies in memory (a disk of the test kit), under an open log, so that a change costs nothing and a
look at what was hit is quick: the batch of the bit and its neighbours are read. What no reader notices is the
leader epoch, 4 bytes of each header that no checksum covers, and that records only repeat; verifying a log,
which holds it against ``leader-epoch-checkpoint``, does notice.
"""

from __future__ import annotations

from typing import NamedTuple

from logstore.config import StoreConfig, TopicConfig
from logstore.errors import CorruptionError
from logstore.format.header import decode_header
from logstore.partition.log import Log
from logstore.testing import ManualClock, MemoryFiles

PATH = "/t-0"
FILE = f"{PATH}/{0:020}.log"
EPOCH = range(12, 16)
"""Of a batch: the bytes of its leader epoch."""
CODECS = ("uncompressed", "gzip", "snappy", "lz4", "zstd")
TEXT = b"a sentence that is said again and again, with number %d in it; "
STORE_CONFIG = StoreConfig(linger_ms=0, batch_cache_bytes=0)


def open_log(files, codec):
    config = TopicConfig(index_interval_bytes=4096, retention_ms=-1, compression_type=codec)
    return Log.open(PATH, config=config, store_config=STORE_CONFIG, files=files, clock=ManualClock())


class Tally(NamedTuple):
    tried: int
    refused: int
    unseen: int
    """Flips that every record was right behind."""


class Target:
    """A segment of about so many bytes, and the log that has it open."""

    def __init__(self, codec, size_bytes, leader_epoch=3):
        self.codec = codec
        self.files = MemoryFiles()
        self.log = open_log(self.files, codec)
        if leader_epoch is not None:
            self.log.assign_leader_epoch(leader_epoch)
        number = 0
        while self.log.size_bytes < size_bytes:
            times = 1 if codec == "uncompressed" else 3
            rows = [(b"k%d" % n, TEXT % n * times) for n in range(number, number + 8)]
            self.log.extend(rows)
            number += 8
        self.log.flush()
        self.log.checkpoint()
        self.records = list(self.log.read())
        names = self.files._directories[self.files._directories[0][PATH[1:]]]
        self._inode = names[FILE.rpartition("/")[2]]
        self.data = bytes(self.files.contents[self._inode])
        self.starts = []
        position = 0
        while position < len(self.data):
            header = decode_header(self.data, position)
            self.starts.append((position, header.base_offset, header.next_offset))
            position += header.size_bytes

    @property
    def contents(self):
        return self.files.changeable(self._inode)

    def image_with(self, contents):
        """The disk as a crash leaves it, with these contents of the segment."""
        image = self.files.now()
        number = next(n for n, data in image.files.items() if data == self.data)
        image.files[number] = bytes(contents)
        return image

    def close(self):
        let_go(self.log)


def let_go(log):
    log.abandon()
    log._context.scheduler.stop()
    log._context.home.release()


def flip_bits(target, positions):
    """Change each bit of these bytes in turn, and read the batch that was hit and its neighbours.

    AssertionError for a wrong record, and for damage that nobody notices but that of a leader epoch.
    """
    log, contents, records = target.log, target.contents, target.records
    tried = refused = unseen = 0
    number = 0
    starts = target.starts
    for position in positions:
        while number + 1 < len(starts) and starts[number + 1][0] <= position:
            number += 1
        place = position - starts[number][0]
        first = starts[max(number - 1, 0)][1]
        stop = starts[min(number + 1, len(starts) - 1)][2]
        expected = records[first:stop]
        right = contents[position]
        for bit in range(8):
            contents[position] = right ^ 1 << bit
            tried += 1
            found = []
            try:
                for record in log.read(first, stop):
                    found.append(record)
            except CorruptionError as error:
                refused += 1
                check_located(error)
                assert found == expected[: len(found)], (position, bit)
            else:
                assert found == expected, (position, bit)
                assert place in EPOCH, f"bit {bit} of byte {position}, {place} of its batch, went unnoticed"
                unseen += 1
        contents[position] = right
    return Tally(tried, refused, unseen)


def check_located(error):
    """The error says where."""
    assert error.path == FILE, error
    assert error.position is not None, error


def verify_bits(target, positions):
    """Change each bit of these bytes in turn: verifying the log finds each. Returns how many they were."""
    contents, tried = target.contents, 0
    assert target.log.verify()
    for position in positions:
        for bit in range(8):
            contents[position] ^= 1 << bit
            tried += 1
            assert not target.log.verify(), f"verify does not see bit {bit} of byte {position}"
            contents[position] ^= 1 << bit
    return tried


def epoch_bytes(target):
    return [start + place for start, *_ in target.starts for place in EPOCH]


def cut_under_log(target, lengths):
    """Cut the file to each length under the open log, and read all from the batch in front of the cut on."""
    contents, records = target.contents, target.records
    whole = bytes(contents)
    for length in lengths:
        number = max(sum(start <= length for start, *_ in target.starts) - 2, 0)
        first = target.starts[number][1]
        del contents[length:]
        found = []
        try:
            for record in target.log.read(first):
                found.append(record)
        except CorruptionError:
            assert found == records[first : first + len(found)], length
        else:
            raise AssertionError(f"a file of {length} of {len(whole)} bytes was read as if it were whole")
        finally:
            contents[length:] = whole[length:]


def recover(target, contents, *, is_durable):
    """Open a copy of the directory with these contents after a crash: the records; None if it is refused."""
    files = MemoryFiles(target.image_with(contents))
    if not is_durable:
        files.remove(f"{PATH}/recovery-point-offset-checkpoint")
    try:
        log = open_log(files, target.codec)
    except CorruptionError as error:
        check_located(error)
        return None
    try:
        return list(log.read())
    except CorruptionError as error:
        check_located(error)
        return None
    finally:
        let_go(log)


LOW_OFFSET = range(3, 8)
"""Of a batch: the bytes of its base offset that may change and leave one that a segment might have."""


def as_appended(found, hit):
    """Without a recovery point the last batch may have a gap in front, as compaction leaves them: nobody can
    tell it from a changed offset. The records as they would be without it."""
    moved = found[hit].offset - hit if len(found) > hit else 0
    assert moved >= 0
    return found[:hit] + [record._replace(offset=record.offset - moved) for record in found[hit:]]


def recover_flips(target, places):
    """One bit of each of these bytes, then a recovery: of a durable log, of one that nobody called durable.

    Durable records are refused or right, others are right up to the batch that was hit or further.
    """
    tried = refused = 0
    last = target.starts[-1][0]
    for position in places:
        contents = bytearray(target.data)
        contents[position] ^= 1 << position % 8
        hit = max(first for start, first, _ in target.starts if start <= position)
        found = recover(target, contents, is_durable=True)
        refused += found is None
        assert found is None or found == target.records, position
        found = recover(target, contents, is_durable=False)
        assert found is not None, position
        if position - last in LOW_OFFSET:
            found = as_appended(found, hit)
        assert found == target.records[: len(found)], position
        assert len(found) >= hit, position
        tried += 2
    return tried, refused


def recover_cuts(target, lengths):
    """A file of each of these lengths is recovered: the batches that it has whole, none of the next."""
    ends = [start for start, *_ in target.starts[1:]] + [len(target.data)]
    offsets = [after for *_, after in target.starts]
    for length in lengths:
        whole = sum(end <= length for end in ends)
        expected = target.records[: offsets[whole - 1] if whole else 0]
        assert recover(target, target.data[:length], is_durable=False) == expected, length
        if length < len(target.data):
            assert recover(target, target.data[:length], is_durable=True) is None, length
