"""Streaming queries in a separate process that is killed: ``test_stream_kills.py`` starts it.

Each query writes each batch as JSON into ``batch=<id>`` by overwriting, so that a batch that runs twice is
there once. If a file in the control directory names a step for a query, the query that reaches this step
writes another file, and waits until it is killed.
"""

import json
import os
import sys
import time
from pathlib import Path

from logstore.spark import session
from logstore.spark.options import Options, Use
from logstore.spark.source import LogstoreSource

SETTINGS = {
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def pause(query, step):
    control = Path(os.environ["LOGSTORE_TEST_CONTROL"])
    try:
        if (control / f"pause-{query}").read_text() != step:
            return
        with open(control / f"reached-{query}", "x"):
            pass
    except (FileNotFoundError, FileExistsError):
        return  # not asked for; or another task waits: if all waited, other queries would get no threads
    time.sleep(900)
    os._exit(3)  # it was not killed


class PausingSource(LogstoreSource):
    def streamReader(self, schema):  # noqa: N802
        from logstore.spark.stream_reader import StreamReader

        query = self.options["queryName"]

        class PausingReader(StreamReader):
            def getDefaultReadLimit(self):  # noqa: N802
                (Path(os.environ["LOGSTORE_TEST_CONTROL"]) / f"started-{query}").touch()
                return super().getDefaultReadLimit()

            def latestOffset(self, start, limit):  # noqa: N802
                end = super().latestOffset(start, limit)
                if end != start:
                    pause(query, "planned")
                return end

            def partitions(self, start, end):
                pause(query, "journaled")
                return super().partitions(start, end)

            def read(self, partition):
                for batch in super().read(partition):
                    yield batch.slice(0, 1)
                    pause(query, "reading")
                    yield batch.slice(1)

        return PausingReader(Options(self.options, Use.STREAM_READ), schema)


def start_query(spark, path, query, options, trigger):
    """Start one, and wait until it runs: Spark gives a query's Python process 10 s to start, which on a busy
    machine is not enough for several at once, and sometimes not for one."""
    frame = spark.readStream.format("logstore").options(queryName=query, **options).load()
    wanted = frame.selectExpr("topic", "partition", "offset", "cast(value as string) as value")

    def write(batch, number):
        batch.write.mode("overwrite").json(f"{path}/output/{query}/batch={number}")
        pause(query, "written")

    writer = wanted.writeStream.foreachBatch(write).trigger(**trigger)
    sign = Path(os.environ["LOGSTORE_TEST_CONTROL"]) / f"started-{query}"
    for _ in range(5):
        started = writer.option("checkpointLocation", f"{path}/checkpoint/{query}").start()
        while started.isActive and not sign.exists():
            time.sleep(0.05)
        if sign.exists():
            return started
    raise started.exception()


def main(path, queries, options, trigger):
    settings = SETTINGS | {"spark.local.dir": f"{path}/local"}
    spark = session("killed", cluster=f"local[{len(queries)}]", settings=settings)  # who waits keeps a core
    spark.dataSource.register(PausingSource)
    started = [start_query(spark, path, query, options, trigger) for query in queries]
    while any(query.isActive for query in started):
        for query in started:
            if query.exception() is not None:
                raise query.exception()
        time.sleep(0.1)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
