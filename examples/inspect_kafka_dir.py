"""What is in a Kafka broker's log directory? Opens it read-only: nothing is locked or changed.

Run: python examples/inspect_kafka_dir.py /var/lib/kafka/data
"""

import sys

import logstore


def describe(log: logstore.Log) -> str:
    found = log.find_max_timestamp()
    newest = log.record_at(found.offset, isolation=logstore.Isolation.LOG_END) if found else None
    time = f"{newest.timestamp:%Y-%m-%d %H:%M:%S}" if newest else "-"
    return (
        f"{log.partition!s:32} {log.log_start_offset:12,} {log.log_end_offset:12,} "
        f"{log.segment_count:8,} {log.size_bytes:15,}  {time}"
    )


def main(directory: str) -> None:
    with logstore.open(directory, read_only=True) as store:
        print(f"{len(store)} topics in {store.path}")
        print(
            f"{'partition':32} {'start':>12} {'end':>12} {'segments':>8} {'bytes':>15}  newest record (UTC)"
        )
        for topic in store.values():
            for log in topic:
                print(describe(log))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(sys.argv[1])
