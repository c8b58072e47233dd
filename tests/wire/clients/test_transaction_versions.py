"""Which requests Kafka's own clients send for transactions: those of 4.x take part in what came with them
(KIP-890), older ones go on as before. 10 s each, for the JVM."""

from __future__ import annotations

from collections import Counter

import pytest

from logstore.wire.apis import ApiKey
from logstore.wire.handlers.table import answers_of
from tests.interop.kafka import NEWEST, OLD
from tests.wire.clients.features import FEATURES
from tests.wire.clients.programs import JavaClient
from tests.wire.clients.rig import Rig

pytestmark = pytest.mark.interop

ASKED = (ApiKey.PRODUCE, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT)


@pytest.fixture
def asked(monkeypatch):
    """The requests of transactions that listeners have got: the key of each, and its version."""
    seen = Counter()

    def note(key, module):
        answer = module.answer

        def noting(call, request, version):
            if getattr(request, "transactional_id", None):
                seen[key, version] += 1
            return answer(call, request, version)

        monkeypatch.setattr(module, "answer", noting)

    for key in (*ASKED, ApiKey.END_TXN):
        note(key, answers_of(key))
    return seen


@pytest.mark.parametrize("version", [NEWEST, OLD])
def test_what_kafkas_client_asks(asked, version):
    client = JavaClient(version)
    if (reason := client.missing()) is not None:
        pytest.skip(reason)
    wanted = [each for each in FEATURES if each.operation in ("transact", "transform")]
    assert len(wanted) == 2
    with Rig() as rig:
        tasks = {each.name: each.task(rig) for each in wanted}
        for feature in wanted:
            feature.prepare(rig, tasks[feature.name])
        answers = client.run(tasks.values())
        for feature in wanted:
            said = answers[feature.name]
            if isinstance(said, Exception):
                raise said
            feature.check(rig, tasks[feature.name], said)
    last = {key: max(version for each, version in asked if each is key) for key, _ in asked}
    if version == NEWEST:
        assert set(last) == {ApiKey.PRODUCE, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN}
        assert (last[ApiKey.END_TXN], last[ApiKey.TXN_OFFSET_COMMIT]) == (5, 5)
        assert last[ApiKey.PRODUCE] >= 12
    else:
        assert set(last) == {*ASKED, ApiKey.END_TXN}
        assert (last[ApiKey.END_TXN], last[ApiKey.TXN_OFFSET_COMMIT]) == (4, 4)
        assert last[ApiKey.PRODUCE] <= 11
