"""Which users have SCRAM credentials (KIP-554)."""

from __future__ import annotations

from typing import NamedTuple

from logstore.format.messages.fields import Int8, Int16, Int32, String


class User(NamedTuple):
    """A user."""

    name: String = ""


class DescribeUserScramCredentialsRequest(NamedTuple):
    """Which users; all, if there are none or null."""

    users: tuple[User, ...] | None = ()


class Credential(NamedTuple):
    """A mechanism, and how often the password is hashed. Never the password."""

    mechanism: Int8 = 0
    """1: SCRAM-SHA-256. 2: SCRAM-SHA-512."""
    iterations: Int32 = 0


class UserResult(NamedTuple):
    """A user."""

    user: String = ""
    error_code: Int16 = 0
    error_message: String | None = None
    credentials: tuple[Credential, ...] = ()


class DescribeUserScramCredentialsResponse(NamedTuple):
    """The users."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    users: tuple[UserResult, ...] = ()
