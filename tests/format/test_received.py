"""Memory that is filled from elsewhere and given away."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore import build
from logstore.format import received
from logstore.format.received import Received, grow, is_given, memory_bytes, stays


@pytest.fixture(params=["compiled", "plain"])
def _loops(request, monkeypatch):
    if request.param == "plain":
        monkeypatch.setattr(received, "compiled", None)
    elif build.compiled is None:
        pytest.skip("there is no compiled module")


@pytest.mark.usefixtures("_loops")
class TestGrowing:
    @pytest.mark.parametrize("make", [bytearray, Received])
    def test_what_is_there_stays(self, make):
        memory = make(b"abc")
        for size in (3, 4, 5000, 3_000_000):
            grow(memory, size)
            assert len(memory) == size
            assert memory[:3] == b"abc"
            memoryview(memory)[3:] = bytes([size % 251]) * (size - 3)
        assert bytes(memory[3:]) == bytes([3_000_000 % 251]) * 2_999_997

    def test_not_while_it_is_looked_at(self):
        memory = Received(b"abc")
        view = memoryview(memory)
        with pytest.raises(BufferError):
            grow(memory, 100_000)
        assert view == b"abc"


@pytest.mark.skipif(build.compiled is None, reason="there is no compiled module")
def test_the_compiled_function_takes_nothing_else():
    for wrong in ((), (bytearray(),), (b"abc", 4), (bytearray(), "4"), (bytearray(), 4, 5)):
        with pytest.raises(TypeError):
            build.compiled.grow(*wrong)
    memory = bytearray(5)
    with pytest.raises(ValueError, match="nothing smaller"):
        build.compiled.grow(memory, 4)
    with pytest.raises((MemoryError, OverflowError)):
        build.compiled.grow(memory, 2**63 - 1)
    assert memory == bytes(5)


@given(st.binary(min_size=1))
def test_who_may_change_what(data):
    own = Received(data)
    assert is_given(memoryview(own))
    assert is_given(memoryview(own)[1:])
    assert memory_bytes(memoryview(own)[1:]) == len(data)
    assert hash(memoryview(own).toreadonly()) == hash(data)
    assert not stays(memoryview(own))
    assert stays(memoryview(own).toreadonly()[1:])
    assert not is_given(memoryview(own).toreadonly())
    for mine in (bytearray(data), memoryview(bytearray(data)), memoryview(bytearray(data)).toreadonly(), own):
        assert not is_given(mine)
        assert not stays(mine)
    for constant in (data, memoryview(data)[1:]):
        assert stays(constant)
        assert not is_given(constant)
