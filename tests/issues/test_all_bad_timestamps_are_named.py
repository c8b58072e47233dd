"""An append whose timestamps are out of bounds named the first such record alone: whoever mended it met the
next. The error says how many there are and names the first ten, as the errors about keys do."""

from __future__ import annotations

import pytest

from logstore.config import TopicConfig
from logstore.errors import InvalidTimestampError
from logstore.model import NO_TIMESTAMP_MS
from logstore.partition.encoding.planning import check_timestamps

CONFIG = TopicConfig(message_timestamp_before_max_ms=100, message_timestamp_after_max_ms=50)


def told(timestamps: list[int]) -> str:
    with pytest.raises(InvalidTimestampError) as caught:
        check_timestamps(timestamps, CONFIG, 1000)
    return str(caught.value)


def test_all_of_few_are_named() -> None:
    said = told([1000, 899, NO_TIMESTAMP_MS, 900, 1051, 1050])
    assert "2 of 6" in said
    assert "record 1 has 899, record 4 has 1051" in said
    assert "none below 900" in said
    assert "none above 1050" in said
    assert "message_timestamp_before_max_ms" in said
    assert "message_timestamp_after_max_ms" in said


def test_one_is_named_with_its_bound() -> None:
    said = told([1000, 2000])
    assert "1 of 2" in said
    assert "message_timestamp_after_max_ms" in said
    assert "before" not in said


def test_of_many_the_first_ten_are() -> None:
    said = told([1] * 30)
    assert "30 of 30" in said
    assert "record 9 has 1" in said
    assert "record 10 " not in said


def test_what_is_in_bounds_passes() -> None:
    check_timestamps([900, 1050, NO_TIMESTAMP_MS], CONFIG, 1000)
    check_timestamps([1, 2], TopicConfig(message_timestamp_type="LogAppendTime"), 1000)
