"""The users of a store: what is kept of their passwords, and the file that keeps it.

Kafka keeps its SCRAM credentials (KIP-554) in the cluster metadata, which a log directory by itself does not
have. Ours are one small JSON file, ``users.json``, that only the owner of the directory may read. It is
replaced whole, so a crash leaves the old users or the new ones, and it exists only once a user was added.
Kafka ignores it.

A password is not in it: what is there proves that a client knows the password, and helps to guess it, but
is not enough to log in. Knows what a credential may be; not how it is computed or checked.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

from logstore.errors import CorruptionError, UsageError
from logstore.files import Files
from logstore.logdir.quotas import check_client_name
from logstore.logdir.small_json import JsonFile, decode_json, encode_json
from logstore.partition.state.home import USERS_NAME

VERSION: Final = 1
MAX_USERS_BYTES: Final = 64 * 1024 * 1024
MIN_ITERATIONS: Final = 4096
"""As RFC 7677 asks for, and Kafka refuses less."""
MAX_ITERATIONS: Final = 16_384
"""Kafka refuses more: each client that logs in computes them, and so does the server for PLAIN."""
MOCK_KEY_BYTES: Final = 32
_LONGEST_SALT: Final = 1024
_WHAT_TO_DO: Final = "Restore the file, or move it away: there are then no users"


class ScramMechanism(IntEnum):
    """The mechanisms of SCRAM that Kafka has, with the numbers of its protocol."""

    SHA_256 = 1
    SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """Such as ``SCRAM-SHA-256``."""
        return f"SCRAM-{self.name.replace('_', '-')}"

    @property
    def hash_name(self) -> str:
        """As Python's ``hashlib`` calls it."""
        return self.name.replace("_", "").lower()

    @property
    def key_bytes(self) -> int:
        """The size of a hash, and so of each key."""
        return 32 if self is ScramMechanism.SHA_256 else 64


SCRAM_BY_NAME: Final[Mapping[str, ScramMechanism]] = {each.sasl_name: each for each in ScramMechanism}


class ScramCredential(NamedTuple):
    """What a server keeps of a password for one mechanism (RFC 5802, section 3)."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        """Without what must not end up in a log."""
        return f"<ScramCredential of {self.iterations} iterations>"


Credentials = Mapping[ScramMechanism, ScramCredential]


class StoredUsers(NamedTuple):
    """What the file holds."""

    mock_key: bytes
    """Random, and secret: from it comes what clients are shown of users that do not exist."""
    credentials: Mapping[str, Credentials]
    """Of each user, by name. A user without any is left out."""

    def __repr__(self) -> str:
        return f"<StoredUsers {sorted(self.credentials)}>"


# What may be stored


def check_user_name(name: Any) -> str:
    """
    Raises:
        UsageError: it is no text of 1 to 32,767 bytes, or has a NUL, which SASL cannot carry.
    """
    checked = check_client_name("the name of a user", name, least=1)
    if "\0" in checked:
        raise UsageError(f"the name of a user is {checked!r}; it must be without NUL characters")
    return checked


def check_credential(mechanism: ScramMechanism, credential: ScramCredential) -> ScramCredential:
    """
    Raises:
        UsageError: it has too few or too many iterations, no salt, or keys of another size.
    """
    if not MIN_ITERATIONS <= credential.iterations <= MAX_ITERATIONS:
        raise UsageError(
            f"{credential.iterations} iterations; {MIN_ITERATIONS} to {MAX_ITERATIONS} are allowed"
        )
    if not 1 <= len(credential.salt) <= _LONGEST_SALT:
        raise UsageError(f"a salt of {len(credential.salt)} bytes; 1 to {_LONGEST_SALT} are allowed")
    for key in (credential.stored_key, credential.server_key):
        if len(key) != mechanism.key_bytes:
            raise UsageError(
                f"a key of {len(key)} bytes; one of {mechanism.sasl_name} has {mechanism.key_bytes}"
            )
    return credential


# The file


def read_users(files: Files, directory: str) -> StoredUsers | None:
    """The users of a directory; None if it has no such file.

    Warns if others than the owner may read the file, as a copy of a directory may leave it.

    Raises:
        CorruptionError: the file is damaged; says what to do.
        UnsupportedVersionError: a newer logstore wrote it.
    """
    return USERS_FILE.read(files, directory)


def encode_users(users: StoredUsers) -> bytes:
    described = [
        {
            "name": name,
            "credentials": {each.sasl_name: _described(credentials[each]) for each in sorted(credentials)},
        }
        for name, credentials in sorted(users.credentials.items())
    ]
    return encode_json(VERSION, mock_key=_text_of(users.mock_key), users=described)


def _described(credential: ScramCredential) -> dict[str, Any]:
    return {
        "iterations": credential.iterations,
        "salt": _text_of(credential.salt),
        "stored_key": _text_of(credential.stored_key),
        "server_key": _text_of(credential.server_key),
    }


def _text_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def decode_users(data: bytes) -> StoredUsers:
    """
    Raises:
        CorruptionError: not of the form that :func:`encode_users` writes.
        UnsupportedVersionError: a newer logstore wrote it.
    """
    content = decode_json(data, USERS_NAME, VERSION, "users", list, "list of users")
    try:
        mock_key = _bytes_of(content, "mock_key")
    except UsageError as error:
        raise CorruptionError(str(error)) from None
    if len(mock_key) != MOCK_KEY_BYTES:
        raise CorruptionError(f"has a mock_key of {len(mock_key)} bytes; it must have {MOCK_KEY_BYTES}")
    found: dict[str, Credentials] = {}
    for number, each in enumerate(content["users"]):
        try:
            name, credentials = _decode_user(each)
        except UsageError as error:
            raise CorruptionError(f"user {number}: {error}") from None
        if name in found:
            raise CorruptionError(f"has the user {name!r} twice")
        found[name] = credentials
    return StoredUsers(mock_key, found)


def _decode_user(described: Any) -> tuple[str, Credentials]:
    described = described if isinstance(described, dict) else {}
    credentials = described.get("credentials")
    if not credentials or not isinstance(credentials, dict):
        raise UsageError("has no credentials")
    found: dict[ScramMechanism, ScramCredential] = {}
    for sasl_name, values in credentials.items():
        mechanism = SCRAM_BY_NAME.get(sasl_name)
        if mechanism is None:
            raise UsageError(f"unknown mechanism {sasl_name!r}")
        found[mechanism] = check_credential(mechanism, _decode_credential(values))
    return check_user_name(described.get("name")), found


def _decode_credential(values: Any) -> ScramCredential:
    iterations = values.get("iterations") if isinstance(values, dict) else None
    if type(iterations) is not int:
        raise UsageError("a credential has no iterations")
    keys = (_bytes_of(values, name) for name in ("salt", "stored_key", "server_key"))
    return ScramCredential(iterations, *keys)


def _bytes_of(values: Mapping[str, Any], name: str) -> bytes:
    text = values.get(name)
    if type(text) is str:
        try:
            return base64.b64decode(text.encode("ascii"), validate=True)
        except (UnicodeEncodeError, binascii.Error):
            pass
    raise UsageError(f"has no {name}, or one that is not Base64")


USERS_FILE: Final = JsonFile(
    name=USERS_NAME,
    limit_bytes=MAX_USERS_BYTES,
    encode=encode_users,
    decode=decode_users,
    parts=lambda users: users.credentials,
    what_to_do=_WHAT_TO_DO,
    is_private=True,
)
