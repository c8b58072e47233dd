"""Records as they are written: lines of text, JSON lines, or the bytes of their values."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, Final

from logstore.cli import streams
from logstore.cli.errors import WRONG, CommandError
from logstore.cli.escaping import escaped, escaped_bytes, json_text
from logstore.cli.options import Format
from logstore.cli.output import Output, Shape
from logstore.cli.times import format_time
from logstore.model import Record

RECORD: Final = Shape(
    "a record (`cat`, `tail`)",
    topic="the topic",
    partition="number of the partition",
    offset="the record's",
    timestamp_ms="milliseconds since 1970; -1 where it has none",
    key="text; null where there is none",
    value="text; null is a tombstone in a compacted topic",
    headers="a list of objects with `key` and `value`, in their order",
)
ENCODINGS: Final = {
    "key_encoding": "`base64` where the key is no UTF-8; else the field is not there",
    "value_encoding": "the same for the value, and in a header for its value",
}
"""Fields of a record that are there where they are needed."""

WriteRecord = Callable[[Record], None]


def record_writer(out: Output, form: Format, *, json: bool) -> WriteRecord:
    """``json``: whether ``--json`` was given, which is short for ``--format json``.

    Raises:
        CommandError: raw bytes would reach a terminal, or are asked for together with ``--json``.
    """
    if json and form is Format.RAW:
        raise CommandError("--json and --format raw exclude each other; leave out one of them", WRONG)
    if json or form is Format.JSON:
        return _write_json
    if form is Format.RAW:
        if out.is_terminal:
            raise CommandError(
                "the bytes of values may do anything to a terminal; redirect them, or leave out --format raw",
                WRONG,
            )
        return _write_raw
    before, after = out.painted("|", "cyan").split("|")

    def write_text(record: Record) -> None:
        time = format_time(record.timestamp_ms) or "-"
        line = (
            f"{record.partition}  {record.offset}  {time}  {before}{escaped_bytes(record.key)}{after}  "
            f"{escaped_bytes(record.value)}"
        )
        if record.headers:
            shown = [f"{escaped(key)}={escaped_bytes(value)}" for key, value in record.headers]
            line = f"{line}  {{{', '.join(shown)}}}"
        streams.write(f"{line}\n")

    return write_text


def _write_raw(record: Record) -> None:
    streams.write_bytes(record.value or b"")
    streams.write_bytes(b"\n")


def _write_json(record: Record) -> None:
    streams.write(f"{json_text(record_object(record))}\n", "utf-8")


def record_object(record: Record) -> dict[str, Any]:
    """A record as JSON has it."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **_text("key", record.key),
        **_text("value", record.value),
        "headers": [{"key": key, **_text("value", value)} for key, value in record.headers],
    }


def _text(name: str, data: bytes | None) -> dict[str, str | None]:
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        return {name: base64.b64encode(data or b"").decode(), f"{name}_encoding": "base64"}
