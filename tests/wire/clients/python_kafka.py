"""kafka-python."""

from __future__ import annotations

import contextlib
import threading
import time
import warnings

from tests.wire.clients.features import PARTITIONS, TAKES_SECONDS

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas by an old function
    import kafka
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import (
        ACL,
        ACLFilter,
        ACLOperation,
        ACLPermissionType,
        ACLResourcePatternType,
        ConfigResource,
        ConfigResourceType,
        NewPartitions,
        NewTopic,
        ResourcePattern,
        ResourcePatternFilter,
        ResourceType,
        ScramMechanism,
        UserScramCredentialDeletion,
        UserScramCredentialUpsertion,
    )
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata

LACKS: dict[str, str] = {}
ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


def version():
    return kafka.__version__


def settings(task, security=None, **more):
    security = security or task.options.get("security", {"protocol": "PLAINTEXT"})
    found = {
        "bootstrap_servers": task.bootstrap,
        "client_id": task.name,
        "security_protocol": security["protocol"],
    }
    if "ca" in security:
        found["ssl_cafile"] = security["ca"]
    if "mechanism" in security:
        found |= {
            "sasl_mechanism": security["mechanism"],
            "sasl_plain_username": security["user"],
            "sasl_plain_password": security["password"],
        }
    return found | more


def send(producer, topic, values):
    sent = [producer.send(topic, value.encode(), partition=0) for value in values]
    producer.flush(TAKES_SECONDS)
    for each in sent:
        each.get(TAKES_SECONDS)


def produce(task):
    options = task.options
    acks = {"0": 0, "1": 1}.get(options["acks"], options["acks"])
    producer = KafkaProducer(
        **settings(
            task,
            acks=acks,
            compression_type=options.get("codec"),
            enable_idempotence=options.get("idempotent", False),
            linger_ms=100,
        )
    )
    send(producer, task.topic, task.values)
    producer.close()


def transact(task):
    producer = KafkaProducer(**settings(task, transactional_id=task.options["transactional_id"]))
    producer.init_transactions()
    half = len(task.values) // 2
    producer.begin_transaction()
    send(producer, task.topic, task.values[:half])
    producer.commit_transaction()
    producer.begin_transaction()
    send(producer, task.topic, task.values[half:])
    producer.abort_transaction()
    producer.close()


def consumer_of(task, *topics, **more):
    defaults = {
        "group_id": task.group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "fetch_max_wait_ms": 50,
        "heartbeat_interval_ms": 100,
    }
    return KafkaConsumer(*topics, **settings(task, **defaults | more))


def take(consumer, count):
    """So many values."""
    values, deadline = [], time.monotonic() + TAKES_SECONDS
    while len(values) < count:
        assert time.monotonic() < deadline, f"{len(values)} of {count} records"
        rows = consumer.poll(2000, max_records=count - len(values))
        values += [record.value.decode() for each in rows.values() for record in each]
    return values


def positions_of(consumer):
    return {at: OffsetAndMetadata(consumer.position(at), "", -1) for at in consumer.assignment()}


def transform(task):
    consumer = consumer_of(task, task.topic)
    producer = KafkaProducer(**settings(task, transactional_id=task.options["transactional_id"]))
    producer.init_transactions()
    values = take(consumer, len(task.values))
    producer.begin_transaction()
    send(producer, task.options["target"], values)
    producer.send_offsets_to_transaction(positions_of(consumer), consumer.group_metadata())
    producer.commit_transaction()
    producer.close()
    consumer.close()


def assign(task):
    consumer = consumer_of(
        task, group_id=None, isolation_level=task.options.get("isolation", "read_uncommitted")
    )
    consumer.assign([TopicPartition(task.topic, each) for each in range(task.options["partitions"])])
    values = take(consumer, task.options["count"])
    consumer.close()
    return {"values": values}


def times(task):
    consumer = consumer_of(task, group_id=None)
    at = TopicPartition(task.topic, 3)

    def offset(time_ms):
        found = consumer.offsets_for_times({at: time_ms})[at]
        return found and found.offset

    found = {
        "offset": offset(task.options["time_ms"]),
        "after_all": offset(task.options["later_ms"]),
        "begin": consumer.beginning_offsets([at])[at],
        "end": consumer.end_offsets([at])[at],
    }
    consumer.close()
    return found


class Member(threading.Thread):
    """A consumer in a thread of its own: it joins while it polls, and both have to join."""

    def __init__(self, task):
        super().__init__(daemon=True)
        self.task = task
        self.values, self.share, self.has_committed = [], 0, False
        self.must_end = threading.Event()
        self.start()

    def run(self):
        end = len(self.task.values) // PARTITIONS
        strategy = (ASSIGNORS[self.task.options["assignor"]],)
        consumer = consumer_of(self.task, self.task.topic, partition_assignment_strategy=strategy)
        while not self.must_end.is_set():
            # A poll that ends within a join may never join.
            rows = consumer.poll(100 if consumer.assignment() else 2000)
            self.values += [record.value.decode() for each in rows.values() for record in each]
            if all(consumer.position(at) == end for at in consumer.assignment()):
                with contextlib.suppress(
                    KafkaError
                ):  # cooperative members divide twice, and cannot in between
                    consumer.commit()
                    self.has_committed = True
            self.share = len(consumer.assignment())
        consumer.close()


def share(task):
    members = [Member(task) for _ in range(2)]
    deadline = time.monotonic() + TAKES_SECONDS
    shares = []
    while shares != [2, 2] or not all(each.has_committed for each in members):
        time.sleep(0.01)
        shares = [each.share for each in members]
        if time.monotonic() > deadline:
            break
    for each in members:  # the one that ends first leaves the group, when the other is about to
        each.must_end.set()
    for each in members:
        each.join(TAKES_SECONDS)
    return {"values": [value for each in members for value in each.values], "shares": shares}


def come_back(task):
    first = consumer_of(task, task.topic, group_instance_id=task.options["instance"])
    values = take(first, 12)
    first.commit()
    first.close()
    again = consumer_of(task, task.topic, group_instance_id=task.options["instance"])
    values += take(again, len(task.values) - 12)
    assigned = len(again.assignment())
    again.close()
    return {"values": values, "assigned": assigned}


def admin_of(task):
    return KafkaAdminClient(**settings(task))


def topics(task):
    admin = admin_of(task)
    admin.create_topics([NewTopic(task.topic, 3, 1, topic_configs={"retention.ms": "86400000"})])
    (described,) = admin.describe_topics([task.topic])
    admin.delete_topics([task.options["old"]])
    admin.close()
    return {"partitions": len(described["partitions"])}


def configs(task):
    admin = admin_of(task)
    wanted = {"retention.ms": "12345", "cleanup.policy": "compact"}
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, task.topic, wanted)])
    found = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, task.topic)])
    admin.close()
    return {"retention.ms": found["topic"][task.topic]["retention.ms"]["value"]}


def partitions(task):
    admin = admin_of(task)
    admin.create_partitions({task.topic: NewPartitions(3)})
    admin.close()


def delete_records(task):
    admin = admin_of(task)
    at = TopicPartition(task.topic, 0)
    deleted = admin.delete_records({at: 3})
    admin.close()
    return {"low_watermark": deleted[at]["low_watermark"]}


def groups(task):
    admin = admin_of(task)
    listed = admin.list_groups()
    described = admin.describe_groups([task.group])[task.group]
    offsets = admin.list_group_offsets(task.group)[task.group]
    deleted = admin.delete_groups([task.group])
    admin.close()
    assert deleted == {task.group: "OK"}
    return {
        "is_listed": any(each["group_id"] == task.group for each in listed),
        "state": described["group_state"],
        "offset": offsets[TopicPartition(task.topic, 0)].offset,
    }


def reset(task):
    admin = admin_of(task)
    admin.alter_group_offsets(task.group, {TopicPartition(task.topic, 0): OffsetAndMetadata(3, "", -1)})
    admin.close()


def acls(task):
    admin = admin_of(task)

    def allowed(user):
        pattern = ResourcePattern(ResourceType.TOPIC, task.topic)
        return ACL(user, "*", ACLOperation.READ, ACLPermissionType.ALLOW, pattern)

    admin.create_acls([allowed("User:new")])
    pattern = ResourcePatternFilter(ResourceType.TOPIC, task.topic, ACLResourcePatternType.LITERAL)
    anything = ACLOperation.ANY, ACLPermissionType.ANY
    found, _ = admin.describe_acls(ACLFilter(None, None, *anything, pattern))
    admin.delete_acls([ACLFilter("User:old", None, *anything, pattern)])
    admin.close()
    return {"users": sorted(each.principal for each in found)}


def users(task):
    admin = admin_of(task)
    mechanism = ScramMechanism.SCRAM_SHA_256
    password, iterations = task.options["password"], task.options["iterations"]
    admin.alter_user_scram_credentials([UserScramCredentialUpsertion("new", mechanism, password, iterations)])
    described = admin.describe_user_scram_credentials(["new", "old"])
    admin.alter_user_scram_credentials(
        [UserScramCredentialDeletion("old", each) for each in ScramMechanism if each.value > 0]
    )
    admin.close()
    return {"iterations": described["new"]["credential_infos"][0]["iterations"]}


def secure(task):
    producer = KafkaProducer(**settings(task))
    send(producer, task.topic, task.values)
    producer.close()
    consumer = consumer_of(task, group_id=None)
    consumer.assign([TopicPartition(task.topic, 0)])
    values = take(consumer, len(task.values))
    consumer.close()
    return {"values": values, "is_refused": is_refused(task)}


def is_refused(task):
    try:
        stranger = KafkaProducer(**settings(task, task.options["wrong"], bootstrap_timeout_ms=500))
        stranger.send(task.topic, b"never").get(1)
    except KafkaError:
        return True
    return False
