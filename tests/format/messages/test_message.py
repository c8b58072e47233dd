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
    ClassicString,
    Data,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    String,
    Uuid,
    needs,
    null_since,
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


class Late(NamedTuple):
    name: Annotated[String | None, null_since(1)] = ""
    regex: Annotated[String | None, needs(1)] = None
    topics: Annotated[tuple[String, ...], needs(0, 1)] = ()
    label: ClassicString | None = None
    rates: tuple[Float64, ...] = ()


LATE = Message(Late, 0, 2, flexible=2)


def test_what_a_version_has_no_place_for():
    assert LATE.decode(LATE.encode(Late(regex="r"), 1), 1)[0].regex == "r"
    with pytest.raises(
        UnsupportedVersionError, match=r"Late version 0 has no regex, which is in versions 1\+"
    ):
        LATE.encode(Late(regex="r"), 0)
    with pytest.raises(
        UnsupportedVersionError, match="Late version 2 has no topics, which is in versions 0-1"
    ):
        LATE.encode(Late(topics=("t",)), 2)
    assert LATE.decode(LATE.encode(Late(), 2), 2)[0] == Late()


def test_null_where_a_version_allows_it():
    assert LATE.decode(LATE.encode(Late(name=None), 1), 1)[0].name is None
    with pytest.raises(UsageError, match="name is None; it must have a value"):
        LATE.encode(Late(name=None), 0)
    with pytest.raises(CorruptionError, match="Late version 0 has no name"):
        LATE.decode(LATE.encode(Late(name=None), 1), 0)


def test_a_classic_string_and_an_array_of_numbers_in_a_flexible_version():
    message = Late("n", None, (), "ab", (1.5, -0.0))
    encoded = LATE.encode(message, 2)
    assert encoded == b"\2n\0\0\2ab\3" + bytes.fromhex("3ff80000000000008000000000000000") + b"\0"
    assert LATE.decode(encoded, 2) == (message, len(encoded))


def test_a_count_is_held_against_the_least_size_of_its_elements():
    """Of 17 bytes that are left, two doubles may be, and no more: three would take 24."""
    encoded = LATE.encode(Late(rates=(0.0, 0.0)), 0)
    more = encoded.replace(b"\0\0\0\2" + bytes(16), b"\0\0\0\3" + bytes(17))
    with pytest.raises(CorruptionError, match="Late version 0 has 3 rates in 17 bytes"):
        LATE.decode(more, 0)


class Sent(NamedTuple):
    before: Int8 = 0
    records: Records | None = None


def test_records_are_the_same_object_behind_their_length():
    sent = Message(Sent, 0, 0, flexible=0)
    records = memoryview(bytes(300))
    parts = sent.encode_parts(Sent(1, records), 0)
    assert parts[-2] is records
    assert b"".join(parts[:-2]) == b"\1\xad\2"  # 301 as a varint
