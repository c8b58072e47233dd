"""A client may not do one thing: a broker of Kafka and the handlers of a listener deny it the same requests.

Cost: 20 s, half of it the broker's start.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from logstore.format.messages.fields import NO_UUID
from logstore.logdir.acls import Operation, ResourceType
from logstore.wire.apis import ApiKey
from logstore.wire.handlers.call import CLUSTER_NAME
from logstore.wire.messages.security import create_acls, delete_acls
from logstore.wire.messages.topics import create_topics
from tests.interop import kafka
from tests.interop.admin_steps import (
    BROKER,
    LOST,
    SET,
    TOPIC,
    Side,
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
from tests.wire.handlers.rig_admin import AdminRig

pytestmark = pytest.mark.interop

Resources = tuple[tuple[ResourceType, str], ...]
DENY, ALLOW, ANY = 2, 3, 1
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


class Broker(Side):
    """A broker that allows everything but what it is told to deny."""

    def prepare(self) -> None:
        topics = self.ask(ApiKey.CREATE_TOPICS, topics=(create_topics.Topic("t", 2, 1),)).topics
        assert [each.error_code for each in topics] == [0]
        self._add(ResourceType.TOPIC, "*", Operation.ALL, ALLOW)
        self._add(ResourceType.CLUSTER, CLUSTER_NAME, Operation.ALL, ALLOW)

    def deny(self, operation: Operation, resources: Resources) -> None:
        for kind, name in resources:
            self._add(kind, name, operation, DENY)

    def allow_again(self) -> None:
        every = delete_acls.Filter(ANY, None, ANY, None, None, ANY, DENY)
        (found,) = self.ask(ApiKey.DELETE_ACLS, filters=(every,)).filters
        assert found.error_code == 0

    def _add(self, kind: int, name: str, operation: int, permission: int) -> None:
        rule = create_acls.Acl(kind, name, 3, "User:ANONYMOUS", "*", operation, permission)
        (found,) = self.ask(ApiKey.CREATE_ACLS, creations=(rule,)).results
        assert found.error_code == 0, found


class Store(Side):
    """The handlers, with rights."""

    def __init__(self) -> None:
        self.rig, self.node_id, self.ids = AdminRig(), 0, {}

    def ask(self, key: ApiKey, version: int | None = None, **fields: Any) -> Any:
        return self.rig.send(key, version, **fields)

    def deny(self, operation: Operation, resources: Resources) -> None:
        self.rig.rights.denied = {(operation, *each) for each in resources}


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Store]]:
    kafka.require_kafka()
    config = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with kafka.KafkaBroker(tmp_path_factory.mktemp("kafka"), config=config) as running:
        broker = Broker(running.bootstrap, 1)
        broker.prepare()
        yield broker, Store()
        broker.client.close()


TOPICS = ((ResourceType.TOPIC, "t"), (ResourceType.TOPIC, "x"))
CLUSTER = ((ResourceType.CLUSTER, CLUSTER_NAME),)
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
