"""No answer tells a client where the store's files are, or what else there is. 6 s together."""

from __future__ import annotations

import random

import pytest

from logstore import warning
from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Answered
from logstore.format.messages.declared import Array, fields_of
from logstore.format.messages.fields import NO_UUID
from logstore.testing import FAULTS, FaultyFiles, MemoryFiles
from logstore.wire.apis import APIS, ApiKey
from logstore.wire.handlers.call import NoAnswer
from logstore.wire.headers import RequestHeader
from logstore.wire.listener import answering, wording
from logstore.wire.listener.wording import for_clients, words_for
from logstore.wire.messages.cluster import metadata
from logstore.wire.messages.records import produce
from tests.broker.rig import T0, Rig, Transactional, batch_of
from tests.rotation import seed_of_turn
from tests.wire.drawn import Case, Chance
from tests.wire.handlers.asking import Asking, through
from tests.wire.handlers.test_every_version import CASES, Plausible, result_of

PATH = "/data"
COUNT = 8
MAY_TELL = {ApiKey.DESCRIBE_LOG_DIRS, ApiKey.DESCRIBE_CONFIGS}
"""Administrators ask them where the files are."""


def words_in(kind):
    """How many fields have words."""
    count = 0
    for field in fields_of(kind):
        count += field.name.endswith("error_message")
        inner = field.type.element if isinstance(field.type, Array) else field.type
        if isinstance(inner, type):
            count += words_in(inner)
    return count


class Telling(Chance):
    """Draws messages whose words tell too much."""

    def text(self, field):
        if field.name.endswith("error_message"):
            return f"write {PATH}/secret-0/00000000000000000042.log: no space left"
        return super().text(field)


RESPONSES = [Case(key, APIS[key].response, APIS[key].response.last) for key in APIS]


@pytest.mark.parametrize("case", RESPONSES, ids=str)
def test_words_are_looked_at_wherever_an_answer_has_some(case):
    chance = Telling(random.Random(1))
    seen = 0
    for _ in range(30):
        response = chance.message(case)
        told = case.message.encode(for_clients(response, PATH), case.version)
        plain = case.message.encode(response, case.version)
        assert PATH.encode() not in told
        assert b"00000000000000000042" not in told
        seen += plain != told
    assert bool(seen) is bool(words_in(case.message.kind))


def of_a_rig(state):
    disk = FaultyFiles(MemoryFiles())
    rig = Rig(files=disk)
    rig.produce(b"a", b"b")
    producer = Transactional(rig)
    assert not producer.start()
    assert not producer.send(b"c")
    assert not producer.commit_offsets("g", {T0: 1})
    asking = Asking(rig)
    if state == "full disk":
        disk.fail(FAULTS["ENOSPC"], kinds=["write"], times=None)
    elif state == "broken disk":
        for kind in ("write", "read"):
            disk.fail(FAULTS["EIO"], kinds=[kind], times=None)
    elif state == "closed":
        rig.directory.close()
    return asking


def frame_of(case, result):
    header = RequestHeader(case.key, case.version, 1, "tests")
    parts = answering.encode(answering.Answer(header, Answered(result), case.version), result, 0, PATH)
    return b"".join(map(bytes, parts))


@pytest.mark.parametrize("state", ["well", "full disk", "broken disk", "closed"])
def test_no_answer_tells_where_the_files_are(state):
    """Each request, in each version, to a store in which all goes well, or nothing does."""
    asking = of_a_rig(state)
    ids = [] if state == "closed" else [each.topic_id for each in asking.rig.directory.topics()]
    chance = Plausible(random.Random(seed_of_turn()), ids or [NO_UUID])
    plain_words = 0
    for case in CASES:
        if case.key in MAY_TELL:
            continue
        for _ in range(COUNT):
            try:
                result = result_of(asking, case, chance.message(case))
            except Exception:  # the listener answers UNKNOWN_SERVER_ERROR, without a word
                continue
            if result is None or isinstance(result, NoAnswer):
                continue
            frame = frame_of(case, result)
            plain_words += PATH.encode() in case_response(case, result)
            assert PATH.encode() not in frame, (case, result)
    asking.rig.files.heal()
    if state != "broken disk":
        assert plain_words, "no request made the broker tell of its path"


def case_response(case, result):
    """The answer as the handler has made it."""
    return APIS[case.key].response.encode(result, case.version)


def test_the_log_hears_once_a_minute_why_clients_are_refused(caplog, monkeypatch):
    monkeypatch.setattr(wording, "_told_at", {})
    for text in ("writing /s/t-0: No space left on device", "and again"):
        assert words_for(text, ErrorCode.KAFKA_STORAGE_ERROR, PATH) == "the broker's disk refuses it"
    assert [each.getMessage() for each in caplog.records] == [
        "clients are told that the disk refuses it: writing /s/t-0: No space left on device"
    ]
    words_for("of another store", ErrorCode.KAFKA_STORAGE_ERROR, "/other")
    monkeypatch.setattr(warning, "_PAUSE_SECONDS", 0.0)
    words_for("a minute later", ErrorCode.KAFKA_STORAGE_ERROR, PATH)
    words_for("told with its traceback", ErrorCode.UNKNOWN_SERVER_ERROR, PATH)
    assert [each.args for each in caplog.records[1:]] == [("of another store",), ("a minute later",)]


@pytest.mark.parametrize("name", ["orders", "order"])
def test_a_produce_that_is_refused(name):
    """What is wrong with it is told, and not which other topics there are."""
    asking = of_a_rig("well")
    asking.rig.directory.create_topic("orders", 1, None)
    data = bytearray(batch_of([b"x"], asking.rig.clock.now_ms()))
    data[-1] ^= 1
    partition = produce.Partition(0, bytes(data))
    request = produce.ProduceRequest(None, 1, 1_000, (produce.Topic(name, partitions=(partition,)),))
    case = Case(ApiKey.PRODUCE, APIS[ApiKey.PRODUCE].request, 12)
    result = result_of(asking, case, request)
    told = for_clients(through(case.key, result, 12), PATH).topics[0].partitions[0]
    if name == "orders":
        assert told.error_code == ErrorCode.CORRUPT_MESSAGE
        assert "checksum" in told.error_message
    else:
        assert told.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert "orders" not in told.error_message


def test_what_is_left_of_the_words():
    storage, unknown = ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for text, code, told in (
        ("there is no topic 'a' in /data; did you mean 'b'?", unknown, "there is no topic 'a'"),
        ("write: no room: '/data/t-0/1.log'", storage, "the broker's disk refuses it"),
        ("/data/t-0 is closed", ErrorCode.NOT_LEADER_OR_FOLLOWER, "t-0 is closed"),
        ("wrong (/data/t-0/00000000000000000005.log, offset 5)", 2, "wrong (t-0, offset 5)"),
        ("retention.ms is '/etc'", ErrorCode.INVALID_CONFIG, "retention.ms is '/etc'"),
    ):
        assert words_for(text, code, PATH) == told


def test_an_answer_without_words_is_not_touched():
    response = metadata.MetadataResponse(topics=(metadata.Topic(0, "t"),))
    assert for_clients(response, PATH) is response
