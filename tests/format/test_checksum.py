"""The two checksums, and that importing the format layer does not import their package."""

import os
import subprocess
import sys

import pytest

from logstore.format import checksum

CHECK_WORD = b"123456789"


def test_known_values():
    assert checksum.crc32c(CHECK_WORD) == 0xE3069283
    assert checksum.crc32(CHECK_WORD) == 0xCBF43926


def test_a_checksum_goes_on_from_another():
    assert (
        checksum.crc32c(memoryview(CHECK_WORD)[4:], checksum.crc32c(bytearray(CHECK_WORD[:4]))) == 0xE3069283
    )


def run_python(program, loops):
    environment = {**os.environ, "LOGSTORE_LOOPS": loops}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)


def test_the_packages_wait_for_their_first_use():
    heavy = {"crc32c", "lz4", "snappy", "zstandard"}
    program = f"""
import logstore.format.batch, logstore.format.control, sys
assert not {heavy} & set(sys.modules)
from logstore.format import checksum
early = checksum.crc32c
assert early(b"123456789") == checksum.crc32c(b"123456789") == early(b"6789", early(b"12345")) == 0xE3069283
assert checksum.crc32c is not early
assert sys.modules["crc32c"].crc32c is checksum.crc32c
"""
    run_python(program, "plain")


def test_the_compiled_checksum_needs_no_package():
    pytest.importorskip("logstore._compiled")
    program = """
import sys
from logstore.format import checksum
assert checksum.crc32c(b"123456789") == 0xE3069283
assert "crc32c" not in sys.modules
"""
    run_python(program, "compiled")
