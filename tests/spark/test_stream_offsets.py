"""What a stream remembers and what its next batch covers, without Spark and without a store."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import UnsupportedVersionError, UsageError
from logstore.model import TopicPartition
from logstore.spark.origins.origin import Bounds
from logstore.spark.stream_offsets import (
    Seen,
    StreamOffset,
    format_offset,
    initial_json,
    is_further,
    limited_ends,
    next_begins,
    next_offset,
    parse_offset,
    ranges_between,
    readable_ranges,
    record_count,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
IDS = {"a": "id-a", "b": "id-b"}


def seen(**bounds):
    """``seen(a0=(0, 5))``: what is there."""
    found = {TopicPartition(name[:-1], int(name[-1])): Bounds(*both) for name, both in bounds.items()}
    return Seen(found, {partition.topic: IDS[partition.topic] for partition in found})


def offset(topic_ids=None, starts=None, epochs=None, **ends):
    named = {TopicPartition(name[:-1], int(name[-1])): end for name, end in ends.items()}
    ids = {partition.topic: IDS[partition.topic] for partition in named} if topic_ids is None else topic_ids
    return StreamOffset(ends=named, starts=starts or {}, topic_ids=ids, epochs=epochs or {})


def begins(last, now, *, missed=True):
    found, losses = next_begins(last, now, lambda partition: missed)
    return found, [str(loss) for loss in losses]


# JSON


def test_json_form():
    text = json.dumps(format_offset(offset(a0=120, a1=50, b0=7, starts={A1: 0}, epochs={A0: 3})))
    assert text == (
        '{"logstore": 1, "topics": {"a": {"id": "id-a", "end": {"0": 120, "1": 50}, "epoch": {"0": 3}, '
        '"from": {"1": 0}}, "b": {"id": "id-b", "end": {"0": 7}}}}'
    )


_PARTITIONS = st.builds(TopicPartition, st.sampled_from(["a", "b", "a.b-c_1"]), st.integers(0, 12))


@st.composite
def _offsets(draw):
    ends = draw(st.dictionaries(_PARTITIONS, st.integers(0, 2**63 - 1), max_size=6))
    starts = {p: draw(st.integers(0, end)) for p, end in ends.items() if draw(st.booleans())}
    ids = {p.topic: draw(st.sampled_from(["x", "y-z"])) for p in ends if draw(st.booleans())}
    epochs = {p: draw(st.integers(0, 2**31 - 1)) for p in ends if draw(st.booleans())}
    return StreamOffset(ends=ends, starts=starts, topic_ids=ids, epochs=epochs)


@given(_offsets())
def test_offset_comes_back_from_json_as_the_same_text(there):
    text = json.dumps(format_offset(there))
    assert parse_offset(json.loads(text)) == there
    assert json.dumps(format_offset(parse_offset(json.loads(text)))) == text


def test_initial_json_means_that_nothing_was_read():
    assert parse_offset(initial_json({"startingOffsets": "latest"})) is None


_FOREIGN = 'it has no "logstore"; was the checkpoint made by another source?'


@pytest.mark.parametrize(
    ("damaged", "reason"),
    [
        ({"flights": {"0": 12}}, _FOREIGN),
        (12, _FOREIGN),
        ({"logstore": True, "topics": {}}, _FOREIGN),
        ({"logstore": 1}, 'it has neither "topics" nor "begin"'),
        ({"logstore": 1, "topics": []}, 'it has neither "topics" nor "begin"'),
        ({"logstore": 1, "topics": {"a": {}}}, "topic 'a' has no \"end\""),
        ({"logstore": 1, "topics": {"a": {"end": [5]}}}, "the offsets of topic 'a' are not a JSON object"),
        (
            {"logstore": 1, "topics": {"a": {"end": {"0": "5"}}}},
            "partition '0' of topic 'a' has the number '5'",
        ),
        (
            {"logstore": 1, "topics": {"a": {"end": {"0": -1}}}},
            "partition '0' of topic 'a' has the number -1",
        ),
        ({"logstore": 1, "topics": {"a": {"end": {"x": 1}}}}, "partition 'x' of topic 'a' has the number 1"),
        ({"logstore": 1, "topics": {"a": {"end": {"0": 1}, "id": 4}}}, "the id of topic 'a' is not text"),
        (
            {"logstore": 1, "topics": {"a": {"end": {"0": 1}, "from": {"0": 2}}}},
            "a-0 begins at 2 and ends at 1",
        ),
        (
            {"logstore": 1, "topics": {"a": {"end": {"0": 1}, "from": {"1": 2}}}},
            "a-1 begins at 2 and ends at None",
        ),
        (
            {"logstore": 1, "topics": {"a": {"end": {"0": 1}, "epoch": {"1": 2}}}},
            "a-1 ends at None in leader epoch 2",
        ),
        (
            {"logstore": 1, "topics": {"a": {"end": {"0": 1}, "epoch": {"0": 2147483648}}}},
            "a-0 ends at 1 in leader epoch 2147483648",
        ),
    ],
)
def test_what_is_no_offset_of_ours_is_refused_and_shown(damaged, reason):
    with pytest.raises(UsageError) as caught:
        parse_offset(damaged)
    assert str(caught.value) == (
        f"an offset in the stream's checkpoint cannot be read: {reason}: {damaged!r}"
    )


def test_offset_of_a_newer_version_is_refused():
    with pytest.raises(UnsupportedVersionError, match="has version 2; this logstore knows version 1"):
        parse_offset({"logstore": 2, "topics": {}})


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["0", "a", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["logstore", "topics", "begin", "end", "from", "id", "0"]), inner)
    ),
)


@given(_JSON)
def test_any_json_is_an_offset_or_refused(parsed):
    with contextlib.suppress(UsageError):
        parse_offset(parsed)


# What a batch covers


def test_batch_goes_from_the_end_of_the_last_to_its_own():
    assert ranges_between(offset(a0=3, a1=9), offset(a0=5, a1=9)) == {A0: range(3, 5)}


def test_first_batch_begins_where_its_end_says():
    assert ranges_between(None, offset(a0=5, starts={A0: 2})) == {A0: range(2, 5)}


def test_beginning_in_the_end_wins_over_the_end_of_the_last():
    assert ranges_between(offset(a0=3), offset(a0=9, starts={A0: 7})) == {A0: range(7, 9)}


def test_batch_between_an_offset_and_itself_is_empty():
    same = offset(a0=9, starts={A0: 7})
    assert ranges_between(same, same) == {}


@pytest.mark.parametrize(
    ("start", "end", "reason"),
    [
        (offset(a0=7), offset(a0=5), "a-0 should be read from 7 to 5"),
        (offset(a0=7), offset(a0=8, a1=5), "a-1 should be read from nowhere to 5"),
        (None, offset(a0=5), "a-0 should be read from nowhere to 5"),
    ],
)
def test_offsets_that_do_not_fit_each_other_are_refused(start, end, reason):
    with pytest.raises(UsageError, match=reason):
        ranges_between(start, end)


@pytest.mark.parametrize(
    ("now", "left", "reasons"),
    [
        (seen(a0=(0, 10)), {A0: range(3, 8)}, []),
        (
            seen(a0=(5, 10)),
            {A0: range(5, 8)},
            ["a-0: the records at offsets 3 to 4 were deleted before they were read"],
        ),
        (seen(a0=(9, 10)), {}, ["a-0: the records at offsets 3 to 7 were deleted before they were read"]),
        (
            seen(a0=(0, 6)),
            {A0: range(3, 6)},
            ["a-0: it was cut: records were read up to offset 7, but it ends at 6"],
        ),
        (
            seen(a0=(0, 10))._replace(parted={A0: 5}),
            {A0: range(3, 5)},
            [
                "a-0: it was cut at offset 5, and others took the place of the records up to offset 7 that "
                "were read"
            ],
        ),
        (
            seen(a0=(0, 10))._replace(parted={A0: 2}),
            {},
            [
                "a-0: it was cut at offset 2, and others took the place of the records up to offset 7 that "
                "were read"
            ],
        ),
        (
            seen(a0=(0, 10))._replace(parted={A0: 8}),
            {A0: range(3, 8)},
            [
                "a-0: it has another record at offset 7 than was read, as a log of an older copy "
                "has, and it is unknown which others"
            ],
        ),
        (seen(), {}, ["a-0: it does not exist any more; the next offset to read was 3"]),
        (
            Seen({A0: Bounds(0, 10)}, {"a": "another"}),
            {},
            ["a-0: its topic was deleted and created again; in the old one the next offset to read was 3"],
        ),
    ],
    ids=[
        "all",
        "beginning deleted",
        "all deleted",
        "cut",
        "others",
        "only others",
        "older copy",
        "gone",
        "created again",
    ],
)
def test_what_is_left_of_a_batch(now, left, reasons):
    found, losses = readable_ranges({A0: range(3, 8)}, {"a": "id-a"}, now)
    assert found == left
    assert [str(loss) for loss in losses] == reasons


# Where the next batch begins


def test_next_batch_begins_where_the_last_ended():
    assert begins(offset(a0=3, b0=4), seen(a0=(0, 9), b0=(0, 4))) == ({A0: 3, B0: 4}, [])


def test_new_partition_is_read_from_its_beginning():
    assert begins(offset(a0=3), seen(a0=(0, 9), a1=(0, 5))) == ({A0: 3, A1: 0}, [])


def test_new_partition_whose_beginning_is_gone_is_a_loss():
    assert begins(offset(a0=3), seen(a0=(0, 9), a1=(4, 5))) == (
        {A0: 3, A1: 4},
        ["a-1: it is new to the stream, but its records below offset 4 are already deleted"],
    )


@pytest.mark.parametrize(
    ("now", "begin", "reason"),
    [
        (seen(a0=(7, 9)), 7, "the records at offsets 3 to 6 were deleted before they were read"),
        (seen(a0=(3, 9)), 3, None),
        (seen(a0=(0, 3)), 3, None),
        (
            seen(a0=(0, 2)),
            2,
            "it was cut: records were read up to offset 2, but it ends at 2",
        ),
        (
            Seen({A0: Bounds(0, 9)}, {"a": "another"}),
            0,
            "its topic was deleted and created again; in the old one the next offset to read was 3",
        ),
        (Seen({A0: Bounds(0, 9)}, {}), 3, None),
        (
            seen(a0=(0, 9))._replace(parted={A0: 1}),
            1,
            "it was cut at offset 1, and others took the place of the records up to offset 2 that were read",
        ),
        (
            seen(a0=(2, 9))._replace(parted={A0: 1}),
            2,
            "it was cut at offset 1, and others took the place of the records up to offset 2 that were read",
        ),
    ],
    ids=[
        "deleted",
        "nearly deleted",
        "nearly cut",
        "cut",
        "created again",
        "id unknown",
        "others",
        "others deleted",
    ],
)
def test_where_the_next_batch_begins_after_a_loss(now, begin, reason):
    assert begins(offset(a0=3), now) == ({A0: begin}, [f"a-0: {reason}"] if reason else [])


def test_partition_that_vanished_is_a_loss():
    assert begins(offset(a0=3, b0=4), seen(a0=(0, 3))) == (
        {A0: 3},
        ["b-0: it does not exist any more; the next offset to read was 4"],
    )


def test_partition_that_is_not_asked_for_any_more_is_none():
    assert begins(offset(a0=3, b0=4), seen(a0=(0, 3)), missed=False) == ({A0: 3}, [])


def test_partition_that_is_not_asked_for_keeps_its_place():
    last = offset(a0=3, b0=4)
    assert next_offset(last, {A0: 3}, {A0: 9}, seen(a0=(0, 9)), set()) == offset(a0=9, b0=4)


def test_partition_that_vanished_is_forgotten():
    last = offset(a0=3, b0=4)
    assert next_offset(last, {A0: 3}, {A0: 9}, seen(a0=(0, 9)), {B0}) == offset(a0=9)


def test_partition_at_rest_of_a_topic_that_was_created_again_is_forgotten():
    last = offset(a0=3, a1=4)
    now = Seen({A0: Bounds(0, 9)}, {"a": "another"})
    assert next_offset(last, {A0: 0}, {A0: 9}, now, set()) == offset({"a": "another"}, starts={A0: 0}, a0=9)


def test_beginning_is_kept_where_it_is_not_the_last_end():
    last = offset(a0=3, a1=4)
    now = seen(a0=(0, 9), a1=(6, 9), b0=(0, 9))
    following = next_offset(last, {A0: 3, A1: 6, B0: 0}, {A0: 9, A1: 8, B0: 0}, now, set())
    assert following.starts == {A1: 6, B0: 0}


def test_an_end_that_stays_keeps_its_epoch():
    last = offset(a0=3, a1=4, b0=5, epochs={A0: 1, A1: 1, B0: 1})
    now = seen(a0=(0, 9), a1=(0, 4))
    following = next_offset(last, {A0: 3, A1: 4}, {A0: 9, A1: 4}, now, set(), {A0: 2})
    assert following.epochs == {A0: 2, A1: 1, B0: 1}
    unknown = next_offset(last, {A0: 3, A1: 4}, {A0: 9, A1: 4}, now, {B0})
    assert unknown.epochs == {A1: 1}


@pytest.mark.parametrize(
    ("following", "further"),
    [
        (offset(a0=3), False),
        (offset({"a": "now known"}, a0=3), False),
        (offset(a0=4), True),
        (offset(a0=3, b0=0, starts={B0: 0}), True),
        (offset(a0=2, starts={A0: 2}), True),
        (offset(), True),
    ],
    ids=["same", "id", "records", "new and empty", "cut", "gone"],
)
def test_batch_is_run_when_there_is_something_to_read_or_to_remember(following, further):
    assert is_further(offset({}, a0=3, starts={A0: 1}), following) is further


# How far it goes

_BACKLOGS = st.dictionaries(_PARTITIONS, st.tuples(st.integers(0, 50), st.integers(0, 500)), min_size=1)


@given(_BACKLOGS, st.integers(1, 600))
def test_limited_batch(backlogs, limit):
    """Within each backlog; all of it or about the limit; no partition starved; in proportion."""
    first = {p: begin for p, (begin, _) in backlogs.items()}
    ends = {p: begin + size for p, (begin, size) in backlogs.items()}
    total = record_count(first, ends)
    limited = limited_ends(first, ends, limit)
    assert all(first[p] <= limited[p] <= ends[p] for p in first)
    assert record_count(first, limited) <= max(min(limit, total), 0) + len(first)
    if total <= limit:
        assert limited == ends
    else:
        assert all(limited[p] > first[p] for p in first if ends[p] > first[p])
        for p in first:
            share = limit * (ends[p] - first[p]) / total
            assert abs(limited[p] - first[p] - share) <= 1


def test_limit_is_divided_in_proportion():
    assert limited_ends({A0: 0, A1: 0, B0: 5}, {A0: 900, A1: 100, B0: 5}, 100) == {A0: 90, A1: 10, B0: 5}


# A whole stream

_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 3), st.integers(1, 9)),
        st.tuples(st.just("partition"), st.just(0), st.just(0)),
        st.tuples(st.just("trigger"), st.integers(1, 12), st.just(0)),
        st.tuples(st.just("crash before the batch"), st.integers(1, 12), st.just(0)),
        st.tuples(st.just("crash behind the batch"), st.integers(1, 12), st.just(0)),
    ),
    max_size=40,
)


class _Stream:
    """Spark's part: a journal of ends as text, a sink that a batch's number makes idempotent."""

    def __init__(self, starts_at_end):
        self.ends = {A0: 5, A1: 0}
        self.starts_at_end = starts_at_end
        self.journal, self.committed = [], 0
        self.sink = {}

    def now(self):
        return Seen({p: Bounds(0, end) for p, end in self.ends.items()}, dict(IDS))

    def journaled(self, number):
        marker = initial_json({})
        return parse_offset(json.loads(self.journal[number]) if number >= 0 else marker)

    def plan(self, limit):
        """Journal the end of the next batch, if there is one."""
        last, now = self.journaled(self.committed - 1), self.now()
        if last is None:
            first = {p: end if self.starts_at_end else 0 for p, end in self.ends.items()}
        else:
            first, losses = next_begins(last, now, lambda partition: True)
            assert not losses
        following = next_offset(last, first, limited_ends(first, self.ends, limit), now, set())
        if last is None or is_further(last, following):
            self.journal.append(json.dumps(format_offset(following)))

    def run(self, *, commits):
        if self.committed < len(self.journal):
            start, end = self.journaled(self.committed - 1), self.journaled(self.committed)
            ranges, losses = readable_ranges(ranges_between(start, end), end.topic_ids, self.now())
            assert not losses
            self.sink[self.committed] = ranges
            self.committed += commits

    def step(self, action, limit):
        if self.committed == len(self.journal):
            self.plan(limit)
        if action != "crash before the batch":
            self.run(commits=action == "trigger")


@given(_STEPS, st.booleans())
def test_each_record_is_read_once_over_crashes_and_new_partitions(steps, starts_at_end):
    stream = _Stream(starts_at_end)
    first = None
    for action, number, count in [*steps, *[("trigger", 50, 0)] * 20]:
        if action == "append":
            partition = sorted(stream.ends)[number % len(stream.ends)]
            stream.ends[partition] += count
        elif action == "partition":
            stream.ends[TopicPartition("b", len(stream.ends) - 2)] = 3
        else:
            if not stream.journal:
                first = dict(stream.ends) if starts_at_end else {}
            stream.step(action, number)
    read = {p: [] for p in stream.ends}
    for number in sorted(stream.sink):
        for partition, offsets in stream.sink[number].items():
            read[partition] += offsets
    assert read == {p: list(range(first.get(p, 0), end)) for p, end in stream.ends.items()}
