"""Every request that has a handler, in every version: whatever it holds, it gets an answer that the version
has words for, and so does its refusal."""

from __future__ import annotations

import random

import pytest

from logstore.broker.codes import ErrorCode
from logstore.wire.apis import APIS
from logstore.wire.handlers.call import HANG_UP, NoAnswer
from logstore.wire.handlers.table import answers_of
from tests.broker.rig import T0, Rig, Transactional
from tests.rotation import seed_of_turn
from tests.wire.drawn import Case, Chance
from tests.wire.handlers.asking import Asking, through

CASES = [
    Case(key, APIS[key].request, version)
    for key in APIS
    for version in range(APIS[key].first, APIS[key].last + 1)
]
COUNT = 12


class Plausible(Chance):
    """Draws names and numbers of things that there are, more often than not."""

    def __init__(self, random, ids):
        super().__init__(random)
        self.ids = ids

    def text(self, field):
        return self.random.choice(("t", "t", "g", "g", "shop", "range", "consumer", "", super().text(field)))

    def number(self, field, kind):
        return self.random.choice((0, 1, super().number(field, kind)))

    def _value(self, case, field, kind):
        if getattr(kind, "name", None) == "uuid" and self.random.random() < 0.7:
            return self.random.choice(self.ids)
        return super()._value(case, field, kind)


@pytest.fixture
def asking():
    """A broker that has something to say: records, an open transaction, and a group with offsets."""
    rig = Rig()
    rig.produce(b"a", b"b")
    producer = Transactional(rig)
    assert not producer.start()
    assert not producer.send(b"c")
    assert not producer.commit_offsets("g", {T0: 1})
    return Asking(rig)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_answer_has_words_in_every_version(asking, case):
    """4 s for all."""
    chance = Plausible(
        random.Random(seed_of_turn()), [each.topic_id for each in asking.rig.directory.topics()]
    )
    drawn = [chance.message(case) for _ in range(COUNT)]
    for request in (case.message.kind(), *drawn):
        result = result_of(asking, case, request)
        if result is not None and not isinstance(result, NoAnswer):
            through(case.key, result, case.version)


def result_of(asking, case, request):
    """The response; None if the request waits, or its client does not."""
    given = asking.begin(case.key, request, case.version)
    if not hasattr(given, "poll"):
        return given
    asking.rig.pass_time(0)
    result = given.poll()
    given.cancel()
    return result


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_refusal_has_words_in_every_version(case):
    chance = Chance(random.Random(seed_of_turn()))
    for request in (case.message.kind(), *(chance.message(case) for _ in range(3))):
        refused = answers_of(case.key).refuse(request, ErrorCode.UNKNOWN_SERVER_ERROR, case.version)
        if refused is HANG_UP:
            assert request.acks == 0, "only then there are no words"
        else:
            through(case.key, refused, case.version)
