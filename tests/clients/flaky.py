"""A broker that loses requests and answers, as a network does."""

from __future__ import annotations

import random

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Answered, Promise
from logstore.broker.requests import ProducedPartition, ProduceResult


class FlakyBroker:
    """Passes everything on, but loses some produce requests, and the answers of others; some it answers late
    and out of order. Repeats itself with the same seed."""

    def __init__(self, broker, seed, *, lost=0.2, unanswered=0.2, late=0.2):
        self._broker = broker
        self._random = random.Random(seed)
        self._lost, self._unanswered, self._late = lost, unanswered, late
        self.waiting = []
        self.is_calm = False

    def __getattr__(self, name):
        return getattr(self._broker, name)

    def produce(self, request):
        drawn = 1.0 if self.is_calm else self._random.random()
        if drawn < self._lost:
            return Answered(_failed(request))
        pending = self._broker.produce(request)
        if drawn < self._lost + self._unanswered:
            return Answered(_failed(request))
        if drawn < self._lost + self._unanswered + self._late:
            promise = Promise()
            self.waiting.append((promise, pending))
            return promise
        return pending

    def answer_some(self):
        """Answer some of the late ones, in any order."""
        self._random.shuffle(self.waiting)
        keep = 0 if self.is_calm else self._random.randint(0, len(self.waiting))
        answered, self.waiting = self.waiting[keep:], self.waiting[:keep]
        for promise, pending in answered:
            promise.complete(pending.poll())


def _failed(request):
    return ProduceResult(
        tuple(ProducedPartition(each.partition, ErrorCode.NETWORK_EXCEPTION) for each in request.partitions)
    )
