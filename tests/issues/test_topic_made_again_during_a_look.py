"""A reader that looks for a log's end while the topic is deleted and made again: it took the new topic's
files for those of the old one, whose id it had read before."""

from __future__ import annotations

import itertools

import pytest
from tests.partition.reading.test_readers_swap import SteppedLooks

import logstore
from logstore.errors import UnknownTopicError


class Countdown:
    """Makes the topic again in front of, or behind, one look at the files."""

    def __init__(self, writer, at):
        self._writer = writer
        self.left = at

    def __call__(self):
        self.left -= 1
        if not self.left:
            self._writer.delete_topic("t")
            self._writer.create_topic("t")


def test_it_is_another_topic(tmp_path):
    told = 0
    for at in itertools.count(1):
        with logstore.open(tmp_path / f"{at}") as writer:
            writer.create_topic("t")[0].extend([b"x"])
            files = SteppedLooks()
            with logstore.open(tmp_path / f"{at}", files=files, read_only=True) as reader:
                log = reader["t"][0]
                assert log.log_end_offset == 1
                writer["t"][0].roll()  # so that the next look begins with the names
                files.step = Countdown(writer, at)
                try:
                    assert log.log_end_offset == 1, f"made again at {at}"
                except UnknownTopicError:
                    told += 1
                if files.step.left > 0:  # it was not made again
                    break
                with pytest.raises(UnknownTopicError):
                    _ = log.log_end_offset
    assert told > 5
