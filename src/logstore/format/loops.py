"""The only entry to the hot loops: all code that encodes, decodes or walks batches imports from here.

They come from the compiled module if this installation has one, else from the plain Python of
:mod:`logstore.format.plain` and its neighbours, with the same functions, bytes, results and errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logstore.build import compiled
from logstore.format.plain import RecordFacts, skip_records
from logstore.format.run import IndexRun

index_run: IndexRun | None = None
"""None without the compiled module: recovery then takes the batches one at a time."""

read_run: Any = None
"""Returns the records of a run of ordinary batches: see lookup.c. None without the compiled module."""

put_run: Any = None
"""Puts the keys of such a run into a compiled offset map: see latest.c. None without the compiled module."""

latest_run: Any = None
"""Returns the records of such a run that are the latest of their keys by a list of offset maps. None without
the compiled module."""

whole_run: Any = None
"""Checks a run of batches for a fetch: see whole_run.c. None without the compiled module."""

RUN_FULL, RUN_CUT, RUN_ODD, RUN_DONE = range(4)
"""Why a run ends. FULL: it has the bytes asked for. CUT: the piece ends too early to show the next batch and
what follows it. ODD: the next batch is unusual. DONE: nothing that is wanted can follow."""

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
    whole_run = compiled.whole_run


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
    "whole_run",
]
