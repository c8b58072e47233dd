"""A handover reported records as placed by an earlier call that the target did not have: it compared the
first batch of each segment only. A store that had lost its end got nothing back from its backup, and of
two copies of one store that went on differently the second was reported as handed over to the first.
"""

import shutil

import pytest

import logstore
from logstore.errors import UsageError


def append(path, *values):
    with logstore.open(path) as store:
        for value in values:
            store["t"][0].extend([value])


def values(path):
    with logstore.open(path, read_only=True) as store:
        return [record.value for record in store["t"].read()]


@pytest.fixture
def data(tmp_path):
    """A store, and beside it a copy."""
    with logstore.open(tmp_path / "data") as store:
        store.create_topic("t", config=logstore.TopicConfig(segment_bytes=300))
    append(tmp_path / "data", *(b"%d" % number for number in range(10)))
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    return tmp_path / "data"


def cut(data):
    with logstore.open(data) as store:
        store["t"][0].truncate_to(9)


def diverge(data):
    append(data, b"target's")
    append(data.parent / "copy", b"source's")


def diverge_and_grow(data):
    append(data, b"target's", b"more", b"and more")
    append(data.parent / "copy", b"source's")


def go_on_in_the_source(data):
    append(data.parent / "copy", b"source's")


def delete_the_beginning(data):
    with logstore.open(data) as store:
        store["t"][0].delete_before(1)


@pytest.mark.parametrize(
    "change", [cut, diverge, diverge_and_grow, go_on_in_the_source, delete_the_beginning]
)
@pytest.mark.parametrize("dry_run", [True, False])
def test_what_the_target_lacks_is_not_reported_as_there(data, change, dry_run):
    change(data)
    before = values(data)
    with pytest.raises(UsageError, match=r"t-0 has records in the target .*hand over to an empty topic"):
        logstore.handover(data.parent / "copy", data, dry_run=dry_run)
    assert values(data) == before


def test_a_target_that_has_all_of_it_may_have_gone_on(data):
    append(data, b"more")
    report = logstore.handover(data.parent / "copy", data)
    assert [each.was_placed for each in report.partitions] == [True]
    assert "already in the target" in str(report)
    assert values(data)[: report.partitions[0].log_end_offset] == values(data.parent / "copy")
