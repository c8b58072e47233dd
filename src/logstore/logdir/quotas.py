"""The quotas of a store: for which clients, how much, and the file that keeps them.

Kafka keeps quotas in its cluster metadata, which a log directory by itself does not have. Ours are one small
JSON file, ``quotas.json``, beside ``topics.json``. It is replaced whole, so a crash leaves the old quotas or
the new ones, and it exists only once a quota was set. Kafka ignores it.

Knows what a quota may be, in the words of KIP-546; not which one holds for a client, or what it does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from logstore.arguments import did_you_mean, plain_text, shown
from logstore.errors import CorruptionError, UsageError
from logstore.files import Files
from logstore.logdir.small_json import JsonFile, decode_json, encode_json
from logstore.partition.state.home import QUOTAS_NAME

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
"""Bytes of batches that are produced in a second."""
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
"""Bytes of batches that are fetched in a second."""
REQUEST_PERCENTAGE: Final = "request_percentage"
"""The time that requests take, in percent of one thread's."""
KEYS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE)

USER: Final = "user"
CLIENT_ID: Final = "client-id"
_TYPES: Final = (USER, CLIENT_ID)

VERSION: Final = 1
MAX_QUOTAS_BYTES: Final = 64 * 1024 * 1024
_LONGEST_NAME: Final = 32_767
_MOST_BYTES: Final = 2**63 - 1
_WHAT_TO_DO: Final = "Restore the file, or move it away: there are then no quotas"


class Default(Enum):
    """The type of :data:`DEFAULT`."""

    DEFAULT = "<default>"

    def __repr__(self) -> str:
        return self.name


DEFAULT: Final = Default.DEFAULT
"""In place of a name: each user, or client id, that has no quota under its own name."""

QuotaName = str | Default
"""A user or client id, or :data:`DEFAULT`."""


class QuotaEntity(NamedTuple):
    """Whom a quota is for: a user, a client id, or a client id of a user."""

    user: QuotaName | None = None
    """None if it does not matter."""
    client_id: QuotaName | None = None

    def __str__(self) -> str:
        """As Kafka's documentation writes it: ``users/alice/clients/<default>``."""
        parts = (("users", self.user), ("clients", self.client_id))
        return "/".join(f"{kind}/{_text_of(name)}" for kind, name in parts if name is not None)


Quotas = Mapping[QuotaEntity, Mapping[str, float]]
"""Entity -> key -> value. An entity without a value is left out."""


def _text_of(name: QuotaName) -> str:
    return name.value if isinstance(name, Default) else name


# What may be set


def check_entity(user: Any, client_id: Any) -> QuotaEntity:
    """
    Raises:
        UsageError: neither is given, or one is no name.
    """
    if user is None and client_id is None:
        raise UsageError("a quota is for a user, a client id or both: give user, client_id, or DEFAULT")
    return QuotaEntity(_check_name("user", user), _check_name("client_id", client_id))


def _check_name(what: str, name: Any) -> QuotaName | None:
    if name is None or isinstance(name, Default):
        return name
    return check_client_name(what, name, least=1)


def check_client_name(what: str, name: Any, *, least: int) -> str:
    """A user's name or a client id, as plain text of at least so many bytes.

    Raises:
        UsageError: it is something else.
    """
    name = plain_text(name)
    if type(name) is str:
        try:
            if least <= len(name.encode()) <= _LONGEST_NAME:
                return name
        except UnicodeEncodeError:
            pass
    raise UsageError(f"{what} is {shown(name)}; it must be text of {least} to {_LONGEST_NAME} bytes")


def check_key(key: Any) -> str:
    """
    Raises:
        UsageError: there is no such quota.
    """
    key = plain_text(key)
    if type(key) is not str or key not in KEYS:
        raise UsageError(f"unknown quota {shown(key)}{did_you_mean(key, KEYS)}")
    return key


def check_value(key: str, value: Any) -> float:
    """The value of a quota: a whole number of bytes a second, or a percentage.

    Raises:
        UsageError: it is something else. 0 is refused: nothing would ever pass.
    """
    if type(value) in (int, float):
        is_rate = key != REQUEST_PERCENTAGE
        if is_rate and math.isfinite(value) and value == int(value) and 1 <= value <= _MOST_BYTES:
            return int(value)
        if not is_rate and math.isfinite(value) and value > 0:
            return float(value)
    wanted = (
        "a percentage of one thread's time, above 0"
        if key == REQUEST_PERCENTAGE
        else "a whole number of bytes per second, 1 or above"
    )
    raise UsageError(f"{key} is {shown(value)}; it must be {wanted}. remove() takes a quota away")


# The file


def read_quotas(files: Files, directory: str) -> Quotas:
    """The quotas of a directory; none if it has no such file.

    Raises:
        CorruptionError: the file is damaged; says what to do.
        UnsupportedVersionError: a newer logstore wrote it.
    """
    return QUOTAS_FILE.read(files, directory) or {}


def encode_quotas(quotas: Quotas) -> bytes:
    described = [
        {**parts_of(entity), "values": dict(sorted(quotas[entity].items()))}
        for entity in sorted(quotas, key=str)
    ]
    return encode_json(VERSION, quotas=described)


def parts_of(entity: QuotaEntity) -> dict[str, str | None]:
    """Kafka's entity type -> name, of what the entity names. None is the default, as in the protocol."""
    parts = {USER: entity.user, CLIENT_ID: entity.client_id}
    return {kind: _stored(name) for kind, name in parts.items() if name is not None}


def _stored(name: QuotaName) -> str | None:
    return None if isinstance(name, Default) else name


def entity_of(parts: Mapping[str, Any]) -> QuotaEntity:
    """The inverse of :func:`parts_of`.

    Raises:
        UsageError: a type is unknown, a name is empty, or there is none.
    """
    for kind in parts:
        check_type(kind)
    return check_entity(_name_of(parts, USER), _name_of(parts, CLIENT_ID))


def _name_of(parts: Mapping[str, Any], kind: str) -> Any:
    return DEFAULT if kind in parts and parts[kind] is None else parts.get(kind)


def check_type(kind: Any) -> None:
    """
    Raises:
        UsageError: it is no type of entity.
    """
    if type(kind) is not str or kind not in _TYPES:
        why = "; it limits connections, and there are none" if kind == "ip" else did_you_mean(kind, _TYPES)
        raise UsageError(f"unknown entity type {shown(kind)}{why}")


def decode_quotas(data: bytes) -> dict[QuotaEntity, Mapping[str, float]]:
    """
    Raises:
        CorruptionError: not of the form that :func:`encode_quotas` writes.
        UnsupportedVersionError: a newer logstore wrote it.
    """
    content = decode_json(data, QUOTAS_NAME, VERSION, "quotas", list, "list of quotas")
    found: dict[QuotaEntity, Mapping[str, float]] = {}
    for number, described in enumerate(content["quotas"]):
        try:
            entity, values = _decode_entry(described)
        except UsageError as error:
            raise CorruptionError(f"quota {number}: {error}") from None
        if entity in found:
            raise CorruptionError(f"has {entity} twice")
        found[entity] = values
    return found


def _decode_entry(described: Any) -> tuple[QuotaEntity, Mapping[str, float]]:
    values = described.pop("values", None) if isinstance(described, dict) else None
    if not values or not isinstance(values, dict):
        raise UsageError("has no values")
    return entity_of(described), {check_key(key): check_value(key, value) for key, value in values.items()}


QUOTAS_FILE: Final[JsonFile[Quotas]] = JsonFile(
    name=QUOTAS_NAME,
    limit_bytes=MAX_QUOTAS_BYTES,
    encode=encode_quotas,
    decode=decode_quotas,
    parts=lambda quotas: {str(entity): values for entity, values in quotas.items()},
    what_to_do=_WHAT_TO_DO,
)
