"""Byte for byte what kio reads and writes, in every version, with each value in the field that kio has it in.

kio's classes are generated from Kafka's own schemas.
"""

from __future__ import annotations

import dataclasses
import io
import random
import typing
from datetime import UTC, datetime, timedelta

import pytest

from logstore.format.messages.declared import Array
from logstore.format.messages.fields import NO_UUID, OWN_TAG, Fixed
from tests.rotation import seed_of_turn
from tests.wire.drawn import CASES, Chance, fields_in
from tests.wire.kafka_names import same_name

index = pytest.importorskip("kio.index")
serial = pytest.importorskip("kio.serial")
errors = pytest.importorskip("kio.schema.errors")

MESSAGES = 3
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CODES = [code.value for code in errors.ErrorCode]
ABSENT = ((NO_UUID, None), (-1, None))
"""Ours, and kio's."""
NEVER_NEGATIVE = "transaction_start_time_ms"


def is_own(field):
    return field.tag is not None and field.tag >= OWN_TAG


def kafkas(case, kind):
    """The fields that the version has a place for, without ours."""
    return [field for field, has_place in fields_in(case, kind) if has_place and not is_own(field)]


class KnownNumbers(Chance):
    """kio makes enumerations and dates of some numbers, and has none for others."""

    def number(self, field, kind):
        if is_own(field):
            return field.default
        if field.name.endswith("error_code"):
            return self.random.choice(CODES)
        if field.name.endswith("_ms"):
            return self.random.choice((0 if field.name == NEVER_NEGATIVE else -1, 0, 1, 1_700_000_000))
        return super().number(field, kind)


def entity_of(case):
    """kio's class; None if its release does not have that version yet."""
    load = index.load_request_schema if case.is_request else index.load_response_schema
    try:
        return load(int(case.key), case.version)
    except (index.UnknownEntity, index.UnknownAPIKey):
        return None


def plain(value):
    """A value of kio's as ours."""
    if isinstance(value, timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime):
        return round((value - EPOCH).total_seconds() * 1000)
    if isinstance(value, errors.ErrorCode):
        return value.value
    return value


def check_declaration(case, kind, entity):
    """The same fields in the same order, with the same tags and defaults, and null where kio has it."""
    ours = kafkas(case, kind)
    hints = typing.get_type_hints(entity)
    for field, theirs in zip(ours, dataclasses.fields(entity), strict=True):
        where = (case, field.name, theirs.name)
        hint = hints[theirs.name]
        assert same_name(field.name, theirs.name), where
        assert field.tag == theirs.metadata.get("tag"), where
        if not isinstance(field.type, Fixed):  # kio has None for some numbers too
            assert field.is_nullable(case.version) == (type(None) in typing.get_args(hint)), where
        element = field.type.element if isinstance(field.type, Array) else field.type
        if isinstance(element, type):
            check_declaration(case, element, entity_in(hint))
        elif theirs.default is not dataclasses.MISSING:
            default = plain(theirs.default)
            assert field.default == default or (field.default, default) in ABSENT, where


def entity_in(hint):
    """kio's class for a struct, in an array of it or with None."""
    if dataclasses.is_dataclass(hint):
        return hint
    return next(filter(None, map(entity_in, typing.get_args(hint))), None)


def check_values(case, ours, theirs):
    """Each field has kio's value."""
    if isinstance(ours, tuple) and not dataclasses.is_dataclass(theirs):
        assert len(ours) == len(theirs)
        for mine, its in zip(ours, theirs, strict=True):
            check_values(case, mine, its)
    elif isinstance(ours, tuple):
        mine = [field.name for field in kafkas(case, type(ours))]
        names = [field.name for field in dataclasses.fields(theirs)]
        for name, its in zip(mine, names, strict=True):
            check_values(case, getattr(ours, name), getattr(theirs, its))
    else:
        same = plain(theirs) == ours or (ours, theirs) in ABSENT
        assert same, (case, ours, theirs)


def test_kio_declares_the_same():
    """2 s: it imports a module for each of the 468 versions."""
    for case in CASES:
        if (entity := entity_of(case)) is not None:
            check_declaration(case, case.message.kind, entity)


def test_kio_reads_and_writes_the_same():
    """1 s."""
    chance = KnownNumbers(random.Random(seed_of_turn()))
    compared = 0
    for case in CASES:
        if (entity := entity_of(case)) is None:
            continue
        read, write = serial.entity_reader(entity), serial.entity_writer(entity)
        for _ in range(MESSAGES):
            message = chance.message(case)
            encoded = case.message.encode(message, case.version)
            theirs, size = read(encoded, 0)
            assert size == len(encoded), case
            check_values(case, message, theirs)
            written = io.BytesIO()
            write(written, theirs)
            assert written.getvalue() == encoded, (case, message)
            compared += 1
    assert compared >= 0.9 * MESSAGES * len(CASES)
