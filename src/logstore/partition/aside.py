"""Keeping what recovery cuts off, so that nobody's bytes are destroyed by a program's opinion of them.

Cut bytes go to ``<base offset>.torn-<position>`` beside the segments, a file that neither logstore nor Kafka
loads. The newest :data:`KEPT_FILES` of a partition stay; zeros are not worth keeping.
"""

from __future__ import annotations

from logstore.files import File, Files, write_new_file
from logstore.format.names import LOG_SUFFIX, segment_file_name

KEPT_FILES = 8
MAX_KEPT_BYTES = 64 * 1024 * 1024
"""Of one cut, this much is kept: what lies behind a torn batch is unflushed data of seconds."""

TORN_MARK = ".torn-"


def keep_aside(files: Files, directory: str, base_offset: int, log: File, position: int) -> str | None:
    """Copy the bytes of a .log file from ``position`` on, durably; the caller then truncates it. Returns the
    path, or None if there was nothing but zeros."""
    cut = log.read_at(position, min(log.size_bytes() - position, MAX_KEPT_BYTES))
    if not cut.strip(b"\0"):
        return None
    path = f"{directory}/{segment_file_name(base_offset, '')}{TORN_MARK}{position:010d}"
    write_new_file(files, path, cut)
    files.flush_directory(directory)
    _drop_oldest(files, directory)
    return path


def set_aside(files: Files, directory: str, base_offset: int) -> str:
    """Rename a whole .log file that lies behind a cut."""
    path = f"{directory}/{segment_file_name(base_offset, '')}{TORN_MARK}{0:010d}"
    files.rename(f"{directory}/{segment_file_name(base_offset, LOG_SUFFIX)}", path)
    return path


def aside_names(files: Files, directory: str) -> list[str]:
    """The files that hold what was cut off."""
    return sorted(e.name for e in files.list_directory(directory) if TORN_MARK in e.name)


def _drop_oldest(files: Files, directory: str) -> None:
    kept = aside_names(files, directory)
    by_age = sorted(kept, key=lambda name: files.modified_ms(f"{directory}/{name}"))
    for name in by_age[:-KEPT_FILES]:
        files.remove(f"{directory}/{name}")
