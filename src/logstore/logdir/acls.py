"""The ACLs of a store: who may do what, in Kafka's words, and the file that keeps them.

Kafka keeps ACLs in the cluster metadata, which a log directory by itself does not have. Ours are one small
JSON file, ``acls.json``. It is replaced whole, so a crash leaves the old ACLs or the new ones, and it exists
only once an ACL was added. Kafka ignores it.

Knows what an ACL may be, and which ones a filter matches; not what follows from them for a client.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeVar

from logstore.arguments import did_you_mean, plain_text, shown
from logstore.errors import CorruptionError, UsageError
from logstore.files import Files
from logstore.logdir.small_json import JsonFile, decode_json, encode_json
from logstore.partition.state.home import ACLS_NAME

VERSION: Final = 1
MAX_ACLS_BYTES: Final = 64 * 1024 * 1024
WILDCARD: Final = "*"
"""As the name of a resource or host: any."""
EVERYONE: Final = "User:*"
"""As a principal: any."""
CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""
_LONGEST_TEXT: Final = 32_767
_WHAT_TO_DO: Final = "Restore the file, or move it away: there are then no ACLs"


class Operation(IntEnum):
    """What a client does with a resource. The numbers are those of Kafka's protocol, here and below."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """What a client does it with."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How the name of a resource is meant. ``MATCH`` is for filters: all patterns that apply to the name."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """What an ACL says."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class Acl(NamedTuple):
    """One rule. Make it with :func:`check_acl`, which refuses what cannot be one."""

    resource_type: ResourceType
    resource_name: str
    """``*`` with ``LITERAL``: each resource of the type."""
    pattern_type: PatternType
    principal: str
    """Such as ``User:alice``; ``User:*`` is everyone."""
    host: str
    """The address of the client, in any spelling of an IPv6 address; ``*`` is any. Names of machines and
    ranges of addresses match no client, as in Kafka."""
    operation: Operation
    permission: Permission


class AclFilter(NamedTuple):
    """Which ACLs are meant. ``ANY`` and None match everything."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, acl: Acl) -> bool:
        """Whether it means an ACL (KIP-290)."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern_type is PatternType.MATCH:
            return self.resource_name is None or applies_to(acl, self.resource_name)
        if self.pattern_type not in (PatternType.ANY, acl.pattern_type):
            return False
        return self.resource_name in (None, acl.resource_name)


def applies_to(acl: Acl, name: str) -> bool:
    """Whether an ACL is about a resource of this name, if it has the type."""
    if acl.pattern_type is PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, WILDCARD)


# What may be stored


NumberT = TypeVar("NumberT", bound=IntEnum)


def check_acl(acl: Any) -> Acl:
    """An ACL of plain values, from one that may have numbers in place of the types.

    Raises:
        UsageError: it cannot be one; says what is wrong.
    """
    if not isinstance(acl, tuple) or len(acl) != len(Acl._fields):
        raise UsageError(f"{shown(acl)} is no Acl")
    resource_type, name, pattern_type, principal, host, operation, permission = acl
    checked = Acl(
        _check_stored(ResourceType, resource_type, "resource type"),
        _check_text(name, "the name of a resource"),
        _check_stored(PatternType, pattern_type, "pattern type"),
        check_principal(principal),
        _check_text(host, "a host"),
        _check_stored(Operation, operation, "operation"),
        _check_stored(Permission, permission, "permission"),
    )
    if checked.resource_type is ResourceType.CLUSTER and checked.resource_name != CLUSTER_NAME:
        raise UsageError(f"the cluster is {checked.resource_name!r}; its only name is {CLUSTER_NAME!r}")
    return checked


def check_filter(wanted: Any) -> AclFilter:
    """A filter of plain values, from one that may have numbers in place of the types.

    Raises:
        UsageError: it cannot be one; says what is wrong.
    """
    if not isinstance(wanted, tuple) or len(wanted) != len(AclFilter._fields):
        raise UsageError(f"{shown(wanted)} is no AclFilter")
    resource_type, name, pattern_type, principal, host, operation, permission = wanted
    return AclFilter(
        _check_known(ResourceType, resource_type, "resource type"),
        _check_optional(name, "the name of a resource"),
        _check_known(PatternType, pattern_type, "pattern type"),
        _check_optional(principal, "a principal"),
        _check_optional(host, "a host"),
        _check_known(Operation, operation, "operation"),
        _check_known(Permission, permission, "permission"),
    )


def check_principal(principal: Any) -> str:
    """
    Raises:
        UsageError: it is not of the form ``type:name``.
    """
    checked = _check_text(principal, "a principal")
    kind, colon, name = checked.partition(":")
    if not (kind and colon and name):
        raise UsageError(f"a principal is {checked!r}; it must be as in 'User:alice'")
    return checked


def _check_known(kind: type[NumberT], value: Any, what: str) -> NumberT:
    """What a filter may have: also ANY."""
    found = None
    if type(value) in (int, kind):  # not a number of another kind
        with suppress(ValueError):
            found = kind(value)
    if not found:  # UNKNOWN is 0
        # Clients have enumerations of the same names, with other numbers.
        hint = "" if type(value) is int else f"; it must be a logstore.security.{kind.__name__}"
        raise UsageError(f"unknown {what} {shown(value)}{hint}")
    return found


def _check_stored(kind: type[NumberT], value: Any, what: str) -> NumberT:
    """What an ACL may have."""
    found = _check_known(kind, value, what)
    if found.name in ("ANY", "MATCH"):
        raise UsageError(f"the {what} {found.name} is for filters; an ACL names one")
    return found


def _check_optional(value: Any, what: str) -> str | None:
    return None if value is None else _check_text(value, what, least=0)


def _check_text(value: Any, what: str, *, least: int = 1) -> str:
    value = plain_text(value)
    if type(value) is str:
        try:
            if least <= len(value.encode()) <= _LONGEST_TEXT:
                return value
        except UnicodeEncodeError:
            pass
    raise UsageError(f"{what} is {shown(value)}; it must be text of {least} to {_LONGEST_TEXT} bytes")


# The file


def read_acls(files: Files, directory: str) -> frozenset[Acl]:
    """The ACLs of a directory; none if it has no such file.

    Raises:
        CorruptionError: the file is damaged; says what to do.
        UnsupportedVersionError: a newer logstore wrote it.
    """
    return ACLS_FILE.read(files, directory) or frozenset()


def encode_acls(acls: Collection[Acl]) -> bytes:
    described = [
        {
            name: value.name if isinstance(value, IntEnum) else value
            for name, value in zip(Acl._fields, acl, strict=True)
        }
        for acl in sorted(acls)
    ]
    return encode_json(VERSION, acls=described)


def decode_acls(data: bytes) -> frozenset[Acl]:
    """
    Raises:
        CorruptionError: not of the form that :func:`encode_acls` writes.
        UnsupportedVersionError: a newer logstore wrote it.
    """
    content = decode_json(data, ACLS_NAME, VERSION, "acls", list, "list of ACLs")
    found = set()
    for number, described in enumerate(content["acls"]):
        try:
            found.add(_decode_acl(described))
        except UsageError as error:
            raise CorruptionError(f"ACL {number}: {error}") from None
    return frozenset(found)


def _decode_acl(described: Any) -> Acl:
    if not isinstance(described, dict) or set(described) != set(Acl._fields):
        raise UsageError(f"must have {', '.join(Acl._fields)}, and nothing else")
    kinds: dict[str, type[IntEnum]] = {
        "resource_type": ResourceType,
        "pattern_type": PatternType,
        "operation": Operation,
        "permission": Permission,
    }
    named = {field: _named(kind, described[field], field) for field, kind in kinds.items()}
    return check_acl(Acl(**{**described, **named}))


def _named(kind: type[IntEnum], name: Any, field: str) -> IntEnum:
    if type(name) is not str or name not in kind.__members__:
        raise UsageError(f"unknown {field} {shown(name)}{did_you_mean(name, kind.__members__)}")
    return kind[name]


def _parts(acls: frozenset[Acl]) -> dict[str, object]:
    return {
        f"{each.principal} from {each.host} {each.permission.name} {each.operation.name} "
        f"{each.resource_type.name} {each.pattern_type.name} {each.resource_name}": each
        for each in acls
    }


ACLS_FILE: Final[JsonFile[frozenset[Acl]]] = JsonFile(
    name=ACLS_NAME,
    limit_bytes=MAX_ACLS_BYTES,
    encode=encode_acls,
    decode=decode_acls,
    parts=_parts,
    what_to_do=_WHAT_TO_DO,
)
