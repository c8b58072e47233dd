"""A segment file on its own: made by a log, copied away from it, and compared with what the log says."""

from __future__ import annotations

import shutil
from pathlib import Path

from logstore.errors import CorruptionError
from tests.partition.helpers import Partition, check_record


def lone_copy(path: Path, target: Path, *, suffixes=(".log", ".index", ".timeindex", ".txnindex")) -> Path:
    """Copy the files of a segment, with those suffixes, to a directory of their own; returns the log's."""
    target.mkdir(parents=True, exist_ok=True)
    for suffix in suffixes:
        beside = path.with_suffix(suffix)
        if beside.is_file():
            shutil.copy(beside, target / beside.name)
    return target / path.name


def written_segment(tmp_path: Path, *, count=60, batch=5, base=0, **config) -> Path:
    """A segment that a log has written and sealed, and its indexes: of records as :func:`check_record` knows
    them."""
    partition = Partition(tmp_path / "made" / "t-0", message_timestamp_after_max_ms=2**62, **config)
    if base:
        partition.log.truncate_fully_and_start_at(base)
    partition.write(count, batch=batch)
    partition.log.roll()
    partition.close()
    return lone_copy(partition.file(base), tmp_path / "lone")


def offsets_of(segment, *arguments) -> list[int]:
    """The offsets of its records, all of which must be right."""
    return [check_record(record) for record in segment.records(*arguments)]


def outcome(records) -> tuple[list, CorruptionError | None]:
    """The records that come, and the error after them."""
    found = []
    try:
        found.extend(records)
    except CorruptionError as error:
        return found, error
    return found, None
