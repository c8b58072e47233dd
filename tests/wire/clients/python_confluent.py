"""confluent-kafka, which is librdkafka."""

from __future__ import annotations

import time

import confluent_kafka
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from tests.wire.clients.features import PARTITIONS, TAKES_SECONDS

LACKS = {"group-sticky"}  # its sticky assignor is the cooperative one


def version():
    return confluent_kafka.__version__


def settings(task, security=None, **more):
    security = security or task.options.get("security", {"protocol": "PLAINTEXT"})
    found = {
        "bootstrap.servers": task.bootstrap,
        "client.id": task.name,
        "security.protocol": security["protocol"],
        "log_level": 0,
    }
    if "ca" in security:
        found["ssl.ca.location"] = security["ca"]
    if "mechanism" in security:
        found |= {
            "sasl.mechanism": security["mechanism"],
            "sasl.username": security["user"],
            "sasl.password": security["password"],
        }
    return found | {name.replace("_", "."): value for name, value in more.items()}


def send(producer, topic, values):
    told = []
    for value in values:
        producer.produce(topic, value.encode(), partition=0, on_delivery=lambda error, _: told.append(error))
    assert producer.flush(TAKES_SECONDS) == 0
    return all(error is None for error in told)


def produce(task):
    options = task.options
    producer = Producer(
        settings(
            task,
            acks=options["acks"],
            compression_type=options.get("codec", "none"),
            enable_idempotence=options.get("idempotent", False),
            linger_ms=100,
        )
    )
    assert send(producer, task.topic, task.values)


def transact(task):
    producer = Producer(settings(task, transactional_id=task.options["transactional_id"]))
    producer.init_transactions(TAKES_SECONDS)
    half = len(task.values) // 2
    producer.begin_transaction()
    assert send(producer, task.topic, task.values[:half])
    producer.commit_transaction(TAKES_SECONDS)
    producer.begin_transaction()
    assert send(producer, task.topic, task.values[half:])
    producer.abort_transaction(TAKES_SECONDS)


def consumer_of(task, **more):
    if "group_protocol" not in more:  # else the broker says how often
        more["heartbeat_interval_ms"] = 100
    return Consumer(
        settings(
            task,
            group_id=task.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_wait_max_ms=50,
            **more,
        )
    )


def take(consumer, count):
    """So many values."""
    values, deadline = [], time.monotonic() + TAKES_SECONDS
    while len(values) < count:
        assert time.monotonic() < deadline, f"{len(values)} of {count} records"
        rows = consumer.consume(count - len(values), 0.5)
        assert all(row.error() is None for row in rows), rows
        values += [row.value().decode() for row in rows]
    return values


def transform(task):
    consumer = consumer_of(task)
    producer = Producer(settings(task, transactional_id=task.options["transactional_id"]))
    producer.init_transactions(TAKES_SECONDS)
    consumer.subscribe([task.topic])
    values = take(consumer, len(task.values))
    producer.begin_transaction()
    assert send(producer, task.options["target"], values)
    positions = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), TAKES_SECONDS)
    producer.commit_transaction(TAKES_SECONDS)
    consumer.close()


def assign(task):
    consumer = consumer_of(task, isolation_level=task.options.get("isolation", "read_uncommitted"))
    consumer.assign([TopicPartition(task.topic, each, 0) for each in range(task.options["partitions"])])
    values = take(consumer, task.options["count"])
    consumer.close()
    return {"values": values}


def times(task):
    consumer = consumer_of(task)

    def at(time_ms):
        (found,) = consumer.offsets_for_times([TopicPartition(task.topic, 3, time_ms)], TAKES_SECONDS)
        return found.offset

    begin, end = consumer.get_watermark_offsets(TopicPartition(task.topic, 3), TAKES_SECONDS)
    found = {
        "offset": at(task.options["time_ms"]),
        "after_all": at(task.options["later_ms"]),
        "begin": begin,
        "end": end,
    }
    consumer.close()
    return found


def share(task):
    return share_by(task, partition_assignment_strategy=task.options["assignor"])


def share_next(task):
    return share_by(task, group_protocol="consumer")


def share_by(task, **more):
    consumers = [consumer_of(task, **more) for _ in range(2)]
    end, deadline = len(task.values) // PARTITIONS, time.monotonic() + TAKES_SECONDS
    values, shares, positions = [], [], []
    for each in consumers:
        each.subscribe([task.topic])
    is_done = False
    while not is_done:
        assert time.monotonic() < deadline, (shares, positions)
        for each in consumers:
            values += [row.value().decode() for row in each.consume(100, 0.05) if row.error() is None]
        shares = [len(each.assignment()) for each in consumers]
        positions = [at for each in consumers for at in each.position(each.assignment())]
        if shares == [2, 2] and {at.offset for at in positions} == {end}:
            is_done = all(commits(each) for each in consumers)
    for each in consumers:
        each.close()
    return {"values": values, "shares": shares}


def commits(consumer):
    """Whether it does. Cooperative members divide twice, and cannot in between."""
    try:
        consumer.commit(offsets=consumer.position(consumer.assignment()), asynchronous=False)
    except KafkaException:
        return False
    return True


def come_back(task):
    member = {"group_instance_id": task.options["instance"]}
    first = consumer_of(task, **member)
    first.subscribe([task.topic])
    values = take(first, 12)
    first.commit(offsets=first.position(first.assignment()), asynchronous=False)
    first.close()
    again = consumer_of(task, **member)
    again.subscribe([task.topic])
    values += take(again, len(task.values) - 12)
    assigned = len(again.assignment())
    again.close()
    return {"values": values, "assigned": assigned}


def only(futures):
    (found,) = futures.values()
    return found.result(TAKES_SECONDS)


def topics(task):
    admin = AdminClient(settings(task))
    only(admin.create_topics([NewTopic(task.topic, 3, 1, config={"retention.ms": "86400000"})]))
    described = only(admin.describe_topics(TopicCollection([task.topic])))
    only(admin.delete_topics([task.options["old"]]))
    return {"partitions": len(described.partitions)}


def configs(task):
    admin = AdminClient(settings(task))
    change = AlterConfigOpType.SET
    entries = [
        ConfigEntry("retention.ms", "12345", incremental_operation=change),
        ConfigEntry("cleanup.policy", "compact", incremental_operation=change),
    ]
    only(
        admin.incremental_alter_configs(
            [ConfigResource(ConfigResource.Type.TOPIC, task.topic, incremental_configs=entries)]
        )
    )
    found = only(admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, task.topic)]))
    return {"retention.ms": found["retention.ms"].value}


def partitions(task):
    admin = AdminClient(settings(task))
    only(admin.create_partitions([NewPartitions(task.topic, 3)]))


def delete_records(task):
    admin = AdminClient(settings(task))
    deleted = only(admin.delete_records([TopicPartition(task.topic, 0, 3)]))
    return {"low_watermark": deleted.low_watermark}


def groups(task):
    admin = AdminClient(settings(task))
    listed = admin.list_consumer_groups().result(TAKES_SECONDS).valid
    described = only(admin.describe_consumer_groups([task.group]))
    offsets = only(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(task.group)]))
    only(admin.delete_consumer_groups([task.group]))
    return {
        "is_listed": any(each.group_id == task.group for each in listed),
        "state": described.state.name.capitalize(),
        "offset": offsets.topic_partitions[0].offset,
    }


def reset(task):
    wanted = ConsumerGroupTopicPartitions(task.group, [TopicPartition(task.topic, 0, 3)])
    admin = AdminClient(settings(task))
    only(admin.alter_consumer_group_offsets([wanted]))


def acls(task):
    admin = AdminClient(settings(task))

    def arguments(user, permission=AclPermissionType.ALLOW):
        pattern = ResourceType.TOPIC, task.topic, ResourcePatternType.LITERAL
        return *pattern, user, "*", AclOperation.READ, permission

    only(admin.create_acls([AclBinding(*arguments("User:new"))]))
    every = AclBindingFilter(
        *(ResourceType.TOPIC, task.topic, ResourcePatternType.LITERAL),
        *(None, None, AclOperation.ANY, AclPermissionType.ANY),
    )
    found = admin.describe_acls(every).result(TAKES_SECONDS)
    only(admin.delete_acls([AclBindingFilter(*arguments("User:old"))]))
    return {"users": sorted(each.principal for each in found)}


def users(task):
    admin = AdminClient(settings(task))
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, task.options["iterations"])
    password = task.options["password"].encode()
    upsertion = UserScramCredentialUpsertion("new", credential, password)
    only(admin.alter_user_scram_credentials([upsertion]))
    described = admin.describe_user_scram_credentials(["new"])["new"].result(TAKES_SECONDS)
    mechanisms = admin.describe_user_scram_credentials(["old"])["old"].result(TAKES_SECONDS)
    gone = [UserScramCredentialDeletion("old", each.mechanism) for each in mechanisms.scram_credential_infos]
    only(admin.alter_user_scram_credentials(gone))
    return {"iterations": described.scram_credential_infos[0].iterations}


def secure(task):
    producer = Producer(settings(task))
    assert send(producer, task.topic, task.values)
    consumer = consumer_of(task)
    consumer.assign([TopicPartition(task.topic, 0, 0)])
    values = take(consumer, len(task.values))
    consumer.close()
    stranger = Producer(settings(task, task.options["wrong"], message_timeout_ms=300))
    return {"values": values, "is_refused": not send(stranger, task.topic, ["never"])}
