"""The compiled walk over batches finds what the plain one does, and stops where it stops."""

import random

import pytest

from logstore import build
from logstore.format import loops, plain
from tests.format.shapes import Shape

pytestmark = pytest.mark.skipif(build.compiled is None, reason="needs the compiled module")


def result(scan, *arguments, check):
    """What the walk finds, or the error."""
    try:
        found, stop, fault = scan(*arguments, check=check)
    except Exception as error:
        return type(error), str(error)
    fields = fault and (str(fault), fault.position, fault.base_offset, fault.last_offset)
    return found, [type(header) for _, header in found], stop, fields


def assert_same(buffer, position, end, check):
    arguments = buffer, position, end
    assert result(loops.scan_batches, *arguments, check=check) == result(
        plain.scan_batches, *arguments, check=check
    )


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("seed", range(60))
def test_every_shape(seed, check):
    shape = Shape(seed)
    shape.largest_bytes = 300
    shape.grow(200)
    shape.tear()
    for buffer in (bytes(shape.data), shape.data, memoryview(shape.data)):
        assert_same(buffer, 0, len(buffer), check)
    random_ = random.Random(seed)
    for _ in range(50):
        start = random_.choice(shape.ends[:-1])
        end = random_.randrange(start, len(shape.data) + 1)
        assert_same(bytes(shape.data), start, end, check)


@pytest.mark.parametrize("check", [True, False])
def test_every_beginning_of_two_batches_and_a_legacy_entry(check):
    shape = Shape(1)
    shape.largest_bytes = 60
    shape.batch()
    shape.batch()
    shape.legacy()
    for end in range(len(shape.data) + 1):
        assert_same(bytes(shape.data), 0, end, check)
        assert_same(bytes(shape.data[:end]), 0, end, check)


@pytest.mark.parametrize("check", [True, False])
def test_every_byte_of_a_header_changed(check):
    shape = Shape(2)
    shape.largest_bytes = 60
    shape.batch(attributes=0)
    shape.batch(attributes=0)
    for at in range(61):
        for byte in (0x00, 0x01, 0x02, 0x7F, 0x80, 0xFF):
            changed = bytearray(shape.data)
            changed[at] = byte
            assert_same(bytes(changed), 0, len(changed), check)


@pytest.mark.parametrize("kind", Shape.BAD)
@pytest.mark.parametrize("seed", range(20))
def test_damage_between_good_batches(kind, seed):
    shape = Shape(seed)
    shape.batch()
    kind(shape)
    shape.batch()
    assert_same(bytes(shape.data), 0, len(shape.data), True)


@pytest.mark.parametrize(("position", "end"), [(-1, 100), (0, 10_000), (50, 20), (0, -1), (10_000, 10_000)])
def test_places_outside_the_buffer(position, end):
    shape = Shape(3)
    shape.batch()
    assert_same(bytes(shape.data), position, end, True)


def test_large_batches_are_checked_without_the_gil():
    shape = Shape(4)
    shape.largest_bytes = 400_000
    shape.rate = 0.0
    shape.grow(10)
    assert_same(bytes(shape.data), 0, len(shape.data), True)
