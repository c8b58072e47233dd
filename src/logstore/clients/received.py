"""Fetched bytes to records: what a consumer does with whole batches.

Every batch's checksum is checked again here, where the bytes have arrived. Control records, the records of
aborted transactions, and those below the offset that was asked for are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from logstore.broker.requests import FetchedPartition
from logstore.errors import CorruptionError
from logstore.format.header import check_batch, decode_header
from logstore.format.loops import read_run
from logstore.model import Record
from logstore.partition.reading.records import RUN_BYTES, AbortedFilter, FoundBatch

_NO_END: Final = 2**63 - 1


def received_records(fetched: FetchedPartition, start: int) -> Iterator[list[Record]]:
    """The records from ``start`` on, in lists that are not empty. Cost: compiled 0.05 µs per record of 100
    bytes.

    Raises:
        CorruptionError: while iterating: a batch is damaged; names the partition and the batch's offsets.
    """
    data = fetched.data if type(fetched.data) is bytes else bytes(fetched.data)
    aborted = AbortedFilter(fetched.aborted)
    partition = fetched.partition
    position, previous_last = 0, -1
    while position < len(data):
        if read_run is not None:
            found, position, previous_last, _ = read_run(
                data,
                position,
                previous_last,
                _NO_END,
                start,
                _NO_END,
                RUN_BYTES,
                aborted.has_any,
                False,
                partition,
            )
            if found:
                yield found
                continue
            if position == len(data):
                return
        batch = _batch_at(data, position, fetched)
        position += batch.header.size_bytes
        previous_last = batch.header.last_offset
        if previous_last < start or aborted.hides(batch.header, batch) or batch.header.is_control:
            continue
        records = batch.decode()
        if batch.header.base_offset < start:
            records = [record for record in records if record.offset >= start]
        if records:
            yield records


def _batch_at(data: bytes, position: int, fetched: FetchedPartition) -> FoundBatch:
    name = f"what was fetched of {fetched.partition}"
    try:
        header = decode_header(data, position)
        check_batch(data, position, header)
    except CorruptionError as error:
        raise error.located(name) from None
    return FoundBatch(data, position, header, name, 0, fetched.partition)
