"""The driver: the process that Spark and both queries run in. It may be stopped or killed, and started again.

Run by run.py as ``python driver.py DIRECTORY MOST_RECORDS``. It goes on from the checkpoints, ends when both
queries have read everything, and then compacts and verifies the store, as Spark jobs; the last lines say what
came of it. SIGTERM stops it between two steps of the queries.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from threading import Event

from pyspark.sql import SparkSession

from layout import Layout
from logstore.spark import compact, session, verify
from queries import enrich, summarise

_LOOK_SECONDS = 0.1
SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": 2,  # a checkpoint keeps to the number that it began with
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",  # it runs for seconds only
}


class Stopped(Exception):  # noqa: N818  it is no error
    """Somebody wants this process to end."""


def run(spark: SparkSession, layout: Layout, most_records: int, stop: Event) -> None:
    """Both queries side by side, until one has read all flights and the other all that came of them.

    Raises:
        Stopped: before that; both are stopped.
    """
    summarising = summarise(spark, layout, most_records)
    enriching = enrich(spark, layout, most_records)
    try:
        while enriching.isActive:
            if stop.wait(_LOOK_SECONDS):
                raise Stopped
        enriching.awaitTermination()  # it is over; if by an error, that is raised here
        summarising.processAllAvailable()
    finally:
        enriching.stop()
        summarising.stop()


def maintain(spark: SparkSession, layout: Layout) -> None:
    """Compaction and verification. Says what came of it, as lines."""
    compacted = compact(spark, [layout.store], now=True)
    print("compacted:", compacted)
    report = verify(spark, layout.store)
    print("verified:", report)
    if not compacted or not report:
        raise SystemExit("the store is not sound")


def main(directory: str, most_records: int) -> None:
    stop = Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    spark = session("pipeline", cluster="local[2]", settings=SETTINGS)
    spark.sparkContext.setLogLevel("ERROR")
    try:
        run(spark, Layout(Path(directory)), most_records, stop)
        maintain(spark, Layout(Path(directory)))
    except Stopped:
        print("stopped")
    finally:
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
