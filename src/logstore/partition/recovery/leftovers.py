"""Cleans up what a crash leaves in a partition's directory besides segments: unfinished replacements and
orphans.

Segments are replaced (by the cleaner, or by splitting one that outgrew its indexes) in steps. After each
step, this module finds either the old segments or the new ones in the directory, whole:

1. the new files are written as ``.cleaned`` and flushed: until all are there, the old ones count;
2. they are renamed to ``.swap``, the highest base first: while a ``.cleaned`` is left, the old ones count;
3. the old files are renamed to ``.deleted``: from here on the new ones count;
4. the ``.swap`` files get their plain names, the lowest base first and a ``.log`` before its indexes.

Finishing and undoing are as careful, because a crash may strike there too. The directory is flushed wherever
the order of two changes matters: a file system may make them durable in any order.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from logstore.files import Files
from logstore.format.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    SegmentFileName,
    parse_segment_file_names,
    segment_file_name,
)
from logstore.partition.segments.walk import PIECE_BYTES, Walk
from logstore.warning import warn

_METADATA_SNAPSHOT_DELETED = ".checkpoint.deleted"  # belongs to Kafka's metadata log
_INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

Names = dict[str, SegmentFileName]
"""File name -> parsed name, for the files of a partition that belong to segments."""


def list_segment_files(files: Files, directory: str) -> Names:
    """The files that belong to segments, in any state."""
    return parse_segment_file_names(list_files(files, directory))


def list_snapshots(files: Files, directory: str) -> list[int]:
    """The offsets of the producer snapshots, ascending."""
    return snapshot_offsets(list_segment_files(files, directory))


def list_files(files: Files, directory: str) -> list[str]:
    """The names of all files."""
    return [entry.name for entry in files.list_directory(directory) if not entry.is_directory]


def segment_bases(names: Names) -> list[int]:
    """Base offsets of the plain ``.log`` files, ascending."""
    return sorted(n.base_offset for n in names.values() if n.suffix == LOG_SUFFIX and not n.state)


def without_deleted(bases: list[int], log_start: int) -> list[int]:
    """Leave out the segments wholly below the log start. A power cut during their deletion may bring back one
    but not the next, or one with a torn end; neither says anything about the records that follow."""
    return bases[max(sum(base <= log_start for base in bases) - 1, 0) :]


def current_logs(files: Files, directory: str, names: Names) -> dict[int, str]:
    """The ``.log`` files that count, even during a replacement: base offset -> state, ascending. The state is
    that of a plain file, or ``.swap`` if the old files do not count any more."""
    bases = segment_bases(names)
    swapped = {
        names[name].base_offset: name for name in swapped_names(names) if names[name].suffix == LOG_SUFFIX
    }
    if swapped:
        low = min(swapped)
        high = max(_next_offset(files, f"{directory}/{name}", base) for base, name in swapped.items())
        bases = [base for base in bases if not low <= base < high]
    return {base: SWAP_SUFFIX if base in swapped else "" for base in sorted({*bases, *swapped})}


def swapped_names(names: Names) -> frozenset[str]:
    """The ``.swap`` files that count: those with a base offset below every ``.cleaned`` file."""
    unfinished = [name.base_offset for name in names.values() if name.state == CLEANED_SUFFIX]
    end = min(unfinished, default=None)
    return frozenset(
        name
        for name, parsed in names.items()
        if parsed.state == SWAP_SUFFIX and (end is None or parsed.base_offset < end)
    )


class SegmentFiles(NamedTuple):
    """What the segments of a log have on disk."""

    bases: list[int]
    """Of the segments, ascending."""
    snapshots: list[int]
    """Offsets of the producer snapshots, ascending."""
    with_aborted: frozenset[int]
    """The bases of the segments with a transaction index."""
    lost: list[int]
    """The bases of segments that were lost, ascending: their indexes are there."""


def clean_leftovers(
    files: Files,
    directory: str,
    found: Sequence[str] | None = None,
    *,
    durable_end: int = 0,
    log_start: int = 0,
) -> SegmentFiles:
    """Finish or undo what a crash interrupted, and return what remains. ``.tmp`` files are removed: they were
    never renamed, so their writes did not finish. That is durable at once: one that came back under the name
    of a new one could be renamed in its place by what a power cut leaves. ``found`` are the names of all
    files in the directory, if the caller has just listed them. ``durable_end``: index files without a log,
    between segments and below this offset, say that a segment was lost. They stay, and are warned of.
    ``log_start``: what lies wholly below it was deleted."""
    if found is None:
        found = list_files(files, directory)
    unfinished = [name for name in found if name.endswith(TEMPORARY_SUFFIX)]
    if unfinished:
        _remove_all(files, directory, unfinished)
        files.flush_directory(directory)
    names = parse_segment_file_names(found)
    if any(name.state for name in names.values()):
        _remove_indexes_of_deleted(files, directory, names)
        _remove_all(files, directory, _deleted(names))
        _remove_unfinished(files, directory, names)
        _finish_swap(files, directory, list_segment_files(files, directory))
        files.flush_directory(directory)
        names = list_segment_files(files, directory)
    bases = segment_bases(names)
    with_aborted, lost = _sort_out_orphans(
        files, directory, names, bases, without_deleted(bases, log_start), durable_end
    )
    _tell_lost(directory, lost)
    return SegmentFiles(bases, snapshot_offsets(names), with_aborted, list(lost))


def _remove_all(files: Files, directory: str, names: Sequence[str]) -> None:
    for name in names:
        files.remove(f"{directory}/{name}")


def _deleted(names: Names) -> list[str]:
    return [
        name
        for name, parsed in names.items()
        if parsed.state == DELETED_SUFFIX and not name.endswith(_METADATA_SNAPSHOT_DELETED)
    ]


def _remove_indexes_of_deleted(files: Files, directory: str, names: Names) -> None:
    """Remove the index files whose log was renamed to ``.deleted`` just before they were to be: as long as it
    is there, it shows that their segment is not lost."""
    indexes = [
        name
        for name, parsed in names.items()
        if parsed.suffix in _INDEX_SUFFIXES
        and not parsed.state
        and segment_file_name(parsed.base_offset, LOG_SUFFIX) not in names
        and segment_file_name(parsed.base_offset, LOG_SUFFIX) + DELETED_SUFFIX in names
    ]
    if indexes:
        _remove_all(files, directory, indexes)
        files.flush_directory(directory)
        for name in indexes:
            del names[name]


def deleted_names(files: Files, directory: str) -> list[str]:
    """The files that were renamed to ``.deleted`` and wait to be removed."""
    return sorted(_deleted(list_segment_files(files, directory)))


def _remove_unfinished(files: Files, directory: str, names: Names) -> None:
    """Undo a replacement that did not reach step 3. First remove the ``.swap`` files at or above the smallest
    ``.cleaned`` (those were renamed first), then all ``.cleaned``: as long as one of these is left, the
    ``.swap`` files count as unfinished."""
    cleaned = [name for name, parsed in names.items() if parsed.state == CLEANED_SUFFIX]
    if not cleaned:
        return
    smallest = min(names[name].base_offset for name in cleaned)
    swapped = [n for n, p in names.items() if p.state == SWAP_SUFFIX and p.base_offset >= smallest]
    if swapped:
        _remove_all(files, directory, swapped)
        files.flush_directory(directory)
    _remove_all(files, directory, cleaned)


def undo_replacement(files: Files, directory: str) -> None:
    """Remove the files of a replacement that has not reached step 3: at least one is ``.cleaned``, or there
    is no ``.cleaned`` and no ``.swap``."""
    _remove_unfinished(files, directory, list_segment_files(files, directory))


def remove_strays(files: Files, directory: str, finished: Collection[str]) -> None:
    """Before a replacement with the outputs ``finished`` (paths of ``.cleaned`` files), remove what is left
    of an abandoned one. Otherwise, after a crash, that would make this one look unfinished."""
    for name, parsed in list_segment_files(files, directory).items():
        if parsed.state in (CLEANED_SUFFIX, SWAP_SUFFIX) and f"{directory}/{name}" not in finished:
            files.remove(f"{directory}/{name}")


def _finish_swap(files: Files, directory: str, names: Names) -> None:
    """Repeat steps 3 and 4: remove the plain files that the outputs replace, then rename the outputs."""
    swapped = {name: parsed for name, parsed in names.items() if parsed.state == SWAP_SUFFIX}
    logs = sorted(name for name, parsed in swapped.items() if parsed.suffix == LOG_SUFFIX)
    if logs:
        low = min(swapped[name].base_offset for name in logs)
        high = max(_next_offset(files, f"{directory}/{name}", swapped[name].base_offset) for name in logs)
        replaced = [n for n, p in names.items() if not p.state and low <= p.base_offset < high]
        _remove_all(files, directory, replaced)
        files.flush_directory(directory)
    for name in logs:
        _give_plain_name(files, directory, name)
        files.flush_directory(directory)
    for name in swapped.keys() - logs:
        _give_plain_name(files, directory, name)


def _give_plain_name(files: Files, directory: str, name: str) -> None:
    files.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP_SUFFIX)}")


def _next_offset(files: Files, path: str, base_offset: int) -> int:
    """The offset after the last batch of a file."""
    file = files.open(path)
    next_offset = base_offset
    for piece in Walk(file.read_at, 0, file.size_bytes(), check=False, piece_bytes=PIECE_BYTES):
        next_offset = piece.batches[-1][1].next_offset
    file.close()
    return max(next_offset, base_offset + 1)


def _sort_out_orphans(
    files: Files, directory: str, names: Names, bases: list[int], present: list[int], durable_end: int
) -> tuple[frozenset[int], dict[int, str]]:
    """Remove index files whose log is gone, but not those of a segment that was lost: between those that are
    present. Returns which segments have a transaction index, and the bases of the lost ones, each with the
    name of an index."""
    there, lost = set(bases), {}
    for name, parsed in sorted(names.items()):
        if parsed.suffix in _INDEX_SUFFIXES and parsed.base_offset not in there:
            if present and present[0] < parsed.base_offset < min(present[-1], durable_end):
                lost[parsed.base_offset] = name
            else:
                files.remove(f"{directory}/{name}")
    with_aborted = [p.base_offset for p in names.values() if p.suffix == TRANSACTION_INDEX_SUFFIX]
    return frozenset(with_aborted) & there, lost


def _tell_lost(directory: str, lost: dict[int, str]) -> None:
    for base_offset, name in lost.items():
        warn(
            "%s: the segment of offset %d is missing: there is %s, but not its log. Restore its files from a "
            "copy while the store is closed; reopen(accept_loss=True) accepts the loss of its records",
            directory,
            base_offset,
            name,
        )


def snapshot_offsets(names: Names) -> list[int]:
    """Offsets of the producer snapshots, ascending."""
    return sorted(n.base_offset for n in names.values() if n.suffix == SNAPSHOT_SUFFIX and not n.state)
