"""ACLs beside a slow and plain reading of Kafka's rules; filters; the file."""

import json
import string
import threading
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.errors import ClosedError, CorruptionError, StorageError, UnsupportedVersionError, UsageError
from logstore.logdir.acls import (
    ACLS_FILE,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    check_acl,
    check_filter,
    decode_acls,
    encode_acls,
)
from logstore.logdir.directory import LogDirectory
from logstore.testing import FAULTS, CrashError, FaultyFiles, ManualClock, MemoryFiles, explore
from logstore.wire.security.acl_index import AclIndex
from logstore.wire.security.acls import Acls
from logstore.wire.security.security import Security
from tests.wire.security.rig import open_directory

ALLOW, DENY = Permission.ALLOW, Permission.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
READ, WRITE, DESCRIBE, ALL = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
ALICE, BOB = "User:alice", "User:bob"
HOME, AWAY = "10.0.0.1", "10.0.0.2"


def acl(
    name="t",
    operation=READ,
    principal=ALICE,
    *,
    permission=ALLOW,
    kind=TOPIC,
    pattern_type=LITERAL,
    host="*",
):
    return Acl(kind, name, pattern_type, principal, host, operation, permission)


# A plain reading of the rules


IMPLIED = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}


def is_about(acl, kind, name):
    if acl.resource_type != kind:
        return False
    if acl.pattern_type == PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in ("*", name)


def speaks_to(acl, principal, host, operation):
    operations = {acl.operation}
    if acl.permission == ALLOW:
        operations |= {implied for implied, by in IMPLIED.items() if acl.operation in by}
    return (
        acl.principal in ("User:*", principal)
        and acl.host in ("*", host)
        and (acl.operation == ALL or operation in operations)
    )


def plainly_allows(acls, principal, host, operation, kind, name, *, otherwise):
    about = [each for each in acls if is_about(each, kind, name)]
    if not about:
        return otherwise
    said = {each.permission for each in about if speaks_to(each, principal, host, operation)}
    return said == {ALLOW}


def names_that_matter(acls):
    """Each name and prefix that there is, and something behind each, and something else."""
    named = {each.resource_name for each in acls} | {""}
    return {name + rest for name in named for rest in ("", "\0new")}


some_names = st.text("ab*", min_size=1, max_size=3)
acls = st.builds(
    Acl,
    st.sampled_from((TOPIC, GROUP)),
    some_names,
    st.sampled_from((LITERAL, PREFIXED)),
    st.sampled_from((ALICE, BOB, "User:*")),
    st.sampled_from((HOME, AWAY, "*")),
    st.sampled_from([each for each in Operation if each > Operation.ANY]),
    st.sampled_from((ALLOW, DENY)),
)
many_acls = st.sets(acls, max_size=12)
asked = st.sampled_from([each for each in Operation if each > Operation.ALL])


def made(acls, **options):
    found = Acls(open_directory())
    found._index = AclIndex(acls)  # nothing is written for each example
    return Security(acls=found, **options)


@settings(max_examples=200)
@given(
    acls=many_acls,
    principal=st.sampled_from((ALICE, BOB, "User:carol")),
    host=st.sampled_from((HOME, AWAY)),
    operation=asked,
    kind=st.sampled_from((TOPIC, GROUP)),
    otherwise=st.booleans(),
)
def test_each_check_is_as_the_plain_reading_has_it(acls, principal, host, operation, kind, otherwise):
    """2 s."""
    index = AclIndex(acls)
    each_is = []
    for name in names_that_matter(acls):
        expected = plainly_allows(acls, principal, host, operation, kind, name, otherwise=otherwise)
        found = index.allows(principal, host, operation, kind, name)
        assert (otherwise if found is None else found) is expected, name
        each_is.append(expected)
    found = index.allows_any(principal, host, operation, kind)
    assert (otherwise if found is None else found) is any(each_is)


@pytest.mark.parametrize(
    ("said", "client"),
    [
        ("0:0:0:0:0:0:0:1", "::1"),  # as Java spells it, and so Kafka's tools and logs
        ("2001:DB8::00AB", "2001:db8::ab"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::FFFF:a00:1", "10.0.0.1"),
    ],
)
def test_a_host_may_be_any_spelling_of_the_address(said, client):
    index = AclIndex({acl(), acl(host=said, permission=DENY)})
    assert index.allows(ALICE, client, READ, TOPIC, "t") is False
    assert index.allows(ALICE, "2001:db8::1", READ, TOPIC, "t") is True


def test_spellings_of_one_host_add_up():
    index = AclIndex({acl(host="::1"), acl(operation=WRITE, host="0:0:0:0:0:0:0:1")})
    assert index.allows(ALICE, "::1", READ, TOPIC, "t")
    assert index.allows(ALICE, "::1", WRITE, TOPIC, "t")


@pytest.mark.parametrize("said", ["localhost", "10.0.0.0/8", "fe80::1%eth0", "a:b", "::\0"])
def test_a_host_that_is_no_address_is_nobodys(said):
    assert AclIndex({acl(host=said)}).allows(ALICE, "::1", READ, TOPIC, "t") is False


@pytest.mark.parametrize(
    ("allowed", "denied", "expected"),
    [
        ([("a", LITERAL)], [], True),
        ([("a", LITERAL)], [("a", LITERAL)], False),
        ([("a", LITERAL)], [("a", PREFIXED)], False),
        ([("ab", LITERAL)], [("a", PREFIXED)], False),
        ([("a", LITERAL)], [("ab", PREFIXED), ("b", LITERAL)], True),
        ([("a", PREFIXED)], [("a", LITERAL), ("ab", PREFIXED)], True),
        ([("a", PREFIXED)], [("a", PREFIXED)], False),
        ([("ab", PREFIXED)], [("a", PREFIXED)], False),
        ([("*", LITERAL)], [("a", PREFIXED), ("b", LITERAL), ("*", PREFIXED)], True),
        ([("*", LITERAL), ("a", PREFIXED)], [("*", LITERAL)], False),
        ([("*", PREFIXED)], [("*", LITERAL)], False),
        ([("*", PREFIXED)], [("b", LITERAL)], True),
    ],
)
def test_what_denies_all_that_is_allowed(allowed, denied, expected):
    """KIP-679, beside the plain reading."""
    acls = {acl(name, pattern_type=kind) for name, kind in allowed}
    acls |= {acl(name, pattern_type=kind, principal="User:*", permission=DENY) for name, kind in denied}
    plainly = [
        plainly_allows(acls, ALICE, HOME, READ, TOPIC, name, otherwise=False)
        for name in names_that_matter(acls)
    ]
    assert any(plainly) is expected
    assert AclIndex(acls).allows_any(ALICE, HOME, READ, TOPIC) in ((True,) if expected else (False, None))


def test_what_implies_what():
    for operation, implied in (
        (READ, DESCRIBE),
        (WRITE, DESCRIBE),
        (Operation.DELETE, DESCRIBE),
        (Operation.ALTER, DESCRIBE),
        (Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS),
    ):
        assert made({acl(operation=operation)}).allows(ALICE, HOME, implied, TOPIC, "t")
        assert not made({acl(operation=implied)}).allows(ALICE, HOME, operation, TOPIC, "t")
        denied = {acl(operation=ALL), acl(operation=operation, permission=DENY)}
        assert made(denied).allows(ALICE, HOME, implied, TOPIC, "t")
    assert not made({acl(operation=Operation.CREATE)}).allows(ALICE, HOME, DESCRIBE, TOPIC, "t")


def test_super_users_and_resources_of_which_nothing_is_said():
    everything = {acl("*", ALL, "User:*", permission=DENY)}
    strict = made(everything, super_users=["User:admin"])
    assert strict.allows("User:admin", HOME, WRITE, TOPIC, "t")
    assert strict.allows_any("User:admin", HOME, WRITE, TOPIC)
    assert not strict.allows(ALICE, HOME, WRITE, TOPIC, "t")
    assert not strict.allows(ALICE, HOME, WRITE, GROUP, "g")
    lenient = made({acl("t")}, allow_everyone_if_no_acl_found=True)
    assert not lenient.allows(BOB, HOME, READ, TOPIC, "t")
    assert lenient.allows(BOB, HOME, READ, TOPIC, "u")
    assert lenient.allows_any(BOB, HOME, READ, TOPIC)
    assert not made({acl("t")}).allows_any(BOB, HOME, READ, TOPIC)


def test_the_cluster_has_one_name():
    name = "kafka-cluster"
    found = made({acl(name, Operation.IDEMPOTENT_WRITE, kind=CLUSTER)})
    assert found.allows_any(ALICE, HOME, Operation.IDEMPOTENT_WRITE, CLUSTER)
    assert not found.allows_any(ALICE, HOME, Operation.ALTER, CLUSTER)
    lenient = made({acl(name, READ, kind=CLUSTER)}, allow_everyone_if_no_acl_found=True)
    assert not lenient.allows_any(BOB, HOME, Operation.ALTER, CLUSTER)


@pytest.mark.parametrize("super_users", ["User:admin", ["admin"], [":x"], ["User:"], [7]])
def test_super_users_that_are_none(super_users):
    with pytest.raises(UsageError, match="principal"):
        Security(super_users=super_users)


# Changes


class TestChanges:
    @pytest.fixture
    def directory(self):
        return open_directory()

    def test_they_hold_at_once_and_after_a_restart(self, directory):
        here = Acls(directory)
        assert not Security(acls=here).allows(ALICE, HOME, READ, TOPIC, "t")
        here.add([acl(), acl("x", pattern_type=PREFIXED)])
        here.add([acl()])
        for each in (here, Acls(directory)):
            assert Security(acls=each).allows(ALICE, HOME, READ, TOPIC, "t")
            assert Security(acls=each).allows(ALICE, HOME, READ, TOPIC, "xyz")
            assert each.matching() == (acl(), acl("x", pattern_type=PREFIXED))
            assert len(each) == 2
        removed = here.remove([AclFilter(resource_name="t"), AclFilter(principal=BOB), AclFilter()])
        assert removed == ((acl(),), (), (acl(), acl("x", pattern_type=PREFIXED)))
        for each in (here, Acls(directory)):
            assert each.matching() == ()
            assert not Security(acls=each).allows(ALICE, HOME, READ, TOPIC, "t")

    def test_all_of_them_or_none(self, directory):
        here = Acls(directory)
        with pytest.raises(UsageError):
            here.add([acl(), acl("")])
        assert here.matching() == ()

    def test_numbers_become_names(self, directory):
        here = Acls(directory)
        here.add([(2, "t", 3, ALICE, "*", 3, 3)])
        assert here.matching((2, None, 1, None, None, 1, 1)) == (acl(),)
        assert repr(here.matching()[0].operation) == "<Operation.READ: 3>"

    def test_a_disk_that_refuses_leaves_them_as_they_were(self):
        files = FaultyFiles(MemoryFiles())
        here = Acls(open_directory(files))
        here.add([acl()])
        for change in (lambda: here.add([acl("u")]), lambda: here.remove([AclFilter()])):
            files.fail(FAULTS["ENOSPC"], kinds=["write"], path="acls.json")
            with pytest.raises(StorageError):
                change()
            assert here.matching() == (acl(),)
        here.add([acl("u")])
        assert len(here) == 2

    def test_nothing_is_written_if_nothing_changes(self):
        files = MemoryFiles()
        here = Acls(open_directory(files))
        here.remove([AclFilter()])
        assert not files.is_file("/data/acls.json")
        here.add([acl()])
        written = len(files.trace)
        here.add([acl()])
        here.remove([AclFilter(principal=BOB)])
        assert len(files.trace) == written

    def test_too_many_are_refused_and_leave_the_file(self, directory, monkeypatch):
        small = replace(ACLS_FILE, limit_bytes=300)
        monkeypatch.setattr("logstore.wire.security.acls.ACLS_FILE", small)
        here = Acls(directory)
        here.add([acl()])
        with pytest.raises(UsageError, match=r"acls\.json would have \d+ bytes; 300 are allowed"):
            here.add([acl("u")])
        assert here.matching() == Acls(directory).matching() == (acl(),)

    def test_a_closed_store(self, directory):
        here = Acls(directory)
        directory.close()
        for change in (lambda: here.add([acl()]), lambda: here.remove([AclFilter()])):
            with pytest.raises(ClosedError):
                change()


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"resource_type": 0}, "unknown resource type 0"),
        ({"resource_type": 1}, "the resource type ANY is for filters"),
        ({"resource_type": 8}, "unknown resource type 8"),
        ({"resource_type": True}, "unknown resource type True"),
        (
            {"resource_type": Operation.READ},
            "unknown resource type <Operation.READ: 3>; it must be a logstore.security.ResourceType",
        ),
        ({"resource_type": CLUSTER}, "its only name is 'kafka-cluster'"),
        ({"resource_name": ""}, "the name of a resource is ''"),
        ({"resource_name": "x" * 32_768}, "must be text of 1 to 32767 bytes"),
        ({"resource_name": None}, "the name of a resource is None"),
        ({"resource_name": "\ud800"}, "the name of a resource is"),
        ({"pattern_type": PatternType.MATCH}, "the pattern type MATCH is for filters"),
        ({"pattern_type": 1}, "the pattern type ANY is for filters"),
        ({"pattern_type": 5}, "unknown pattern type 5"),
        ({"principal": "alice"}, "it must be as in 'User:alice'"),
        ({"principal": "User:"}, "it must be as in 'User:alice'"),
        ({"principal": ""}, "a principal is ''"),
        ({"host": ""}, "a host is ''"),
        ({"operation": 1}, "the operation ANY is for filters"),
        ({"operation": 16}, "unknown operation 16"),
        ({"operation": -1}, "unknown operation -1"),
        ({"operation": "READ"}, "unknown operation 'READ'"),
        ({"permission": 1}, "the permission ANY is for filters"),
        ({"permission": 4}, "unknown permission 4"),
    ],
)
def test_what_is_no_acl(changed, reason):
    with pytest.raises(UsageError, match=reason):
        check_acl(acl()._replace(**changed))


@pytest.mark.parametrize("value", [None, (), (2, "t"), "topic", {}])
def test_what_is_no_acl_at_all(value):
    with pytest.raises(UsageError, match=r"is no Acl$"):
        check_acl(value)
    with pytest.raises(UsageError, match=r"is no AclFilter$"):
        check_filter(value)


# Filters


def plainly_matches(wanted, acl):
    """KIP-290: first the pattern, then the rest."""
    if wanted.pattern_type == PatternType.MATCH:
        name = wanted.resource_name
        if name is not None and not is_about(acl, acl.resource_type, name):
            return False
    else:
        if wanted.pattern_type != PatternType.ANY and wanted.pattern_type != acl.pattern_type:
            return False
        if wanted.resource_name is not None and wanted.resource_name != acl.resource_name:
            return False
    pairs = (
        (wanted.resource_type, acl.resource_type, ResourceType.ANY),
        (wanted.principal, acl.principal, None),
        (wanted.host, acl.host, None),
        (wanted.operation, acl.operation, Operation.ANY),
        (wanted.permission, acl.permission, Permission.ANY),
    )
    return all(asked in (other, everything) for asked, other, everything in pairs)


filters = st.builds(
    AclFilter,
    st.sampled_from((ResourceType.ANY, TOPIC, GROUP)),
    st.none() | some_names,
    st.sampled_from(list(PatternType)[1:]),
    st.sampled_from((None, ALICE, "User:*")),
    st.sampled_from((None, HOME, "*")),
    st.sampled_from((Operation.ANY, ALL, READ)),
    st.sampled_from((Permission.ANY, ALLOW, DENY)),
)


@settings(max_examples=200)
@given(acls=many_acls, wanted=filters)
def test_each_filter_matches_what_kip_290_says(acls, wanted):
    """2 s."""
    assert set(filter(wanted.matches, acls)) == {each for each in acls if plainly_matches(wanted, each)}


# The file


class TestFile:
    @given(acls=many_acls)
    @settings(max_examples=50)
    def test_it_holds_what_was_added(self, acls):
        assert decode_acls(encode_acls(acls)) == acls

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda content: content.update(version="1"), "has no version"),
            (lambda content: content.update(acls={}), "no list of ACLs"),
            (lambda content: content["acls"].append(5), "ACL 1: must have resource_type"),
            (lambda content: content["acls"][0].pop("host"), "ACL 0: must have resource_type"),
            (lambda content: content["acls"][0].update(more=1), "and nothing else"),
            (lambda content: content["acls"][0].update(operation=3), "unknown operation 3"),
            (lambda content: content["acls"][0].update(operation="REED"), "'REED'; did you mean 'READ'"),
            (lambda content: content["acls"][0].update(permission="ANY"), "is for filters"),
            (lambda content: content["acls"][0].update(principal="x"), "as in 'User:alice'"),
        ],
    )
    def test_damage_is_named(self, change, message):
        content = json.loads(encode_acls({acl()}))
        change(content)
        with pytest.raises(CorruptionError, match=message):
            decode_acls(json.dumps(content).encode())

    @pytest.mark.parametrize("data", [b"", b"{", b"[" * 100_000, b"[]", b"null", b"\xff"])
    def test_what_is_no_json_or_no_object(self, data):
        with pytest.raises(CorruptionError, match=r"is not JSON|has no version"):
            decode_acls(data)

    def test_a_newer_version_is_refused(self):
        with pytest.raises(UnsupportedVersionError, match="version 2; only 1"):
            decode_acls(b'{"version": 2, "acls": []}')

    def test_a_damaged_file_does_not_open_the_door(self):
        files = MemoryFiles()
        directory = open_directory(files)
        Acls(directory).add([acl()])
        files.open("/data/acls.json", write=True).truncate(20)
        with pytest.raises(CorruptionError, match=r"Restore the file, or move it away.*acls\.json"):
            Acls(directory)

    def test_a_file_that_may_not_be_read_is_not_taken_for_none(self):
        files = FaultyFiles(MemoryFiles())
        directory = open_directory(files)
        Acls(directory).add([acl()])
        files.fail(FAULTS["EACCES"], kinds=["open"], path="acls.json")
        with pytest.raises(StorageError, match="this process's user needs the permission"):
            Acls(directory)


def test_checks_while_acls_change_see_all_of_a_change_or_nothing():
    """Alice's right to a topic moves to and fro between two ACLs: one of them is there at any time."""
    here = made(())
    by_name, by_prefix = acl("topic"), acl("top", pattern_type=PREFIXED)
    here.acls.add([by_name])
    stop = threading.Event()
    refused = []

    def check():
        while not stop.is_set():
            if not here.allows(ALICE, HOME, READ, TOPIC, "topic"):
                refused.append(here.matching())
            if here.allows(BOB, HOME, READ, TOPIC, "topic"):
                refused.append(BOB)

    threads = [threading.Thread(target=check) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(60):
        for old, new in ((by_name, by_prefix), (by_prefix, by_name)):
            here.acls.add([new])
            here.acls.remove([AclFilter(pattern_type=old.pattern_type)])
    stop.set()
    for thread in threads:
        thread.join()
    assert refused == []


def test_names_that_are_not_remembered_are_found_all_the_same():
    """What is remembered of names is bounded; beyond that they are looked up each time."""
    index = AclIndex({acl("n", pattern_type=PREFIXED)})
    for number in range(5000):
        assert index.allows(ALICE, HOME, READ, TOPIC, f"n{number}")
        assert index.allows(ALICE, HOME, READ, TOPIC, f"m{number}") is None
    assert index.allows(ALICE, HOME, READ, TOPIC, "n" * 1000)
    assert len(index._of_type[TOPIC]._found) == 4096


class Changes:
    """A program that replaces one ACL by another, and notes before and after what there is to be."""

    def session(self, files, said, rng):
        directory = LogDirectory("/s", files=files, clock=ManualClock())
        here = Acls(directory)
        for _ in range(3):
            name = "".join(rng.choices(string.ascii_lowercase, k=8))
            before = here.matching()
            files.note(("begin", name))
            here.add([acl(name)])
            here.remove([AclFilter(resource_name=each.resource_name) for each in before])
            files.note(("done", name))
        directory.close()

    def check(self, files, said):
        done = [name for word, name in said if word == "done"][-1:]
        begun = [name for word, name in said[-1:] if word == "begin"]
        if said:
            directory = LogDirectory("/s", files=files, clock=ManualClock())
            found = [each.resource_name for each in Acls(directory).matching()]
            directory.close()
            assert found in ([done, sorted(done + begun), begun] if begun else [done])


def test_a_power_cut_leaves_the_acls_before_the_change_or_after_it():
    assert explore(Changes(), seed=1, max_states=100).state_count >= 30


def test_a_change_that_is_not_durable_is_noticed(monkeypatch):
    monkeypatch.setattr(MemoryFiles, "flush_directory", lambda self, path: None)
    with pytest.raises(CrashError):
        explore(Changes(), seed=1, max_states=100)
