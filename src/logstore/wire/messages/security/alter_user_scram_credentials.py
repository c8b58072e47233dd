"""Set and delete SCRAM credentials (KIP-554)."""

from __future__ import annotations

from typing import NamedTuple

from logstore.format.messages.fields import Data, Int8, Int16, Int32, String


class Deletion(NamedTuple):
    """A credential to delete."""

    name: String = ""
    mechanism: Int8 = 0
    """1: SCRAM-SHA-256. 2: SCRAM-SHA-512."""


class Upsertion(NamedTuple):
    """A credential to set. The password arrives salted and hashed."""

    name: String = ""
    mechanism: Int8 = 0
    iterations: Int32 = 0
    salt: Data = b""
    salted_password: Data = b""


class AlterUserScramCredentialsRequest(NamedTuple):
    """The credentials to delete, and those to set."""

    deletions: tuple[Deletion, ...] = ()
    upsertions: tuple[Upsertion, ...] = ()


class UserResult(NamedTuple):
    """A user that was changed, or why it was not."""

    user: String = ""
    error_code: Int16 = 0
    error_message: String | None = None


class AlterUserScramCredentialsResponse(NamedTuple):
    """What became of the users."""

    throttle_time_ms: Int32 = 0
    users: tuple[UserResult, ...] = ()
