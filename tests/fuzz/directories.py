"""Directories whose files are changed at will: opened, read in every way, appended to, opened again.

An input is bytes: one that chooses a directory, then edits. Any bytes are an input, so that a fuzzer may
change it anywhere. An edit takes one byte for the file, one for what to do, three for the position, one for a
number, and for some as many bytes as the number says.
"""

from __future__ import annotations

import struct
from functools import cache

from crc32c import crc32c

from tests.fuzz.engines import HERE
from tests.fuzz.readers import is_refused

PATH = "/t-0"
VALUES = 40
EDIT_BYTES = 6
NAMES = (
    "00000000000000000000.log",
    "00000000000000000000.index",
    "00000000000000000000.timeindex",
    "00000000000000000000.txnindex",
    "00000000000000000009.log",
    "00000000000000000012.snapshot",
    "00000000000000000040.log",
    "09223372036854775807.log",
    "09223372036854775807.snapshot",
    "leader-epoch-checkpoint",
    "partition.metadata",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    ".kafka_cleanshutdown",
    "a.tmp",
)
SUFFIXES = (".deleted", ".cleaned", ".swap", ".tmp")
EDITS = 13
FORGES, REMOVES = 11, 5
ROT = (0, 2, 3, 4, 12)


def open_log(engine, files, **options):
    config = engine.config
    options = {
        "config": config.TopicConfig(segment_bytes=900, index_interval_bytes=100, retention_ms=-1)
    } | options
    return engine.modules["logstore.partition.log"].Log.open(
        PATH,
        store_config=config.StoreConfig(linger_ms=0),
        files=files,
        clock=engine.modules["logstore.testing"].ManualClock(),
        **options,
    )


def let_go(log):
    """As a killed process does."""
    log.abandon()
    log._context.scheduler.stop()
    log._context.home.release()


class Original:
    """A directory as it was left, and the records that are in it."""

    def __init__(self, files, written, records, is_durable):
        self.image = files.now()
        self.written = written
        """All that ever was, by offset: what was deleted may come back with a damaged checkpoint."""
        self.contents = {record[2:4] for record in written.values()}
        self.records = records
        self.is_durable = is_durable
        """Whether the recovery point is at the end."""


def _records_of(log):
    return {record.offset: tuple(record) for record in log.read()}


def _written(codec, how):
    engine = HERE
    files = engine.modules["logstore.testing"].MemoryFiles()
    config = engine.config.TopicConfig(
        segment_bytes=900, index_interval_bytes=100, retention_ms=-1, compression_type=codec
    )
    log = open_log(engine, files, config=config)
    for number in range(0, VALUES, 4):
        rows = [
            (b"k%d" % n, b"value %d " % n + b"." * (n % 7), 1000 + n, (("h", b"x"),))
            for n in range(number, number + 4)
        ]
        log.extend(rows)
        if number == 16:
            log.assign_leader_epoch(3)
            log.checkpoint()
        if number == 8:
            written = _records_of(log)
            log.delete_before(2)
    records = _records_of(log)
    if how == "clean":
        log.close()
    elif how == "durable":
        log.flush()
        log.checkpoint()
        let_go(log)
    else:
        let_go(log)
    return Original(files, written | records, records, how != "torn")


def _with_producers(how):
    engine = HERE
    files = engine.modules["logstore.testing"].MemoryFiles()
    log = open_log(engine, files)
    batch = engine.modules["logstore.format.batch"]
    for number in range(8):
        producer = number % 3
        log.append_batch(
            bytes(
                batch.encode_batch(
                    [b"k"] * 3,
                    [b"value %d %d" % (number, n) for n in range(3)],
                    1000 + number,
                    producer_id=producer,
                    producer_epoch=0,
                    base_sequence=3 * (number // 3),
                    transactional=producer > 0,
                )
            )
        )
        if producer == 2:
            log.append_end_marker(1, 0, committed=number % 2 == 0)
            log.append_end_marker(2, 0, committed=False)
        if number == 4:
            log.checkpoint()
    records = _records_of(log)
    log.close() if how == "clean" else let_go(log)
    return Original(files, records, records, how == "clean")


@cache
def originals():
    return (
        _written("uncompressed", "clean"),
        _written("uncompressed", "durable"),
        _written("uncompressed", "torn"),
        _written("zstd", "clean"),
        _written("lz4", "torn"),
        _with_producers("clean"),
        _with_producers("torn"),
    )


class Edited:
    """What an input makes of a directory."""

    def __init__(self, data):
        choices = originals()
        self.original = choices[data[0] % len(choices)] if data else choices[0]
        self.kinds = []
        self.files = HERE.modules["logstore.testing"].MemoryFiles(self.original.image)
        self.names = []
        at = 1
        while at + EDIT_BYTES <= len(data) and len(self.kinds) < 12:
            name, kind, high, low, lowest, number = data[at : at + EDIT_BYTES]
            at += EDIT_BYTES
            kind %= EDITS
            payload = b""
            if kind in (1, 3, 9):
                payload = data[at : at + number]
                at += len(payload)
            self.kinds.append(kind)
            self._edit(name, kind, high << 16 | low << 8 | lowest, number, payload)

    @property
    def is_rot(self):
        """One place in one file is not as it was: bits, zeros, a lost end, or something behind the end."""
        return len(self.kinds) == len(self.names) == 1 and self.kinds[0] in ROT

    @property
    def may_lose(self):
        """Whether rot may take records without a word: what was not durable, and what the one file says that
        nothing can be held against, unless it is beyond the end of a log that was closed."""
        return not self.original.is_durable or self.names[0] == "log-start-offset-checkpoint"

    def image(self):
        return self.files.now()

    def _edit(self, name, kind, place, number, payload):
        files = self.files
        names = [entry.name for entry in files.list_directory(PATH) if not entry.is_directory]
        if kind == 9:  # a new file, or another's contents
            self._put(NAMES[name % len(NAMES)], payload)
            return
        if not names:
            return
        chosen = names[name % len(names)]
        contents = bytearray(self._get(chosen))
        position = place % (len(contents) + 1)
        self.names.append(chosen)
        if kind == 0 and contents:
            contents[place % len(contents)] ^= 1 << number % 8
        elif kind == 1:
            contents[position : position + len(payload)] = payload
        elif kind == 2:
            del contents[position:]
        elif kind == 3:
            contents += payload
        elif kind == 4:
            end = min(position + number, len(contents))
            contents[position:end] = bytes(end - position)
        elif kind == REMOVES:
            files.remove(f"{PATH}/{chosen}")
            return
        elif kind == 6:
            source = number * len(contents) // 256
            contents[position:position] = contents[source : source + 100]
        elif kind == 7:
            contents = bytearray(self._get(names[number % len(names)]))
        elif kind == 8:
            files.rename(f"{PATH}/{chosen}", f"{PATH}/{chosen}{SUFFIXES[number % len(SUFFIXES)]}")
            return
        elif kind == 10:
            files.rename(f"{PATH}/{chosen}", f"{PATH}/{NAMES[number % len(NAMES)]}")
            return
        elif kind == FORGES:
            self._forge(contents, place, number)
        elif kind == 12:
            contents += bytes(number * 4)
        self._put(chosen, bytes(contents))

    def _forge(self, contents, place, number):
        """One byte of a batch, and the checksum that fits it: what somebody else wrote, and no rot."""
        position = 0
        starts = []
        while position + 61 <= len(contents):
            (length,) = struct.unpack_from(">i", contents, position + 8)
            if length < 49 or position + 12 + length > len(contents):
                break
            starts.append((position, position + 12 + length))
            position += 12 + length
        if starts:
            start, end = starts[number % len(starts)]
            contents[start + place % (end - start)] ^= 1 << (place >> 16) % 8
            crc = crc32c(bytes(contents[start + 21 : end]))
            struct.pack_into(">I", contents, start + 17, crc)

    def _get(self, name):
        file = self.files.open(f"{PATH}/{name}")
        return file.read_at(0, file.size_bytes())

    def _put(self, name, contents):
        if self.files.is_directory(f"{PATH}/{name}"):
            return
        file = self.files.open(f"{PATH}/{name}", create=True, write=True)
        file.truncate(0)
        file.write_at(0, [contents])


def explore(engine, image, edited):
    """Open a directory, do everything with it, open it again; what came out, in a form that compares.

    What comes back must have been written there, unless something was forged; and behind mere rot at its own
    offset, and all of it, or an error says what is damaged.
    """
    original = None if FORGES in edited.kinds else edited.original
    files = engine.modules["logstore.testing"].MemoryFiles(_image_of(engine, image))
    log = engine.outcome(open_log, engine, files)
    if is_refused(log):
        again = engine.outcome(open_log, engine, files, accept_loss=True)
        if not is_refused(again):
            try:
                rows, _ = _what_can_be_read(engine, again)
                check_written(rows, original)
            finally:
                let_go(again)
        return log, again if is_refused(again) else rows
    try:
        rows, fault = _what_can_be_read(engine, log)
        offsets = [row[0] for row in rows]
        assert offsets == sorted(set(offsets)), offsets
        check_written(rows, original)
        if edited.is_rot:
            assert all(row == edited.original.written[row[0]] for row in rows), rows
            if fault is None and not edited.may_lose:
                lost = edited.original.records.keys() - set(offsets)
                assert not lost, f"{sorted(lost)} are gone, and nobody says so"
        start, end = log.log_start_offset, log.log_end_offset
        assert all(start <= offset < end for offset in offsets), (start, end, offsets)
        others = _other_reads(engine, log, start, end, rows, fault)
        is_sound = _verified(engine, log, fault, others)
        appended = engine.outcome(log.extend, [(b"k", b"more", 5)], flush=True)
        if not is_refused(appended):
            assert appended == range(end, end + 1), (appended, end)
    finally:
        let_go(log)
    again = engine.modules["logstore.testing"].MemoryFiles(files.now())
    second = engine.outcome(open_log, engine, again)
    if is_refused(second):
        assert is_refused(appended) or fault is not None, f"a second open refuses: {second}"
        return rows, fault, others, second
    try:
        found, second_fault = _what_can_be_read(engine, second)
        if not is_refused(appended):
            assert second.log_end_offset == end + 1
            if fault is None and (is_sound or second_fault is None):
                assert second_fault is None, second_fault
                assert found[:-1] == rows, (found, rows)
                assert found[-1][2:4] == (b"k", b"more")
        assert second.log_start_offset == start
    finally:
        let_go(second)
    return rows, fault, others, start, end


def check_written(rows, original):
    """Each is one of the records that were written."""
    if original is not None:
        for row in rows:
            assert row[2:4] in original.contents, f"no such record was written: {row}"


def _image_of(engine, image):
    """The image as this engine's disks take it."""
    return engine.modules["logstore.testing.memory"].Image(image.directories, image.files)


def _what_can_be_read(engine, log):
    rows = []

    def read():
        for record in log.read():
            rows.append(tuple(record))

    return rows, engine.outcome(read)


def _verified(engine, log, fault, found):
    """Whether a check of the log finds nothing; it must find what reading did."""
    report = engine.outcome(log.verify)
    assert not is_refused(report), report
    assert fault is None or not report, f"{fault} is no problem to verify"
    findings = (*report.problems, *report.notes)
    found.append([(finding.kind.value, finding.path, finding.position) for finding in findings])
    return bool(report)


def _other_reads(engine, log, start, end, rows, fault):
    """Everything else that reads: it must say the same, or what is damaged."""
    by_offset = {row[0]: row for row in rows}
    isolation = engine.modules["logstore.model"].Isolation
    found = []
    for offset in {start, (start + end) // 2, end - 1} if end > start else ():
        record = engine.outcome(lambda offset=offset: log.record_at(offset))
        if record is not None and not is_refused(record):
            record = tuple(record)
            assert fault is not None or record == by_offset.get(offset), (record, by_offset.get(offset))
        elif fault is None and record is None:
            assert offset not in by_offset, by_offset[offset]
        found.append(record)
    for timestamp in (0, 1010, 1 << 50):
        at = engine.outcome(log.offset_at, timestamp)
        found.append(at)
    found.append(engine.outcome(lambda: tuple(log.find_max_timestamp() or ())))
    committed = engine.outcome(lambda: [tuple(r) for r in log.read(isolation=isolation.COMMITTED)])
    if isinstance(committed, list) and fault is None:
        assert set(committed) <= set(rows)
    found.append(committed)
    fetched = engine.outcome(lambda: bytes(log.fetch(start).data))
    found.append(fetched)
    return found


def check_directory(data, engines):
    """One input, with each engine; what the first made of it."""
    edited = Edited(data)
    image = edited.image()
    results = []
    for engine in engines:
        with engine.in_place():
            results.append(explore(engine, image, edited))
    for result in results[1:]:
        assert result == results[0], f"{results[0]!r:.800} compiled, {result!r:.800} plain"
    return results[0]
