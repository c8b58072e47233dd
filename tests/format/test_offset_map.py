"""The offset map, held against a dict: the compiled and the plain one by the same tests."""

import os
import sys
import threading
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from logstore import build
from logstore.errors import CorruptionError, UsageError
from logstore.format.loops import encode_records
from logstore.format.offset_map import (
    ALL_KEYS,
    PLAIN_KEY_BYTES,
    WINDOW,
    OffsetMap,
    PlainTable,
    Standing,
    bytes_for,
)
from logstore.format.varint import encode_varint
from tests.logdir.helpers import run_python

SEED = bytes(range(16))
GROUP_BYTES = 16 * 21
INT64_MAX = (1 << 63) - 1
KINDS = ("plain", "compiled")


class Plain(OffsetMap):
    """A map over the plain table, whatever this installation has."""

    def __init__(self, memory_bytes, seed):
        self._table = PlainTable(memory_bytes, seed)


def maps(kind):
    if kind == "plain":
        return Plain
    if build.compiled is None:
        pytest.skip("no compiled module here")
    return OffsetMap


def memory_for(make, keys):
    """The least bytes that hold so many keys."""
    if make is Plain:
        return keys * PLAIN_KEY_BYTES
    return -(-keys * 10 // (9 * 16)) * GROUP_BYTES


def fill_up(m, room):
    """Put keys until there is room for so many; they are at offset 0."""
    fillers = [b"filler %d" % n for n in range(m.capacity - room)]
    assert m.put_keys(fillers, [0] * len(fillers)) == len(fillers)
    return fillers


@pytest.fixture(params=KINDS)
def new_map(request):
    make = maps(request.param)
    return lambda keys=1000: make(memory_for(make, keys), SEED)


def section(*keys, deltas=None, values=None, headers=None):
    """A records section of these keys, and the arguments that say what it is."""
    encoded = encode_records(keys, values or [b"v"] * len(keys), 0, headers, 0, deltas)
    last_delta = deltas[-1] if deltas else len(keys) - 1
    return lambda base_offset=0: (encoded, 0, len(encoded), len(keys), base_offset, last_delta)


# One key at a time


def test_an_empty_map_knows_nothing(new_map):
    m = new_map()
    assert (m.get(b"k"), m.count, m.latest_offset, m.is_full) == (-1, 0, -1, False)


def test_the_latest_offset_of_each_key(new_map):
    m = new_map()
    assert m.put(b"a", 1)
    assert m.put(b"b", 2)
    assert m.put(b"a", 3)
    assert (m.get(b"a"), m.get(b"b"), m.get(b"c"), m.count, m.latest_offset) == (3, 2, -1, 2, 3)


def test_an_offset_below_the_known_one_changes_nothing(new_map):
    m = new_map()
    m.put(b"a", 5)
    m.put(b"a", 4)
    assert (m.get(b"a"), m.latest_offset) == (5, 5)


@pytest.mark.parametrize("key", [b"", b"\0", bytes(16), bytes(30), bytes(31), bytes(32), bytes(100_000)])
def test_keys_of_any_size(new_map, key):
    m = new_map()
    m.put(key, 0)
    m.put(key + b"x", 7)
    assert (m.get(key), m.get(key + b"x"), m.get(key + b"xx")) == (0, 7, -1)


def test_offsets_go_up_to_2_to_the_63_minus_1(new_map):
    m = new_map()
    assert m.put(b"a", INT64_MAX)
    assert (m.get(b"a"), m.latest_offset) == (INT64_MAX, INT64_MAX)


@pytest.mark.parametrize("offset", [-1, INT64_MAX + 1, -INT64_MAX - 2, 1 << 200])
def test_offsets_that_are_none(new_map, offset):
    m = new_map()
    for call in (
        lambda: m.put(b"a", offset),
        lambda: m.advance_to(offset),
        lambda: m.put_keys([b"a"], [offset]),
    ):
        with pytest.raises(ValueError, match="an offset is"):
            call()
    assert (m.count, m.latest_offset) == (0, -1)


@pytest.mark.parametrize("key", [None, "a", 1, bytearray(b"a")])
def test_keys_are_bytes(new_map, key):
    m = new_map()
    for call in (lambda: m.put(key, 1), lambda: m.get(key)):
        with pytest.raises(TypeError):
            call()


def test_a_full_map_takes_known_keys_only(new_map):
    m = new_map(2)
    fill_up(m, 2)
    assert m.put(b"a", 1)
    assert not m.is_full
    assert m.put(b"b", 2)
    assert m.is_full
    assert not m.put(b"c", 3)
    assert m.put(b"a", 4)
    assert (m.count, m.get(b"a"), m.get(b"c"), m.latest_offset) == (m.capacity, 4, -1, 4)


def test_a_cleared_map_is_empty_and_takes_as_many_again(new_map):
    m = new_map(50)
    for _ in range(3):
        assert m.put_keys([b"%d" % n for n in range(m.capacity + 10)], 0) == m.capacity
        assert (m.is_full, m.latest_offset) == (True, m.capacity - 1)
        m.clear()
        assert (m.count, m.latest_offset, m.get(b"1")) == (0, -1, -1)


def test_advancing_says_that_everything_up_to_an_offset_was_seen(new_map):
    m = new_map()
    m.advance_to(9)
    m.advance_to(3)
    assert (m.latest_offset, m.count) == (9, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_memory_for_no_key_and_seeds_of_another_size(kind, monkeypatch):
    monkeypatch.setattr(build, "compiled", build.compiled if maps(kind) is OffsetMap else None)
    for memory_bytes in (0, -1, 1, (PLAIN_KEY_BYTES if kind == "plain" else GROUP_BYTES) - 1):
        with pytest.raises(UsageError, match="hold no key"):
            OffsetMap(memory_bytes, SEED)
    with pytest.raises(UsageError, match="seed of 15 bytes"):
        OffsetMap(1 << 20, SEED[1:])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("more_bytes", [0, GROUP_BYTES - 1])
@pytest.mark.parametrize("groups", [1, 2, 3, 9, 10, 11, 19, 20, 1001])
def test_every_key_that_there_is_room_for_is_found_again(kind, groups, more_bytes):
    make = maps(kind)
    memory_bytes = groups * GROUP_BYTES + more_bytes
    m = make(memory_bytes, SEED)
    assert m.capacity == (groups * 16 * 9 // 10 if kind == "compiled" else memory_bytes // PLAIN_KEY_BYTES)
    keys = [b"key %d" % n for n in range(m.capacity + 1)]
    taken = m.put_keys(keys, 100)
    assert taken == m.count == m.capacity
    assert [m.get(key) for key in keys] == [*range(100, 100 + taken), -1]


# Groups of slots


def home_of(key, groups):
    return (int.from_bytes(siphash(key, SEED, 1, 3)[4:8], "little") * groups) >> 32


def test_keys_of_the_last_group_go_on_in_the_first():
    groups = 3
    m = maps("compiled")(groups * GROUP_BYTES, SEED)
    keys = [key for n in range(1000) if home_of(key := b"%d" % n, groups) == groups - 1]
    keys = keys[: m.capacity + 1]
    assert m.capacity > 2 * 16  # so that they fill it, the first and begin the second
    assert m.put_section(*section(*keys)(7)) == m.capacity == len(keys) - 1
    assert [m.get(key) for key in keys] == [*range(7, 7 + m.capacity), -1]
    standings = m.classify_section(*section(*keys)(7))
    assert standings == bytes([Standing.LATEST] * m.capacity + [Standing.BEYOND])
    others = [b"other %d" % n for n in range(100)]
    assert m.put_keys(others, 1000) == 0
    assert {m.get(key) for key in others} == {-1}
    m.clear()
    assert {m.get(key) for key in keys} == {-1}
    assert m.put_keys(others, 1000) == m.capacity


def test_keys_of_one_group_and_one_tag_are_told_apart():
    groups = 2
    m = maps("compiled")(groups * GROUP_BYTES, SEED)
    keys = []
    for n in range(60_000):
        key = b"%d" % n
        if build.compiled.hash_key(key, SEED)[0] in (0, 1) and home_of(key, groups) == 1:
            keys.append(key)
        if len(keys) == 20:
            break
    assert len(keys) == 20
    assert m.put_section(*section(*keys)(5)) == 20
    assert m.put_section(*section(*keys[::-1])(100)) == 20
    assert [m.get(key) for key in keys] == list(range(119, 99, -1))
    assert m.classify_section(*section(*keys)(5)) == bytes([Standing.SUPERSEDED]) * 20
    assert m.classify_section(*section(*keys[::-1])(100)) == bytes([Standing.LATEST]) * 20


def test_a_key_many_times_in_one_section(new_map):
    keys = [b"%d" % (n * n % 37) for n in range(700)]
    m = new_map()
    assert m.put_section(*section(*keys)(5)) == 700
    assert m.count == len(set(keys))
    last = {key: 5 + n for n, key in enumerate(keys)}
    assert {key: m.get(key) for key in last} == last
    standings = m.classify_section(*section(*keys)(5))
    assert list(standings) == [int(last[key] == 5 + n) for n, key in enumerate(keys)]


# The window


@pytest.mark.parametrize("first", [0, 5, WINDOW, WINDOW + 7, INT64_MAX - WINDOW, INT64_MAX])
def test_offsets_have_room_around_the_first(new_map, first):
    base = max(first - WINDOW, 0)
    end = min(base + 2 * WINDOW, INT64_MAX + 1)
    m = new_map()
    assert m.put(b"a", first)
    for number, offset in enumerate((base, base + 1, end - 1)):
        assert m.put(b"%d" % number, offset)
        assert m.get(b"%d" % number) == offset
    latest = m.latest_offset
    for offset in {base - 1, end, end + 1, 0, INT64_MAX} - set(range(base, base + 2)):
        if 0 <= offset <= INT64_MAX and not base <= offset < end:
            assert not m.put(b"a", offset)
            assert not m.put(b"new", offset)
            assert m.put_keys([b"a", b"b"], [first, offset]) == 1
            assert m.put_section(*section(b"a")(offset)) == 0
    assert (m.get(b"a"), m.get(b"new"), m.count, m.latest_offset) == (first, -1, 4, latest)
    assert not m.is_full
    m.clear()
    assert m.put(b"a", 0)
    assert m.put(b"b", WINDOW)


def test_a_section_stops_in_front_of_the_end_of_the_window(new_map):
    m = new_map()
    m.put(b"first", WINDOW)
    assert m.put_section(*section(b"a", b"b", None, b"c")(2 * WINDOW - 2)) == 3
    assert (m.get(b"a"), m.get(b"b"), m.get(b"c"), m.latest_offset) == (
        2 * WINDOW - 2,
        2 * WINDOW - 1,
        -1,
        2 * WINDOW,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_map_without_a_window_takes_any_offsets(kind, monkeypatch):
    monkeypatch.setattr(build, "compiled", build.compiled if maps(kind) is OffsetMap else None)
    m = OffsetMap(bytes_for(3, has_window=False), SEED, has_window=False)
    assert m.put_section(*section(b"a", b"b")(0)) == 2
    assert m.put(b"a", INT64_MAX)
    assert m.put(b"c", WINDOW * 2)
    assert (m.get(b"a"), m.get(b"b"), m.get(b"c"), m.is_full) == (INT64_MAX, 1, 2 * WINDOW, True)


# Many keys


def test_keys_with_the_offset_of_the_first(new_map):
    m = new_map()
    assert m.put_keys([b"a", None, b"b", b"a"], 10) == 4
    assert (m.get(b"a"), m.get(b"b"), m.count, m.latest_offset) == (13, 12, 2, 13)


def test_keys_with_offsets_each(new_map):
    m = new_map()
    assert m.put_keys((b"a", b"b", None), (10, 20, 30)) == 3
    assert (m.get(b"a"), m.get(b"b"), m.latest_offset) == (10, 20, 30)


def test_keys_stop_in_front_of_the_first_without_room(new_map):
    m = new_map(2)
    fill_up(m, 2)
    assert m.put_keys([b"a", b"b", b"a", None, b"c", b"a"], 0) == 4
    assert (m.get(b"a"), m.count, m.latest_offset) == (2, m.capacity, 3)


def test_columns_of_two_lengths_are_refused(new_map):
    with pytest.raises((TypeError, ValueError)):
        new_map().put_keys([b"a", b"b"], [1])


@pytest.mark.parametrize("count", [63, 64, 65, 129, 999, 1000, 1001, 2001])
def test_any_number_of_keys_at_once(new_map, count):
    keys = [b"%d" % n for n in range(count)]
    m = new_map(count)
    assert m.put_keys(keys, 5) == count
    assert [m.get(key) for key in keys] == list(range(5, 5 + count))


# Sections


def test_a_section_is_taken_whole(new_map):
    m = new_map()
    assert m.put_section(*section(b"a", None, b"b", b"a", b"")(100)) == 5
    assert (m.get(b"a"), m.get(b"b"), m.get(b""), m.count, m.latest_offset) == (103, 102, 104, 3, 104)


def test_the_last_offset_of_a_batch_counts_as_seen(new_map):
    m = new_map()
    encoded, start, end, count, base_offset, _ = section(b"a", b"b", deltas=[3, 7])(100)
    assert m.put_section(encoded, start, end, count, base_offset, 9) == 2
    assert (m.get(b"a"), m.get(b"b"), m.latest_offset) == (103, 107, 109)


def test_a_batch_that_compaction_has_emptied(new_map):
    m = new_map()
    assert m.put_section(b"", 0, 0, 0, 100, 9) == 0
    assert (m.count, m.latest_offset) == (0, 109)
    assert m.classify_section(b"", 0, 0, 0, 100, 9) == b""


def test_a_section_inside_of_a_buffer(new_map):
    encoded, _, end, count, _, last_delta = section(b"a", b"b")()
    for buffer in (bytearray(b"xx" + encoded + b"yyy"), memoryview(b"xx" + encoded + b"yyy")):
        m = new_map()
        assert m.put_section(buffer, 2, 2 + end, count, 0, last_delta) == 2
        assert m.classify_section(buffer, 2, 2 + end, count, 0, last_delta) == b"\1\1"


def test_a_section_stops_in_front_of_the_first_key_without_room(new_map):
    m = new_map(2)
    fill_up(m, 2)
    assert m.put_section(*section(b"a", b"b", b"a", None, b"c", b"a")(10)) == 4
    assert (m.get(b"a"), m.get(b"c"), m.count, m.latest_offset) == (12, -1, m.capacity, 13)


def test_records_below_the_start_are_passed_over(new_map):
    m = new_map()
    assert m.put_section(*section(b"a", b"b", b"c")(10), 12) == 3
    assert (m.get(b"a"), m.get(b"b"), m.get(b"c"), m.latest_offset) == (-1, -1, 12, 12)
    m = new_map()
    assert m.put_section(*section(b"a", b"b", b"c")(10), 13) == 3
    assert (m.count, m.latest_offset) == (0, -1)


def test_going_on_where_a_full_map_stopped(new_map):
    batch = section(*(b"%d" % n for n in range(250)))(0)
    done = 0
    for _ in range(3):
        m = new_map(100)
        taken = m.put_section(*batch, done)
        assert m.get(b"%d" % done) == done
        done = m.latest_offset + 1
    assert (taken, done) == (250, 250)


@pytest.mark.parametrize("count", [63, 64, 65, 129, 999, 1000, 1001, 2001, 2500])
def test_sections_of_any_count(new_map, count):
    keys = [b"%d" % n for n in range(count)]
    m = new_map(count)
    assert m.put_section(*section(*keys)(5)) == count
    assert [m.get(key) for key in keys] == list(range(5, 5 + count))
    assert m.classify_section(*section(*keys)(5)) == bytes([Standing.LATEST]) * count
    assert m.classify_section(*section(*keys)(4)) == bytes([Standing.SUPERSEDED]) * count


def test_the_standing_of_each_record(new_map):
    m = new_map()
    m.put_keys([b"a", b"b", b"c"], [1, 12, 30])
    m.advance_to(14)
    keys = [b"a", b"c", b"b", b"c", None, b"x", None]
    values = [b"v", b"v", None, None, b"v", None, b"v"]
    assert [Standing(code).name for code in m.classify_section(*section(*keys, values=values)(10))] == [
        *("LATEST", "SUPERSEDED", "TOMBSTONE", "SUPERSEDED", "KEYLESS", "TOMBSTONE", "KEYLESS")
    ]
    m = new_map()
    m.put_keys([b"a"], 11)
    assert m.classify_section(*section(*keys, values=values)(10)) == bytes([0, 1, 4, 4, 4, 4, 4])


def test_headers_are_read_over(new_map):
    m = new_map()
    headers = [(("h", None),), (("", b""), ("ü€𐍈", b"x" * 200)), None]
    assert m.put_section(*section(b"a", b"b", b"c", headers=headers)()) == 3
    assert m.classify_section(*section(b"a", b"b", b"c", headers=headers)()) == b"\1\1\1"


def test_offsets_of_a_section_up_to_2_to_the_63_minus_1(new_map):
    m = new_map()
    batch = section(b"a", b"b")(INT64_MAX - 1)
    assert m.put_section(*batch) == 2
    assert (m.get(b"b"), m.latest_offset) == (INT64_MAX, INT64_MAX)
    assert m.classify_section(*batch) == b"\1\1"
    with pytest.raises(CorruptionError):
        m.put_section(*section(b"a", b"b")(INT64_MAX))


# Sections that lie


def outcome(call, *arguments):
    try:
        return call(*arguments)
    except CorruptionError as fault:
        return fault.reason, fault.position


def hostile(data, at, byte):
    data = bytearray(data)
    data[at % len(data)] = byte
    return bytes(data)


GOOD = section(b"key", None, b"k" * 70, b"key", headers=[(("hé", b"x"),), None, (("€", None),), None])


@pytest.mark.skipif(build.compiled is None, reason="no compiled module here")
def test_every_byte_of_a_section_changed_gives_what_the_plain_map_gives():
    encoded, *rest = GOOD(100)
    for at in range(len(encoded)):
        for byte in {0, 1, 2, 3, 0x7F, 0x80, 0xFF, encoded[at] ^ 1, encoded[at] ^ 0x80}:
            damaged = hostile(encoded, at, byte)
            plain, compiled = Plain(10_000, SEED), OffsetMap(10_000, SEED)
            assert outcome(plain.put_section, damaged, *rest) == outcome(compiled.put_section, damaged, *rest)
            assert (plain.count, plain.latest_offset) == (compiled.count, compiled.latest_offset)
            assert outcome(plain.classify_section, damaged, *rest) == outcome(
                compiled.classify_section, damaged, *rest
            )


@pytest.mark.parametrize("count", [200, 1000, 2500])
def test_a_damaged_section_leaves_the_map_as_it_was(new_map, count):
    encoded, *rest = section(*(b"%d" % n for n in range(count)))(0)
    m = new_map()
    m.put(b"0", 7)
    with pytest.raises(CorruptionError):
        m.put_section(encoded[:-1] + b"\xff", *rest)
    assert (m.count, m.get(b"0"), m.get(b"1"), m.latest_offset) == (1, 7, -1, 7)


@pytest.mark.parametrize(
    "change",
    [
        {"position": -1},
        {"position": 1},
        {"position": 1000},
        {"end": 1000},
        {"end": -1},
        {"end": 5},
        {"count": -1},
        {"count": 0},
        {"count": 3},
        {"count": 5},
        {"count": 2**31 - 1},
        {"count": 2**62},
        {"last_offset_delta": -1},
        {"last_offset_delta": 2},
    ],
    ids=str,
)
def test_bounds_and_counts_that_lie(new_map, change):
    names = ("buffer", "position", "end", "count", "base_offset", "last_offset_delta")
    arguments = dict(zip(names, GOOD(100), strict=True)) | change
    for call in (new_map().put_section, new_map().classify_section):
        with pytest.raises(CorruptionError):
            call(*arguments.values())


@pytest.mark.parametrize(
    "key",
    [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"a\x80", b"\xf0\x8f\xbf\xbf"],
)
def test_header_keys_that_are_not_utf_8(new_map, key):
    tail = encode_varint(1) + encode_varint(len(key)) + key + encode_varint(-1)
    body = b"\0\0\0" + encode_varint(1) + b"k" + encode_varint(-1) + tail
    record = encode_varint(len(body)) + body
    table = new_map()
    table.put_section(record, 0, len(record), 1, 0, 0)
    assert table.get(b"k") == 0


def test_arguments_of_another_type(new_map):
    encoded, *rest = GOOD()
    with pytest.raises(TypeError):
        new_map().put_section("text" * 100, *rest)
    with pytest.raises(TypeError):
        new_map().classify_section(None, *rest)
    with pytest.raises(TypeError):
        new_map().put_section(encoded, "0", *rest[1:])


# Against a dict

KEYS = st.sampled_from([b"", *(b"%d" % n for n in range(12)), b"long" * 10, b"long" * 11]) | st.binary(
    max_size=40
)


OFFSETS = (
    st.integers(0, 50)
    | st.integers(0, INT64_MAX)
    | st.tuples(st.sampled_from([WINDOW, 2 * WINDOW, 3 * WINDOW]), st.integers(-10, 10)).map(sum)
)


class AgainstDict(RuleBasedStateMachine):
    """Any calls in any order: what the map says is what a dict with the same bound says."""

    kind = "plain"

    @initialize(capacity=st.integers(1, 40), room=st.integers(0, 12))
    def start(self, capacity, room):
        make = maps(self.kind)
        self.map = make(memory_for(make, capacity), SEED)
        self.capacity = self.map.capacity
        self.known, self.latest, self.base = {}, -1, 0
        if room < self.capacity:
            self.known = dict.fromkeys(fill_up(self.map, room), 0)
            self.latest = 0

    def take(self, key, offset):
        if key is not None:
            if not self.known:
                self.base = max(offset - WINDOW, 0)
            if not self.base <= offset < self.base + 2 * WINDOW:
                return False
            if key not in self.known and len(self.known) == self.capacity:
                return False
            self.known[key] = max(offset, self.known.get(key, -1))
        self.latest = max(self.latest, offset)
        return True

    @rule(key=KEYS, offset=OFFSETS)
    def put(self, key, offset):
        assert self.map.put(key, offset) == self.take(key, offset)

    @rule(keys=st.lists(KEYS | st.none(), max_size=8), first=OFFSETS.map(lambda offset: max(offset - 8, 0)))
    def put_keys(self, keys, first):
        taken = self.map.put_keys(keys, first)
        expected = 0
        while expected < len(keys) and self.take(keys[expected], first + expected):
            expected += 1
        assert taken == expected

    @rule(
        keys=st.lists(KEYS | st.none(), min_size=1, max_size=8),
        base=OFFSETS.map(lambda offset: max(offset - 8, 0)),
        start=st.integers(0, 110),
    )
    def put_section(self, keys, base, start):
        taken = self.map.put_section(*section(*keys)(base), start)
        expected = 0
        while expected < len(keys):
            if base + expected >= start and not self.take(keys[expected], base + expected):
                break
            expected += 1
        assert taken == expected

    @rule(keys=st.lists(KEYS | st.none(), min_size=1, max_size=8), base=st.integers(0, 100), data=st.data())
    def classify(self, keys, base, data):
        values = [data.draw(st.sampled_from([None, b"v"])) for _ in keys]
        standings = self.map.classify_section(*section(*keys, values=values)(base))
        assert list(standings) == [
            self.standing(key, value, base + index)
            for index, (key, value) in enumerate(zip(keys, values, strict=True))
        ]

    def standing(self, key, value, offset):
        if offset > self.latest:
            return Standing.BEYOND
        if key is None:
            return Standing.KEYLESS
        if self.known.get(key, -1) > offset:
            return Standing.SUPERSEDED
        return Standing.TOMBSTONE if value is None else Standing.LATEST

    @rule()
    def clear(self):
        self.map.clear()
        self.known, self.latest = {}, -1

    @precondition(lambda self: hasattr(self, "map"))
    @invariant()
    def the_same_as_the_dict(self):
        assert self.map.count == len(self.known)
        assert self.map.latest_offset == self.latest
        assert self.map.is_full == (len(self.known) == self.capacity)
        assert {key: self.map.get(key) for key in self.known} == self.known


class CompiledAgainstDict(AgainstDict):
    kind = "compiled"


STEPS = settings(max_examples=40, stateful_step_count=25)


class TestPlainAgainstDict(AgainstDict.TestCase):
    settings = STEPS


@pytest.mark.skipif(build.compiled is None, reason="no compiled module here")
class TestCompiledAgainstDict(CompiledAgainstDict.TestCase):
    settings = STEPS


# Memory

FILL = """
import sys
from logstore.format.offset_map import OffsetMap
memory_bytes, long_keys = int(sys.argv[1]), sys.argv[2] == "long"
encode = (lambda n: b"%038d" % n) if long_keys else (lambda n: b"%016d" % n)

def resident_bytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))

warm = OffsetMap(10_000, bytes(16))
warm.put_keys([encode(0) * 2], 0)
before = resident_bytes()
m = OffsetMap(memory_bytes, bytes(16))
n = 0
while not m.is_full:
    n += m.put_keys([encode(n) for n in range(n, min(n + 1000, m.capacity))], n)
print(m.count, resident_bytes() - before)
"""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("keys", ["short", "long"])
@pytest.mark.parametrize("memory_mib", [8, 11])  # 8: the dict has just grown
def test_a_full_map_is_within_its_memory(kind, keys, memory_mib):
    if kind == "compiled":
        maps(kind)
    memory_bytes = memory_mib << 20
    printed = run_python(FILL, memory_bytes, keys, env=os.environ | {"LOGSTORE_LOOPS": kind})
    count, grown_bytes = map(int, printed.split())
    slots = memory_bytes // GROUP_BYTES * 16
    assert count == (slots * 9 // 10 if kind == "compiled" else memory_bytes // PLAIN_KEY_BYTES)
    assert grown_bytes < memory_bytes + (1 << 20)


@pytest.mark.parametrize("keys", [14, 1000, 12_345, 10**6, 10**7])
def test_a_key_takes_at_most_24_bytes(keys):
    memory_bytes = bytes_for(keys)
    m = maps("compiled")(memory_bytes, SEED)
    assert m.capacity >= keys
    assert memory_bytes / m.capacity <= 24
    assert keys < 1000 or memory_bytes / keys <= 24


def test_the_compiled_map_takes_24_bytes_per_key_and_none_of_pythons_memory():
    make = maps("compiled")
    tracemalloc.start()
    try:
        m = make(1 << 20, SEED)
        m.put_keys([b"%d" % n for n in range(m.capacity)], 0)
        assert tracemalloc.get_traced_memory()[0] < 200_000  # with those of other threads of the run
    finally:
        tracemalloc.stop()
    assert (1 << 20) / m.count < 24


# Threads


def test_a_map_in_use_refuses_another_thread():
    m = maps("compiled")(24 << 20, SEED)
    batch = section(*(b"%d" % n for n in range(200_000)))()
    errors, stop = [], threading.Event()

    def disturb():
        while not stop.is_set():
            for call in (m.clear, lambda: m.get(b"1"), lambda: m.put(b"1", 1), lambda: m.count):
                try:
                    call()
                except RuntimeError as error:
                    errors.append(str(error))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        while not errors:
            for call in (m.put_section, m.classify_section):
                try:
                    call(*batch)
                except RuntimeError as error:
                    errors.append(str(error))
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(interval)
    assert set(errors) == {"another thread is using the offset map"}
    m.clear()
    assert m.put_section(*batch) == 200_000
    assert (m.count, m.get(b"7")) == (200_000, 7)


# The hash

MASK = (1 << 64) - 1
OFFICIAL_2_4 = [
    "a3817f04ba25a8e66df67214c7550293",
    "da87c1d86b99af44347659119b22fc45",
    "8177228da4a45dc7fca38bdef60affe4",
    "9c70b60c5267a94e5f33b6b02985ed51",
    "f88164c12d9c8faf7d0f6e7c7bcd5579",
    "1368875980776f8854527a07690e9627",
    "14eeca338b208613485ea0308fd7a15e",
    "a1f1ebbed8dbc153c0b84aa61ff08239",
    "3b62a9ba6258f5610f83e264f31497b4",
    "264499060ad9baabc47f8b02bb6d71ed",
    "00110dc378146956c95447d3f3d0fbba",
]
"""SipHash-2-4 with 128 bits of the first 0 to 10 of the bytes 0, 1, 2, ...; key 00 to 0f; by its authors."""


def siphash(data, seed, rounds, last_rounds):
    """SipHash with 128 bits, as its paper has it."""
    low, high = (int.from_bytes(seed[at : at + 8], "little") for at in (0, 8))
    v = [
        low ^ 0x736F6D6570736575,
        high ^ 0x646F72616E646F6D ^ 0xEE,
        low ^ 0x6C7967656E657261,
        high ^ 0x7465646279746573,
    ]

    def half(a, b, c, d, left, right):
        v[a] = (v[a] + v[b]) & MASK
        v[c] = (v[c] + v[d]) & MASK
        v[b] = (v[b] << left | v[b] >> (64 - left)) & MASK ^ v[a]
        v[d] = (v[d] << right | v[d] >> (64 - right)) & MASK ^ v[c]
        v[a] = (v[a] << 32 | v[a] >> 32) & MASK

    def run(count):
        for _ in range(count):
            half(0, 1, 2, 3, 13, 16)
            half(2, 1, 0, 3, 17, 21)

    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 0xFF])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        run(rounds)
        v[0] ^= word
    digest = b""
    for index, constant in ((2, 0xEE), (1, 0xDD)):
        v[index] ^= constant
        run(last_rounds)
        digest += (v[0] ^ v[1] ^ v[2] ^ v[3]).to_bytes(8, "little")
    return digest


def test_the_reference_gives_the_authors_vectors():
    assert [siphash(bytes(range(n)), SEED, 2, 4).hex() for n in range(len(OFFICIAL_2_4))] == OFFICIAL_2_4


@pytest.mark.skipif(build.compiled is None, reason="no compiled module here")
@given(data=st.binary(max_size=70), seed=st.binary(min_size=16, max_size=16))
@settings(max_examples=300)
def test_the_compiled_hash_is_siphash_1_3(data, seed):
    assert build.compiled.hash_key(data, seed) == siphash(data, seed, 1, 3)


@pytest.mark.skipif(build.compiled is None, reason="no compiled module here")
@pytest.mark.parametrize("size", [*range(70), 255, 256, 257, 1000])
def test_the_compiled_hash_of_every_size(size):
    data = bytes(n * 7 & 0xFF for n in range(size))
    assert build.compiled.hash_key(data, SEED) == siphash(data, SEED, 1, 3)


# Classes of keys


@pytest.mark.parametrize("kind", KINDS)
def test_maps_of_the_classes_of_a_divisor_share_out_the_keys(kind):
    if kind == "compiled" and build.compiled is None:
        pytest.skip("no compiled module here")
    make = PlainTable if kind == "plain" else build.compiled.OffsetMap
    classes = [part for whole in ALL_KEYS.divided(3) for part in whole.divided(4)]
    tables = [make(100_000, SEED, *part) for part in classes]
    keys = [b"%d" % number * (number % 9) for number in range(500)]
    for offset, key in enumerate(keys):
        assert all(table.put(key, offset) for table in tables)
        assert sum(table.holds(key) for table in tables) == 1
    assert [max(table.get(key) for table in tables) for key in keys] == [
        max(offset for offset, other in enumerate(keys) if other == key) for key in keys
    ]
    assert sum(table.count for table in tables) == len(set(keys))
    assert {table.latest_offset for table in tables} == {len(keys) - 1}


@pytest.mark.skipif(build.compiled is None, reason="no compiled module here")
def test_records_of_other_classes_are_superseded_in_a_section():
    keys = [b"%d" % number for number in range(200)]
    arguments = section(*keys)()
    for part in ALL_KEYS.divided(3):
        m = OffsetMap(100_000, SEED, part)
        assert m.put_section(*arguments) == len(keys)
        expected = [Standing.LATEST if m.table.holds(key) else Standing.SUPERSEDED for key in keys]
        assert list(m.classify_section(*arguments)) == expected
        assert m.count == expected.count(Standing.LATEST)


@pytest.mark.parametrize("numbers", [(-1, 3), (3, 3), (0, 0), (1, -1)])
@pytest.mark.skipif(build.compiled is None, reason="no compiled module here")
def test_a_class_that_makes_no_sense_is_refused(numbers):
    with pytest.raises(ValueError, match="remainder"):
        build.compiled.OffsetMap(1000, SEED, *numbers)


@pytest.mark.parametrize("count", [1, 2, 9, 10, 1000, 123_457])
def test_memory_for_so_many_keys_has_room_for_them_and_for_few_more(count):
    m = OffsetMap(bytes_for(count), SEED)
    assert count <= m.capacity <= count + 14  # a group has 14 or 15
