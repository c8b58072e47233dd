"""Checkpoint files: small text tables of offsets by partition, or of start offsets by leader epoch.

Knows the text. Does not know what the offsets are for, nor how a file is replaced safely.

::

    0            version
    2            number of entries
    foo 0 1523   topic, partition, offset        (leader-epoch-checkpoint: epoch, start offset)
    foo 1 88
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, NoReturn

from logstore.errors import CorruptionError, InvalidTopicError, UnsupportedVersionError, UsageError
from logstore.format.names import MAX_OFFSET, MAX_PARTITION, check_topic_name
from logstore.model import Bytes, TopicPartition

CHECKPOINT_VERSION = 0

MAX_CHECKPOINT_BYTES = 16 * 1024 * 1024
"""Larger files are refused unread. A line has at most 281 bytes, so 59,000 partitions always fit; with names
of 20 characters, half a million fit."""

_MAX_INT32 = 2**31 - 1
_LINE = re.compile(r"([^\n]*)\n")


class EpochEntry(NamedTuple):
    """A leader epoch and the first offset that was written in it."""

    epoch: int
    start_offset: int


def encode_offset_checkpoint(offsets: Mapping[TopicPartition, int]) -> bytes:
    """One line for each partition, sorted so that equal mappings are equal files.

    Raises:
        UsageError: an offset below 0, which no reader would take.
    """
    lines = [f"{of.topic} {of.partition} {_check_offset(offset)}" for of, offset in sorted(offsets.items())]
    return _encode(lines)


def encode_offset_checkpoints(tables: Mapping[str, Mapping[TopicPartition, int]]) -> dict[str, bytes]:
    """:func:`encode_offset_checkpoint` for each of several, by name."""
    return {name: encode_offset_checkpoint(offsets) for name, offsets in tables.items()}


def decode_offset_checkpoint(buffer: Bytes) -> dict[TopicPartition, int]:
    """Offsets by partition. An empty file is an empty mapping.

    Raises:
        CorruptionError: a line that does not parse (names its number), a partition that comes twice, a
            wrong count, a version below 0, or more than MAX_CHECKPOINT_BYTES.
        UnsupportedVersionError: a version above 0.
    """
    offsets: dict[TopicPartition, int] = {}
    for line_number, fields in _lines(buffer, field_count=3):
        partition = TopicPartition(fields[0], _number(fields[1], MAX_PARTITION, line_number))
        _check_topic(partition.topic, line_number)
        if partition in offsets:
            _fail(line_number, f"{partition} comes twice")
        offsets[partition] = _number(fields[2], MAX_OFFSET, line_number)
    return offsets


def encode_epoch_checkpoint(entries: Sequence[EpochEntry]) -> bytes:
    """One line for each leader epoch, in the order given, which must be rising."""
    return _encode([f"{epoch} {start_offset}" for epoch, start_offset in entries])


def decode_epoch_checkpoint(buffer: Bytes) -> list[EpochEntry]:
    """Leader epochs with their start offsets, both strictly rising. An empty file is an empty list.

    Raises:
        CorruptionError: as for :func:`decode_offset_checkpoint`, and for entries that do not rise.
        UnsupportedVersionError: a version above 0.
    """
    entries: list[EpochEntry] = []
    last = EpochEntry(-1, -1)
    for line_number, fields in _lines(buffer, field_count=2):
        epoch = _number(fields[0], _MAX_INT32, line_number)
        entry = EpochEntry(epoch, _number(fields[1], MAX_OFFSET, line_number))
        if entry.epoch <= last.epoch or entry.start_offset <= last.start_offset:
            _fail(line_number, f"epoch and start offset must rise, {tuple(entry)} follows {tuple(last)}")
        entries.append(entry)
        last = entry
    return entries


def _encode(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in [str(CHECKPOINT_VERSION), str(len(lines)), *lines]).encode()


def _check_offset(offset: int) -> int:
    """Refuse to write what could not be read back."""
    if not 0 <= offset <= MAX_OFFSET:
        raise UsageError(f"a checkpoint cannot hold offset {offset}")
    return offset


def _lines(buffer: Bytes, field_count: int) -> Iterator[tuple[int, list[str]]]:
    """Line number and fields of each entry. Checks the version and the count first."""
    if len(buffer) == 0:
        return
    if len(buffer) > MAX_CHECKPOINT_BYTES:
        raise CorruptionError(f"checkpoint has {len(buffer)} bytes; the limit is {MAX_CHECKPOINT_BYTES}")
    version_line, _, rest = _text(buffer).partition("\n")
    _check_version(version_line)
    count_line, _, rest = rest.partition("\n")
    entry_count = _number(count_line, _MAX_INT32, 2)
    if rest and not rest.endswith("\n"):
        rest += "\n"
    line_count = rest.count("\n")
    if entry_count != line_count:
        raise CorruptionError(f"checkpoint says it has {entry_count} entries; {line_count} lines follow")
    for line_number, match in enumerate(_LINE.finditer(rest), start=3):
        fields = match[1].split(" ", field_count)
        if len(fields) != field_count:
            _fail(line_number, f"{_shown(match[1])} does not have {field_count} fields")
        yield line_number, fields


def _text(buffer: Bytes) -> str:
    """The text. Kafka writes only ASCII here. A carriage return before a line's end is dropped, for files
    saved with a Windows editor."""
    try:
        return bytes(buffer).decode("ascii").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise CorruptionError("checkpoint is not ASCII text", position=error.start) from None


def _check_version(line: str) -> None:
    version = _number(line, _MAX_INT32, 1)
    if version > CHECKPOINT_VERSION:
        raise UnsupportedVersionError(f"checkpoint has version {version}; only {CHECKPOINT_VERSION} is known")


def _check_topic(topic: str, line_number: int) -> None:
    try:
        check_topic_name(topic)
    except InvalidTopicError as error:
        _fail(line_number, str(error))


def _number(text: str, limit: int, line_number: int) -> int:
    """Plain decimal digits; Python's int() would also take signs, spaces, underscores and other scripts."""
    if not text.isdecimal() or len(text) > 19 or int(text) > limit:
        _fail(line_number, f"{_shown(text)} is not a number from 0 to {limit}")
    return int(text)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:80] + "...")


def _fail(line_number: int, reason: str) -> NoReturn:
    raise CorruptionError(f"checkpoint line {line_number}: {reason}")
