"""What records say beside their fields: in each way to read the topic, the partition, and what the headers of
their batches say."""

import shutil
from pathlib import Path

import pytest

import logstore
from logstore.format.loops import scan_batches
from logstore.model import Isolation, TimestampType, TopicPartition
from tests.partition.helpers_rules import open_log
from tests.partition.log_shapes import LOOPS, SHAPES, add_rows, carefully, loops_named
from tests.whole_records import beside

HERE = TopicPartition("where.records_are", 3)


@pytest.fixture(params=SHAPES)
def shaped(request, tmp_path):
    log = SHAPES[request.param](tmp_path / str(HERE))
    log.flush()
    yield log
    log.close()


@pytest.fixture(params=LOOPS)
def _loops(request):
    with loops_named(request.param):
        yield


def in_headers(directory, partition=(HERE.topic, HERE.partition)):
    """What must be said of the record at each offset, out of the headers in a directory's files."""
    said = {}
    for path in sorted(Path(directory).glob("*.log")):
        first = int(path.stem)
        data = path.read_bytes()
        for _, header in scan_batches(data, 0, len(data), check=True)[0]:
            kind = TimestampType(header.attributes >> 3 & 1) if header.magic else TimestampType(-1)
            epoch = header.partition_leader_epoch
            for offset in range(first, header.next_offset):
                said[offset] = (*partition, kind, epoch if epoch >= 0 else None)
            first = header.next_offset
    return said


def check(records, said, least=1):
    """Each record says what it must."""
    count = 0
    for record in records:
        assert beside(record) == said[record.offset], record
        assert type(record.timestamp_type) is TimestampType
        count += 1
    assert count >= least


@pytest.mark.usefixtures("_loops")
def test_in_every_way_to_read_a_log(shaped):
    said = in_headers(shaped.directory)
    start, stop = shaped.log_start_offset, shaped.log_end_offset
    for isolation in Isolation:
        check(shaped.read(isolation=isolation), said)
        check(shaped.read(isolation=isolation, on_demand=True), said)
        check(shaped.latest(isolation=isolation), said)
    check(carefully(shaped), said)
    check(shaped.follow(start, timeout=0), said)
    for _ in range(2):  # again, from what is kept of large and compressed batches
        check(filter(None, map(shaped.record_at, range(start, stop))), said)
    middle = (start + stop) // 2
    check(shaped.read(middle, middle + 20, on_demand=True), said, 0)
    for offset in range(middle, min(middle + 20, stop)):
        check(shaped.read(offset, offset + 1), said, 0)


@pytest.mark.usefixtures("_loops")
def test_read_only(shaped, tmp_path):
    directory = tmp_path / "store" / str(HERE)
    directory.mkdir(parents=True)
    for path in Path(shaped.directory).glob("*.log"):
        shutil.copy(path, directory)
    said = in_headers(directory)
    with logstore.open(tmp_path / "store", read_only=True) as store:
        log = store[HERE.topic][HERE.partition]
        check(log.read(), said)
        check(log.follow(log.log_start_offset, timeout=0), said)
        check(log.latest(), said)
        for offset in range(log.log_start_offset, log.log_end_offset, 3):
            check(filter(None, [log.record_at(offset)]), said, 0)


def test_a_lone_file_says_no_topic(shaped):
    said = in_headers(shaped.directory, (None, None))
    for path in Path(shaped.directory).glob("*.log"):
        with logstore.Segment.open(path) as segment:
            check(segment, said, 0)
            for offset in range(segment.base_offset, segment.next_offset, 3):
                check(filter(None, [segment.record_at(offset)]), said, 0)


def test_the_shapes_have_all_that_may_be_said(tmp_path):
    said = set()
    for name in ("leader epochs", "legacy"):
        log = SHAPES[name](tmp_path / name.replace(" ", "") / str(HERE))
        said |= {beside(record)[2:] for record in log.read()}
    kinds, epochs = ({each[number] for each in said} for number in (0, 1))
    assert kinds == set(TimestampType)
    assert epochs == {None, 0, 3, 2**31 - 1}


def test_records_of_partitions_that_are_read_at_a_time_are_not_mixed_up(tmp_path):
    with logstore.open(tmp_path / "store") as store:
        names = [TopicPartition(topic, number) for topic in ("a", "b") for number in range(3)]
        for topic in ("a", "b"):
            store.create_topic(topic, partitions=3)
        logs = [store[name.topic][name.partition] for name in names]
        for log in logs:
            add_rows(log, *[1] * 5)
        for _, *records in zip(range(5), *logs, strict=True):
            assert [(record.topic, record.partition) for record in records] == names


def test_the_leader_epoch_is_that_of_the_append(tmp_path):
    log = open_log(tmp_path / str(HERE))
    add_rows(log, 2)
    log.assign_leader_epoch(7)
    add_rows(log, 1)
    assert [record.leader_epoch for record in log] == [0, 0, 7]
