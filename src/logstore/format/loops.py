"""The one door to the hot loops: whoever encodes, decodes or walks imports from here.

Behind it is the compiled module where this installation has one, else the plain Python of
:mod:`logstore.format.plain` and its neighbours: the same functions, bytes, results and errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logstore.build import compiled
from logstore.format.plain import RecordFacts, skip_records
from logstore.format.run import IndexRun

index_run: IndexRun | None = None
"""None where there is no compiled module: then recovery takes the batches one at a time."""

read_run: Any = None
"""The records of a run of ordinary batches: see lookup.c. None where there is no compiled module."""

put_run: Any = None
"""Puts the keys of such a run into an offset map, a compiled one: see latest.c. None as before."""

latest_run: Any = None
"""The records of such a run that are the latest of their keys to a list of offset maps. None as before."""

RUN_FULL, RUN_CUT, RUN_ODD, RUN_DONE = range(4)
"""Why a run ends: it has the bytes asked for; the piece ends too early to show the next batch and what comes
behind; the next batch is out of the ordinary; nothing that is wanted can follow."""

if compiled is None or TYPE_CHECKING:
    from logstore.format.column_buffers import PlainColumns as Columns
    from logstore.format.column_buffers import encode_columns
    from logstore.format.gathered import GatheredRows
    from logstore.format.lookup import find_in_section, find_interval, find_record, mark_records
    from logstore.format.partitioner import partition_for_key, partitions_for_keys
    from logstore.format.plain import (
        decode_batch,
        decode_records,
        divide_rows,
        encode_batch,
        encode_records,
        encode_rows,
        inspect_records,
        keep_records,
        scan_batches,
    )
else:
    from logstore.format.compiled import (
        Columns,
        GatheredRows,
        decode_batch,
        decode_records,
        divide_rows,
        encode_batch,
        encode_columns,
        encode_records,
        encode_rows,
        index_run,
        inspect_records,
        keep_records,
        partition_for_key,
        partitions_for_keys,
        scan_batches,
    )

    find_in_section, mark_records = compiled.find_in_section, compiled.mark_records
    find_interval = compiled.find_interval
    find_record, read_run = compiled.find_record, compiled.read_run
    put_run, latest_run = compiled.put_run, compiled.latest_run


__all__ = [
    "RUN_CUT",
    "RUN_DONE",
    "RUN_FULL",
    "RUN_ODD",
    "Columns",
    "GatheredRows",
    "RecordFacts",
    "decode_batch",
    "decode_records",
    "divide_rows",
    "encode_batch",
    "encode_columns",
    "encode_records",
    "encode_rows",
    "find_in_section",
    "find_interval",
    "find_record",
    "index_run",
    "inspect_records",
    "keep_records",
    "latest_run",
    "mark_records",
    "partition_for_key",
    "partitions_for_keys",
    "put_run",
    "read_run",
    "scan_batches",
    "skip_records",
]
