"""Each use of a partition that could not be opened raised the same error object, which grew by the frames of
all who got it: a program that looked once a second took more memory for ever. And the error kept the files
open that the frames of the failed open had used."""

import gc
import os

import pytest
from tests.logdir.helpers import crash

import logstore
from logstore.errors import CorruptionError


def frames_of(error):
    count, trace = 0, error.__traceback__
    while trace is not None:
        count, trace = count + 1, trace.tb_next
    return count


@pytest.fixture
def path(tmp_path):
    store = logstore.open(tmp_path)
    store.create_topic("t")[0].extend([b"value"] * 100, flush=True)
    store.checkpoint()
    crash(store)
    log = tmp_path / "t-0" / "00000000000000000000.log"
    os.truncate(log, 100)
    return tmp_path


def asked(store):
    with pytest.raises(CorruptionError) as caught:
        store["t"][0]
    return caught.value


def test_the_error_does_not_grow(path):
    with logstore.open(path) as store:
        errors = [asked(store) for _ in range(20)]
        assert len({str(error) for error in errors}) == 1
        assert {frames_of(error) for error in errors} == {frames_of(errors[0])}
        assert errors[0].path == str(path / "t-0" / "00000000000000000000.log")
        with pytest.raises(CorruptionError) as caught:
            store["t"].reopen(0)
        assert frames_of(caught.value) > 3  # whoever reopens sees where it failed
        assert frames_of(asked(store)) == frames_of(errors[0])


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="looks at descriptors in /proc")
def test_the_error_keeps_no_file_open(path):
    with logstore.open(path) as store:
        assert store.damaged
        gc.collect()
        links = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
        assert not [link for link in links if link.startswith(str(path / "t-0"))]
