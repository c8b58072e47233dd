"""A writer that is killed at a random moment, again and again, on one directory: what it was told is there is
there, nothing is there twice, nothing is missing in between."""

from __future__ import annotations

import multiprocessing
import os
import random
import select
import struct
import time
from bisect import bisect_right

import pytest

from logstore.config import StoreConfig, TopicConfig
from logstore.format.header import BatchHeader
from logstore.model import NewRecord, ProducerIdentity
from logstore.partition.log import Log
from tests.partition.helpers import Partition, check_record, time_of, value_of

ACK = struct.Struct(">q")
PRODUCER_ID = 7
CODECS = ("uncompressed", "gzip", "snappy", "lz4", "zstd")
SEGMENT_BYTES = 6 * 1024


# The writer: runs in a process of its own until it is killed


def write_until_killed(path, seed, next_sequence, acks):
    """Append by every way there is, and send the offset below which everything must survive: after an extend
    that of its records (they are with the system), after a flush that of all."""
    chance = random.Random(seed)
    config = TopicConfig(
        segment_bytes=chance.choice([SEGMENT_BYTES, 50 * SEGMENT_BYTES]),
        compression_type=chance.choice(CODECS),
        flush_ms=chance.choice([1, 10, 1000]),
        index_interval_bytes=200,
    )
    store_config = StoreConfig(
        linger_ms=chance.choice([0, 5]), log_flush_offset_checkpoint_interval_ms=chance.choice([3, 1000])
    )
    log = Log.open(path, config=config, store_config=store_config)
    offset = log.log_end_offset
    while True:
        count = chance.randint(1, 40) if chance.random() < 0.97 else 3000
        step = chance.randrange(5)
        if step == 0:
            assert log.append(value_of(offset), timestamp_ms=time_of(offset)) == offset
            offset += 1
            continue
        if step == 1:
            log.flush()
        elif step == 2:
            producer = ProducerIdentity(PRODUCER_ID, 0, next_sequence)
            count = min(count, 40)  # it is one batch, which must fit into a segment
            offset = log.extend(records_from(offset, count), producer=producer).stop
            next_sequence += count
        elif step == 3 and chance.random() < 0.1:
            log.checkpoint()
        else:
            offset = log.extend(records_from(offset, count), flush=chance.random() < 0.2).stop
        os.write(acks, ACK.pack(offset))


def records_from(offset, count):
    return [NewRecord(value_of(o), timestamp_ms=time_of(o)) for o in range(offset, offset + count)]


# The killer


class Killer:
    """Starts writers on one directory, kills them, and checks what they leave."""

    def __init__(self, path, seed):
        self.partition = Partition(path, segment_bytes=SEGMENT_BYTES)
        self.chance = random.Random(seed)
        self.processes = multiprocessing.get_context("forkserver")
        self.processes.set_forkserver_preload(["tests.partition.test_kill"])
        self.checked_to = 0
        self.torn_tails = 0
        self.last_batch: BatchHeader | None = None

    def kill_one(self):
        """One writer's life; returns the highest offset that it was told is safe."""
        self.partition.crash()
        here, there = os.pipe()
        seed = self.chance.randrange(2**32)
        sequence = self.last_batch.last_sequence + 1 if self.last_batch is not None else 0
        arguments = (str(self.partition.path), seed, sequence, Inherited(there))
        writer = self.processes.Process(target=write_until_killed, args=arguments)
        writer.start()
        os.close(there)
        if self.chance.random() < 0.8:  # else it may die while it opens the log
            select.select([here], [], [], 20)
        time.sleep(self.chance.random() * 0.03)
        writer.kill()
        writer.join()
        assert writer.exitcode == -9
        return last_ack(here)

    def check(self, acknowledged, *, whole):
        """Open what is left and hold it against what was promised."""
        log = self.partition.open()
        self.torn_tails += log.recovery.cut_bytes > 0
        end = log.log_end_offset
        assert end >= max(acknowledged, self.checked_to)
        start = 0 if whole else max(self.checked_to - 500, 0)
        assert [check_record(record) for record in log.read(start)] == list(range(start, end))
        self.check_producer(log, start)
        self.checked_to = end
        if self.chance.random() < 0.3:
            self.partition.close()

    def check_producer(self, log, start):
        """The producer's last batch sent once more is recognised, and its next one would be accepted."""
        bases = self.partition.bases()
        for base in bases[max(bisect_right(bases, start) - 1, 0) :]:
            for _, header in self.partition.batches(base):
                if header.producer_id == PRODUCER_ID:
                    self.last_batch = header
        if self.last_batch is None:
            return
        first, last = self.last_batch.base_offset, self.last_batch.last_offset
        producer = ProducerIdentity(PRODUCER_ID, 0, self.last_batch.base_sequence)
        again = log.extend(records_from(first, last + 1 - first), producer=producer)
        assert again == range(first, last + 1)


class Inherited:
    """A descriptor that goes over to the new process."""

    def __init__(self, descriptor):
        self.descriptor = descriptor

    def __reduce__(self):
        return _inherit, (multiprocessing.reduction.DupFd(self.descriptor),)


def _inherit(duplicate):
    return duplicate.detach()


def last_ack(descriptor):
    """The last whole number in the pipe."""
    with os.fdopen(descriptor, "rb") as pipe:
        data = pipe.read()
    whole = len(data) // ACK.size * ACK.size
    return ACK.unpack_from(data, whole - ACK.size)[0] if whole else 0


def kill_many(path, count, seed):
    killer = Killer(path, seed)
    for number in range(1, count + 1):
        acknowledged = killer.kill_one()
        killer.check(acknowledged, whole=number % 20 == 0 or number == count)
    killer.partition.crash()
    return killer


def test_twenty_kills_lose_nothing_that_was_acknowledged(tmp_path):
    killer = kill_many(tmp_path / "t-0", 20, seed=1)
    assert killer.checked_to > 500
    assert len(killer.partition.bases()) > 3


@pytest.mark.slow
def test_two_hundred_kills_lose_nothing_that_was_acknowledged(tmp_path):
    killer = kill_many(tmp_path / "t-0", 200, seed=2)
    print(
        f"200 kills, {killer.checked_to} records, {len(killer.partition.bases())} segments, "
        f"{killer.torn_tails} torn tails"
    )


@pytest.mark.slow
def test_a_gibibyte_is_open_again_in_a_moment_after_a_kill(tmp_path):
    """What is read depends on the time since the last checkpoint, not on the size of the log."""
    partition = Partition(tmp_path / "t-0", segment_bytes=128 * 2**20)
    value = random.Random(5).randbytes(1000)
    records = [NewRecord(value)] * 900
    while partition.log.size_bytes < 2**30:
        for _ in range(128):
            partition.log.extend(records)
        partition.checkpoint()
    partition.log.extend(records)
    end, size = partition.log.log_end_offset, partition.log.size_bytes
    partition.crash()
    began = time.perf_counter()
    report = partition.open().recovery
    seconds = time.perf_counter() - began
    print(f"{size / 2**20:.0f} MiB open after {seconds * 1000:.1f} ms, {report.scanned_bytes} bytes read")
    assert partition.log.log_end_offset == end
    assert not report.was_clean
    assert report.scanned_bytes < 4 * 2**20
    assert seconds < 5
    assert next(partition.log.read(end - 1)).value == value
    partition.crash()


@pytest.mark.slow
def test_what_was_never_checkpointed_is_read_once_after_a_kill(tmp_path):
    partition = Partition(tmp_path / "t-0", segment_bytes=16 * 2**20)
    records = [NewRecord(bytes(1000))] * 900
    for _ in range(64):
        partition.log.extend(records)
    size = partition.log.size_bytes
    partition.recover()
    assert partition.log.recovery.scanned_bytes == size
    partition.recover()
    assert partition.log.recovery.scanned_bytes < 2 * 2**20
    partition.crash()
