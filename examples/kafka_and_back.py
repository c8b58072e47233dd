"""A topic moves from an application's store to a Kafka broker and back, each record with its offset.

First create the topic ``orders`` in the broker, with 2 partitions, replication factor 1 and
``retention.ms=-1``, and stop the broker: docs/handover.md has the steps. Without a directory, another store
takes the broker's place.
Run: python examples/kafka_and_back.py [/var/lib/kafka/data]
"""

import sys
import tempfile

import logstore

TOPICS = ["orders"]


def hand_over(source: str, target: str) -> None:
    """Checks everything first: an error names all that is in the way, and nothing was changed."""
    logstore.handover(source, target, topics=TOPICS, dry_run=True)
    print(logstore.handover(source, target, topics=TOPICS))


def records_in(path: str) -> list[tuple[int | None, logstore.Record]]:
    with logstore.open(path, read_only=True) as store:
        return [(record.partition, record) for record in store["orders"].read()]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        shop, back = f"{directory}/shop", f"{directory}/back"
        kafka = sys.argv[1] if len(sys.argv) > 1 else f"{directory}/kafka"
        with logstore.open(shop) as store:
            orders = store.create_topic("orders", partitions=2)
            orders.serialized(key="text", value="json").extend(
                [("alice", {"paid": 30}), ("bob", {"paid": 12})]
            )
        try:
            hand_over(shop, kafka)
            hand_over(kafka, back)  # with a broker: after it was started, has worked, and was stopped again
        except logstore.UsageError as error:
            raise SystemExit(str(error)) from None
        print("the same records:", records_in(shop) == records_in(kafka) == records_in(back))
