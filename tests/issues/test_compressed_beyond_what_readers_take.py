"""A batch whose records compressed well was appended and acknowledged, however many bytes they had before. No
reader decompresses more than 64 MiB, so neither this batch nor anything behind it could be read again. A
client that sent one was told that it had been damaged on its way, and sent it until its time was over."""

import pyarrow
import pytest

import logstore
from logstore import NewRecord, TopicConfig
from logstore.errors import RecordTooLargeError
from logstore.format.batch import encode_batch, seal_batch
from logstore.format.compression import Codec, compress
from logstore.format.header import HEADER_BYTES, decode_header

BYTES = 64 * 1024 * 1024
LARGE = bytes(BYTES)  # with its length and its key, a little more than that
CONFIG = TopicConfig(compression_type="zstd", compression_zstd_level=-5, max_message_bytes=2 * BYTES)


WAYS = {
    "append": lambda topic: topic.append(LARGE),
    "extend": lambda topic: topic.extend([LARGE]),
    "extend, by columns": lambda topic: topic.extend([NewRecord(memoryview(LARGE))]),
    "extend_arrow": lambda topic: topic.extend_arrow(pyarrow.table({"value": [LARGE]})),
    "an encoded batch": lambda topic: topic[0].append_batch(bytes(encode_batch([None], [LARGE], -1))),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_too_large_to_be_decompressed_is_stored_as_it_is(tmp_path, way):
    with logstore.open(tmp_path) as store:
        topic = store.create_topic("t", config=CONFIG)
        WAYS[way](topic)
        topic.append(b"behind", flush=True)
        assert [len(record.value) for record in topic.read()] == [BYTES, 6]


@pytest.mark.parametrize("way", ["append", "extend", "extend, by columns", "extend_arrow"])
def test_what_is_then_too_large_for_the_topic_is_refused(tmp_path, way):
    with logstore.open(tmp_path) as store:
        topic = store.create_topic("t", config=CONFIG.with_settings(max_message_bytes=BYTES))
        with pytest.raises(RecordTooLargeError, match="max_message_bytes"):
            WAYS[way](topic)
        assert topic[0].log_end_offset == 0


def test_a_producer_is_told_the_same(tmp_path):
    with logstore.open(tmp_path) as store:
        topic = store.create_topic("t")
        with store.producer(compression="zstd", buffer_memory=4 * BYTES) as producer:
            with pytest.raises(RecordTooLargeError, match="max_message_bytes"):
                producer.send("t", LARGE).result(10)
            assert producer.send("t", b"behind").result(10).offset == 0
        assert [record.value for record in topic.read()] == [b"behind"]


def test_the_largest_that_can_be_decompressed_is_compressed(tmp_path):
    with logstore.open(tmp_path) as store:
        topic = store.create_topic("t", config=CONFIG)
        topic.extend([LARGE[:-100]], flush=True)
        assert topic[0].size_bytes < BYTES // 100
        assert [len(record.value) for record in topic.read()] == [BYTES - 100]


@pytest.mark.parametrize("codec", [Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_client_that_compresses_more_is_told_that_it_is_too_much(tmp_path, codec):
    plain = encode_batch([None], [LARGE], -1)
    header = decode_header(plain)._replace(attributes=codec)
    level = -5 if codec is Codec.ZSTD else None
    batch = seal_batch(header, compress(codec, memoryview(plain)[HEADER_BYTES:], level))
    with logstore.open(tmp_path) as store:
        log = store.create_topic("t", config=TopicConfig(max_message_bytes=BYTES))[0]
        with pytest.raises(RecordTooLargeError, match="which no reader decompresses"):
            log.append_batch(bytes(batch))
        assert log.log_end_offset == 0
