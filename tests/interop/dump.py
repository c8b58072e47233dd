"""Kafka's own `DumpLogSegments` as a judge of segment files.

`dump_log` runs the tool over every file it understands and raises `DumpError` when the tool finds fault, so
that calling it is the check; what it printed comes back parsed for tests that compare further.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop.kafka import run_dump_tool

DUMPED_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")

_BATCH = re.compile(r"(?:baseOffset|offset): -?\d+ .*\bisvalid: \w+$")
_RECORD = re.compile(
    r"\| offset: (?P<offset>-?\d+) (?P<timestamp_type>\w+): (?P<timestamp>-?\d+)"
    r" keySize: (?P<key_size>-?\d+) valueSize: (?P<value_size>-?\d+)"
    r"(?: sequence: (?P<sequence>-?\d+) headerKeys: \[(?P<header_keys>.*?)\])?(?P<text>.*)",
    re.DOTALL,
)
_FIELD = re.compile(r"(\w+): (\S+)")
_FAULTS = ("isvalid: false", "isValid: false", "invalid bytes at the end of")
_BEGINNING = re.compile(r"  -1 is followed by \d+$")
_GAPS = "Non-consecutive offsets in "
_MISMATCHES = "Found timestamp mismatch in "
_NO_RECORDS = " log timestamp: -1"


class DumpError(AssertionError):
    """The tool failed or found fault; the message carries its output."""


@dataclass(frozen=True, kw_only=True)
class DumpedRecord:
    """One line of a deep dump. `text` is the rest of the line as printed: the marker, or key and payload."""

    offset: int
    timestamp_ms: int
    timestamp_type: str
    key_size: int
    value_size: int
    sequence: int | None
    header_keys: tuple[str, ...]
    text: str


@dataclass(frozen=True, kw_only=True)
class DumpedFile:
    """What the tool printed of one file.

    `batches` (of a .log) and `entries` (of the other files) hold the fields in the tool's own names and as it
    printed them: "baseOffset", "compresscodec", "position", "producerId" and so on.
    """

    path: Path
    batches: list[dict[str, str]] = field(default_factory=list)
    records: list[DumpedRecord] = field(default_factory=list)
    entries: list[dict[str, str]] = field(default_factory=list)


def dump_log(
    paths: Path | Iterable[Path],
    *,
    deep: bool = True,
    index_sanity: bool = True,
    allow_gaps: bool = False,
    allow_emptied: bool = False,
    decoder: str | None = None,
) -> dict[Path, DumpedFile]:
    """Dump files, or all segment files of partition directories; DumpError when the tool finds fault.

    The tool compares each index entry with the batch it points to, each time index entry with the batch's
    records, and checks batch checksums; with `deep` also every record. `index_sanity` adds a run of the check
    that a broker makes of indexes. Compaction leaves gaps and emptied batches: `allow_gaps` accepts missing
    offsets (seen only with `deep`), `allow_emptied` time index entries of batches that have kept their
    timestamp and no record. `decoder` is the option that makes it decode the records of an internal topic.
    An index needs its .log beside it, a time index also its .index.
    """
    files = _segment_files([paths] if isinstance(paths, Path) else paths)
    options = ["--deep-iteration", "--print-data-log"] if deep else []
    if decoder is not None:
        options.append(decoder)
    dumped = _parse(_run(files, options, allow_gaps=allow_gaps, allow_emptied=allow_emptied))
    missing = set(files) - set(dumped)
    if missing:
        raise DumpError(f"the tool passed over {sorted(missing)}")
    indexes = [path for path in files if path.suffix in {".index", ".timeindex"}]
    if index_sanity and indexes:
        _run(indexes, ["--index-sanity-check"])
    return dumped


def _segment_files(paths: Iterable[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        found = sorted(path.iterdir()) if path.is_dir() else [path]
        files += [each.absolute() for each in found if each.suffix in DUMPED_SUFFIXES]
    if not files:
        raise ValueError(f"nothing to dump in {paths}")
    return files


def _run(
    files: list[Path], options: list[str], *, allow_gaps: bool = False, allow_emptied: bool = False
) -> str:
    """The tool's stdout, once its status, stdout and stderr show no fault."""
    names = ",".join(os.fspath(path) for path in files)
    if names.count(",") != len(files) - 1:
        raise ValueError(f"the tool separates names by commas, so it cannot take {names}")
    done = run_dump_tool(*options, "--files", names)
    complaints = list(_complaints(done.stderr, allow_gaps=allow_gaps, allow_emptied=allow_emptied))
    # A payload may hold these words too; the tests' payloads do not.
    faults = [line for line in done.stdout.splitlines() if any(fault in line for fault in _FAULTS)]
    if done.returncode != 0 or complaints or faults:
        found = "\n".join(complaints + faults)
        raise DumpError(
            f"exit status {done.returncode} for {names}\n{found}\n--- stdout\n{done.stdout[-8000:]}"
        )
    return done.stdout


def _complaints(stderr: str, *, allow_gaps: bool, allow_emptied: bool) -> Iterator[str]:
    heading = ""
    lines = stderr.splitlines()
    for number, line in enumerate(lines):
        if not line.startswith("  "):
            heading = line
        # The tool of 4.x may take the beginning of a file for a gap; then it names nothing else.
        if _BEGINNING.match(line) or (line.startswith(_GAPS) and _only_beginning(lines[number + 1 :])):
            continue
        # The JVM itself names the options it takes from the environment.
        is_gap = heading.startswith(_GAPS)
        is_emptied = heading.startswith(_MISMATCHES) and (line is heading or line.endswith(_NO_RECORDS))
        is_allowed = (is_gap and allow_gaps) or (is_emptied and allow_emptied)
        if line and not line.startswith("Picked up ") and not is_allowed:
            yield line


def _only_beginning(lines: list[str]) -> bool:
    """Whether what is told under a heading is no more than the beginning of the file."""
    told = list(itertools.takewhile(lambda line: line.startswith("  "), lines))
    return bool(told) and all(_BEGINNING.match(line) for line in told)


def _parse(stdout: str) -> dict[Path, DumpedFile]:
    dumped: dict[Path, DumpedFile] = {}
    current: DumpedFile | None = None
    for entry in _entries(stdout):
        if entry.startswith("Dumping "):
            current = DumpedFile(path=Path(entry.removeprefix("Dumping ")))
            dumped[current.path] = current
        elif current is None or entry.startswith(("Log starting offset: ", "Snapshot end offset: ")):
            continue
        elif entry.startswith("| "):
            current.records.append(_record(entry))
        elif _BATCH.match(entry):
            current.batches.append(dict(_FIELD.findall(entry)))
        elif not entry.endswith((" is empty.", " passed sanity check.")):
            current.entries.append(dict(_FIELD.findall(entry)))
    return dumped


def _entries(stdout: str) -> Iterator[str]:
    """The printed lines, with the lines of a payload that holds line ends joined to their record again."""
    pending: list[str] = []
    for line in stdout.split("\n"):
        starts = line.startswith(("| offset: ", "Dumping ")) or _BATCH.match(line) is not None
        if pending and pending[0].startswith("| ") and not starts:
            pending.append(line)
            continue
        if pending:
            yield "\n".join(pending).rstrip("\n")
        pending = [line] if line else []
    if pending:
        yield "\n".join(pending).rstrip("\n")


def _record(entry: str) -> DumpedRecord:
    match = _RECORD.match(entry)
    if match is None:
        raise DumpError(f"a record line of an unknown form: {entry}")
    return DumpedRecord(
        offset=int(match["offset"]),
        timestamp_ms=int(match["timestamp"]),
        timestamp_type=match["timestamp_type"],
        key_size=int(match["key_size"]),
        value_size=int(match["value_size"]),
        sequence=None if match["sequence"] is None else int(match["sequence"]),
        header_keys=tuple(match["header_keys"].split(",")) if match["header_keys"] else (),
        text=match["text"].strip(),
    )
