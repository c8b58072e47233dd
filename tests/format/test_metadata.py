"""partition.metadata, meta.properties and the clean shutdown marker."""

import contextlib
import json
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.errors import CorruptionError, LogstoreError, UnsupportedVersionError, UsageError
from logstore.format.metadata import (
    MAX_METADATA_BYTES,
    ZERO_ID,
    MetaProperties,
    decode_base64_uuid,
    decode_meta_properties,
    decode_partition_metadata,
    encode_base64_uuid,
    encode_clean_shutdown,
    encode_meta_properties,
    encode_partition_metadata,
)

TOPIC_ID = uuid.UUID("d2b8f3f4-7c0e-4e5a-9d0b-fbffffff1234")
TOPIC_TEXT = "0rjz9HwOTlqdC_v___8SNA"
METADATA = f"version: 0\ntopic_id: {TOPIC_TEXT}".encode()


def test_id_is_22_characters_of_url_safe_base64():
    assert encode_base64_uuid(TOPIC_ID) == TOPIC_TEXT
    assert decode_base64_uuid(TOPIC_TEXT) == TOPIC_ID


@given(st.uuids())
def test_id_round_trip(value):
    assert decode_base64_uuid(encode_base64_uuid(value)) == value


@pytest.mark.parametrize(
    "text",
    [
        *("", "A", "A" * 21, "A" * 23, "A" * 24, TOPIC_TEXT + "==", TOPIC_TEXT.replace("_", "/")),
        *(TOPIC_TEXT[:-1] + "B", "ä" * 22, " " * 22, "A" * 100_000),
    ],
    ids=lambda text: text[:30],
)
def test_other_spellings_of_an_id_are_damage(text):
    with pytest.raises(CorruptionError) as caught:
        decode_base64_uuid(text)
    assert len(str(caught.value)) < 200


def test_partition_metadata_both_ways():
    assert encode_partition_metadata(TOPIC_ID) == METADATA
    assert decode_partition_metadata(METADATA) == TOPIC_ID


def test_partition_metadata_has_no_newline_at_the_end_and_reads_one():
    assert not encode_partition_metadata(TOPIC_ID).endswith(b"\n")
    assert decode_partition_metadata(METADATA.replace(b"\n", b"\r\n") + b"\r\n") == TOPIC_ID


def test_all_zero_topic_id_is_invalid():
    with pytest.raises(UsageError, match="all-zero"):
        encode_partition_metadata(ZERO_ID)
    with pytest.raises(CorruptionError, match="all-zero"):
        decode_partition_metadata(b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA")


def test_partition_metadata_of_a_higher_version_is_unsupported():
    with pytest.raises(UnsupportedVersionError, match="version 1"):
        decode_partition_metadata(METADATA.replace(b"0", b"1", 1))


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"version: 0", METADATA[:-1], METADATA + b"x", b"x" + METADATA, METADATA.replace(b": ", b":")),
        *(
            METADATA.replace(b"0\n", b"-1\n"),
            METADATA + b"\nmore: 1",
            b"\xff" + METADATA,
            METADATA + bytes(1),
        ),
    ],
)
def test_damaged_partition_metadata(text):
    with pytest.raises(CorruptionError):
        decode_partition_metadata(text)


@pytest.mark.parametrize("decode", [decode_partition_metadata, decode_meta_properties])
def test_larger_files_than_the_limit_are_refused(decode):
    with pytest.raises(CorruptionError, match="the limit is 65536"):
        decode(bytes(MAX_METADATA_BYTES + 1))


def test_a_file_as_large_as_the_limit_is_read():
    assert decode_meta_properties(b"#" * MAX_METADATA_BYTES) == MetaProperties(0, None, None)


def test_clean_shutdown_marker_is_kafkas_json():
    assert encode_clean_shutdown() == b'{"version":0,"brokerEpoch":-1}'
    assert json.loads(encode_clean_shutdown(42)) == {"version": 0, "brokerEpoch": 42}


# meta.properties

PROPERTIES = MetaProperties(1, "MkU3OEVBNTcwNTJENDM2Qg", 7, TOPIC_ID)
PROPERTIES_TEXT = (
    f"version=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\nnode.id=7\ndirectory.id={TOPIC_TEXT}\n".encode()
)


def test_meta_properties_both_ways():
    assert encode_meta_properties(PROPERTIES) == PROPERTIES_TEXT
    assert decode_meta_properties(PROPERTIES_TEXT) == PROPERTIES


def test_meta_properties_as_kafka_writes_them():
    text = b"#\n#Fri Oct 25 10:00:00 UTC 2024\nnode.id=7\nversion=1\ncluster.id=a\\=b\n"
    assert decode_meta_properties(text) == MetaProperties(1, "a=b", 7)


def test_version_0_names_the_broker_id():
    properties = MetaProperties(0, "c", 3)
    assert encode_meta_properties(properties) == b"version=0\ncluster.id=c\nbroker.id=3\n"
    assert decode_meta_properties(b"version=0\ncluster.id=c\nbroker.id=3\n") == properties


def test_no_version_is_version_0_and_has_no_required_keys():
    assert decode_meta_properties(b"") == MetaProperties(0, None, None)
    assert decode_meta_properties(b"broker.id=-1\n") == MetaProperties(0, None, -1)


@pytest.mark.parametrize("missing", ["cluster.id", "node.id"])
def test_version_1_needs_cluster_and_node(missing):
    lines = [line for line in PROPERTIES_TEXT.split(b"\n") if not line.startswith(missing.encode())]
    with pytest.raises(CorruptionError, match=missing):
        decode_meta_properties(b"\n".join(lines))


@pytest.mark.parametrize(
    "properties", [MetaProperties(1, None, 7), MetaProperties(1, "c", None), MetaProperties(2, "c", 7)]
)
def test_incomplete_meta_properties_are_not_written(properties):
    with pytest.raises(UsageError):
        encode_meta_properties(properties)


def test_unknown_keys_are_kept():
    text = PROPERTIES_TEXT + b"future.key=some value\nbroker.id=9\n"
    properties = decode_meta_properties(text)
    assert properties.other == (("future.key", "some value"), ("broker.id", "9"))
    assert encode_meta_properties(properties) == text


def test_meta_properties_of_a_higher_version_are_unsupported():
    with pytest.raises(UnsupportedVersionError, match="version 2"):
        decode_meta_properties(b"version=2\n")


@pytest.mark.parametrize(
    "text",
    [
        *(
            b"version=x",
            b"version=-1",
            b"version=",
            b"version=1.0",
            b"version=99999999999",
            "version=²".encode("latin-1"),
        ),
        *(b"broker.id=x", b"broker.id=-2", b"broker.id=2147483648", b"broker.id= 1 ", b"directory.id=x"),
    ],
)
def test_damaged_meta_properties(text):
    with pytest.raises(CorruptionError):
        decode_meta_properties(text)


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        (b"k=v", ("k", "v")),
        (b"k:v", ("k", "v")),
        (b"k v", ("k", "v")),
        (b"  k \t=  v w ", ("k", "v w ")),
        (b"k==v", ("k", "=v")),
        (b"k", ("k", "")),
        (b"=v", ("", "v")),
        (rb"a\:b\=c\ d=e", ("a:b=c d", "e")),
        (rb"k=\t\n\r\f\\\x", ("k", "\t\n\r\f\\x")),
        (rb"k=\u00e4\ud83d\ude00", ("k", "\xe4\U0001f600")),
        (rb"k=\u12", ("k", "u12")),
        (b"k=a\\\n   b\\\\\n#c", ("k", "ab\\")),
        (b"# comment \\\nk=v", ("k", "v")),
        (b"\n ! comment\n\nk=v\\", ("k", "v")),
        (b"k=\xe4", ("k", "\xe4")),
    ],
)
def test_java_properties_text(text, pair):
    assert decode_meta_properties(text).other == (pair,)


def test_properties_are_escaped_as_java_does():
    properties = MetaProperties(0, " a b=:#!\\\n\xe4\U0001f600~", None, None, (("a b", "#"),))
    assert encode_meta_properties(properties) == (
        b"version=0\ncluster.id=\\ a b\\=\\:\\#\\!\\\\\\n\\u00E4\\uD83D\\uDE00~\na\\ b=\\#\n"
    )


keys = st.text(max_size=8).filter(lambda key: key not in {"version", "cluster.id", "node.id", "directory.id"})
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@given(texts, st.integers(-1, 2**31 - 1), st.none() | st.uuids(), st.dictionaries(keys, texts, max_size=3))
def test_meta_properties_round_trip(cluster_id, node_id, directory_id, other):
    properties = MetaProperties(1, cluster_id, node_id, directory_id, tuple(other.items()))
    assert decode_meta_properties(encode_meta_properties(properties)) == properties


@settings(max_examples=200)
@given(st.data())
def test_hostile_metadata_raises_only_our_errors(data):
    decode, text = data.draw(
        st.sampled_from([(decode_partition_metadata, METADATA), (decode_meta_properties, PROPERTIES_TEXT)])
    )
    buffer = bytearray(text)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(buffer)))
        buffer[at : at + data.draw(st.integers(0, 2))] = data.draw(
            st.sampled_from([b"\\", b"\n", b"\xff", b"9", b""])
        )
    with contextlib.suppress(LogstoreError):
        decode(buffer)
