"""The one door to the hot loops: whoever encodes, decodes or walks imports from here.

Behind it is the compiled module where this installation has one, else the plain Python of
:mod:`logstore.format.plain`: the same functions, bytes, results and errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logstore.build import compiled
from logstore.format.plain import skip_records
from logstore.format.run import IndexRun

index_run: IndexRun | None = None
"""None where there is no compiled module: then recovery takes the batches one at a time."""

if compiled is None or TYPE_CHECKING:
    from logstore.format.column_buffers import PlainColumns as Columns
    from logstore.format.gathered import GatheredRows
    from logstore.format.partitioner import partition_for_key
    from logstore.format.plain import decode_records, encode_batch, encode_records, encode_rows, scan_batches
else:
    from logstore.format.compiled import (
        Columns,
        GatheredRows,
        decode_records,
        encode_batch,
        encode_records,
        encode_rows,
        index_run,
        partition_for_key,
        scan_batches,
    )


__all__ = [
    "Columns",
    "GatheredRows",
    "decode_records",
    "encode_batch",
    "encode_records",
    "encode_rows",
    "index_run",
    "partition_for_key",
    "scan_batches",
    "skip_records",
]
