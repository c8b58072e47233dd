"""The small files that describe a directory: ``partition.metadata``, ``meta.properties``, the marker of a
clean stop and the role of a log.

Knows their text. Does not know when they are written, or whether two of them agree.
"""

from __future__ import annotations

import base64
import binascii
import re
import uuid
from collections.abc import Iterator
from typing import NamedTuple

from logstore.errors import CorruptionError, UnsupportedVersionError, UsageError
from logstore.format import checksum
from logstore.model import Bytes, Role

PARTITION_METADATA_VERSION = 0
META_PROPERTIES_VERSION = 1
CLEAN_SHUTDOWN_VERSION = 0
ROLE_VERSION = 0

MAX_METADATA_BYTES = 64 * 1024
"""These files have a few hundred bytes. Larger ones are refused."""

ZERO_ID = uuid.UUID(int=0)
"""Kafka's spelling of "no id"."""

_PARTITION_METADATA = re.compile(r"version: ([0-9]{1,9})\ntopic_id: ([^\n]*)\n*")
_ROLE = re.compile(r"(version: ([0-9]{1,9})\nrole: ([a-z]{1,20})\n)crc32c: ([0-9a-f]{8})\n")
_ID_LENGTH = 22
_MAX_INT32 = 2**31 - 1


class MetaProperties(NamedTuple):
    """The identity of the node that owns a log directory, and of the directory.

    ``version`` is 1, or 0 for files that Kafka wrote with ZooKeeper; only in version 0 may ``cluster_id`` and
    ``node_id`` be None. ``other`` keeps unknown keys with their values, in the order of the file.
    """

    version: int
    cluster_id: str | None
    node_id: int | None
    directory_id: uuid.UUID | None = None
    other: tuple[tuple[str, str], ...] = ()


def encode_base64_uuid(value: uuid.UUID) -> str:
    """Kafka's text of an id: its 16 bytes in URL-safe base64 without padding, 22 characters."""
    return base64.urlsafe_b64encode(value.bytes).decode("ascii").rstrip("=")


def decode_base64_uuid(text: str) -> uuid.UUID:
    """Read exactly what :func:`encode_base64_uuid` writes.

    Raises:
        CorruptionError: not 22 characters of base64, or not in the canonical form.
    """
    try:
        value = uuid.UUID(bytes=base64.b64decode(text + "==", altchars=b"-_", validate=True))
    except (ValueError, binascii.Error):
        raise CorruptionError(f"{text[: _ID_LENGTH * 2]!r} is not an id in base64") from None
    if encode_base64_uuid(value) != text:
        raise CorruptionError(f"{text!r} is not an id in base64 as Kafka spells it")
    return value


def encode_partition_metadata(topic_id: uuid.UUID) -> bytes:
    """The ``partition.metadata`` file. No newline at the end, as in Kafka.

    Raises:
        UsageError: the all-zero id.
    """
    if topic_id == ZERO_ID:
        raise UsageError("the all-zero id is not a topic id")
    return f"version: {PARTITION_METADATA_VERSION}\ntopic_id: {encode_base64_uuid(topic_id)}".encode()


def decode_partition_metadata(buffer: Bytes) -> uuid.UUID:
    """The topic id of a ``partition.metadata`` file.

    Raises:
        CorruptionError: not the two lines, not an id, or the all-zero id.
        UnsupportedVersionError: a version above 0.
    """
    match = _PARTITION_METADATA.fullmatch(_text(buffer, "partition.metadata"))
    if match is None:
        raise CorruptionError("partition.metadata does not have the lines version and topic_id", position=0)
    if int(match[1]) > PARTITION_METADATA_VERSION:
        raise UnsupportedVersionError(f"partition.metadata has version {match[1]}; only 0 is known")
    topic_id = decode_base64_uuid(match[2])
    if topic_id == ZERO_ID:
        raise CorruptionError("partition.metadata has the all-zero topic id", position=match.start(2))
    return topic_id


def encode_clean_shutdown(broker_epoch: int = -1) -> bytes:
    """The ``.kafka_cleanshutdown`` file, JSON. It counts that the file exists; Kafka also reads the epoch, -1
    for none."""
    return f'{{"version":{CLEAN_SHUTDOWN_VERSION},"brokerEpoch":{broker_epoch}}}'.encode()


def encode_role(role: Role) -> bytes:
    """The ``.role`` file of a log with other replicas. Its checksum covers the lines above it, so that a
    flipped bit cannot turn one role into another."""
    lines = f"version: {ROLE_VERSION}\nrole: {role.value}\n".encode()
    return lines + f"crc32c: {checksum.crc32c(lines):08x}\n".encode()


def decode_role(buffer: Bytes) -> Role:
    """The role of a ``.role`` file.

    Raises:
        CorruptionError: not the three lines, a wrong checksum, or an unknown role.
        UnsupportedVersionError: a version above 0.
    """
    match = _ROLE.fullmatch(_text(buffer, "the role"))
    if match is None:
        raise CorruptionError("the role does not have the lines version, role and crc32c", position=0)
    lines, version, name, crc = match.groups()
    if checksum.crc32c(lines.encode()) != int(crc, 16):
        raise CorruptionError(f"the role's checksum {crc} does not match its lines", position=0)
    if int(version) > ROLE_VERSION:
        raise UnsupportedVersionError(f"the role has version {version}; only 0 is known")
    try:
        return Role(name)
    except ValueError:
        raise CorruptionError(f"{name!r} is not the role of a log", position=match.start(3)) from None


def encode_meta_properties(properties: MetaProperties) -> bytes:
    """The ``meta.properties`` file, without the date that Java's writer puts in a comment.

    Raises:
        UsageError: a version other than 0 or 1, or cluster or node id missing in version 1.
    """
    _check_complete(properties)
    node_key = "node.id" if properties.version else "broker.id"
    pairs: list[tuple[str, object]] = [("version", properties.version)]
    pairs += [("cluster.id", properties.cluster_id), (node_key, properties.node_id)]
    if properties.directory_id is not None:
        pairs.append(("directory.id", encode_base64_uuid(properties.directory_id)))
    pairs += properties.other
    return "".join(_format_pair(key, str(value)) for key, value in pairs if value is not None).encode("ascii")


def _check_complete(properties: MetaProperties) -> None:
    if properties.version not in (0, META_PROPERTIES_VERSION):
        raise UsageError(f"meta.properties has version {properties.version}; 0 and 1 exist")
    if properties.version and (properties.cluster_id is None or properties.node_id is None):
        raise UsageError("meta.properties of version 1 needs a cluster id and a node id")


def decode_meta_properties(buffer: Bytes) -> MetaProperties:
    """Read a ``meta.properties`` file. Without a version it has version 0, as in Kafka.

    Raises:
        CorruptionError: not properties text, a number or id that does not parse, or cluster or node id
            missing in version 1.
        UnsupportedVersionError: a version above 1.
    """
    pairs = _parse_properties(_text(buffer, "meta.properties", "latin-1"))
    version = _number(pairs.pop("version", "0"), "version", lowest=0)
    if version > META_PROPERTIES_VERSION:
        raise UnsupportedVersionError(f"meta.properties has version {version}; only 0 and 1 are known")
    node_key = "node.id" if version else "broker.id"
    cluster_id, node_text, directory_text = (
        pairs.pop(key, None) for key in ("cluster.id", node_key, "directory.id")
    )
    if version and (cluster_id is None or node_text is None):
        raise CorruptionError(f"meta.properties lacks {'cluster.id' if cluster_id is None else 'node.id'}")
    return MetaProperties(
        version,
        cluster_id,
        None if node_text is None else _number(node_text, node_key),
        None if directory_text is None else decode_base64_uuid(directory_text),
        tuple(pairs.items()),
    )


def _number(text: str, key: str, lowest: int = -1) -> int:
    """A decimal int32. In Kafka a node id of -1 means none."""
    if not re.fullmatch(r"-?[0-9]{1,10}", text) or not lowest <= int(text) <= _MAX_INT32:
        raise CorruptionError(f"meta.properties: {key} is {text[:80]!r}, not a number from {lowest} on")
    return int(text)


def _text(buffer: Bytes, name: str, encoding: str = "ascii") -> str:
    if len(buffer) > MAX_METADATA_BYTES:
        raise CorruptionError(f"{name} has {len(buffer)} bytes; the limit is {MAX_METADATA_BYTES}")
    try:
        return bytes(buffer).decode(encoding).replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise CorruptionError(f"{name} is not text", position=error.start) from None


# Java's properties text: key=value lines in Latin-1, with # and ! comments, lines continued by a backslash,
# and backslash escapes in both parts. Source: the documentation of java.util.Properties.load.

_PAIR = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_IN_KEY = re.compile(r"[\\=:#! ]|[^ -~]")
_IN_VALUE = re.compile(r"[\\=:#!]|[^ -~]|^ ")
_SHORT_ESCAPES = {value: f"\\{letter}" for letter, value in _ESCAPES.items()}


def _parse_properties(text: str) -> dict[str, str]:
    pairs = {}
    for line in _logical_lines(text):
        key, value = _PAIR.findall(line)[0]  # any text matches, from its start
        pairs[_unescape(key)] = _unescape(value)
    return pairs


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without indentation and comments; one that ends in an odd number of backslashes continues."""
    begun: str | None = None
    for line in text.split("\n"):
        stripped = line.lstrip(" \t\f")
        if begun is None and (not stripped or stripped[0] in "#!"):
            continue
        whole = (begun or "") + stripped
        if (len(whole) - len(whole.rstrip("\\"))) % 2:
            begun = whole[:-1]
        else:
            begun = None
            yield whole
    if begun:
        yield begun


def _unescape(text: str) -> str:
    """Resolve the escapes. Java's are UTF-16 units, so two of them may form one character."""
    units = _ESCAPE.sub(lambda match: _unescape_one(match[1]), text)
    return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace")


def _unescape_one(escape: str) -> str:
    if len(escape) == 5:
        return chr(int(escape[1:], 16))
    return _ESCAPES.get(escape, escape)


def _format_pair(key: str, value: str) -> str:
    return f"{_escape(key, _IN_KEY)}={_escape(value, _IN_VALUE)}\n"


def _escape(text: str, what: re.Pattern[str]) -> str:
    return what.sub(lambda match: _escape_one(match[0]), text)


def _escape_one(character: str) -> str:
    if character in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[character]
    if " " <= character <= "~":
        return f"\\{character}"
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2))
