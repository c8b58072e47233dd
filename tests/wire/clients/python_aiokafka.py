"""aiokafka. Each task is an event loop of its own."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ssl
import time

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError

from tests.wire.clients.features import PARTITIONS, TAKES_SECONDS

LACKS = {"group-cooperative-sticky"}
ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


def version():
    return aiokafka.__version__


def operation(coroutine):
    """Runs it to its end, in so many seconds."""

    @functools.wraps(coroutine)
    def run(task):
        return asyncio.run(asyncio.wait_for(coroutine(task), TAKES_SECONDS))

    return run


def settings(task, security=None, **more):
    security = security or task.options.get("security", {"protocol": "PLAINTEXT"})
    found = {
        "bootstrap_servers": task.bootstrap,
        "client_id": task.name,
        "security_protocol": security["protocol"],
    }
    if "ca" in security:
        found["ssl_context"] = ssl.create_default_context(cafile=security["ca"])
    if "mechanism" in security:
        found |= {
            "sasl_mechanism": security["mechanism"],
            "sasl_plain_username": security["user"],
            "sasl_plain_password": security["password"],
        }
    return found | more


@contextlib.asynccontextmanager
async def started(client):
    """Between its start and its end."""
    await client.start()
    try:
        yield client
    finally:
        await (client.close() if isinstance(client, AIOKafkaAdminClient) else client.stop())


async def send(producer, topic, values):
    sent = [await producer.send(topic, value.encode(), partition=0) for value in values]
    await producer.flush()
    await asyncio.gather(*sent)


def producer_of(task, **more):
    return started(AIOKafkaProducer(**settings(task, **more)))


@operation
async def produce(task):
    options = task.options
    acks = {"0": 0, "1": 1}.get(options["acks"], options["acks"])
    more = {"compression_type": options.get("codec"), "enable_idempotence": options.get("idempotent", False)}
    async with producer_of(task, acks=acks, linger_ms=100, **more) as producer:
        if acks == 0:  # there is no answer to wait for
            for value in task.values:
                await producer.send(task.topic, value.encode(), partition=0)
            await producer.flush()
        else:
            await send(producer, task.topic, task.values)


@operation
async def transact(task):
    half = len(task.values) // 2
    async with producer_of(task, transactional_id=task.options["transactional_id"]) as producer:
        await producer.begin_transaction()
        await send(producer, task.topic, task.values[:half])
        await producer.commit_transaction()
        await producer.begin_transaction()
        await send(producer, task.topic, task.values[half:])
        await producer.abort_transaction()


def consumer_of(task, *topics, **more):
    defaults = {
        "group_id": task.group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "fetch_max_wait_ms": 50,
        "heartbeat_interval_ms": 100,
    }
    return started(AIOKafkaConsumer(*topics, **settings(task, **defaults | more)))


async def take(consumer, count):
    """So many values."""
    values = []
    while len(values) < count:
        rows = await consumer.getmany(timeout_ms=500, max_records=count - len(values))
        values += [record.value.decode() for each in rows.values() for record in each]
    return values


async def positions_of(consumer):
    return {at: await consumer.position(at) for at in consumer.assignment()}


@operation
async def transform(task):
    transactional = {"transactional_id": task.options["transactional_id"]}
    async with consumer_of(task, task.topic) as consumer, producer_of(task, **transactional) as producer:
        values = await take(consumer, len(task.values))
        await producer.begin_transaction()
        await send(producer, task.options["target"], values)
        await producer.send_offsets_to_transaction(await positions_of(consumer), task.group)
        await producer.commit_transaction()


@operation
async def assign(task):
    isolation = task.options.get("isolation", "read_uncommitted")
    async with consumer_of(task, group_id=None, isolation_level=isolation) as consumer:
        consumer.assign([TopicPartition(task.topic, each) for each in range(task.options["partitions"])])
        return {"values": await take(consumer, task.options["count"])}


@operation
async def times(task):
    at = TopicPartition(task.topic, 3)
    async with consumer_of(task, group_id=None) as consumer:

        async def offset(time_ms):
            found = (await consumer.offsets_for_times({at: time_ms}))[at]
            return found and found.offset

        return {
            "offset": await offset(task.options["time_ms"]),
            "after_all": await offset(task.options["later_ms"]),
            "begin": (await consumer.beginning_offsets([at]))[at],
            "end": (await consumer.end_offsets([at]))[at],
        }


@operation
async def share(task):
    strategy = {"partition_assignment_strategy": (ASSIGNORS[task.options["assignor"]],)}
    end, deadline = len(task.values) // PARTITIONS, time.monotonic() + TAKES_SECONDS / 2
    values, shares, offsets = [], [], set()
    async with (
        consumer_of(task, task.topic, **strategy) as one,
        consumer_of(task, task.topic, **strategy) as two,
    ):
        while (shares != [2, 2] or offsets != {end}) and time.monotonic() < deadline:
            offsets = set()
            for each in (one, two):
                rows = await each.getmany(timeout_ms=50)
                values += [record.value.decode() for row in rows.values() for record in row]
                offsets |= set((await positions_of(each)).values())
            shares = [len(each.assignment()) for each in (one, two)]
        await one.commit()
        await two.commit()
    return {"values": values, "shares": shares}


@operation
async def come_back(task):
    member = {"group_instance_id": task.options["instance"]}
    async with consumer_of(task, task.topic, **member) as first:
        values = await take(first, 12)
        await first.commit()
    async with consumer_of(task, task.topic, **member) as again:
        values += await take(again, len(task.values) - 12)
        return {"values": values, "assigned": len(again.assignment())}


def admin_of(task):
    return started(AIOKafkaAdminClient(**settings(task)))


@operation
async def topics(task):
    async with admin_of(task) as admin:
        await admin.create_topics([NewTopic(task.topic, 3, 1, topic_configs={"retention.ms": "86400000"})])
        (described,) = await admin.describe_topics([task.topic])
        await admin.delete_topics([task.options["old"]])
        return {"partitions": len(described["partitions"])}


@operation
async def configs(task):
    async with admin_of(task) as admin:
        wanted = {"retention.ms": "12345", "cleanup.policy": "compact"}
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, task.topic, wanted)])
        (found,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, task.topic)])
        entries = {each[0]: each[1] for each in found.resources[0][4]}
        return {"retention.ms": entries["retention.ms"]}


@operation
async def partitions(task):
    async with admin_of(task) as admin:
        await admin.create_partitions({task.topic: NewPartitions(3)})


@operation
async def delete_records(task):
    at = TopicPartition(task.topic, 0)
    async with admin_of(task) as admin:
        return {"low_watermark": (await admin.delete_records({at: RecordsToDelete(3)}))[at]}


@operation
async def secure(task):
    async with producer_of(task) as producer:
        await send(producer, task.topic, task.values)
    async with consumer_of(task, group_id=None) as consumer:
        consumer.assign([TopicPartition(task.topic, 0)])
        values = await take(consumer, len(task.values))
    return {"values": values, "is_refused": await is_refused(task)}


async def is_refused(task):
    stranger = AIOKafkaProducer(**settings(task, task.options["wrong"]))
    try:
        await stranger.start()
    except KafkaError:
        return True
    finally:
        await stranger.stop()
    return False
