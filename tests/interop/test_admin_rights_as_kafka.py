"""A client may not do one thing: a broker of Kafka and the handlers of a listener deny it the same requests.

Cost: 20 s, half of it the broker's start.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from logstore.format.messages.fields import NO_UUID
from logstore.logdir.acls import Operation
from tests.interop import kafka
from tests.interop.admin_steps import (
    BROKER,
    LOST,
    SET,
    TOPIC,
    change,
    cluster,
    create,
    delete,
    delete_before,
    described,
    elect,
    epoch_ends,
    grow,
    limit,
    limits,
    page,
    replace,
    seen,
    sizes,
)
from tests.interop.rights_rig import CLUSTER, TOPICS, Broker, Store, both

pytestmark = pytest.mark.interop

STEPS = (
    page((), 3),
    page(("t", "x"), 3),
    sizes([("t", (0,))]),
    cluster(1),
    epoch_ends((0, -1, 0)),
    delete_before("t", (0, 0)),
    delete_before("x", (0, 0)),
    elect(0, [("t", (0,))]),
    described(TOPIC, "t"),
    described(TOPIC, "x"),
    described(BROKER, None),
    create("t", 1, 1, validate_only=True),
    create("x", 1, 1, validate_only=True),
    grow("t", 3, validate_only=True),
    grow("x", 3, validate_only=True),
    change(TOPIC, "t", ("flush.ms", SET, "7")),
    change(TOPIC, "x", ("flush.ms", SET, "7")),
    replace("t", ("flush.ms", "7")),
    limit([("user", "alice")], ("producer_byte_rate", 1000.0)),
    limits(),
    delete(("x", NO_UUID)),
    delete((None, LOST)),
)


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Store]]:
    kafka.require_kafka()
    with both(tmp_path_factory.mktemp("kafka")) as found:
        yield found


OPERATIONS = (
    Operation.CREATE,
    Operation.DELETE,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
DENIALS = [
    *[(each, resources) for each in OPERATIONS for resources in (TOPICS, CLUSTER, TOPICS + CLUSTER)],
    (Operation.ALTER, TOPICS),
    (Operation.ALTER, TOPICS + CLUSTER),  # last: nothing can be allowed again
]


def test_the_same_is_denied(sides: tuple[Broker, Store]) -> None:
    broker, store = sides
    usual = [seen(broker, step) for step in STEPS]
    differ = []
    for operation, resources in DENIALS:
        for side in sides:
            side.deny(operation, resources)
        time.sleep(0.5)  # until the broker knows
        answers = [seen(broker, step) for step in STEPS]
        assert answers != usual or resources != TOPICS + CLUSTER, f"{operation.name} is not denied"
        for step, expected in zip(STEPS, answers, strict=True):
            found = seen(store, step)
            if found != expected:
                what = f"{step.name} without {operation.name} of {resources}"
                differ.append(f"{what}:\n  Kafka: {expected}\n  ours:  {found}")
        if operation is not Operation.ALTER or resources == TOPICS:
            broker.allow_again()
    assert not differ, "\n".join(differ)
