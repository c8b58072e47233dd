"""Indexes are held against many batches at once, or one by one: the same findings and words.

One by one is the reference: it is what says anything. Both run over random segments with random damage in
their indexes, in pieces of few batches.
"""

import random

import pytest

from logstore.format.batch import decode_header, encode_batch, seal_batch
from logstore.format.layout import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY
from logstore.partition.checking import segment as checking
from logstore.partition.checking.facts import EVERYTHING
from logstore.partition.checking.indexes import OffsetIndexCheck, TimeIndexCheck
from logstore.segment_files import Segment
from logstore.testing import MemoryFiles

BASE = 500
NAME = f"/d/{BASE:020d}"


def random_segment(chance):
    """A log, and its indexes as a writer with some interval would have made them, or any other way."""
    log, offsets, times, ends = b"", b"", b"", []
    offset, time_ms, largest = BASE, 1_000_000, (-1, BASE)
    interval, behind = chance.choice([0, 100, 300, 10_000]), 0
    has_every_record = chance.random() < 0.7
    for _ in range(chance.randrange(1, 40)):
        count = chance.randrange(1, 4)
        offset += 0 if has_every_record else chance.randrange(3)
        time_ms += chance.choice([0, 1, 50, 1_000, -200])
        batch = encode_batch(
            [None] * count, [b"v" * chance.randrange(100)] * count, [time_ms] * count, base_offset=offset
        )
        last = offset + count - 1
        if chance.random() < 0.1:
            batch = seal_batch(decode_header(batch)._replace(record_count=0), b"")
        if chance.random() < 0.03:
            batch[6:8] = (max(offset - chance.randrange(3), 0)).to_bytes(2, "big")  # no checksum covers it
        ends.append(last - BASE)
        if time_ms > largest[0]:
            largest = time_ms, last
        if behind > interval:
            offsets += OFFSET_INDEX_ENTRY.pack(last - BASE, len(log))
            named = chance.choice([largest, largest, (time_ms, last)])
            if not times or TIME_INDEX_ENTRY.unpack_from(times, len(times) - 12)[0] < named[0]:
                times += TIME_INDEX_ENTRY.pack(named[0], named[1] - BASE)
            behind = 0
        behind += len(batch)
        log += bytes(batch)
        offset += count
    return log, offsets, times, ends


def damaged(entries, layout, chance, ends):
    rows = [list(row) for row in layout.iter_unpack(entries)]
    for _ in range(chance.choice([0, 0, 1, 1, 2])):
        if not rows:
            break
        at, kind = chance.randrange(len(rows)), chance.randrange(6)
        if kind == 0:
            rows[at][chance.randrange(2)] += chance.choice([-60, -1, 1, 60, 400])
        elif kind == 1:
            del rows[at]
        elif kind == 2:
            rows.insert(at, [rows[at][0] - 1, rows[at][1] - chance.randrange(2)])
        elif kind == 3:
            del rows[at:]
        elif kind == 4:  # as old brokers do it: the last of several batches
            rows[at][layout is TIME_INDEX_ENTRY] = chance.choice(ends)
        else:
            rows.append([rows[-1][0] + 5, rows[-1][1] + 5])
    data = bytearray().join(layout.pack(*row) for row in rows if min(row) >= 0)
    if data and chance.random() < 0.1:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    if chance.random() < 0.05:
        data += b"\0"
    return bytes(data)


def files_of(log, offsets, times):
    files = MemoryFiles()
    files.make_directory("/d")
    for suffix, data in ((".log", log), (".index", offsets), (".timeindex", times)):
        file = files.open(NAME + suffix, create=True)
        file.write_at(0, [data])
        file.close()
    return files


def report_of(files):
    with Segment.open(f"{NAME}.log", files=files) as segment:
        report = segment.check()
    return report.problems, report.notes, report.record_count


@pytest.mark.parametrize("seed", range(12))
def test_many_at_once_and_one_by_one(monkeypatch, seed):
    chance = random.Random(seed)
    monkeypatch.setattr(checking, "_DEFAULT_INTERVAL_BYTES", 0)
    monkeypatch.setattr("logstore.segment_files.segment._INTERVAL_BYTES", chance.choice([100, 300, 4096]))
    met = {True: 0, False: 0}
    faults = 0

    def counted(agrees):
        def ask(self, *arguments):
            answer = agrees(self, *arguments)
            met[answer] += 1
            return answer

        return ask

    for _ in range(100):
        log, offsets, times, ends = random_segment(chance)
        if chance.random() < 0.2:
            at = chance.randrange(len(log))
            log = log[:at] + bytes([log[at] ^ 1]) + log[at + 1 :]
        files = files_of(
            log,
            damaged(offsets, OFFSET_INDEX_ENTRY, chance, ends),
            damaged(times, TIME_INDEX_ENTRY, chance, ends),
        )
        trusted_end = chance.choice([EVERYTHING, EVERYTHING, BASE + chance.randrange(ends[-1] + 2)])
        monkeypatch.setattr("logstore.segment_files.segment.EVERYTHING", trusted_end)
        monkeypatch.setattr(checking, "PIECE_BYTES", chance.choice([200, 400, 1_000, 100_000]))
        with monkeypatch.context() as patch:
            for kind in (OffsetIndexCheck, TimeIndexCheck):
                patch.setattr(kind, "agrees", lambda *_: False)
            expected = report_of(files)
        with monkeypatch.context() as patch:
            for kind in (OffsetIndexCheck, TimeIndexCheck):
                patch.setattr(kind, "agrees", counted(kind.agrees))
            assert report_of(files) == expected
        faults += bool(expected[0])
    assert met[True] > 50
    assert met[False] > 10
    assert 20 < faults < 98
