"""Golden bytes of the small binary files, checked against an independent decoder of Kafka's formats."""

from logstore.format.index import OffsetPosition, TimestampOffset
from logstore.format.snapshot import ProducerSnapshotEntry
from logstore.model import AbortedTransaction

SNAPSHOT = bytes.fromhex(
    "0001350c68c500000002000000000000000700010000000b00000000000000060000000100000000000003ef00000009"
    "ffffffffffffffff00000000000000080000ffffffffffffffffffffffff0000000000000000000007d0ffffffff"
    "0000000000000005"
)
SNAPSHOT_ENTRIES = [
    ProducerSnapshotEntry(7, 1, 11, 6, 1, 1007, 9, -1),
    ProducerSnapshotEntry(8, 0, -1, -1, 0, 2000, -1, 5),
]

EMPTY_SNAPSHOT = bytes.fromhex("000148674bc700000000")

ABORTED = bytes.fromhex("00000000000000000007000000000000000500000000000000070000000000000008")
ABORTED_TRANSACTION = AbortedTransaction(producer_id=7, first_offset=5, last_offset=7, last_stable_offset=8)

BASE_OFFSET = 100

OFFSET_ENTRY = bytes.fromhex("0000002000001000")
OFFSET_ENTRY_VALUE = OffsetPosition(offset=132, position=4096)

TIME_ENTRY = bytes.fromhex("0000018bcfe5680000000020")
TIME_ENTRY_VALUE = TimestampOffset(timestamp_ms=1_700_000_000_000, offset=132)

MURMUR2 = (
    # Kafka's own values
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
)
