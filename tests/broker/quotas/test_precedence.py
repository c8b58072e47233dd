"""Which quota holds for a client: every subset of the eight levels, against the table of KIP-55."""

from itertools import combinations, product

import pytest

from logstore.broker.quotas.precedence import Client, find_quota
from logstore.logdir.quotas import DEFAULT, KEYS, QuotaEntity

TABLE = (
    ("users/alice/clients/etl", "alice", "etl"),
    ("users/alice/clients/<default>", "alice", "etl"),
    ("users/alice", "alice", None),
    ("users/<default>/clients/etl", "alice", "etl"),
    ("users/<default>/clients/<default>", "alice", "etl"),
    ("users/<default>", "alice", None),
    ("clients/etl", None, "etl"),
    ("clients/<default>", None, "etl"),
)
"""Where the quota is, the first first; and whose use is added up, for the client ``etl`` of ``alice``."""

SUBSETS = [each for count in range(len(TABLE) + 1) for each in combinations(TABLE, count)]


def entity_at(path):
    parts = path.split("/")
    names = dict(zip(parts[::2], parts[1::2], strict=True))
    user, client_id = (
        DEFAULT if name == "<default>" else name for name in map(names.get, ("users", "clients"))
    )
    return QuotaEntity(user, client_id)


def value_at(path):
    return float(1 + [each[0] for each in TABLE].index(path))


def test_paths_are_written_as_kafka_writes_them():
    assert [str(entity_at(path)) for path, *_ in TABLE] == [path for path, *_ in TABLE]


def test_the_first_level_that_has_a_quota_holds():
    """All 256 subsets, for the client that has all levels and for three that share some."""
    assert len(SUBSETS) == 256
    for levels, user, client_id in product(SUBSETS, ("alice", "bob"), ("etl", "web")):
        quotas = {entity_at(path): {"producer_byte_rate": value_at(path)} for path, *_ in levels}
        may = [
            (path, *(mine if measured else None for measured, mine in ((by_user, user), (by_id, client_id))))
            for path, by_user, by_id in levels
            if not ("alice" in path and user != "alice") and not ("etl" in path and client_id != "etl")
        ]
        found = find_quota(quotas, Client(user, client_id), "producer_byte_rate")
        if not may:
            assert found is None
        else:
            path, by_user, by_id = may[0]
            assert found == (entity_at(path), value_at(path), QuotaEntity(by_user, by_id))


@pytest.mark.parametrize("key", KEYS)
def test_each_key_is_looked_up_by_itself(key):
    others = {each: 1.0 for each in KEYS if each != key}
    quotas = {entity_at(path): others for path, *_ in TABLE[:-1]}
    assert find_quota(quotas, Client("alice", "etl"), key) is None
    quotas[entity_at("clients/<default>")] = {key: 9.0}
    assert find_quota(quotas, Client("alice", "etl"), key).value == 9.0


def test_a_client_without_a_name_has_the_defaults():
    quotas = {QuotaEntity(None, DEFAULT): {"producer_byte_rate": 1.0}}
    assert find_quota(quotas, Client(), "producer_byte_rate").measured == QuotaEntity(None, "")
