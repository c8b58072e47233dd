"""One story of transactions that have an epoch each and take in partitions unasked (KIP-890), told to any
broker: what it answers, step by step."""

from __future__ import annotations

import time
from typing import Any

from logstore.wire.apis import ApiKey
from logstore.wire.messages.cluster import api_versions
from logstore.wire.messages.groups import find_coordinator
from logstore.wire.messages.records import produce
from logstore.wire.messages.transactions import (
    add_partitions_to_txn,
    end_txn,
    init_producer_id,
    txn_offset_commit,
)
from tests.broker.rig import batch_of
from tests.wire.raw_client import RawClient

_LATER = {14, 15, 16, 19, 51}
"""Codes that go away."""
_SECONDS = 20


class Teller:
    """A client that says what the story says. ``answers``: what each step has got."""

    def __init__(self, client: RawClient, name: str = "teller") -> None:
        self.client = client
        self.name = name
        self.answers: list[tuple[str, Any]] = []
        self.producer_id = -1

    def _ask(self, key, request, version, code_of):
        deadline = time.monotonic() + _SECONDS
        while True:
            response = self.client.ask(key, request, version)
            if code_of(response) not in _LATER or time.monotonic() > deadline:
                return response
            time.sleep(0.02)

    def _note(self, step, answer):
        self.answers.append((step, answer))
        return answer

    def features(self):
        response = self.client.ask(ApiKey.API_VERSIONS, api_versions.ApiVersionsRequest("test", "1"), 4)
        on = {each.name: each.max_version_level for each in response.finalized_features}
        self._note("features", {name: on.get(name) for name in ("transaction.version", "group.version")})

    def start(self, step="start"):
        """The relative id: brokers number them as they like."""
        wanted = find_coordinator.FindCoordinatorRequest("", 1, (self.name,))
        self._ask(ApiKey.FIND_COORDINATOR, wanted, 4, lambda found: found.coordinators[0].error_code)
        request = init_producer_id.InitProducerIdRequest(self.name, 60_000)
        found = self._ask(ApiKey.INIT_PRODUCER_ID, request, 4, lambda found: found.error_code)
        is_same = found.producer_id == self.producer_id
        self.producer_id = found.producer_id
        self._note(step, (found.error_code, is_same, found.producer_epoch))

    def write(self, step, epoch, sequence, value, *, version=12, topic="t", partition=0):
        stamp = {"producer_id": self.producer_id, "producer_epoch": epoch, "base_sequence": sequence}
        data = batch_of([value], int(time.time() * 1000), transactional=True, **stamp)
        request = produce.ProduceRequest(
            self.name, -1, 5_000, (produce.Topic(topic, partitions=(produce.Partition(partition, data),)),)
        )

        def code_of(found):
            return found.topics[0].partitions[0].error_code

        found = self._ask(ApiKey.PRODUCE, request, version, code_of)
        self._note(step, code_of(found))

    def add(self, step, epoch, *partitions, version=3):
        topics = (add_partitions_to_txn.Topic("t", partitions),)
        request = add_partitions_to_txn.AddPartitionsToTxnRequest(
            (), self.name, self.producer_id, epoch, topics
        )

        def codes_of(found):
            return [each.error_code for topic in found.topics for each in topic.partitions]

        found = self._ask(ApiKey.ADD_PARTITIONS_TO_TXN, request, version, lambda found: codes_of(found)[0])
        self._note(step, codes_of(found))

    def commit_offset(self, step, epoch, offset, *, version=5):
        topics = (txn_offset_commit.Topic("t", (txn_offset_commit.Partition(0, offset),)),)
        request = txn_offset_commit.TxnOffsetCommitRequest(
            self.name, "g", self.producer_id, epoch, topics=topics
        )
        wanted = find_coordinator.FindCoordinatorRequest("", 0, ("g",))
        self._ask(ApiKey.FIND_COORDINATOR, wanted, 4, lambda found: found.coordinators[0].error_code)

        def code_of(found):
            return found.topics[0].partitions[0].error_code

        self._note(step, code_of(self._ask(ApiKey.TXN_OFFSET_COMMIT, request, version, code_of)))

    def end(self, step, epoch, committed, *, version=5):
        request = end_txn.EndTxnRequest(self.name, self.producer_id, epoch, committed)
        found = self._ask(ApiKey.END_TXN, request, version, lambda found: found.error_code)
        is_mine = found.producer_id == self.producer_id
        self._note(step, (found.error_code, is_mine, found.producer_epoch))


def tell(teller: Teller) -> None:
    """The story. The topic ``t`` has two partitions."""
    teller.features()
    teller.start()
    teller.write("begins unasked", 0, 0, b"a")
    teller.write("another partition", 0, 0, b"b", partition=1)
    teller.write("is sent again", 0, 0, b"a")
    teller.end("commits", 0, True)
    teller.end("commits once more", 0, True)
    teller.end("aborts what it has committed", 0, False)
    teller.write("comes late", 0, 1, b"late")
    teller.end("commits nothing", 1, True)
    teller.end("aborts nothing", 1, False)
    teller.end("aborts nothing once more", 1, False)
    teller.write("next", 2, 0, b"c")
    teller.end("ends with an old epoch", 1, True)
    teller.end("aborts", 2, False)
    teller.end("aborts once more", 2, False)
    teller.end("commits what it has aborted", 2, True)
    teller.commit_offset("offsets alone", 3, 7)
    teller.commit_offset("offsets with an old epoch", 2, 9)
    teller.end("commits offsets", 3, True)
    teller.write("as before, without asking", 4, 0, b"d", version=11)
    teller.end("nothing was begun", 4, True)
    teller.add("as before", 4, 0)
    teller.write("as before, with asking", 4, 0, b"d", version=11)
    teller.end("as before, ends", 4, True, version=4)
    teller.end("as before, ends once more", 4, True, version=4)
    teller.write("the same epoch", 4, 1, b"e")
    teller.write("a partition that is not there", 4, 0, b"f", partition=9)
    teller.end("goes on", 4, True)
    teller.write("open", 5, 0, b"g")
    teller.start("starts anew")
    teller.write("shut out", 5, 1, b"h")
    teller.end("shut out, ends", 5, True)
    teller.end("shut out, aborts", 5, False)
