"""ACLs arranged so that a check looks at few of them: those of the resource's name, of the prefixes that it
has, and of everything; in each, only what is said of the client, of its host and of everyone.

A check takes 0.6 to 0.9 µs, however many ACLs there are (20,000 measured). The first one of a name takes up
to 5 µs more, by how many lengths the prefixes have (43 measured).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from logstore.logdir.acls import (
    CLUSTER_NAME,
    EVERYONE,
    WILDCARD,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

_BITS: Final = tuple(1 << each for each in Operation)
_EVERY_BIT: Final = sum(_BITS)
_IMPLYING: Final = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}
"""What is allowed with others. Denying those does not deny it."""

_MOST_REMEMBERED: Final = 4096
_LONGEST_REMEMBERED: Final = 249
"""A topic's longest name. Together they bound what clients can fill that ask for anything: 5 MB."""

Subject = tuple[str, str]
"""A principal and a host, as an ACL has them."""
Masks = tuple[int, int]
"""What is denied and what is allowed: a bit for each operation."""
Rules = dict[Subject, Masks]
"""All that is said of one pattern of resources."""


class _Said(NamedTuple):
    """What is said to one subject of one pattern."""

    name: str
    pattern_type: PatternType
    denied: int
    allowed: int


class _TypeIndex:
    """The ACLs of one type of resource."""

    __slots__ = ("_found", "by_subject", "literals", "prefix_lengths", "prefixes", "wildcard")

    def __init__(self, acls: Iterable[Acl]) -> None:
        self.literals: dict[str, Rules] = {}
        self.prefixes: dict[str, Rules] = {}
        for acl in acls:
            patterns = self.prefixes if acl.pattern_type is PatternType.PREFIXED else self.literals
            _add(patterns.setdefault(acl.resource_name, {}), acl)
        self.by_subject: dict[Subject, list[_Said]] = {}
        for pattern_type, patterns in (
            (PatternType.LITERAL, self.literals),
            (PatternType.PREFIXED, self.prefixes),
        ):
            for name, rules in patterns.items():
                for subject, masks in rules.items():
                    self.by_subject.setdefault(subject, []).append(_Said(name, pattern_type, *masks))
        self.wildcard = self.literals.get(WILDCARD)
        self.prefix_lengths = tuple(sorted({len(name) for name in self.prefixes}))
        self._found: dict[str, list[Rules]] = {}
        """What was found for the first names that were asked for. Threads may add the same one twice."""

    def rules_of(self, name: str) -> list[Rules]:
        """All that is said of a resource."""
        found = self._found.get(name)
        if found is None:
            found = self._find(name)
            if len(self._found) < _MOST_REMEMBERED and len(name) <= _LONGEST_REMEMBERED:
                self._found[name] = found
        return found

    def _find(self, name: str) -> list[Rules]:
        found = [] if self.wildcard is None else [self.wildcard]
        literal = self.literals.get(name)
        if literal is not None:
            found.append(literal)
        size = len(name)
        for length in self.prefix_lengths:
            if length > size:
                break
            prefixed = self.prefixes.get(name[:length])
            if prefixed is not None:
                found.append(prefixed)
        return found


def _add(rules: Rules, acl: Acl) -> None:
    subject = (acl.principal, address_of(acl.host))
    denied, allowed = rules.get(subject, (0, 0))
    bits = _EVERY_BIT if acl.operation is Operation.ALL else _BITS[acl.operation]
    if acl.permission is Permission.DENY:
        denied |= bits
    else:
        for implied, implying in _IMPLYING.items():
            if acl.operation in implying:
                bits |= _BITS[implied]
        allowed |= bits
    rules[subject] = (denied, allowed)


def address_of(host: str) -> str:
    """The host of an ACL as sockets name it. An IPv6 address has many spellings: Kafka's own is
    ``0:0:0:0:0:0:0:1``. An IPv4 address in one of IPv6 is that IPv4 address."""
    if ":" not in host:
        return host
    from ipaddress import AddressValueError, IPv6Address  # most clients come over IPv4

    try:
        address = IPv6Address(host)
    except AddressValueError:
        return host
    return str(address.ipv4_mapped or address)


def _subjects(principal: str, host: str) -> tuple[Subject, ...]:
    return (principal, host), (principal, WILDCARD), (EVERYONE, host), (EVERYONE, WILDCARD)


class AclIndex:
    """ACLs at one moment. Never changes."""

    def __init__(self, acls: Iterable[Acl]) -> None:
        self.acls = frozenset(acls)
        of_type: dict[ResourceType, list[Acl]] = {}
        for acl in self.acls:
            of_type.setdefault(acl.resource_type, []).append(acl)
        self._of_type = tuple(_TypeIndex(of_type[kind]) if kind in of_type else None for kind in ResourceType)
        """By the number of the type: an enumeration's member takes 0.1 µs to be found in a dictionary."""

    def allows(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool | None:
        """Whether it is allowed; None if nothing is said of the resource, to any client. Denying wins."""
        index = self._of_type[resource_type]
        rules_of_name = index.rules_of(name) if index is not None else None
        if not rules_of_name:
            return None
        bit = _BITS[operation]
        subjects = _subjects(principal, host)
        is_allowed = False
        for rules in rules_of_name:
            for subject in subjects:
                masks = rules.get(subject)
                if masks is not None:
                    if masks[0] & bit:
                        return False
                    if masks[1] & bit:
                        is_allowed = True
        return is_allowed

    def allows_any(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool | None:
        """Whether there could be a resource of the type with which it is allowed (KIP-679); None if there
        could be one of which nothing is said, and none with which it is allowed.

        Takes 1.5 µs, and 0.1 µs for each pattern of which the ACLs say something to the client.
        """
        if resource_type is ResourceType.CLUSTER:
            return self.allows(principal, host, operation, resource_type, CLUSTER_NAME)
        index = self._of_type[resource_type]
        if index is None:
            return None
        said = [each for subject in _subjects(principal, host) for each in index.by_subject.get(subject, ())]
        if _is_any_allowed(said, _BITS[operation]):
            return True
        return False if index.wildcard is not None else None


def _is_any_allowed(said: Sequence[_Said], bit: int) -> bool:
    """Names are endless: what is denied by name or prefix never uses up what is allowed by a shorter prefix,
    or by the wildcard."""
    denied_names = {each.name for each in said if each.denied & bit and _is_literal(each)}
    if WILDCARD in denied_names:
        return False
    denied_prefixes = tuple(each.name for each in said if each.denied & bit and not _is_literal(each))
    for each in said:
        if each.allowed & bit:
            if _is_literal(each) and each.name == WILDCARD:
                return True
            is_denied = _is_literal(each) and each.name in denied_names
            if not is_denied and not each.name.startswith(denied_prefixes):
                return True
    return False


def _is_literal(said: _Said) -> bool:
    return said.pattern_type is PatternType.LITERAL
