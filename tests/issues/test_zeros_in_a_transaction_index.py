"""A power cut may leave zeros where a file grew. As a transaction index they were an aborted transaction of
producer 0 at offset 0, below the recovery point, and stayed there in place of the real one."""

import pytest

from logstore.errors import CorruptionError
from logstore.format.index import decode_aborted_transactions


@pytest.mark.parametrize("entries", [1, 2])
def test_zeros_are_no_entry(entries):
    with pytest.raises(CorruptionError, match="entry"):
        decode_aborted_transactions(bytes(34 * entries), 0)
