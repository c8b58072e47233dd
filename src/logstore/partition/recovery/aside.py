"""Keeps the bytes that recovery cuts off, so that no data is destroyed on a program's judgement.

Cut bytes go to ``<base offset>.torn-<position>`` beside the segments, a file that neither logstore nor Kafka
loads. After an ordinary crash these are the last moments of writing, and the newest :data:`KEPT_FILES` of a
partition stay. Bytes that may have been durable go to ``.torn-<position>.kept``, all of them, and so does
each segment behind a cut; these stay until an erasure or you remove them. Zeros are not kept.
"""

from __future__ import annotations

from logstore.files import File, Files, write_new_file
from logstore.format.names import LOG_SUFFIX, TEMPORARY_SUFFIX, segment_file_name

KEPT_FILES = 8
MAX_KEPT_BYTES = 64 * 1024 * 1024
"""How much is kept of the end that one crash tore: behind a torn batch lie only seconds of unflushed data."""

TORN_MARK = ".torn-"
KEPT_SUFFIX = ".kept"
_PIECE_BYTES = 1024 * 1024


def keep_aside(files: Files, directory: str, base_offset: int, log: File, position: int) -> str | None:
    """Copy the torn end of a .log file from ``position`` on, durably; the caller then truncates it. Returns
    the path of the copy, or None if there were only zeros."""
    cut = log.read_at(position, min(log.size_bytes() - position, MAX_KEPT_BYTES))
    if not cut.strip(b"\0"):
        return None
    path = _path_of(directory, base_offset, position)
    write_new_file(files, path, cut)
    files.flush_directory(directory)
    _drop_oldest(files, directory)
    return path


def keep_whole(files: Files, directory: str, base_offset: int, log: File, position: int) -> str | None:
    """Like :func:`keep_aside`, for bytes that may have been durable: keeps all of them for good."""
    path = _free_path(files, _path_of(directory, base_offset, position))
    copy = files.open(path + TEMPORARY_SUFFIX, create=True)
    try:
        copy.truncate(0)
        if not _copy(log, position, copy):
            files.remove(path + TEMPORARY_SUFFIX)
            return None
        copy.flush()
    finally:
        copy.close()
    files.rename(path + TEMPORARY_SUFFIX, path)
    files.flush_directory(directory)
    return path


def _copy(log: File, position: int, copy: File) -> bool:
    """Copy the bytes from ``position`` on, except pieces of zeros; returns whether there were any others."""
    has_any, end = False, log.size_bytes()
    for at in range(position, end, _PIECE_BYTES):
        piece = log.read_at(at, min(_PIECE_BYTES, end - at))
        if piece.strip(b"\0"):
            copy.write_at(at - position, [piece])
            has_any = True
    return has_any


def set_aside(files: Files, directory: str, base_offset: int) -> str:
    """Rename a whole .log file that lies behind a cut."""
    path = _free_path(files, _path_of(directory, base_offset, 0))
    files.rename(f"{directory}/{segment_file_name(base_offset, LOG_SUFFIX)}", path)
    return path


def _path_of(directory: str, base_offset: int, position: int) -> str:
    return f"{directory}/{segment_file_name(base_offset, '')}{TORN_MARK}{position:010d}"


def _free_path(files: Files, path: str) -> str:
    """An unused name for bytes that are kept for good: files of earlier cuts are not replaced."""
    path, number = path + KEPT_SUFFIX, 1
    free = path
    while files.is_file(free):
        number += 1
        free = f"{path}-{number}"
    return free


def aside_names(files: Files, directory: str) -> list[str]:
    """The names of the files with cut-off bytes."""
    return sorted(e.name for e in files.list_directory(directory) if TORN_MARK in e.name)


def _drop_oldest(files: Files, directory: str) -> None:
    kept = [name for name in aside_names(files, directory) if KEPT_SUFFIX not in name]
    by_age = sorted(kept, key=lambda name: files.modified_ms(f"{directory}/{name}"))
    for name in by_age[:-KEPT_FILES]:
        files.remove(f"{directory}/{name}")
