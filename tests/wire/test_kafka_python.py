"""Whole frames, with headers, byte for byte as kafka-python reads and writes them."""

from __future__ import annotations

import importlib
import random

import pytest

from logstore.wire.apis import ApiKey
from logstore.wire.frames import FrameReader, encode_frame
from logstore.wire.headers import decode_request, decode_response, encode_request, encode_response
from tests.rotation import seed_of_turn
from tests.wire.drawn import CASES, Chance, differs_at

# It reads its schemas by a function that Python has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:.*Use files:DeprecationWarning")

PACKAGES = ("admin", "consumer", "metadata", "producer", "sasl")
MESSAGES = 3
CORRELATION_ID = 2**31 - 7


@pytest.fixture(scope="module")
def classes():
    """kafka-python's class for each name of a message."""
    pytest.importorskip("kafka")
    found = {}
    for package in PACKAGES:
        found |= vars(importlib.import_module(f"kafka.protocol.{package}"))
    return found


def encoded(case, message):
    if case.is_request:
        parts = encode_request(
            message, case.key, case.version, correlation_id=CORRELATION_ID, client_id="größe"
        )
    else:
        parts = encode_response(message, case.key, case.version, correlation_id=CORRELATION_ID)
    return b"".join(encode_frame(parts))


def decoded(case, frame):
    if case.is_request:
        header, request = decode_request(frame)
        assert header == (case.key, case.version, CORRELATION_ID, "größe")
        return request
    return decode_response(frame, case.key, case.version, correlation_id=CORRELATION_ID)


def test_kafka_python_reads_and_writes_the_same_frames(classes):
    """2 s."""
    chance = Chance(random.Random(seed_of_turn()))
    compared = 0
    for case in CASES:
        theirs = classes.get(case.message.name)
        if theirs is None or case.version > theirs.max_version:
            continue  # KIP-848 and KIP-932
        for _ in range(MESSAGES):
            message = chance.message(case)
            if case.key is ApiKey.API_VERSIONS and not case.is_request:
                message = message._replace(error_code=0)  # it reads all others as version 0
            frame = encoded(case, message)
            read = theirs.decode(frame, version=case.version, header=True, framed=True)
            assert bytes(read.encode(header=True, framed=True)) == frame, (case, message)
            (whole,) = FrameReader().feed(frame)
            assert differs_at(decoded(case, whole), message) is None
            compared += 1
    assert compared >= 0.9 * MESSAGES * len(CASES)
