"""The same requests of clients, right, wrong and odd, to a broker of Kafka and to a store that listens: both
answer the same. Some are written down, others drawn at random; the seed is that of the turn.

Cost: 16 s, half of it the broker's start.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Final

import pytest

from logstore.broker.records import fetching, looking_up
from logstore.testing import kafka as listening
from tests.interop import kafka, steps_of_groups, steps_of_records, steps_of_shares, steps_of_transactions
from tests.interop.drawn.answers import begin, differing
from tests.interop.drawn.steps import Drawn
from tests.interop.request_steps import Party, compare
from tests.rotation import in_turn, seed_of_turn

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Party, Party]]:
    """A leader epoch that a step makes up changes nothing: ours would take itself for a copy, and go on in a
    later one."""
    kafka.require_kafka()
    tmp_path = tmp_path_factory.mktemp("kafka")
    settings = {"group.initial.rebalance.delay.ms": 0, **steps_of_shares.SETTINGS}
    with (
        pytest.MonkeyPatch.context() as monkeypatch,
        kafka.KafkaBroker(tmp_path, config=settings) as broker,
        listening() as bootstrap,
    ):
        for room in (fetching, looking_up):
            monkeypatch.setattr(room, "outgrow", lambda log, epoch: None)
        theirs, ours = Party(broker.bootstrap, 1), Party(str(bootstrap), 0)
        with closing(theirs), closing(ours):
            for each in (theirs, ours):
                each.prepare()
            yield theirs, ours


DIFFERENT: Final = {
    "produce 12 codec 5 t-0 {}",
    "produce 12 GZIP, torn t-0 {}",
    "produce 12 LZ4, torn t-0 {}",
    "produce 12 ZSTD, torn t-0 {}",
    "produce 12 of these, sequence 2, epoch 0 t-0 {}",
    "produce 12 the first of six again, sequence 0, epoch 0 t-0 {}",
    "share_acknowledge  the same",
    "offset_commit 9 to no group",
    "offset_delete  : group_id=s topics=(Topic(name='nope'",
    "delete_groups  : groups=('g',)",
    "delete_groups  : groups=('s',)",
    "list_groups 5 mixed",
}
"""How the names begin of steps that are answered differently on purpose: `docs/clients.md` says why."""


@in_turn(1, 2)
def test_both_answer_the_same(parties: tuple[Party, Party]) -> None:
    differ: dict[str, str] = {}
    codes: set[str] = set()
    for each in parties:
        steps_of_shares.begin(each)
    for steps in (steps_of_shares, steps_of_records, steps_of_groups, steps_of_transactions):
        compared = compare(*parties, steps.steps())
        differ |= compared.differ
        codes |= compared.codes
    beginnings = tuple(DIFFERENT)
    unexpected = [text for name, text in differ.items() if not name.startswith(beginnings)]
    assert not unexpected, "\n".join(unexpected)
    unseen = [each for each in DIFFERENT if not any(name.startswith(each) for name in differ)]
    assert not unseen
    assert len(codes) > 35, sorted(codes)  # the steps come where they should


def drawn_alike(parties: tuple[Party, Party], seed: int, count: int) -> None:
    drawn = Drawn(seed)
    for each in parties:
        each.known.clear()
        begin(each, drawn)
    differ = list(differing(*parties, drawn.steps(count)))
    assert not differ, f"with the seed {seed}:\n" + "\n".join(differ)


@in_turn(1, 2)
def test_random_requests_are_answered_alike(parties: tuple[Party, Party]) -> None:
    """Of some seeds, so that a new commit meets no sequence that nobody has seen. 3 s."""
    drawn_alike(parties, seed_of_turn() % 11, 150)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(20))
def test_many_random_requests_are_answered_alike(parties: tuple[Party, Party], number: int) -> None:
    drawn_alike(parties, 100_000 + 20 * seed_of_turn() + number, 400)
