"""The table view holds for each key the latest record below its end offset, and no other."""

from __future__ import annotations

import itertools
import os
import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import logstore
from logstore import build
from logstore.errors import CorruptionError, OffsetOutOfRangeError, UsageError
from logstore.format.batch import decode_batch, decode_header, encode_records_batch, seal_batch
from logstore.format.compression import Codec, compress
from logstore.format.loops import scan_batches
from logstore.model import Isolation, NewRecord, Role
from logstore.partition.reading import latest
from logstore.partition.reading import records as reading
from tests.logdir.helpers import open_store
from tests.partition.helpers_rules import add, bases_of, batch, identity, open_log
from tests.partition.log_shapes import LOOPS, SHAPES, add_rows, encoded

LOG_END, HIGH_WATERMARK, COMMITTED, DURABLE = Isolation
SMALL = latest.LEAST_MAP_BYTES


@pytest.fixture(params=LOOPS, autouse=True)
def way(request, monkeypatch):
    """Each test runs with the compiled map, if there is one, and with the plain one."""
    if request.param == "plain":
        monkeypatch.setattr(build, "compiled", None)
        monkeypatch.setattr(latest, "put_run", None)
        monkeypatch.setattr(latest, "latest_run", None)
    return request.param


@pytest.fixture
def small_first_maps(monkeypatch):
    """A chain of maps, though there are few keys."""
    monkeypatch.setattr(latest, "_FIRST_MAP_BYTES", SMALL)


def put(log, *pairs, **options):
    """One batch of (key, value)."""
    return log.extend([NewRecord(value, key) for key, value in pairs], **options)


def table(log, **options):
    """Key to value, after a look at what the view says of itself."""
    view = log.latest(**options)
    records = list(view)
    assert len({record.key for record in records}) == len(records)
    assert all(record.offset < view.end_offset for record in records)
    return {record.key: record.value for record in records}


def model(log, isolation=COMMITTED):
    """What a reader makes of it, record by record, in the order of offsets."""
    records = {}
    for record in log.read(isolation=isolation):
        if record.key is not None:
            records.pop(record.key, None)
            records[record.key] = record
    return [record for record in records.values() if record.value is not None]


# What is in it ----------------------------------------------------------------------------------------------


def test_each_key_has_its_latest_record(log):
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"a", b"2"), (b"c", b"1"), (b"c", b"2"))
    assert [(record.offset, record.key, record.value) for record in log.latest()] == [
        (1, b"b", b"1"),
        (2, b"a", b"2"),
        (4, b"c", b"2"),
    ]


def test_records_are_whole(log):
    log.extend([NewRecord(b"v", b"k", (("name", b"x"), ("", None)), 12_345)])
    assert list(log.latest()) == list(log.read())


def test_a_tombstone_takes_its_key_out_until_it_comes_back(log):
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"a", None), (b"b", None))
    put(log, (b"b", b"2"))
    assert table(log) == {b"b": b"2"}


def test_empty_keys_and_values_are_keys_and_values(log):
    put(log, (b"", b"1"), (b"a", b""))
    assert table(log) == {b"": b"1", b"a": b""}


def test_records_without_a_key_are_no_part_of_it(log):
    put(log, (None, b"1"), (b"a", b"2"), (None, None))
    assert table(log) == {b"a": b"2"}


def test_an_empty_log_is_an_empty_table(log):
    assert list(log.latest()) == []
    assert log.latest().end_offset == 0
    put(log, (None, b"1"))
    assert list(log.latest()) == []


@pytest.mark.parametrize("name", SHAPES)
def test_logs_of_every_shape(name, tmp_path):
    log = SHAPES[name](tmp_path / "t-0")
    assert list(log.latest(isolation=COMMITTED)) == model(log)
    if name != "transactions":
        log.flush()
        for isolation in Isolation:
            assert list(log.latest(isolation=isolation)) == model(log, isolation)


@pytest.mark.parametrize("name", SHAPES)
def test_logs_of_every_shape_with_a_chain_of_maps(name, tmp_path, small_first_maps):
    log = SHAPES[name](tmp_path / "t-0")
    assert list(log.latest(isolation=COMMITTED)) == model(log)


@pytest.mark.parametrize("name", SHAPES)
def test_logs_of_every_shape_in_little_memory(name, tmp_path):
    log = SHAPES[name](tmp_path / "t-0")
    found = list(log.latest(isolation=COMMITTED, map_bytes=SMALL))
    assert sorted(found) == sorted(model(log))


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("piece_bytes", [17, 700])
def test_wherever_a_piece_of_the_file_ends(name, piece_bytes, tmp_path, monkeypatch):
    log = SHAPES[name](tmp_path / "t-0")
    expected = model(log)
    monkeypatch.setattr(reading, "PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(reading, "FIRST_PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(reading, "_SHORT_READ_BYTES", 0)
    assert list(log.latest(isolation=COMMITTED)) == expected


steps = st.lists(
    st.one_of(
        st.lists(
            st.tuples(
                st.sampled_from([None, b"", b"a", b"b", b"c", b"d" * 40]), st.sampled_from([None, b"x", b"y"])
            ),
            min_size=1,
            max_size=8,
        ),
        st.sampled_from(list(Codec)),
        st.just("roll"),
        st.just("delete"),
    ),
    max_size=20,
)
_number = itertools.count()


@given(steps)
def test_it_is_what_a_dict_would_hold(tmp_path_factory, steps):
    log = open_log(tmp_path_factory.getbasetemp() / f"dict-{os.getpid()}-{next(_number)}" / "t-0")
    for step in steps:
        if step == "roll":
            log.roll()
        elif step == "delete":
            log.delete_before((log.log_start_offset + log.log_end_offset) // 2)
        elif isinstance(step, Codec):
            log.append_replicated(encoded(log.log_end_offset, 3, codec=step))
        else:
            put(log, *step)
    assert list(log.latest()) == model(log)
    log.close()
    shutil.rmtree(Path(log.directory).parent)


# As of when -------------------------------------------------------------------------------------------------


def test_what_is_appended_later_is_not_seen_however_often_it_is_iterated(log):
    put(log, (b"a", b"1"), (b"b", b"1"))
    view = log.latest()
    put(log, (b"a", b"2"), (b"c", b"1"))
    for _ in range(2):
        assert [(record.key, record.value) for record in view] == [(b"a", b"1"), (b"b", b"1")]
    assert view.end_offset == 2


def test_following_from_the_end_offset_goes_on_without_a_gap_or_a_double(log):
    put(log, (b"a", b"1"), (b"b", b"1"))
    view = log.latest()
    put(log, (b"a", None), (b"c", b"1"))
    seen = [record.offset for record in view]
    seen += [record.offset for record in log.follow(view.end_offset, timeout=0)]
    assert seen == [0, 1, 2, 3]


@pytest.mark.parametrize("isolation", Isolation)
def test_it_ends_where_the_isolation_does_even_inside_a_batch(log, isolation):
    log.set_role(Role.LEADER)
    put(log, (b"a", b"1"), (b"b", b"1"))
    log.flush()
    put(log, (b"a", b"2"), (b"b", b"2"), (b"a", None))
    log.update_high_watermark(3)
    end = {LOG_END: 5, HIGH_WATERMARK: 3, COMMITTED: 3, DURABLE: 2}[isolation]
    view = log.latest(isolation=isolation)
    assert view.end_offset == end
    assert list(view) == model(log, isolation)


def test_records_below_the_log_start_are_gone(log):
    put(log, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", b"1"))
    put(log, (b"b", None))
    log.delete_before(3)
    assert table(log) == {b"c": b"1"}


def test_a_view_may_end_below_the_log_start(log):
    put(log, (b"a", b"1"))
    log.truncate_fully_and_start_at(10)
    view = log.latest(isolation=DURABLE)
    assert list(view) == []
    assert view.end_offset == 10
    assert list(log.follow(view.end_offset, timeout=0)) == []


# Transactions -----------------------------------------------------------------------------------------------


def begin(log, producer, *pairs, sequence=0):
    return put(log, *pairs, producer=identity(sequence, producer=producer, transactional=True))


def test_an_aborted_transaction_changes_nothing_at_any_isolation(log):
    put(log, (b"a", b"1"), (b"b", b"1"))
    begin(log, 1, (b"a", b"wrong"), (b"b", None), (b"c", b"wrong"))
    log.append_end_marker(1, 0, committed=False)
    log.flush()
    for isolation in Isolation:
        assert table(log, isolation=isolation) == {b"a": b"1", b"b": b"1"}


def test_a_committed_transaction_counts(log):
    put(log, (b"a", b"1"), (b"b", b"1"))
    begin(log, 1, (b"a", b"2"), (b"b", None))
    log.append_end_marker(1, 0, committed=True)
    assert table(log, isolation=COMMITTED) == {b"a": b"2"}


def test_a_committed_view_ends_where_a_transaction_is_open(log):
    put(log, (b"a", b"1"))
    begin(log, 1, (b"a", b"2"))
    put(log, (b"b", b"1"))
    view = log.latest(isolation=COMMITTED)
    assert [record.value for record in view] == [b"1"]
    assert view.end_offset == 1
    log.append_end_marker(1, 0, committed=False)
    assert [(r.key, r.value) for r in log.follow(1, timeout=0, isolation=COMMITTED)] == [(b"b", b"1")]


def test_a_committed_view_has_nothing_of_what_was_aborted_above_its_end(log):
    put(log, (b"a", b"1"), (b"c", b"1"))
    begin(log, 1, (b"a", b"wrong"), (b"c", None), (b"d", b"wrong"))
    begin(log, 2, (b"b", b"1"))  # still open: the view ends here
    log.append_end_marker(1, 0, committed=False)
    view = log.latest(isolation=COMMITTED)
    assert {record.key: record.value for record in view} == {b"a": b"1", b"c": b"1"}
    log.append_end_marker(2, 0, committed=True)
    assert {record.key: record.value for record in view} == {b"a": b"1", b"c": b"1"}
    followed = log.follow(view.end_offset, timeout=0, isolation=COMMITTED)
    assert [(record.key, record.value) for record in followed] == [(b"b", b"1")]


def test_what_was_aborted_behind_the_last_stable_offset_is_not_in_a_committed_view(log):
    put(log, (b"a", b"1"))
    begin(log, 1, (b"a", b"wrong"), (b"b", b"wrong"))
    begin(log, 2, (b"c", b"1"))
    log.append_end_marker(1, 0, committed=False)
    assert log.last_stable_offset == 3
    assert table(log, isolation=COMMITTED) == {b"a": b"1"}
    assert log.latest_arrow(isolation=COMMITTED).read_all()["value"].to_pylist() == [b"1"]


def test_an_abort_between_the_passes_does_not_take_a_key_away(log):
    put(log, (b"a", b"1"))
    begin(log, 1, (b"a", b"2"))
    view = log.latest(isolation=LOG_END)
    log.append_end_marker(1, 0, committed=False)
    assert [record.value for record in view] == [b"2"]  # open, as of the end offset
    assert table(log, isolation=LOG_END) == {b"a": b"1"}


# Memory -----------------------------------------------------------------------------------------------------


def fill(log, count, key_count, *, batch_records=50, seed=1):
    """Many keys, some of them removed. Returns what the table must hold."""
    chance, expected = random.Random(seed), {}
    for _ in range(0, count, batch_records):
        pairs = []
        for _ in range(batch_records):
            number = chance.randrange(key_count)
            key, value = b"key %d" % number + b"." * (number % 40), b"%d" % chance.randrange(10**6)
            pairs.append((key, None if chance.random() < 0.2 else value))
        expected.update(pairs)
        put(log, *pairs)
    return {key: value for key, value in expected.items() if value is not None}


@pytest.mark.parametrize("map_bytes", [SMALL, 3 * SMALL, 30_000, 10**6])
def test_the_table_is_exact_whatever_the_memory(log, map_bytes):
    expected = fill(log, 4000, 1500)
    assert table(log, map_bytes=map_bytes) == expected


def test_with_memory_for_all_keys_the_order_is_that_of_offsets(log, small_first_maps):
    fill(log, 4000, 1500)
    offsets = [record.offset for record in log.latest()]
    assert offsets == sorted(offsets)


def test_with_less_memory_each_class_of_keys_has_its_order(log):
    fill(log, 2000, 1500)
    offsets = [record.offset for record in log.latest(map_bytes=10_000)]
    falls = sum(later < earlier for earlier, later in itertools.pairwise(offsets))
    assert 1 <= falls < 100  # classes, less one


def test_the_maps_take_no_more_than_the_memory_given(log, monkeypatch, small_first_maps):
    fill(log, 4000, 1500)
    made = []

    class Noted(latest.OffsetMap):
        def __init__(self, memory_bytes, *arguments, **options):
            made.append(memory_bytes)
            super().__init__(memory_bytes, *arguments, **options)

    monkeypatch.setattr(latest, "OffsetMap", Noted)
    list(log.latest(map_bytes=10**7))
    assert sum(made) <= 10**7
    assert made == sorted(made)
    assert len(made) > 1
    made.clear()
    list(log.latest(map_bytes=20_000))
    assert max(made) <= 20_000


def test_few_records_take_little_memory_of_much(log, monkeypatch):
    put(log, (b"a", b"1"), (b"b", b"1"))
    made = []

    def noted(size, *arguments, **options):
        made.append(size)
        return latest_map(size, *arguments, **options)

    monkeypatch.setattr(latest, "OffsetMap", noted)
    assert table(log) == {b"a": b"1", b"b": b"1"}
    assert made == [SMALL]


latest_map = latest.OffsetMap


@pytest.mark.parametrize("map_bytes", [SMALL, 10**6])
def test_offsets_that_are_too_far_apart_for_one_map(way, monkeypatch, map_bytes):
    """As if a slot had less room: the window is 100 offsets, and the log has more."""
    monkeypatch.setattr(latest, "WINDOW", 100)
    table = latest._KeyTable(latest.ALL_KEYS, bytes(16), map_bytes, 101)
    assert (table.put_run, table.latest_run) == (None, None)
    (offset_map,) = table._maps
    assert offset_map.put(b"a", 0)
    assert offset_map.put(b"b", (1 << 63) - 1)
    assert offset_map.capacity >= map_bytes // 190 or offset_map.capacity >= 101


def test_a_log_of_many_offsets_is_read_batch_by_batch(log, monkeypatch):
    monkeypatch.setattr(latest, "WINDOW", 100)
    expected = fill(log, 4000, 1500)
    assert table(log) == expected
    assert table(log, map_bytes=SMALL) == expected


@pytest.mark.parametrize("map_bytes", [SMALL - 1, 0, -1, 1e6, "1", True])
def test_memory_that_makes_no_sense_is_refused(log, map_bytes):
    with pytest.raises(UsageError, match="map_bytes"):
        log.latest(map_bytes=map_bytes)


def test_an_isolation_that_is_none_is_refused(log):
    with pytest.raises(UsageError, match="isolation"):
        log.latest(isolation="committed")


# What happens meanwhile -------------------------------------------------------------------------------------


def rewrite(log, base, keep):
    """Let a segment's file hold only the records that ``keep`` says, as compaction would."""
    path = Path(log.directory, f"{base:020}.log")
    data = path.read_bytes()
    parts = []
    for position, header in scan_batches(data, 0, len(data), check=True)[0]:
        records = [record for record in decode_batch(data, position, header) if keep(record)]
        if records:
            parts.append(bytes(encode_records_batch(records, like=header)))
    new = Path(log.directory, f"{base:020}.log.new")
    new.write_bytes(b"".join(parts))
    new.rename(path)
    for suffix in ("index", "timeindex"):
        Path(log.directory, f"{base:020}.{suffix}").unlink(missing_ok=True)


def between_the_passes(monkeypatch, action):
    """Do something when a first pass is done."""
    fill = latest._fill

    def fill_and_act(*arguments):
        reached = fill(*arguments)
        action()
        return reached

    monkeypatch.setattr(latest, "_fill", fill_and_act)


def write_segments(directory, *segments):
    """A closed log with a segment for each list of pairs."""
    log = open_log(directory)
    for number, pairs in enumerate(segments):
        if number:
            log.roll()
        for pair in pairs:
            put(log, pair)
    log.close()


@pytest.fixture
def read_only(tmp_path):
    """A store with one topic, t, and a way to read it from outside."""

    class Both:
        path = tmp_path / "store"

        def write(self, *segments):
            with open_store(self.path) as store:
                log = store.require_topic("t")[0]
                for number, pairs in enumerate(segments):
                    if number:
                        log.roll()
                    for pair in pairs:
                        put(log, pair)

        def open(self):
            return logstore.open(str(self.path), read_only=True)

    return Both()


@pytest.mark.damaged
def test_a_tombstone_that_is_removed_between_the_passes_brings_nothing_back(read_only, monkeypatch):
    read_only.write([(b"a", b"old"), (b"b", b"1")], [(b"a", None), (b"c", b"1")], [(b"d", b"1")])
    with read_only.open() as store:
        log = store["t"][0]

        def expire():
            rewrite(log, 2, lambda record: record.value is not None)
            os.utime(log.directory)

        between_the_passes(monkeypatch, expire)
        assert table(log) == {b"b": b"1", b"c": b"1", b"d": b"1"}


@pytest.mark.damaged
def test_a_segment_that_is_compacted_between_the_passes_changes_nothing(read_only, monkeypatch):
    old = [(b"k%d" % (number % 7), b"%d" % number) for number in range(50)]
    new = [(b"k%d" % (number % 3), b"%d" % number) for number in range(50, 60)]
    read_only.write(old, new, [(b"last", b"1")])
    with read_only.open() as store:
        log = store["t"][0]
        expected = model(log)
        kept = {record.offset for record in expected}

        def compact():
            rewrite(log, 0, lambda record: record.offset in kept)
            os.utime(log.directory)

        between_the_passes(monkeypatch, compact)
        assert list(log.latest()) == expected


def test_what_is_deleted_during_a_pass_is_in_none_behind_it(read_only):
    """The first pass finds a segment gone, and goes on where the log begins now: inside of the next one."""
    with open_store(read_only.path) as store:
        log = store.require_topic("t")[0]
        put(log, (b"a", b"1"))
        log.roll()
        put(log, (b"x", b"old"))
        put(log, (b"x", None))
        put(log, (b"y", b"1"))
        log.roll()
        put(log, (b"z", b"1"))
        with read_only.open() as reader:
            view = reader["t"][0].latest()
            log.delete_before(3)
            assert {record.key: record.value for record in view} == {b"y": b"1", b"z": b"1"}


def test_segments_that_retention_removes_between_the_passes_are_gone(log, monkeypatch):
    put(log, (b"a", b"1"), (b"b", b"1"))
    log.roll()
    put(log, (b"b", b"2"), (b"c", b"1"))
    log.roll()
    put(log, (b"d", b"1"))

    def remove():
        view = log._current_view()
        log.delete_before(2)
        log._context.open_segments.discard(view.segments[0])
        view.segments[0].forget_files()
        for path in Path(log.directory).glob("*.deleted"):
            path.unlink()

    between_the_passes(monkeypatch, remove)
    assert table(log) == {b"b": b"2", b"c": b"1", b"d": b"1"}
    assert bases_of(log) == [2, 4]


@pytest.mark.parametrize("to", [1, 3])
def test_a_log_that_is_truncated_between_the_passes_is_to_be_read_again(log, monkeypatch, to):
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"a", b"2"), (b"c", b"1"))

    def truncate():
        log.truncate_to(to)
        put(log, (b"x", b"1"), (b"y", b"1"), (b"z", b"1"))

    between_the_passes(monkeypatch, truncate)
    with pytest.raises(OffsetOutOfRangeError, match="read it again"):
        list(log.latest())


def test_two_iterations_go_on_side_by_side(log):
    expected = fill(log, 2000, 500)
    view = log.latest()
    pairs = list(zip(view, view, strict=True))
    assert {first.key: first.value for first, _ in pairs} == expected
    assert all(first == second for first, second in pairs)


def test_threads_may_share_a_view(log):
    expected = fill(log, 4000, 500)
    view = log.latest()
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: {r.key: r.value for r in view}, range(8)):
            assert found == expected


# Damage -----------------------------------------------------------------------------------------------------


@pytest.mark.damaged
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
def test_damage_is_found_and_said_where(log, codec):
    for _ in range(3):
        log.append_replicated(encoded(log.log_end_offset, 20, codec=codec))
    path = Path(log.directory, f"{0:020}.log")
    data = bytearray(path.read_bytes())
    header = decode_header(data)
    data[header.size_bytes + 100] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptionError) as caught:
        list(log.latest())
    assert caught.value.position == header.size_bytes
    assert caught.value.base_offset == 20
    with pytest.raises(CorruptionError) as expected:
        list(log.read())
    assert str(caught.value) == str(expected.value)


@pytest.mark.damaged
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("is_small", [False, True])
def test_records_that_do_not_decode_are_found_and_said_where(log, codec, is_small):
    """Behind a right checksum: whoever wrote it made the damage."""
    add_rows(log, 5)
    right = batch(b"a", b"b", base_offset=5)
    header = decode_header(right)
    section = bytearray(right[61:])
    section[0] ^= 0x02  # the size of the first record
    wrong = seal_batch(
        header._replace(attributes=header.attributes | codec),
        compress(codec, bytes(section), None) if codec else section,
    )
    path = Path(log.directory, f"{0:020}.log")
    log.append_replicated(batch(b"a", b"b", base_offset=5))
    at = scan_batches(path.read_bytes(), 0, path.stat().st_size, check=False)[0][1][0]
    log.close()
    path.write_bytes(path.read_bytes()[:at] + bytes(wrong))
    with logstore.open(str(path.parent.parent), read_only=True) as store:
        log = store[path.parent.name[:-2]][0]
        with pytest.raises(CorruptionError) as expected:
            list(log.read())
        with pytest.raises(CorruptionError) as caught:
            list(log.latest(map_bytes=SMALL if is_small else None))
        assert str(caught.value) == str(expected.value)


# Topics and other processes ---------------------------------------------------------------------------------


def test_a_topic_has_a_view_for_each_partition(tmp_path):
    with open_store(tmp_path / "store") as store:
        topic = store.create_topic("t", partitions=3)
        topic.extend([(b"%d" % (number % 20), b"%d" % number) for number in range(100)])
        views = topic.latest()
        assert [view.partition for view in views] == [log.partition for log in topic]
        assert [view.end_offset for view in views] == [log.log_end_offset for log in topic]
        found = {record.key: record.value for view in views for record in view}
        assert found == {b"%d" % (number % 20): b"%d" % number for number in range(80, 100)}


def test_a_reader_elsewhere_has_the_same_table(read_only):
    with open_store(read_only.path) as store:
        log = store.create_topic("t")[0]
        expected = fill(log, 1000, 300)
        log.roll()
        put(log, (b"more", b"1"))
        with read_only.open() as elsewhere:
            view = elsewhere["t"][0].latest()
            assert {record.key: record.value for record in view} == expected | {b"more": b"1"}
            put(log, (b"more", b"2"))
            assert [r.value for r in elsewhere["t"][0].follow(view.end_offset, timeout=0)] == [b"2"]


def test_a_view_says_what_it_is(log):
    add(log, b"a")
    assert repr(log.latest()) == f"<LatestView {log.partition} as of offset 1>"
