"""Messages come back as they were, in every version. Hostile bytes raise our error, and take no memory."""

from __future__ import annotations

import uuid
from typing import Annotated, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import CorruptionError, UnsupportedVersionError, UsageError
from logstore.format.messages.fields import (
    NO_UUID,
    Bool,
    Data,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    String,
    Uuid,
    since,
    tagged,
    until,
)
from logstore.format.messages.message import Message


class Inner(NamedTuple):
    name: String = ""
    numbers: tuple[Int32, ...] = ()
    note: Annotated[String | None, tagged(0)] = None


class Outer(NamedTuple):
    flag: Bool = False
    small: Int8 = 0
    old: Annotated[Int16, until(1)] = -1
    new: Annotated[Int64, since(1)] = -1
    between: Annotated[Int8, since(1), until(2)] = -1
    identity: Uuid = NO_UUID
    text: String | None = None
    inners: tuple[Inner, ...] | None = None
    one: Annotated[Inner | None, since(2)] = None
    data: Data = b""
    records: Records | None = None
    extra: Annotated[Int32, tagged(1)] = 7
    names: Annotated[tuple[String, ...], tagged(0)] = ()


MESSAGE = Message(Outer, 0, 3, flexible=2)

_text = st.text(max_size=200)
_inner = st.builds(
    Inner,
    name=_text,
    numbers=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3).map(tuple),
    note=st.none() | _text,
)
_outer = st.builds(
    Outer,
    flag=st.booleans(),
    small=st.integers(-128, 127),
    old=st.integers(-(2**15), 2**15 - 1),
    new=st.integers(-(2**63), 2**63 - 1),
    between=st.integers(-128, 127),
    identity=st.uuids(),
    text=st.none() | _text,
    inners=st.none() | st.lists(_inner, max_size=3).map(tuple),
    one=st.none() | _inner,
    data=st.binary(max_size=300),
    records=st.none() | st.binary(max_size=300),
    extra=st.integers(-(2**31), 2**31 - 1),
    names=st.lists(_text, max_size=2).map(tuple),
)


def _as_of(message: Outer, version: int) -> Outer:
    """What a version keeps of a message."""
    kept = message
    if version > 1:
        kept = kept._replace(old=-1)
    if version < 1:
        kept = kept._replace(new=-1)
    if not 1 <= version <= 2:
        kept = kept._replace(between=-1)
    if version < 2:
        inners = None if kept.inners is None else tuple(inner._replace(note=None) for inner in kept.inners)
        kept = kept._replace(one=None, extra=7, names=(), inners=inners)
    return kept


@given(_outer, st.integers(0, 3), st.binary(max_size=5))
def test_a_message_comes_back(message, version, before):
    encoded = MESSAGE.encode(message, version)
    decoded, end = MESSAGE.decode(before + encoded + b"x", version, len(before))
    assert decoded == _as_of(message, version)
    assert end == len(before) + len(encoded)


@given(_outer, st.integers(0, 3), st.data())
def test_changed_bytes_raise_only_our_error(message, version, data):
    encoded = bytearray(MESSAGE.encode(message, version))
    cut = data.draw(st.integers(0, len(encoded)))
    if data.draw(st.booleans()):
        del encoded[cut:]
    elif cut < len(encoded):
        encoded[cut] ^= data.draw(st.integers(1, 255))
    try:
        decoded, _ = MESSAGE.decode(encoded, version)
    except CorruptionError:
        return
    MESSAGE.encode(decoded, version)  # it is a message


def test_the_bytes_of_plain_and_of_flexible_versions():
    message = Inner("ab", (1, -1), "n")
    inner = Message(Inner, 0, 1, flexible=1)
    assert inner.encode(message, 0) == b"\0\2ab\0\0\0\2\0\0\0\1\xff\xff\xff\xff"
    assert inner.encode(message, 1) == b"\3ab\3\0\0\0\1\xff\xff\xff\xff\1\0\2\2n"


def test_an_unknown_tag_is_passed_over():
    inner = Message(Inner, 0, 1, flexible=1)
    assert inner.decode(b"\1\1\2\0\2\2n\x63\3xyz", 1) == (Inner(note="n"), 12)


@pytest.mark.parametrize("length", [b"\x7f\xff\xff\xff", b"\x00\x00\x00\x05", b"\xff\xff\xff\xff"])
def test_a_length_is_held_against_what_is_there(length):
    with pytest.raises(CorruptionError, match=r"Inner version 0 has .*numbers"):
        Message(Inner, 0, 0).decode(b"\0\0" + length, 0)


def test_records_are_not_copied():
    data = b"r" * 1000
    parts = MESSAGE.encode_parts(Outer(records=data), 3)
    assert any(part is data for part in parts)
    buffer = b"".join(parts)
    decoded, _ = MESSAGE.decode(buffer, 3)
    assert isinstance(decoded.records, memoryview)
    assert decoded.records.obj is buffer


def test_errors_name_the_message_and_the_field():
    with pytest.raises(UnsupportedVersionError, match="Outer has version 4; 0 to 3 are known"):
        MESSAGE.encode(Outer(), 4)
    with pytest.raises(UsageError, match="name has 32768 bytes; 32767 are allowed"):
        MESSAGE.encode(Outer(one=Inner("x" * 32_768)), 3)
    with pytest.raises(UsageError, match="data is None; it must have a value"):
        MESSAGE.encode(Outer(data=None), 0)
    with pytest.raises(UsageError, match="Outer version 0 cannot be encoded"):
        MESSAGE.encode(Outer(small=128), 0)
    with pytest.raises(UsageError, match=r"Outer version 0 cannot be encoded: .*surrogates not allowed"):
        MESSAGE.encode(Outer(text="\ud800"), 0)
    assert MESSAGE.decode(MESSAGE.encode(Outer(identity=uuid.UUID(int=5)), 0), 0)[0].identity.int == 5
