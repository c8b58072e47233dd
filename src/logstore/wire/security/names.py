"""The name of a certificate's owner as text (RFC 2253), from the certificate's bytes, as Kafka gets it from
Java: it is the principal of a client that has shown a certificate.

Bytes in, text out. The certificate was checked by TLS before; this reads only as much DER as it needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from logstore.errors import UsageError

ANONYMOUS: Final = "User:ANONYMOUS"
"""Who a client is that has shown nothing."""

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
"""All that RFC 2253 names. Others are written as numbers, with their bytes."""
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_AROUND: Final = " \r"
"""Escaped at the beginning and the end."""
_TEXTS: Final = {
    12: "utf-8",  # UTF8String
    19: "ascii",  # PrintableString
    20: "latin-1",  # T61String
    22: "ascii",  # IA5String
    27: "ascii",  # GeneralString
    28: "utf-32-be",  # UniversalString
    30: "utf-16-be",  # BMPString
}
_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_OID: Final = 0x06
_VERSION: Final = 0xA0
_FIELDS_BEFORE_SUBJECT: Final = 4
"""Serial number, algorithm, issuer, validity."""

_Item = tuple[int, bytes, bytes]
"""A tag, the contents, and all bytes of a piece of DER."""


def principal_of(certificate: bytes | None) -> str:
    """Who has shown a certificate (DER, as ``getpeercert(binary_form=True)`` returns it), such as
    ``User:CN=alice,O=Acme``; ``User:ANONYMOUS`` for None.

    Raises:
        UsageError: it is no certificate.
    """
    return ANONYMOUS if certificate is None else f"User:{subject_of(certificate)}"


def subject_of(certificate: bytes) -> str:
    """The name of the owner.

    Raises:
        UsageError: it is no certificate.
    """
    ((_, whole, _),) = _items(certificate, _SEQUENCE, count=1)
    _, signed, _ = _items(whole)[0]
    fields = _items(signed)
    if fields and fields[0][0] == _VERSION:
        del fields[0]
    if len(fields) <= _FIELDS_BEFORE_SUBJECT:
        raise UsageError("a certificate without a subject")
    return format_name(fields[_FIELDS_BEFORE_SUBJECT][2])


def format_name(name: bytes) -> str:
    """An X.501 name in DER as RFC 2253 writes it: the last part first.

    Raises:
        UsageError: it is none.
    """
    ((_, parts, _),) = _items(name, _SEQUENCE, count=1)
    if not parts:
        return ""
    return ",".join(
        "+".join(_format_attribute(attribute) for _, attribute, _ in _items(part, _SEQUENCE))
        for _, part, _ in reversed(_items(parts, _SET))
    )


def _format_attribute(attribute: bytes) -> str:
    kind, value = _items(attribute, count=2)
    if kind[0] != _OID:
        raise UsageError("a name in a certificate has an attribute without a type")
    number = ".".join(map(str, _numbers(kind[1])))
    keyword = _KEYWORDS.get(number)
    encoding = _TEXTS.get(value[0])
    if keyword is None or encoding is None:
        return f"{keyword or number}=#{value[2].hex()}"
    return f"{keyword}={_escape(value[1].decode(encoding, 'replace'))}"


def _escape(text: str) -> str:
    """As Java does it, which also escapes what RFC 2253 does not ask for."""
    inner = text.strip(_AROUND)
    lead = len(text) - len(text.lstrip(_AROUND))
    middle = text[lead : lead + len(inner)]
    escaped = "".join(
        f"\\{each}" if each in _ESCAPED else "\\00" if each == "\0" else each for each in middle
    )
    before, after = text[:lead], text[lead + len(inner) :]
    return "".join(f"\\{each}" for each in before) + escaped + "".join(f"\\{each}" for each in after)


def _numbers(encoded: bytes) -> Iterator[int]:
    """The numbers of an object identifier; the first two share one."""
    number, is_first = 0, True
    for each in encoded:
        number = number << 7 | each & 0x7F
        if each & 0x80:
            continue
        if is_first:
            first = min(number // 40, 2)
            yield first
            number -= 40 * first
            is_first = False
        yield number
        number = 0


def _items(data: bytes, tag: int | None = None, *, count: int | None = None) -> list[_Item]:
    """The pieces of DER that follow each other.

    Raises:
        UsageError: it is none, or a piece has another tag, or there are more or fewer.
    """
    found = []
    position = 0
    while position < len(data):
        start = position
        contents, position = _bounds(data, start)
        found.append((data[start], data[contents:position], data[start:position]))
    if tag is not None and any(each[0] != tag for each in found):
        found = []
    if not found or count not in (None, len(found)):
        raise UsageError("a certificate is malformed")
    return found


def _bounds(data: bytes, start: int) -> tuple[int, int]:
    """Where the contents of a piece begin and end."""
    contents = start + 2
    size = data[start + 1] if contents <= len(data) else len(data)
    if size & 0x80:
        size_bytes = size & 0x7F
        size = int.from_bytes(data[contents : contents + size_bytes], "big")
        contents += size_bytes
    if contents + size > len(data):
        raise UsageError("a certificate is malformed: it ends early")
    return contents, contents + size
