"""Who may log in, and with which password. For people: :meth:`Users.set_password`, :meth:`Users.remove` and
:meth:`Users.names`. For Kafka's tools: the requests of KIP-554. For a listener: what it checks clients with.

A password is kept as SCRAM keeps it, salted and hashed, once for each mechanism. PLAIN is checked against the
same credential, so there is no second secret.

A login never waits for a change: it takes the current :class:`_Known`, which is replaced in one assignment.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from logstore.arguments import check_least, did_you_mean, plain_text, shown
from logstore.broker.codes import ErrorCode
from logstore.broker.failures import code_of
from logstore.errors import LogstoreError, UsageError
from logstore.logdir.directory import LogDirectory
from logstore.logdir.kept import Kept
from logstore.logdir.users import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    MOCK_KEY_BYTES,
    USERS_FILE,
    Credentials,
    ScramCredential,
    ScramMechanism,
    StoredUsers,
    check_credential,
    check_user_name,
)
from logstore.wire.messages.security.alter_user_scram_credentials import Deletion, Upsertion
from logstore.wire.security.hashing import credential_of, is_password, salt_password
from logstore.wire.security.mocks import Shape, mock_credential, shape_of

DEFAULT_ITERATIONS: Final = 8192
"""Twice the least, as in the examples of Kafka's documentation. A login takes the client, or with PLAIN the
server, 2 ms for SCRAM-SHA-256 and 4 ms for SCRAM-SHA-512."""
SALT_BYTES: Final = 32
_BOTH: Final = (ScramMechanism.SHA_512, ScramMechanism.SHA_256)
"""PLAIN takes the first that a user has."""
_NONE: Final[Credentials] = {}
_TWICE: Final = "a credential cannot be altered twice in one request"


class AlteredUser(NamedTuple):
    """What became of a user whose credentials were to be changed."""

    name: str
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None


class Login(NamedTuple):
    """A credential to check a client with."""

    mechanism: ScramMechanism
    credential: ScramCredential
    is_real: bool
    """False if there is no such user: the check is made all the same, and fails."""


class _Known:
    """The users at one moment. Never changes."""

    def __init__(self, stored: StoredUsers) -> None:
        self.stored = stored
        everyones = stored.credentials.values()
        self._shapes = {
            mechanism: frozenset(
                shape_of(mechanism, each[mechanism]) for each in everyones if mechanism in each
            )
            or frozenset({_usual_shape(mechanism)})
            for mechanism in ScramMechanism
        }
        self._plain_shapes = frozenset(shape_of(*_for_plain(each)) for each in everyones) or frozenset(
            {_usual_shape(_BOTH[0])}
        )

    def login(self, name: str, mechanism: ScramMechanism | None) -> Login:
        """For a mechanism of SCRAM, or None for PLAIN. A mock is made in any case, so that it cannot be told
        from the time that it takes."""
        shapes = self._plain_shapes if mechanism is None else self._shapes[mechanism]
        mocked, credential = mock_credential(self.stored.mock_key, name, shapes)
        credentials = self.stored.credentials.get(name, _NONE)
        wanted = mechanism or next((each for each in _BOTH if each in credentials), mocked)
        found = credentials.get(wanted)
        return Login(wanted, found or credential, is_real=found is not None)


def _for_plain(credentials: Credentials) -> tuple[ScramMechanism, ScramCredential]:
    return next((each, credentials[each]) for each in _BOTH if each in credentials)


def _usual_shape(mechanism: ScramMechanism) -> Shape:
    return Shape(mechanism, DEFAULT_ITERATIONS, SALT_BYTES, is_base36=False)


class Users:
    """The users of one store, or of its cluster if it is a node of one: then all nodes have a change a moment
    after it returns. There is one such object for each open directory."""

    def __init__(self, directory: LogDirectory) -> None:
        """
        Raises:
            CorruptionError: ``users.json`` is damaged; says what to do.
            UnsupportedVersionError: a newer logstore wrote it.
        """
        self._directory = directory
        nobody = StoredUsers(secrets.token_bytes(MOCK_KEY_BYTES), {})
        self._use(nobody)
        self._kept = Kept(directory, USERS_FILE, nobody, self._use)
        self._kept.load()

    def _use(self, stored: StoredUsers) -> None:
        self._known = _Known(stored)

    # For people

    def set_password(self, name: str, password: str, *, iterations: int = DEFAULT_ITERATIONS) -> None:
        """Add a user, or change a password, durably: for SCRAM-SHA-256, SCRAM-SHA-512 and PLAIN. Clients that
        are connected stay so.

        Args:
            name: 1 to 32,767 bytes of UTF-8.
            password: at least 1 byte. It is taken as it is, without Unicode normalization, as Kafka does.
            iterations: 4096 to 16,384. More make guessing from a stolen file slower, and each login too.

        Raises:
            UsageError: the name, password or number is none that Kafka could use.
            StorageError: the disk refused. Nothing has changed.
            RetriableError: the store is a node of a cluster that cannot be asked now.
            ClosedError: the store is closed.

        Takes 6 ms and two flushes.
        """
        name = check_user_name(name)
        secret = _check_password(password)
        check_least("iterations", iterations, MIN_ITERATIONS)
        if iterations > MAX_ITERATIONS:
            raise UsageError(f"iterations is {iterations}; Kafka takes at most {MAX_ITERATIONS}")
        made: dict[ScramMechanism, ScramCredential] = {}
        for mechanism in ScramMechanism:
            salt = secrets.token_bytes(SALT_BYTES)
            salted = salt_password(mechanism, secret, salt, iterations)
            made[mechanism] = credential_of(mechanism, salted, salt, iterations)
        self._kept.change(lambda stored: stored._replace(credentials={**stored.credentials, name: made}))

    def remove(self, name: str) -> None:
        """Remove a user, durably. Clients that are connected stay so until they have to log in again.

        Raises:
            UsageError: there is no such user.
            StorageError: the disk refused. Nothing has changed.
            RetriableError: the store is a node of a cluster that cannot be asked now.
            ClosedError: the store is closed.
        """
        name = check_user_name(name)

        def change(stored: StoredUsers) -> StoredUsers:
            credentials = dict(stored.credentials)
            if credentials.pop(name, None) is None:
                raise UsageError(f"there is no user {name!r}{did_you_mean(name, credentials)}")
            return stored._replace(credentials=credentials)

        self._kept.change(change)

    def names(self) -> list[str]:
        """The names of all users, in order."""
        return sorted(self._known.stored.credentials)

    def __repr__(self) -> str:
        return f"<Users of {self._directory.path}>"

    # For Kafka's tools

    def described(self) -> dict[str, dict[ScramMechanism, int]]:
        """The number of iterations of each credential of each user."""
        return {
            name: {mechanism: each.iterations for mechanism, each in sorted(credentials.items())}
            for name, credentials in sorted(self._known.stored.credentials.items())
        }

    def alter(
        self, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]
    ) -> tuple[AlteredUser, ...]:
        """Delete and set credentials (KIP-554), durably and at once: all of a user's, or none of them.

        Returns what became of each user, in the order in which they are first named.
        """
        outcomes: tuple[AlteredUser, ...] = ()

        def change(stored: StoredUsers) -> StoredUsers:
            nonlocal outcomes
            credentials, outcomes = _altered(stored.credentials, deletions, upsertions)
            return stored._replace(credentials=credentials)

        try:
            self._kept.change(change)
        except LogstoreError as error:
            if not outcomes:  # nobody could say what the newest users are
                change(self._known.stored)
            return tuple(
                AlteredUser(each.name, code_of(error), str(error)) if each.code is ErrorCode.NONE else each
                for each in outcomes
            )
        return outcomes

    # For a listener

    def scram_login(self, name: str, mechanism: ScramMechanism) -> Login:
        """What a client is to be checked with that calls itself so; a mock if there is no such user."""
        return self._known.login(name, mechanism)

    def is_password(self, name: str, password: bytes) -> bool:
        """Whether it is the password of the user, for PLAIN. Takes 1 to 9 ms, also without such a user."""
        login = self._known.login(name, None)
        is_right = is_password(login.mechanism, login.credential, password)
        return is_right and login.is_real


def kept_users(users: Users) -> Kept[StoredUsers]:
    """Where they are kept, for the node that the store is."""
    return users._kept


def _check_password(password: Any) -> bytes:
    """
    Raises:
        UsageError: it is no text, is empty, or cannot be sent. The message does not show it.
    """
    text = plain_text(password)
    if type(text) is not str:
        raise UsageError(f"the password is a {type(password).__name__}; it must be text")
    try:
        secret = text.encode()
    except UnicodeEncodeError:
        raise UsageError("the password cannot be encoded as UTF-8") from None
    if not secret or b"\0" in secret:
        raise UsageError("the password is empty or has a NUL character, which SASL cannot carry")
    return secret


def _altered(
    credentials: Mapping[str, Credentials], deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]
) -> tuple[Mapping[str, Credentials], tuple[AlteredUser, ...]]:
    """The credentials after the changes, and what became of each user."""
    altered = dict(credentials)
    changes = _Changes(altered)
    for deletion in deletions:
        changes.note(deletion.name, deletion.mechanism, None)
    for upsertion in upsertions:
        changes.note(upsertion.name, upsertion.mechanism, upsertion)
    return altered, changes.apply()


class _Changes:
    """The changes of one request, checked first and applied user by user."""

    def __init__(self, credentials: dict[str, Credentials]) -> None:
        self._credentials = credentials
        self._planned: dict[str, dict[int, ScramCredential | None]] = {}
        self._refused: dict[str, AlteredUser] = {}

    def note(self, name: str, number: int, upsertion: Upsertion | None) -> None:
        """A credential to set, or to delete."""
        planned = self._planned.setdefault(name, {})
        is_second = number in planned
        planned[number] = None
        try:
            check_user_name(name)
            if is_second:
                self._refuse(name, ErrorCode.DUPLICATE_RESOURCE, _TWICE)
            elif number not in list(ScramMechanism):
                self._refuse(name, ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"unknown mechanism {number}")
            elif upsertion is None:
                self._note_deletion(name, ScramMechanism(number))
            else:
                planned[number] = _credential_of(upsertion)
        except UsageError as error:
            self._refuse(name, ErrorCode.UNACCEPTABLE_CREDENTIAL, str(error))

    def _note_deletion(self, name: str, mechanism: ScramMechanism) -> None:
        if mechanism not in self._credentials.get(name, {}):
            why = f"user {shown(name)} has no credential for {mechanism.sasl_name}"
            self._refuse(name, ErrorCode.RESOURCE_NOT_FOUND, why)

    def _refuse(self, name: str, code: ErrorCode, why: str) -> None:
        self._refused.setdefault(name, AlteredUser(name, code, why))

    def apply(self) -> tuple[AlteredUser, ...]:
        """Change the users of which all is right."""
        for name, planned in self._planned.items():
            if name not in self._refused:
                self._put(name, planned.items())
        return tuple(self._refused.get(name) or AlteredUser(name) for name in self._planned)

    def _put(self, name: str, planned: Iterable[tuple[int, ScramCredential | None]]) -> None:
        changed = dict(self._credentials.get(name, {}))
        for number, credential in planned:
            if credential is None:
                del changed[ScramMechanism(number)]
            else:
                changed[ScramMechanism(number)] = credential
        if changed:
            self._credentials[name] = changed
        else:
            del self._credentials[name]


def _credential_of(upsertion: Upsertion) -> ScramCredential:
    """
    Raises:
        UsageError: there are too few or too many iterations, no salt, or no password.
    """
    mechanism = ScramMechanism(upsertion.mechanism)
    if not upsertion.salted_password:
        raise UsageError("an empty salted password")
    made = credential_of(
        mechanism, bytes(upsertion.salted_password), bytes(upsertion.salt), upsertion.iterations
    )
    return check_credential(mechanism, made)
