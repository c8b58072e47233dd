"""Text that does nothing to a terminal.

A key, a value, a header or the name of a file may hold anything: control characters, escape sequences, marks
that turn the direction of writing, halves of characters. What is not printable is written as a backslash
escape, as in Python, and a backslash as two, so that what was there can be told from what is shown.
"""

from __future__ import annotations

import json
import re
from typing import Any

_SHORT = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_NULL = "\\N"
"""As PostgreSQL's COPY writes it: no text comes out like this."""
_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(", ", ": ")).encode
_ESCAPED_BYTES = range(0xDC80, 0xDD00)
"""What Python makes of bytes that are no UTF-8 (PEP 383): half characters, which UTF-8 cannot hold."""


def escaped(text: str) -> str:
    """The text as one line of printable characters."""
    if text.isprintable() and "\\" not in text:
        return text
    return "".join([each if each.isprintable() and each != "\\" else _escape(each) for each in text])


def _escape(character: str) -> str:
    if character in _SHORT:
        return _SHORT[character]
    code = ord(character)
    if code in _ESCAPED_BYTES:
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def escaped_bytes(data: bytes | None) -> str:
    """Bytes as text: UTF-8, and where they are none ``\\xNN``; ``\\N`` for null."""
    return _NULL if data is None else escaped(data.decode("utf-8", "surrogateescape"))


def json_text(value: Any) -> str:
    """One line of JSON, in which characters that are not printable are escaped too: JSON itself lets most of
    them be."""
    text = _ENCODE(value)
    return text if text.isprintable() else _UNPRINTABLE.sub(_json_escape, text)


_UNPRINTABLE = re.compile(r"[^ -~]")


def _json_escape(match: re.Match[str]) -> str:
    character = match[0]
    if character.isprintable():
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join([f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)])
