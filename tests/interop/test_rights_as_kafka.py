"""A client that reads and writes may not do one thing. A broker of Kafka and the handlers of a listener deny
the same to it.

Cost: 8 s, most of it the broker's start.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from logstore.logdir.acls import Operation, ResourceType
from tests.interop import kafka, steps_of_rights
from tests.interop.admin_steps import Step, seen
from tests.interop.rights_rig import CLUSTER, TOPICS, Broker, Store, both
from tests.rotation import in_turn, part

pytestmark = pytest.mark.interop


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[tuple[Broker, Store]]:
    kafka.require_kafka()
    with both(tmp_path) as found:
        yield found


GROUPS = tuple((ResourceType.GROUP, name) for name in ("g", "h", "n", "sh"))
TRANSACTIONS = ((ResourceType.TRANSACTIONAL_ID, "tx"),)
OF_CLIENTS = (
    *((Operation.READ, each) for each in (TOPICS, GROUPS, TOPICS + GROUPS)),
    *((Operation.WRITE, each) for each in (TOPICS, TRANSACTIONS, TOPICS + TRANSACTIONS)),
    *((Operation.DESCRIBE, each) for each in (TOPICS, GROUPS, TRANSACTIONS, CLUSTER)),
    (Operation.DESCRIBE, TOPICS + GROUPS + TRANSACTIONS + CLUSTER),
    (Operation.DELETE, GROUPS),
    (Operation.IDEMPOTENT_WRITE, CLUSTER),
)
"""CLUSTER_ACTION is not among them: the broker itself would be without it."""


@in_turn(0, 2)
def test_the_same_is_denied(sides: tuple[Broker, Store]) -> None:
    broker, store = sides
    steps = [Step(each.name, each.key, each.fields, version=each.version) for each in steps_of_rights.steps()]
    usual = [_patiently(broker, step) for step in steps]
    differ = [
        f"{step.name}:\n  Kafka: {expected}\n  ours:  {found}"
        for step, expected, found in zip(steps, usual, [seen(store, step) for step in steps], strict=True)
        if found != expected
    ]
    for operation, resources in part(OF_CLIENTS, 5):  # by an odd number: every other turn comes here
        for side in sides:
            side.deny(operation, resources)
        time.sleep(0.5)  # until the broker knows
        answers = [seen(broker, step) for step in steps]
        assert answers != usual, f"{operation.name} is not denied"
        for step, expected in zip(steps, answers, strict=True):
            found = seen(store, step)
            if found != expected:
                what = f"{step.name} without {operation.name} of {resources}"
                differ.append(f"{what}:\n  Kafka: {expected}\n  ours:  {found}")
        broker.allow_again()
        store.deny(operation, ())
    assert not differ, "\n".join(differ)


_LATER = {
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "NOT_ENOUGH_REPLICAS",
}


def _patiently(broker: Broker, step: Step) -> object:
    """The answer, once a broker that has just started knows it."""
    for _ in range(200):
        answer = seen(broker, step)
        if not _LATER & set(answer[0]):
            break
        time.sleep(0.05)
    return answer
