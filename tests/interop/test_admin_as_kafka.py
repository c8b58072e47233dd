"""The same administrative requests to a broker of Kafka and to a store that listens: both answer the same.

Cost: 15 s, most of it the broker's start.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from logstore.format.messages.fields import NO_UUID
from logstore.testing import kafka as listening
from logstore.wire.apis import ApiKey
from logstore.wire.messages.topics import describe_configs
from tests.interop import kafka
from tests.interop.admin_steps import (
    APPEND,
    BROKER,
    DELETE,
    LOST,
    SET,
    SUBTRACT,
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
    settings_of,
    sizes,
)

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    kafka.require_kafka()
    home = tmp_path_factory.mktemp("kafka")
    with kafka.KafkaBroker(home) as broker, listening() as bootstrap:
        theirs, ours = Side(broker.bootstrap, 1), Side(str(bootstrap), 0)
        for each in (theirs, ours):
            each.prepare()
        yield theirs, ours
        for each in (theirs, ours):
            each.client.close()


RATE = "producer_byte_rate"
POLICY = "cleanup.policy"
UNKNOWN_OPERATION = change(TOPIC, "t", ("retention.ms", 9, "1"))
TWICE = delete(("gone", NO_UUID), ("gone", NO_UUID))
TWICE_BY_ID = delete(("gone", NO_UUID), (None, "gone"))
STEPS = (
    page((), 3),
    page((), 3, ("t", 0)),
    page((), 0, ("t", 1)),
    page(("u", "t", "x"), 2),
    page(("u", "t"), 2, ("u", 0)),
    page(("t",), 2, ("t", 9)),
    page(("t",), 2, ("t", -1)),
    page(("t",), 2, ("a", 0)),
    sizes([("t", (0, 1)), ("x", (0,))]),
    sizes([("t", (1, 9))]),
    sizes([]),
    cluster(1),
    cluster(2),
    cluster(7),
    epoch_ends((0, -1, 0)),
    epoch_ends((0, 0, 0)),
    epoch_ends((0, 7, 0)),
    epoch_ends((9, -1, 0)),
    delete_before("t", (0, 0), (1, -1)),
    delete_before("t", (0, 5)),
    delete_before("t", (0, -2)),
    delete_before("x", (0, 0)),
    delete_before("c", (0, 0)),
    delete_before("__share_group_state", (0, 0)),
    elect(0, [("t", (0,))]),
    elect(1, [("t", (0,))]),
    elect(0, [("x", (0,)), ("t", (9,))]),
    elect(0, None),
    elect(1, None),
    described(TOPIC, "t"),
    described(TOPIC, "x"),
    described(TOPIC, "a b"),
    described(BROKER, None),
    described(BROKER, ""),
    described(BROKER, "77"),
    described(BROKER, "x"),
    described(0, "x"),
    described(3, "x"),
    create("new", 3, 1),
    create("new", 3, 1),
    create("new", 1, 3),
    create("new", 0, 1),
    create("new", 1, 1, (), (("retension.ms", "1"),)),
    create("a b", 1, 1, (), (("retension.ms", "1"),)),
    create("default", -1, -1),
    create("trial", 2, 1, validate_only=True),
    create("t", 2, 1, validate_only=True),
    create("placed", -1, -1, ((0, (0,)), (1, (0,)))),
    create("n", 0, 1),
    create("n", -2, 1),
    create("n", 1, 0),
    create("n", 1, 3),
    create("n", 1, -2),
    create("n", 0, 0),
    create("a b", 1, 1),
    create("", 1, 1),
    create("..", 1, 1),
    create("x" * 250, 1, 1),
    create("n", 1, 1, (), (("retension.ms", "1"),)),
    create("n", 1, 1, (), (("retention.ms", "x"),)),
    create("n", 1, 1, (), (("retention.ms", "-2"),)),
    create("n", 1, 1, (), ((POLICY, "burn"),)),
    create("n", 1, 1, (), ((POLICY, "delete,"),)),
    create("twice", 1, 1, (), ((POLICY, "delete,delete"),)),
    create("both", 1, 1, (), ((POLICY, "compact,delete,compact"),)),
    create("n", 1, 1, (), (("retention.ms", None),)),
    create("n", 1, -1, ((0, (0,)),)),
    create("n", -1, 1, ((0, (0,)),)),
    create("n", -1, -1, ((1, (0,)),)),
    create("n", -1, -1, ((0, (0,)), (1, (1,)))),
    create("n", -1, -1, ((0, (0, 1)),)),
    create("n", -1, -1, ((0, (0, 0)),)),
    create("n", -1, -1, ((0, ()),)),
    create("n", 10_001, 1),
    create("n", 2**31 - 1, 1),
    create("dots.in", 1, 1),
    create("dots_in", 1, 1),
    grow("u", 2),
    grow("u", 2),
    grow("u", 1),
    grow("u", 0),
    grow("u", -1),
    grow("x", 2),
    grow("u", 3, ((0,),), validate_only=True),
    grow("u", 3, ((0,),)),
    grow("u", 5, ((0,),)),
    grow("u", 4, ((1,),)),
    grow("u", 4, ((),)),
    change(TOPIC, "t", ("flush.ms", SET, "7"), (POLICY, APPEND, "compact")),
    settings_of("t"),
    change(TOPIC, "t", (POLICY, APPEND, "compact,delete"), ("segment.ms", SET, "9")),
    settings_of("t"),
    change(TOPIC, "t", (POLICY, SUBTRACT, "delete"), ("segment.ms", DELETE, None)),
    settings_of("t"),
    change(TOPIC, "u", (POLICY, SET, "")),
    settings_of("u"),
    delete_before("u", (0, -1)),
    change(TOPIC, "u", (POLICY, APPEND, "compact")),
    settings_of("u"),
    change(TOPIC, "u", (POLICY, SUBTRACT, "compact")),
    settings_of("u"),
    change(TOPIC, "u", (POLICY, SET, ",")),
    change(TOPIC, "u", (POLICY, DELETE, None)),
    change(TOPIC, "t", ("retention.ms", APPEND, "7")),
    change(TOPIC, "t", ("retension.ms", SET, "7")),
    change(TOPIC, "t", ("retension.ms", DELETE, None), ("remote.copy.lag.bytes", DELETE, None)),
    change(TOPIC, "t", ("remote.storage.enable", SET, "false"), ("local.retention.ms", SET, "-2")),
    change(TOPIC, "t", ("remote.storage.enable", SET, "true")),
    change(TOPIC, "t", ("remote.storage.enable", DELETE, None), ("local.retention.ms", DELETE, None)),
    change(TOPIC, "t", ("retention.ms", SET, "x")),
    change(TOPIC, "t", ("retention.ms", SET, None)),
    change(TOPIC, "t", ("retention.ms", SET, "1"), ("retention.ms", DELETE, None)),
    UNKNOWN_OPERATION,
    change(TOPIC, "x", ("retention.ms", SET, "1")),
    change(0, "x", ("retention.ms", SET, "1")),
    change(BROKER, "77", ("retention.ms", SET, "1")),
    replace("t", ("segment.ms", "9")),
    settings_of("t"),
    replace("t", ("segment.ms", None)),
    replace("t", ("segment.ms", "9"), ("segment.ms", "8")),
    replace("t", ("retension.ms", "9")),
    replace("x", ("segment.ms", "9")),
    limit([("user", "alice")], (RATE, 1000.0), ("request_percentage", 12.5)),
    limit([("user", None), ("client-id", "app")], (RATE, 5.0)),
    limit([("user", "alice")], ("no_such", 1.0)),
    limit([("planet", "mars")], (RATE, 1.0)),
    limit([], (RATE, 1.0)),
    limits(),
    limits(("user", 0, "alice")),
    limits(("user", 1, None)),
    limits(("user", 2, None)),
    limits(("user", 2, None), strict=True),
    limits(("user", 0, "alice"), ("client-id", 2, None)),
    limits(("user", 3, None)),
    limits(("ip", 0, "127.0.0.1")),
    limits(("ip", 2, None), strict=True),
    limits(("ip", 2, None), ("user", 2, None)),
    limits(("user", 0, None)),
    limits(("user", 2, None), ("user", 2, None)),
    limit([("user", "alice")], (RATE, 0.0, True), ("request_percentage", 0.0, True)),
    limits(),
    delete((None, NO_UUID)),
    delete(("t", LOST)),
    delete((None, LOST)),
    delete(("x", NO_UUID)),
    TWICE,
    TWICE_BY_ID,
    delete(("gone", NO_UUID)),
    delete((None, "gone-too")),
    delete(("__share_group_state", NO_UUID)),
)


CHANGES = {ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.ALTER_CONFIGS, ApiKey.ALTER_CLIENT_QUOTAS}

DIFFERENT = {
    UNKNOWN_OPERATION.name,  # Kafka: UNKNOWN_SERVER_ERROR
    TWICE.name,  # Kafka answers once, we for each
    TWICE_BY_ID.name,
}
"""Steps that are answered differently on purpose."""


def test_both_answer_the_same(sides: tuple[Side, Side]) -> None:
    theirs, ours = sides
    differ = {}
    for step in STEPS:
        expected, found = seen(theirs, step), seen(ours, step)
        if found != expected:
            differ[step.name] = f"{step.name}:\n  Kafka: {expected}\n  ours:  {found}"
        time.sleep(0.05 if step.key in CHANGES else 0)  # the broker's own view of them lags
    unexpected = [text for name, text in differ.items() if name not in DIFFERENT]
    assert not unexpected, "\n".join(unexpected)
    assert differ.keys() == DIFFERENT


def test_settings_are_described_alike(sides: tuple[Side, Side]) -> None:
    """Those that both have: their types, and what a broker calls them."""
    found = []
    for side in sides:
        resources = (describe_configs.Resource(TOPIC, "c", None),)
        (topic,) = side.ask(ApiKey.DESCRIBE_CONFIGS, resources=resources, include_synonyms=True).resources
        found.append({each.name: each for each in topic.configs})
    theirs, ours = found
    assert ours.keys() - theirs.keys() == {"acks.all.durable", "message.timestamp.unit.check"}
    for name in ours.keys() & theirs.keys():
        mine, its = ours[name], theirs[name]
        assert (name, mine.config_type, mine.read_only) == (name, its.config_type, its.read_only)
        if its.synonyms and name != "retention.ms":  # its default is told in hours
            assert mine.synonyms[-1].name == its.synonyms[-1].name
