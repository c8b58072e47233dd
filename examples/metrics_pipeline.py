"""A metrics pipeline: an application writes events, a consumer group adds them up by minute, and a compacted
topic keeps the newest sum of each minute and route.

Each sum notes the offset behind the last event in it. An aggregator that dies between writing sums and
committing its offsets gets those events again, and leaves them out. Run: python examples/metrics_pipeline.py
"""

import json
import tempfile

import logstore

ROUTES = ("/cart", "/login", "/pay")


def serve(store: logstore.Store, count: int) -> None:
    """The application: an event for each request. A route has one partition, so its events stay in order."""
    with store.producer(acks=1) as producer:
        for number in range(count):
            route, stamp_ms = ROUTES[number % 3], 1_700_000_040_000 + number * 100
            event = json.dumps({"route": route, "ms": 5 + number % 40})
            producer.send("events", event.encode(), key=route.encode(), timestamp_ms=stamp_ms)


def aggregate(store: logstore.Store, polls_to_live: int) -> None:
    """One life of the aggregator: it takes up the sums that the one before has written."""
    topic = store["sums"].serialized(key="text", value="json")
    sums = topic.latest()
    with store.consumer("events", group="sums") as consumer:
        while events := consumer.poll(timeout=0.5, max_records=200):
            changed: dict[str, tuple[int, int, int]] = {}
            for record in events:
                event = json.loads(record.value or b"")
                key = f"minute {record.timestamp_ms // 60_000} {event['route']}"
                count, total_ms, next_offset = sums.get(key, (0, 0, 0))
                if record.offset >= next_offset:
                    changed[key] = sums[key] = count + 1, total_ms + event["ms"], record.offset + 1
            topic.extend(list(changed.items()))
            polls_to_live -= 1
            if not polls_to_live:
                return  # dead before the commit
            consumer.commit()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as path, logstore.open(path) as store:
        store.create_topic("events", partitions=2)
        sums = store.create_topic("sums", config=logstore.TopicConfig(cleanup_policy="compact"))
        serve(store, 2000)
        for polls_to_live in (2, 3, -1):
            aggregate(store, polls_to_live)
            print("the group is behind by", store.metrics().total("logstore_group_lag", group="sums"))
        store.compact(now=True)
        table = sums.serialized(key="text", value="json").latest()
        for key, (count, total_ms, _) in sorted(table.items()):
            print(f"{key:22} {count} requests of {total_ms / count:.1f} ms")
        print("events:", sum(count for count, _, _ in table.values()))
