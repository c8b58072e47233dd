"""Bytes that no client means: only our error comes out, and they take no memory that they do not bring."""

from __future__ import annotations

import os
import random
import tracemalloc

import pytest

from logstore.errors import CorruptionError
from logstore.format.varint import encode_unsigned_varint
from logstore.wire.apis import APIS, ApiKey
from tests.rotation import seed_of_turn
from tests.wire.drawn import CASES, Case, Chance, differs_at
from tests.wire.newer import newer_message, without_unknown

SOAK_ROUNDS = int(os.environ.get("LOGSTORE_WIRE_ROUNDS", "500"))
NUMBERS = (
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\0\0\0",
    b"\x7f\xff",
    b"\x80\0",
    b"\xff\xff\xff\xff\x07",  # 2^31 - 1 as a varint
    b"\xff\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x80\x01",
    b"\x00",
    b"\x01",
)


@pytest.fixture
def rng():
    return random.Random(seed_of_turn())


def read(case, data):
    """The message, if it is one; None if it is refused as it should be."""
    try:
        return case.message.decode(data, case.version)[0]
    except CorruptionError:
        return None


def changed(rng, encoded):
    data = bytearray(encoded)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(data) + 1)
        how = rng.randrange(4)
        if how == 0:
            data[at : at + 1] = rng.randbytes(1)
        elif how == 1:
            del data[at : at + rng.choice((1, 2, 5))]
        elif how == 2:
            piece = rng.choice(NUMBERS)
            data[at : at + len(piece)] = piece
        else:
            data[at:at] = rng.choice((*NUMBERS, bytes(data[at : at + 9])))
    return bytes(data)


@pytest.mark.parametrize("rounds", [1, pytest.param(SOAK_ROUNDS, marks=pytest.mark.soak)])
def test_changed_bytes_are_refused_or_are_another_message(rounds, rng):
    """1 s."""
    chance = Chance(rng)
    refused = 0
    for case in CASES * rounds:
        encoded = case.message.encode(chance.message(case), case.version)
        for _ in range(6):
            message = read(case, changed(rng, encoded))
            refused += message is None
            if message is not None:
                case.message.encode(message, case.version)
    assert refused > rounds * len(CASES)


def test_what_ends_early_is_refused(rng):
    chance = Chance(rng)
    for case in CASES:
        encoded = case.message.encode(chance.message(case), case.version)
        for size in rng.sample(range(len(encoded)), min(6, len(encoded))):
            assert read(case, encoded[:size]) is None, (case, encoded, size)


def test_a_length_takes_no_memory(rng):
    """Every announced length and count is held against what is there, in every message. 2 s."""
    for case in CASES:
        encoded = case.message.encode(Chance(rng).message(case), case.version)
        hostile = [
            encoded[:at] + number + encoded[at + len(number) :]
            for at in rng.sample(range(len(encoded) + 1), min(3, len(encoded) + 1))
            for number in NUMBERS[:6]
        ]
        read(case, encoded)  # compiled, before it is measured
        tracemalloc.start()
        try:
            for data in hostile:
                read(case, data)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 100_000 + 200 * len(encoded), case


def test_what_the_smallest_structs_take():
    """An array of structs of two bytes each takes most memory for its bytes, 36 times as much. A limit on the
    size of frames has to reckon with that."""
    scram = APIS[ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS].request
    count = 10_000
    data = encode_unsigned_varint(count + 1) + b"\1\0" * count + b"\0"
    scram.decode(b"\0\0", 0)
    tracemalloc.start()
    message, _ = scram.decode(data, 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(message.users) == count
    assert peak < 50 * len(data)
    with pytest.raises(CorruptionError, match="has 10001 users in 20001 bytes"):
        scram.decode(encode_unsigned_varint(count + 2) + data[2:], 0)


def test_unknown_tagged_fields_are_passed_over(rng):
    """In every struct of every message: kio, for one, raises KeyError there. 2 s."""
    later = {case.message.name: newer_message(case.message) for case in CASES}
    told = 0
    for case in CASES:
        if not case.message.is_flexible(case.version):
            continue
        sender = later[case.message.name]
        message = Chance(rng).message(Case(case.key, sender, case.version))
        encoded = sender.encode(message, case.version)
        told += b"\xa8\x46" in encoded  # the tag
        decoded, end = case.message.decode(encoded, case.version)
        assert differs_at(decoded, without_unknown(message, case.message.kind)) is None, case
        assert end == len(encoded)
    assert told > 50
