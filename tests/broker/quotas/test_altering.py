"""Requests about quotas: what may be set, filters beside a plain reading of KIP-546, and the file."""

from itertools import product

import pytest

import logstore
from logstore.broker.codes import ErrorCode
from logstore.broker.quotas.requests import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
    FilterComponent,
    MatchType,
    QuotaAlteration,
)
from logstore.errors import CorruptionError, UnsupportedVersionError
from logstore.logdir.quotas import decode_quotas, encode_quotas, entity_of
from logstore.testing import FAULTS, CrashError, FaultyFiles, ManualClock, MemoryFiles, explore
from tests.broker.rig import Rig

NAMES = ("alice", "bob", None, "")
"""Of a part of an entity: two names, the default, and no such part."""

EXACT, DEFAULT, SPECIFIED = MatchType


def parts(user, client_id):
    return {kind: name for kind, name in (("user", user), ("client-id", client_id)) if name != ""}


ENTITIES = [parts(*names) for names in product(NAMES, NAMES) if names != ("", "")]


@pytest.fixture
def rig():
    return Rig()


def alter(rig, *alterations, **options):
    request = AlterClientQuotasRequest(tuple(QuotaAlteration(*each) for each in alterations), **options)
    return rig.now(rig.broker.alter_client_quotas(request)).entries


def change(rig, entity, *ops, **options):
    (outcome,) = alter(rig, (entity, ops), **options)
    return outcome


def describe(rig, *components, **options):
    request = DescribeClientQuotasRequest(tuple(FilterComponent(*each) for each in components), **options)
    return rig.now(rig.broker.describe_client_quotas(request))


def all_quotas(rig):
    return [(dict(each.entity), dict(each.values)) for each in describe(rig).entries]


class TestAlter:
    def test_quotas_are_set_changed_and_removed(self, rig):
        entity = {"user": "alice", "client-id": None}
        assert change(rig, entity, ("producer_byte_rate", 10.0), ("request_percentage", 5)).error == 0
        assert change(rig, entity, ("producer_byte_rate", 20), ("consumer_byte_rate", 1)).error == 0
        values = {"producer_byte_rate": 20, "consumer_byte_rate": 1, "request_percentage": 5.0}
        assert all_quotas(rig) == [(entity, values)]
        assert change(rig, entity, *((key, None) for key in values)).error == 0
        assert all_quotas(rig) == []
        assert change(rig, entity, ("producer_byte_rate", None)).error == 0

    def test_validate_only_changes_nothing(self, rig):
        assert change(rig, {"user": "a"}, ("producer_byte_rate", 1), validate_only=True).error == 0
        assert change(rig, {"user": "a"}, ("producer_byte_rate", 0), validate_only=True).error
        assert all_quotas(rig) == []
        assert not rig.files.is_file("/data/quotas.json")

    def test_one_entity_that_is_wrong_does_not_fail_the_others(self, rig):
        good, bad = (("producer_byte_rate", 1),), (("consumer_byte_rate", 1), ("producer_byte_rate", -1))
        outcomes = alter(rig, ({"user": "a"}, good), ({"user": "b"}, bad), ({"user": "a"}, good))
        assert [each.error for each in outcomes] == [0, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST]
        assert outcomes[2].message == "the request changes users/a twice"
        assert all_quotas(rig) == [({"user": "a"}, {"producer_byte_rate": 1})]

    @pytest.mark.parametrize(
        ("entity", "key", "value", "message"),
        [
            ({}, "producer_byte_rate", 1, "a quota is for a user, a client id or both"),
            ({"user": ""}, "producer_byte_rate", 1, "user is ''; it must be text of 1 to 32767 bytes"),
            ({"user": 7}, "producer_byte_rate", 1, "user is 7; it must be text of 1 to 32767 bytes"),
            ({"client-id": "x" * 32_768}, "producer_byte_rate", 1, "must be text of 1 to 32767 bytes"),
            ({"user": "\ud800"}, "producer_byte_rate", 1, "must be text of 1 to 32767 bytes"),
            ({"group": "g"}, "producer_byte_rate", 1, "unknown entity type 'group'"),
            ({"ip": "10.0.0.1"}, "connection_creation_rate", 1, "'ip'; it limits connections, and there are"),
            ({"clientid": "a"}, "producer_byte_rate", 1, "'clientid'; did you mean 'client-id'?"),
            ({"user": "a"}, "producer_rate", 1, "unknown quota 'producer_rate'; did you mean 'producer_byte"),
            ({"user": "a"}, "producer_byte_rate", -1, "producer_byte_rate is -1; it must be a whole number"),
            ({"user": "a"}, "producer_byte_rate", 0, "producer_byte_rate is 0; it must be a whole number"),
            (
                {"user": "a"},
                "consumer_byte_rate",
                1.5,
                "consumer_byte_rate is 1.5; it must be a whole number",
            ),
            ({"user": "a"}, "consumer_byte_rate", float("nan"), "consumer_byte_rate is nan; it must be a"),
            ({"user": "a"}, "consumer_byte_rate", float("inf"), "consumer_byte_rate is inf; it must be a"),
            ({"user": "a"}, "consumer_byte_rate", 2**63, "it must be a whole number of bytes per second"),
            ({"user": "a"}, "producer_byte_rate", True, "producer_byte_rate is True; it must be a whole"),
            (
                {"user": "a"},
                "producer_byte_rate",
                "5",
                "producer_byte_rate is '5'; it must be a whole number",
            ),
            (
                {"user": "a"},
                "request_percentage",
                float("nan"),
                "request_percentage is nan; it must be a per",
            ),
            (
                {"user": "a"},
                "request_percentage",
                -5.0,
                "request_percentage is -5.0; it must be a percentage",
            ),
        ],
    )
    def test_what_is_wrong_is_named(self, rig, entity, key, value, message):
        outcome = change(rig, entity, (key, value))
        assert outcome.error is ErrorCode.INVALID_REQUEST
        assert message in outcome.message
        assert all_quotas(rig) == []

    def test_a_key_twice(self, rig):
        outcome = change(rig, {"user": "a"}, ("producer_byte_rate", 1), ("producer_byte_rate", 2))
        assert outcome.message == "the request sets producer_byte_rate twice"


class TestDescribe:
    def test_each_filter_lets_through_what_kip_546_says(self, rig):
        alter(rig, *((entity, (("producer_byte_rate", 1),)) for entity in ENTITIES))
        one = [(EXACT, "alice"), (EXACT, "nobody"), (DEFAULT, None), (SPECIFIED, None), None]
        for by_user, by_id, strict in product(one, one, (False, True)):
            wanted = {
                kind: each for kind, each in (("user", by_user), ("client-id", by_id)) if each is not None
            }
            expected = [entity for entity in ENTITIES if lets_through(wanted, entity, strict)]
            found = describe(rig, *((kind, *each) for kind, each in wanted.items()), strict=strict)
            assert sorted(map(repr, (each.entity for each in found.entries))) == sorted(map(repr, expected))

    @pytest.mark.parametrize(
        ("components", "message"),
        [
            ([("user", EXACT, None)], "needs a name with EXACT, and only then"),
            ([("user", DEFAULT, "alice")], "needs a name with EXACT, and only then"),
            ([("user", SPECIFIED), ("user", DEFAULT)], "the filter names user twice"),
            ([("user", 3)], "match type 3; there are 0, 1 and 2"),
            ([("", SPECIFIED)], "unknown entity type ''"),
            ([("ip", SPECIFIED)], "unknown entity type 'ip'"),
        ],
    )
    def test_a_filter_that_is_wrong(self, rig, components, message):
        result = describe(rig, *components)
        assert result.error is ErrorCode.INVALID_REQUEST
        assert message in result.message


def lets_through(wanted, entity, strict):
    for kind, (match_type, match) in wanted.items():
        if kind not in entity:
            return False
        if match_type != SPECIFIED and entity[kind] != match:
            return False
    return not strict or set(entity) == set(wanted)


class TestFile:
    def test_it_holds_what_was_set_for_every_entity(self):
        quotas = {
            entity_of(entity): {"producer_byte_rate": number + 1, "request_percentage": 0.5}
            for number, entity in enumerate(ENTITIES)
        }
        assert decode_quotas(encode_quotas(quotas)) == quotas

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("{", "is not JSON"),
            ("[" * 100_000, "is not JSON"),
            ("[]", "has no version"),
            ('{"version": 1}', "no list of quotas"),
            ('{"version": true, "quotas": []}', "has no version"),
            ('{"version": 1, "quotas": [5]}', "quota 0: has no values"),
            ('{"version": 1, "quotas": [{"user": "a", "values": {}}]}', "quota 0: has no values"),
            ('{"version": 1, "quotas": [{"ip": "a", "values": {"x": 1}}]}', "unknown entity type 'ip'"),
            ('{"version": 1, "quotas": [{"user": "a", "values": {"x": 1}}]}', "unknown quota 'x'"),
            ('{"version": 1, "quotas": [{"user": "a", "values": {"request_percentage": NaN}}]}', "is nan"),
            ('{"version": 1, "quotas": [{"values": {"request_percentage": 1}}]}', "is for a user"),
            (
                '{"version": 1, "quotas": [{"user": "a", "values": {"request_percentage": 1}},'
                '{"user": "a", "values": {"request_percentage": 1}}]}',
                "has users/a twice",
            ),
        ],
    )
    def test_damage_is_named(self, text, message):
        with pytest.raises(CorruptionError, match=message):
            decode_quotas(text.encode())

    def test_a_newer_version_is_refused(self):
        with pytest.raises(UnsupportedVersionError, match="version 2; only 1"):
            decode_quotas(b'{"version": 2, "quotas": []}')


class Changes:
    """A program that changes quotas, and notes before and after each change what they are to be."""

    def session(self, files, said, rng):
        with logstore.open("/s", files=files, clock=ManualClock()) as store:
            for _ in range(3):
                value = rng.randrange(1, 10**6)
                files.note(("begin", value))
                store.quotas.set(user="a", producer_byte_rate=value)
                files.note(("done", value))

    def check(self, files, said):
        done = [value for word, value in said if word == "done"][-1:]
        begun = [value for word, value in said[-1:] if word == "begin"]
        if said:
            with logstore.open("/s", files=files, clock=ManualClock()) as store:
                quotas = store.quotas.list().values()
            found = [each["producer_byte_rate"] for each in quotas]
            assert found in ([done, begun] if begun else [done])


def test_a_power_cut_leaves_the_quotas_before_the_change_or_after_it():
    assert explore(Changes(), seed=1, max_states=150).state_count >= 30


def test_a_change_that_is_not_durable_is_noticed(monkeypatch):
    monkeypatch.setattr(MemoryFiles, "flush_directory", lambda self, path: None)
    with pytest.raises(CrashError):
        explore(Changes(), seed=1, max_states=150)


def test_a_disk_that_refuses_leaves_the_quotas_as_they_were():
    rig = Rig(files=FaultyFiles(MemoryFiles()))
    change(rig, {"user": "a"}, ("producer_byte_rate", 1))
    rig.files.fail(FAULTS["ENOSPC"], kinds=["write"], path="quotas.json")
    assert change(rig, {"user": "a"}, ("producer_byte_rate", 2)).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert all_quotas(rig) == [({"user": "a"}, {"producer_byte_rate": 1})]
    assert change(rig, {"user": "a"}, ("producer_byte_rate", 2)).error is ErrorCode.NONE


def test_nothing_is_written_that_is_there_already(rig):
    change(rig, {"user": "a"}, ("producer_byte_rate", 1))
    written = len(rig.files.trace)
    change(rig, {"user": "a"}, ("producer_byte_rate", 1.0), ("consumer_byte_rate", None))
    assert len(rig.files.trace) == written
