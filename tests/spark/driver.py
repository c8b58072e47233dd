"""A separate driver, for tests that kill it: ``python -m tests.spark.driver <what> <store> ...``.

``stream``: a query into the topic ``t``; the JVM and the commit's worker die at the named step.
``cluster``: a job on two executors; one dies, a worker, and another executor.
"""

from __future__ import annotations

import sys

from logstore.spark import session
from tests.spark import killing

ROWS_PER_BATCH = 40


def begin(cluster, path, **settings):
    settings = {
        "spark.driver.memory": "512m",
        "spark.local.dir": path + ".local",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    } | settings
    spark = session("killed", cluster=cluster, settings=settings)
    spark.sparkContext.setLogLevel("OFF")
    killing.register(spark)
    return spark


def numbers(spark, partitions):
    """The stream that all tests write."""
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS_PER_BATCH)
    stream = stream.option("numPartitions", partitions).load()
    return stream.selectExpr("cast(value % 7 as string) key", "cast(value as string) value")


def stream(path, checkpoint, step):
    spark = begin("local[2]", path)
    writer = numbers(spark, len(step) % 3 + 1).writeStream.format("killed")
    killing.order(path, step, passes=2, who=str(spark._jvm.ProcessHandle.current().pid()))
    writer.options(path=path, topic="t", checkpointLocation=checkpoint).start().awaitTermination(120)


def cluster(path, rows):
    settings = {"spark.executor.memory": "512m", "spark.task.maxFailures": "8"}
    spark = begin("local-cluster[2,1,512]", path, **settings)
    frame = spark.sql(f"select cast(id as string) value from range(0, {rows}, 1, 6)")
    killing.order(path, "in task", who="executor")
    killing.order(path, "after task", who="worker")
    killing.order(path, "after task", passes=1, who="executor")
    frame.write.format("killed").mode("append").options(path=path, topic="t").save()
    spark.stop()


if __name__ == "__main__":
    {"stream": stream, "cluster": cluster}[sys.argv[1]](*sys.argv[2:])
