"""Logs of many shapes, from a seed: mostly ordinary batches, now and then something else, or damage."""

import random

from logstore.format.batch import encode_batch, seal_batch
from logstore.format.compression import Codec
from logstore.format.control import ControlType, encode_end_marker
from logstore.format.header import NO_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, TRANSACTIONAL_BIT, BatchHeader
from logstore.model import Record
from tests.format.legacy_writer import encode_entry


class Shape:
    """Writes batches, and things that are none, one after another."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.offset = 0
        self.epoch = 0
        self.sequence = 0
        self.data = bytearray()
        self.ends = [0]
        self.rate = self.random.choice((0.0, 0.01, 0.05))
        """How often something out of the ordinary comes."""
        self.gap_rate = self.random.choice((0.0, 0.0, 0.05, 0.7))
        self.largest_bytes = self.random.choice((200, 2000, 20_000))
        self.time_ms = 1_000_000

    def add(self, batch):
        self.data += batch
        self.ends.append(len(self.data))

    def header(self, **changed):
        count = self.random.randrange(1, 8)
        fields = {
            "base_offset": self.offset,
            "batch_length": 0,
            "partition_leader_epoch": self.epoch,
            "magic": 2,
            "crc": 0,
            "attributes": self.random.choice((0, 0, 0, 8, 0x40, *range(1, 5))),
            "last_offset_delta": count - 1,
            "base_timestamp_ms": self.time_ms,
            "max_timestamp_ms": self.time_ms,
            "producer_id": NO_PRODUCER_ID,
            "producer_epoch": NO_EPOCH,
            "base_sequence": NO_SEQUENCE,
            "record_count": count,
        }
        return BatchHeader(**{**fields, **changed})

    def batch(self, **changed):
        header = self.header(**changed)
        size_bytes = max(self.random.randrange(self.largest_bytes), 7 * max(header.record_count, 0))
        self.add(seal_batch(header, self.random.randbytes(size_bytes)))
        self.offset = max(header.next_offset, self.offset)

    def ordinary(self):
        if self.random.random() < self.gap_rate:
            self.offset += self.random.randrange(1, 50)
        self.time_ms += self.random.choice((0, 1, 5, 50, -3, -20))
        self.batch()

    def produced(self):
        """A batch of a transaction, or of a producer without one."""
        self.sequence += 10
        transactional = self.random.choice((0, TRANSACTIONAL_BIT))
        self.batch(producer_id=5, producer_epoch=0, base_sequence=self.sequence, attributes=transactional)

    def control(self):
        marker = encode_end_marker(
            base_offset=self.offset,
            producer_id=5,
            producer_epoch=0,
            control_type=self.random.choice((ControlType.ABORT, ControlType.COMMIT)),
            coordinator_epoch=1,
            timestamp_ms=self.time_ms,
            partition_leader_epoch=self.epoch,
        )
        self.add(marker)
        self.offset += 1

    def real(self):
        codec = self.random.choice((Codec.GZIP, Codec.ZSTD, Codec.NONE))
        values = [b"v" * 100] * 5
        self.add(encode_batch([None] * 5, values, self.time_ms, base_offset=self.offset, codec=codec))
        self.offset += 5

    def emptied(self):
        header = self.header(record_count=0, attributes=0)
        self.add(seal_batch(header, b""))
        self.offset = header.next_offset

    def legacy(self):
        record = Record(self.offset, self.time_ms, None, b"old", ())
        self.add(encode_entry(self.random.choice((0, 1)), record))
        self.offset += 1

    def new_epoch(self):
        self.epoch += self.random.randrange(1, 4)
        self.batch()

    def old_epoch(self):
        self.batch(partition_leader_epoch=self.random.choice((-1, 0)))

    def step_back(self):
        self.batch(base_offset=max(self.offset - self.random.randrange(1, 9), 0))

    def jump(self):
        if self.offset < 2**62:
            self.offset += self.random.choice((1, 1000, 2**31 - 3, 2**31, 2**62))
        self.batch()

    def no_timestamp(self):
        self.batch(max_timestamp_ms=self.random.choice((-1, -5, -(2**63))))

    def far_timestamp(self):
        self.time_ms = self.random.choice((2**62, 2**63 - 1000))
        self.batch()
        self.time_ms = 2_000_000

    def impossible(self):
        changes = (
            {"base_offset": -1},
            {"last_offset_delta": -1},
            {"base_offset": 2**63 - 3, "last_offset_delta": 5},
            {"attributes": 6},
            {"attributes": 0x21, "record_count": 1, "last_offset_delta": 0},
            {"attributes": 0x20, "record_count": 2, "last_offset_delta": 1},
            {"record_count": -1},
            {"record_count": 8, "last_offset_delta": 6, "attributes": 0},
            {"record_count": 0, "attributes": 0},
            {"magic": 3},
        )
        header = self.header(**self.random.choice(changes))
        self.add(seal_batch(header, self.random.randbytes(60)))

    def too_many(self):
        self.add(seal_batch(self.header(record_count=8, last_offset_delta=7, attributes=0), b"x" * 55))

    def flip(self):
        self.ordinary()
        at = self.random.randrange(self.ends[-2], self.ends[-1])
        self.data[at] ^= 1 << self.random.randrange(8)

    def garbage(self):
        self.add(self.random.randbytes(self.random.randrange(1, 200)))

    ODD = (
        produced,
        control,
        real,
        emptied,
        legacy,
        new_epoch,
        old_epoch,
        step_back,
        jump,
        no_timestamp,
        far_timestamp,
    )
    BAD = (impossible, too_many, flip, garbage)

    def grow(self, count):
        for _ in range(count):
            luck = self.random.random()
            if luck < self.rate / 10:
                self.random.choice(self.BAD)(self)
            elif luck < self.rate:
                self.random.choice(self.ODD)(self)
            else:
                self.ordinary()

    def tear(self):
        if self.random.random() < 0.5:
            del self.data[len(self.data) - self.random.randrange(1, 100) :]
