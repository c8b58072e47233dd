"""Every kernel of CRC-32C that this processor has gives the same numbers as going bit by bit."""

import random
import threading

import pytest

compiled = pytest.importorskip("logstore._compiled")

LENGTHS = 1100
ALIGNMENTS = 64
POLYNOMIAL = 0x82F63B78


def next_state(state, byte):
    state ^= byte
    for _ in range(8):
        state = state >> 1 ^ (POLYNOMIAL if state & 1 else 0)
    return state


def reference(data, crc=0):
    state = crc ^ 0xFFFFFFFF
    for byte in data:
        state = next_state(state, byte)
    return state ^ 0xFFFFFFFF


def references(data):
    """The checksum of each beginning of the data."""
    state = 0xFFFFFFFF
    found = [0]
    for byte in data:
        state = next_state(state, byte)
        found.append(state ^ 0xFFFFFFFF)
    return found


@pytest.fixture(scope="module")
def data():
    return random.Random(1).randbytes(ALIGNMENTS + LENGTHS)


@pytest.fixture(scope="module")
def expected(data):
    return [references(data[start : start + LENGTHS]) for start in range(ALIGNMENTS)]


def test_the_first_kernel_is_the_one_in_use():
    assert compiled.CRC32C_KERNELS[0] == compiled.CRC32C_KERNEL
    assert compiled.CRC32C_KERNELS[-1] == "portable"


def test_a_kernel_that_this_processor_has_not_is_none():
    assert compiled.crc32c_with("no such", b"123456789") is None


@pytest.mark.parametrize("kernel", compiled.CRC32C_KERNELS)
def test_every_length_at_every_alignment(kernel, data, expected):
    crc32c_with = compiled.crc32c_with
    view = memoryview(bytearray(data))
    for start in range(ALIGNMENTS):
        found = [crc32c_with(kernel, view[start : start + size]) for size in range(LENGTHS + 1)]
        assert found == expected[start]


@pytest.mark.parametrize("kernel", compiled.CRC32C_KERNELS)
def test_a_checksum_goes_on_at_every_place(kernel, data, expected):
    view = memoryview(data)
    for cut in range(LENGTHS + 1):
        first = compiled.crc32c_with(kernel, view[:cut])
        assert compiled.crc32c_with(kernel, view[cut:LENGTHS], first) == expected[0][LENGTHS]


@pytest.mark.parametrize("kernel", compiled.CRC32C_KERNELS)
def test_a_checksum_goes_on_from_any_number(kernel, data):
    random_ = random.Random(2)
    for size in (0, 1, 7, 8, 63, 64, 127, 128, 200, 255, 256, 300, 511, 512, 1000):
        crc = random_.getrandbits(32)
        assert compiled.crc32c_with(kernel, data[:size], crc) == reference(data[:size], crc)


def test_long_buffers_agree():
    random_ = random.Random(3)
    for _ in range(60):
        size = random_.randrange(300_000)
        data = memoryview(random_.randbytes(size + 64))[random_.randrange(64) :]
        crc = random_.getrandbits(32)
        found = {kernel: compiled.crc32c_with(kernel, data, crc) for kernel in compiled.CRC32C_KERNELS}
        assert set(found.values()) == {compiled.crc32c(data, crc)}, found


def test_a_long_buffer_against_the_reference():
    data = random.Random(4).randbytes(100_003)
    assert compiled.crc32c(data) == reference(data)


def test_threads_without_the_gil_agree():
    data = random.Random(5).randbytes(3_000_000)
    expected = compiled.crc32c_with("portable", data)
    found = []
    threads = [threading.Thread(target=lambda: found.append(compiled.crc32c(data))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4


@pytest.mark.parametrize(
    "arguments", [(), (1,), ("text",), (b"", "1"), (b"", 1, 2), (memoryview(b"abcd")[::2],)]
)
def test_wrong_arguments_are_refused(arguments):
    with pytest.raises((TypeError, BufferError)):
        compiled.crc32c(*arguments)
