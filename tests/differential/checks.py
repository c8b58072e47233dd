"""Looks at a history: every way to read it gives what the model says, or the same error."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import logstore
from logstore.format.loops import scan_batches
from logstore.model import Isolation, Record
from logstore.partition.reading.readable import ReadableLog
from logstore.partition.reading.records import iterate_batches
from logstore.partition.watching.pinned import Damage
from logstore.partition.watching.read_only import ReadOnlyLog
from logstore.testing import ManualClock
from tests.differential.history import Flip, History
from tests.differential.model import Model
from tests.differential.readers import (
    COLUMNS_ALONE,
    IN_ORDER,
    REACHING,
    SINGLE,
    WHOLE,
    Outcome,
    outcome,
    pinned,
    records_of,
    rows,
)
from tests.whole_records import whole

PREFIX_BYTES = 17
"""Of a batch: what the CRC does not cover, the length and the magic byte."""

LEADER_EPOCH = range(12, 16)

LAST_OFFSET_DELTA = range(23, 27)


class Followed(Protocol):
    """A log that a model follows, with what chooses the ranges to read."""

    model: Model
    clock: ManualClock
    chance: random.Random


@contextmanager
def fresh_reader(history: History) -> Iterator[ReadOnlyLog]:
    """Another process that opens the store now."""
    with logstore.open(str(history.path), read_only=True) as store:
        log = store["t"][0]
        assert isinstance(log, ReadOnlyLog)
        yield log


def check(history: History) -> int:
    """Read everything in every way, and some of it; returns the number of reads."""
    count = check_log(history, history.log)
    if not history.manages_high_watermark:  # readers elsewhere know nothing of it
        count += check_log(history, history.watcher)
        with fresh_reader(history) as reader:
            count += check_log(history, reader)
    return count


def check_log(history: Followed, log: ReadableLog) -> int:
    """Read the log in every way, all of it and parts; returns the number of reads."""
    model, count = history.model, 0
    bounds = (log.log_start_offset, log.log_end_offset, log.last_stable_offset)
    assert bounds == (model.start, model.end, model.stable), (type(log).__name__, *bounds)
    for isolation in Isolation:
        limit = log.durable_offset if isolation is Isolation.DURABLE else model.limit(isolation)
        for start, stop in _ranges(history, limit):
            expected = Outcome(model.records(start, stop, isolation), None)
            for name, way in (IN_ORDER | WHOLE).items():
                found = outcome(lambda: way(log, start, stop, isolation))  # noqa: B023 - called at once
                if found != expected and "fetches" in name and found.fault is None:
                    found = _with_rest(log, found, expected, limit)
                what = (type(log).__name__, name, isolation, start, stop)
                assert found == expected, (*what, *difference(found, expected))
                if name not in COLUMNS_ALONE:
                    _check_sources(found.records, expected.records, what)
                count += 1
            if isinstance(log, ReadOnlyLog):
                found = outcome(lambda: pinned(log, start, stop, isolation))  # noqa: B023 - as above
                what = (type(log).__name__, "pinned", isolation, start, stop)
                assert found == expected, (*what, *difference(found, expected))
                count += 1
        count += _check_tables(history, log, isolation)
    _check_times(history, log)
    _check_outside(history, log)
    return count


def _check_sources(found: list[Record], expected: list[Record], what: tuple[object, ...]) -> None:
    """What equal records say beside the fields that make them equal."""
    for one, other in zip(found, expected, strict=True):
        assert whole(one) == whole(other), (*what, whole(one), whole(other))


def difference(found: Outcome, expected: Outcome) -> tuple[object, ...]:
    """For a message: records too much, records missing, and both ends."""
    extra = [record for record in found.records if record not in expected.records]
    missing = [record for record in expected.records if record not in found.records]
    return "extra", extra[:3], "missing", missing[:3], found.fault, expected.fault


def _ranges(history: Followed, limit: int) -> list[tuple[int, int]]:
    """All that can be read, and two parts of it."""
    chance, start = history.chance, history.model.start
    if limit <= start:
        return []
    parts = [sorted((chance.randint(start, limit), chance.randint(start, limit))) for _ in range(2)]
    return [(start, limit), *((first, last) for first, last in parts)]


def _with_rest(log: ReadableLog, found: Outcome, expected: Outcome, limit: int) -> Outcome:
    """A fetch gives no batch that reaches over what is shown: add those records."""
    view = log._current_view()
    for batch in iterate_batches(view, max(limit - 1, view.log_start_offset), view.log_end_offset):
        header = batch.header
        if header.base_offset < limit <= header.last_offset:
            rest = [record for record in expected.records if record.offset >= header.base_offset]
            return Outcome([*found.records, *rest], None)
        break
    return found


def _check_tables(history: Followed, log: ReadableLog, isolation: Isolation) -> int:
    view = log.latest(isolation=isolation)
    expected = history.model.latest(view.end_offset, isolation)
    found, what = list(view), (type(log).__name__, "latest", isolation)
    assert found == expected, what
    _check_sources(found, expected, what)
    columns = [record for batch in view.iterate_arrow(batch_rows=4) for record in records_of(batch)]
    assert columns == expected, (type(log).__name__, "latest_arrow", isolation)
    return 2


def _check_times(history: Followed, log: ReadableLog) -> None:
    model = history.model
    for age_ms in (0, 5, 700, 1500, 100_000):
        wanted_ms = history.clock.now_ms() - age_ms
        assert log.offset_at(wanted_ms) == model.at_time(wanted_ms), ("offset_at", wanted_ms)
    found = log.find_max_timestamp()
    assert (None if found is None else (found.offset, found.timestamp_ms)) == model.newest()


def _check_outside(history: Followed, log: ReadableLog) -> None:
    model = history.model
    for start in (model.start - 1, model.end + 1):
        if start >= 0:
            for name, way in (IN_ORDER | WHOLE).items():
                found = outcome(lambda: way(log, start, start + 1, Isolation.LOG_END))  # noqa: B023
                assert found == Outcome([], ("OffsetOutOfRangeError",)), (name, start)


# Damage -----------------------------------------------------------------------------------------------------


def check_damage(history: History, *, in_active: bool) -> int:
    """Change one bit, read everything, and change it back; returns the number of reads.

    A reader in another process walks over what is not below the segment that holds the recovery point, as a
    recovery does, and refuses the log where durable data is damaged there: of such damage only the writer's
    own ways are compared. With ``in_active`` all is made durable first, and of readers elsewhere every way to
    read must refuse the log, or none.
    """
    if in_active:
        history.log.flush()
        history.log.checkpoint()
    flip = history.flip(is_in_active=True)
    if flip is None:
        return 0
    damaged = _damaged_batch(history, flip)
    if damaged.place in LEADER_EPOCH:  # no checksum covers it: the batch is good, and may be remembered so
        return 0
    recovery_point = history.log._context.home.recovery_point(history.log.partition)
    bases = history.log.writer.core.view.bases
    walked_from = max((base for base in bases if base <= recovery_point), default=0)
    is_walked_over = int(flip.path.stem) >= walked_from
    with flip:
        count = _check_damaged(history, history.log, flip, damaged)
        if history.manages_high_watermark or (is_walked_over and not in_active):
            return count
        with fresh_reader(history) as reader:
            for log in (history.watcher, reader):
                refused = _refusal(history, log) if is_walked_over else None
                if refused is None:
                    count += _check_damaged(history, log, flip, damaged)
                else:
                    count += _check_refused(history, log, flip, refused)
    return count


def _refusal(history: History, log: ReadableLog) -> Outcome | None:
    """What a reader elsewhere says of the whole log, if it refuses it."""
    model = history.model
    outcome(lambda: rows(log, model.start, model.end, Isolation.LOG_END))  # one that looked before meets it
    said = outcome(lambda: rows(log, model.end, model.end, Isolation.LOG_END))
    return None if said.fault is None else said


def _check_refused(history: History, log: ReadableLog, flip: Flip, refused: Outcome) -> int:
    model, count = history.model, 0
    assert not refused.records
    assert refused.fault is not None
    assert refused.fault[:2] == ("CorruptionError", flip.path.name), refused
    for isolation in (Isolation.LOG_END, Isolation.COMMITTED):
        for start, stop in _ranges(history, model.limit(isolation)):
            for name, way in (IN_ORDER | WHOLE | {"pinned": pinned}).items():
                if start < stop:
                    found = outcome(lambda: way(log, start, stop, isolation))  # noqa: B023 - called at once
                    assert found == refused, (name, isolation, start, stop, found, refused)
                    count += 1
    return count


class Damaged(NamedTuple):
    """The batch that is changed."""

    first: int
    last: int
    before: int
    """Where the next batch begins. Nobody can tell that a gap in between is one, if not by this batch."""
    place: int
    """What of it is changed."""

    @property
    def is_exact(self) -> bool:
        """Whether the batch alone is damaged. Offsets of neighbours bear witness to each other: where they
        contradict, either may be refused."""
        return self.place >= PREFIX_BYTES and self.place not in LAST_OFFSET_DELTA

    def is_in(self, start: int, stop: int) -> bool:
        return start < stop and self.first < stop and self.last >= start

    def may_be_in(self, start: int, stop: int) -> bool:
        return start < stop and self.first < stop and self.before > start


def _damaged_batch(history: History, flip: Flip) -> Damaged:
    data = flip.path.read_bytes()
    headers = scan_batches(data, 0, len(data), check=True)[0]
    behind = [base for base in history.log.writer.core.view.bases if base > int(flip.path.stem)]
    ends = [header.base_offset for _, header in headers[1:]] + [min(behind, default=history.model.end)]
    for (position, header), before in zip(headers, ends, strict=True):
        if position <= flip.position < position + header.size_bytes:
            return Damaged(header.base_offset, header.last_offset, before, flip.position - position)
    raise AssertionError(f"no batch at {flip.position}")


def _check_damaged(history: History, log: ReadableLog, flip: Flip, damaged: Damaged) -> int:
    model, count = history.model, 0
    may_remember = isinstance(log, ReadOnlyLog) or history.store_config.batch_cache_bytes > 0
    for isolation in (Isolation.LOG_END, Isolation.COMMITTED):
        limit = model.limit(isolation)
        for start, stop in _ranges(history, limit):
            right = model.records(start, stop, isolation)
            said = outcome(lambda: rows(log, start, stop, isolation))  # noqa: B023 - called at once
            what = (type(log).__name__, isolation, start, stop, str(flip.path), flip.position)
            if stop - start == 1:  # which is a single read
                _check_single(said, right, damaged, may_remember, what)
            else:
                _check_said(said, right, start, stop, damaged, what)
            for name, way in (IN_ORDER | WHOLE).items():
                if name not in SINGLE and stop - start == 1:
                    continue
                if name in REACHING and (stop < limit or history.manages_high_watermark):
                    continue
                found = outcome(lambda: way(log, start, stop, isolation))  # noqa: B023 - as above
                count += 1
                if found != said and name not in SINGLE and not damaged.is_exact:
                    # An index that damage contradicts is built anew, once: reads may then begin elsewhere.
                    said = outcome(lambda: rows(log, start, stop, isolation))  # noqa: B023 - as above
                    _check_said(said, right, start, stop, damaged, what)
                    found = outcome(lambda: way(log, start, stop, isolation))  # noqa: B023 - as above
                if name in SINGLE:
                    _check_single(found, right, damaged, may_remember, (name, *what))
                elif name in WHOLE:
                    assert found.fault == said.fault, (name, *what, found.fault, said.fault)
                    assert found.records == right[: len(found.records)], (name, *what)
                else:
                    assert found == said, (name, *what, *difference(found, said))
                    if name not in COLUMNS_ALONE:
                        _check_sources(found.records, said.records, (name, *what))
            if isinstance(log, ReadOnlyLog) and stop - start > 1:
                found = outcome(lambda: pinned(log, start, stop, isolation))  # noqa: B023 - as above
                assert found == said, ("pinned", *what, *difference(found, said))
                if damaged.is_exact and damaged.before < model.end:  # else the log ends there for it
                    _check_passed(log, start, stop, isolation, damaged, right, what)
                count += 2
        _check_damaged_table(history, log, isolation, limit, damaged)
    return count


def _check_said(
    said: Outcome,
    right: list[Record],
    start: int,
    stop: int,
    damaged: Damaged,
    what: tuple[object, ...],
) -> None:
    """What rows give is right, as far as it goes, and it ends where the damage is."""
    assert said.records == right[: len(said.records)], (*what, said.records, right)
    if said.fault is None:
        assert said.records == right, ("missing", *what)
        assert not damaged.is_in(start, stop) or not damaged.is_exact, ("not noticed", *what)
        return
    assert said.fault[0] == "CorruptionError", (said.fault, *what)
    if damaged.is_exact:
        assert damaged.may_be_in(start, stop), ("damage that is not in the way", *what)
        assert said.records == [record for record in right if record.offset < damaged.first], what


def _check_single(
    found: Outcome,
    right: list[Record],
    damaged: Damaged,
    may_remember: bool,
    what: tuple[object, ...],
) -> None:
    """Each record is right or refused. What was kept of a batch before it was damaged is right, too."""
    what = (*what, damaged, *difference(found, Outcome(right, None)))
    in_front = [record for record in right if record.offset < damaged.first]
    assert found.records == right[: len(found.records)], what
    if found.fault is None:
        assert found.records == right, what
        hidden = [record for record in right if damaged.first <= record.offset <= damaged.last]
        assert may_remember or not hidden or not damaged.is_exact, ("not noticed", *what)
        return
    assert found.fault[0] == "CorruptionError", what
    if damaged.is_exact:
        assert found.records[: len(in_front)] == in_front, what
        assert may_remember or len(found.records) == len(in_front), what


def _check_passed(
    log: ReadOnlyLog,
    start: int,
    stop: int,
    isolation: Isolation,
    damaged: Damaged,
    right: list[Record],
    what: tuple[object, ...],
) -> None:
    """A reader that passes over damage misses that batch and nothing else."""
    passed: list[Damage] = []
    found = outcome(lambda: pinned(log, start, stop, isolation, passed.append))
    expected = [record for record in right if not damaged.first <= record.offset <= damaged.last]
    assert found == Outcome(expected, None), ("passing over", *what)


def _check_damaged_table(
    history: History, log: ReadableLog, isolation: Isolation, limit: int, damaged: Damaged
) -> None:
    found = outcome(lambda: ([record] for record in log.latest(isolation=isolation)))
    expected = history.model.latest(limit, isolation)
    if found.fault is None:
        assert found.records == expected
        is_met = damaged.is_in(history.model.start, limit)
        assert not is_met or not damaged.is_exact, ("latest", isolation, damaged)
    else:
        assert found.fault[0] == "CorruptionError"
        assert found.records == expected[: len(found.records)]
