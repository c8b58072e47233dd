"""What objects look like in a notebook: small tables in HTML.

Knows rows, columns, and how a value becomes text that is safe in a page; the classes say what is in a row.
Sets no colours, so that tables are readable on light and dark pages. Rows, and the characters of a cell, are
limited. Nothing here raises because of what it shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from enum import Enum
from html import escape
from itertools import islice
from typing import Any, Final, NamedTuple

MOST_ROWS: Final = 50
"""The most rows of a table that are shown."""
MOST_LOGS: Final = 200
"""How many partitions are looked at to show a store."""
LAST_RECORDS: Final = 5
"""How many records are read to show a log."""
_MOST_CHARACTERS: Final = 400
_MOST_BYTES: Final = 100
_MOST_ITEMS: Final = 10

_TABLE = "border-collapse:collapse;margin:0.3em 0"
_CELL = "padding:0.1em 0.8em 0.1em 0;vertical-align:top"
_HEADING = f"{_CELL};border-bottom:1px solid currentColor"


class Table(NamedTuple):
    """Rows under headings."""

    headings: Sequence[str]
    rows: Iterable[Sequence[object]]
    """The first MOST_ROWS are taken."""
    total: int | None = None
    """How many rows there are, if that is known without making them."""


def show(title: str, parts: Iterable[Table | str]) -> str:
    """A title, and below it tables and lines of text. If ``parts`` raises, the error is shown as the last
    line."""
    lines = [f"<b>{_safe(title)}</b>"]
    try:
        for part in parts:
            lines.append(_html_of(part) if isinstance(part, Table) else f"<div>{_safe(part)}</div>")
    except Exception as error:
        lines.append(f"<div>{_safe(describe_error(error))}</div>")
    return f"<div>{''.join(lines)}</div>"


def attempt(name: object, read: Callable[[], Sequence[object]]) -> Sequence[object]:
    """A row that begins with a name. If the rest cannot be read, the row says why."""
    try:
        return (name, *read())
    except Exception as error:
        return (name, describe_error(error))


def describe_error(error: Exception) -> str:
    """The error's class and message."""
    return f"{type(error).__name__}: {_text_of(error)}"


def show_record(record: Any) -> str:
    """A record as a table, one line for each attribute."""
    return show("Record", _parts_of_record(record))


def _parts_of_record(record: Any) -> Iterator[Table | str]:
    yield Table(
        ("", ""),
        [
            ("topic", record.topic),
            ("partition", record.partition),
            ("offset", record.offset),
            ("timestamp", _time_of(record)),
            ("timestamp_type", record.timestamp_type),
            ("leader_epoch", record.leader_epoch),
            ("key", record.key),
            ("value", record.value),
        ],
    )
    if record.headers:
        yield Table(("header", "value"), record.headers, len(record.headers))


def table_of_records(records: Iterable[Any]) -> Table:
    """Records, one line each."""
    return Table(
        ("offset", "timestamp", "key", "value", "headers"),
        [(each.offset, _time_of(each), each.key, each.value, each.headers) for each in records],
    )


def show_report(report: Any, title: str | None = None, **details: Table) -> str:
    """A report that is a dataclass: its fields, except those that are 0 or empty. ``details`` has the tables
    that replace fields."""
    return show(title or type(report).__name__, _parts_of_report(report, details))


def _parts_of_report(report: Any, details: Mapping[str, Table]) -> Iterator[Table]:
    rows = [(each.name, getattr(report, each.name)) for each in fields(report) if each.name not in details]
    yield Table(("", ""), [row for row in rows if type(row[1]) is bool or row[1] not in (0, (), [], None)])
    yield from (table for name, table in details.items() if getattr(report, name))


def table_of_findings(title: str, findings: Sequence[Any], count: int) -> Table:
    """What a check found, with what to do next."""
    return Table(
        (title, "reason", "path", "position", "offset", "next step"),
        (
            (each.kind.value, each.reason, each.path, each.position, each.base_offset, each.next_step)
            for each in findings
        ),
        count,
    )


def table_of_fields(values: Sequence[Any]) -> Table:
    """Dataclasses of one type, one line each."""
    names = [field.name for field in fields(values[0])] if values else []
    return Table(names, ([getattr(value, name) for name in names] for value in values), len(values))


def _time_of(record: Any) -> object:
    try:
        return record.timestamp
    except OverflowError:
        return f"{record.timestamp_ms} ms"


# Text


def _html_of(table: Table) -> str:
    rows = list(islice(table.rows, MOST_ROWS + 1))
    shown = rows[:MOST_ROWS]
    width = len(table.headings)
    heading = "".join(f'<th style="{_HEADING};text-align:left">{_safe(each)}</th>' for each in table.headings)
    head = f"<thead><tr>{heading}</tr></thead>" if any(table.headings) else ""
    body = "".join(_row_of(row, width) for row in shown)
    more = len(rows) > MOST_ROWS or (table.total or 0) > len(shown)
    rest = "more" if table.total is None else f"{table.total - len(shown):,} more"
    note = f"<div>and {rest}</div>" if more else ""
    return f'<table style="{_TABLE}">{head}<tbody>{body}</tbody></table>{note}'


def _row_of(row: Sequence[object], width: int) -> str:
    cells = []
    for number, value in enumerate(row, 1):
        span = f' colspan="{width - number + 1}"' if number == len(row) < width else ""
        side = "right" if type(value) is int and width > 2 else "left"
        cells.append(f'<td{span} style="{_CELL};text-align:{side}">{_safe(_text_of(value))}</td>')
    return f"<tr>{''.join(cells)}</tr>"


def _text_of(value: object) -> str:
    """A value in one line. A type's own ``__str__`` may fail; then the type is named."""
    try:
        if type(value) is int:
            return f"{value:,}"
        if isinstance(value, bytes):
            cut = len(value) > _MOST_BYTES
            return f"{value[:_MOST_BYTES]!r}... {len(value):,} bytes" if cut else repr(value)
        if isinstance(value, datetime):
            return f"{value:%Y-%m-%d %H:%M:%S}.{value.microsecond // 1000:03} UTC"
        if isinstance(value, Enum):
            return value.name
        if type(value) in (tuple, list):
            return _list_of(value)
        return "-" if value is None else str(value)
    except Exception:
        return f"a {type(value).__name__}"


def _list_of(values: Any) -> str:
    first = ", ".join(map(_item_of, values[:_MOST_ITEMS]))
    return f"{first}, ... {len(values):,} in all" if len(values) > _MOST_ITEMS else first


def _item_of(value: object) -> str:
    """A header as ``key: value``; anything else as :func:`_text_of` shows it."""
    if type(value) is tuple and len(value) == 2:
        return f"{_cut(_text_of(value[0]))}: {_text_of(value[1])}"
    return _text_of(value)


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."


def _safe(text: str) -> str:
    """Text for a page: cut, and with everything escaped that a page or a terminal could act on."""
    printable = "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in _cut(text)
    )
    return escape(_cut(printable))
