"""The same requests of clients, right, wrong and odd, to a broker of Kafka and to a store that listens: both
answer the same.

Cost: 8 s, most of it the broker's start.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from logstore.testing import kafka as listening
from tests.interop import kafka, steps_of_groups, steps_of_records, steps_of_transactions
from tests.interop.request_steps import Party, compare
from tests.rotation import in_turn

pytestmark = pytest.mark.interop


@pytest.fixture
def parties(tmp_path: Path) -> Iterator[tuple[Party, Party]]:
    kafka.require_kafka()
    settings = {"group.initial.rebalance.delay.ms": 0}
    with kafka.KafkaBroker(tmp_path, config=settings) as broker, listening() as bootstrap:
        theirs, ours = Party(broker.bootstrap, 1), Party(str(bootstrap), 0)
        with closing(theirs.client), closing(ours.client):
            for each in (theirs, ours):
                each.prepare()
            yield theirs, ours


_UNREADABLE = "Kafka: UNKNOWN_SERVER_ERROR"
_GONE = "here a group without members and offsets is gone at once, there after some minutes"
DIFFERENT: Final = {
    "produce 12 codec 5 t-0 {}": _UNREADABLE,
    "produce 12 GZIP, torn t-0 {}": _UNREADABLE,
    "produce 12 LZ4, torn t-0 {}": _UNREADABLE,
    "produce 12 ZSTD, torn t-0 {}": _UNREADABLE,
    steps_of_groups.FORGET_NOWHERE.name: _GONE,
    "delete_groups  : groups=('g',)": _GONE,
    "delete_groups  : groups=('s',)": _GONE,
}
"""Steps that are answered differently on purpose, and why."""


@in_turn(1, 2)
def test_both_answer_the_same(parties: tuple[Party, Party]) -> None:
    differ: dict[str, str] = {}
    codes: set[str] = set()
    for steps in (steps_of_records, steps_of_groups, steps_of_transactions):
        compared = compare(*parties, steps.steps())
        differ |= compared.differ
        codes |= compared.codes
    unexpected = [text for name, text in differ.items() if name not in DIFFERENT]
    assert not unexpected, "\n".join(unexpected)
    assert differ.keys() == DIFFERENT.keys()
    assert len(codes) > 35, sorted(codes)  # the steps come where they should
