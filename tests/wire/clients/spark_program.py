"""Spark's own connector does the tasks of ``features.py``: each line of stdin is one, and gets a line of
stdout. The argument is the list of the connector's jars. It reads partitions, and never joins a group.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.sql import SparkSession

import logstore.spark
from tests.spark.conftest import settings_in
from tests.wire.clients.features import Said, Task


@contextmanager
def session() -> Iterator[SparkSession]:
    with TemporaryDirectory() as work:
        settings = settings_in(Path(work)) | {"spark.ui.enabled": "false"}
        spark = logstore.spark.session("clients", cluster="local[2]", settings=settings)
        spark.sparkContext.setLogLevel("OFF")
        for jar in sys.argv[1].split(","):
            spark.sql(f"ADD JAR '{jar}'")
        yield spark
        spark.stop()


def settings(task: Task, security: Any = None, **more: Any) -> dict[str, str]:
    security = security or task.options.get("security", {"protocol": "PLAINTEXT"})
    found = {
        "bootstrap.servers": task.bootstrap,
        "client.id": task.name,
        "security.protocol": security["protocol"],
    }
    if "ca" in security:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": security["ca"]}
    if "mechanism" in security:
        module = "plain.PlainLoginModule" if security["mechanism"] == "PLAIN" else "scram.ScramLoginModule"
        login = f'username="{security["user"]}" password="{security["password"]}"'
        found |= {
            "sasl.mechanism": security["mechanism"],
            "sasl.jaas.config": f"org.apache.kafka.common.security.{module} required {login};",
        }
    found |= {name.replace("_", "."): str(value) for name, value in more.items()}
    return {f"kafka.{name}": value for name, value in found.items()}


def write(spark: SparkSession, task: Task, values: list[str], options: dict[str, str]) -> None:
    rows = spark.createDataFrame([(value, 0) for value in values], "value string, partition int").coalesce(1)
    rows.write.format("kafka").options(**options).option("topic", task.topic).save()


def read(spark: SparkSession, task: Task, **more: Any) -> list[str]:
    return [row["value"].decode() for row in rows_of(spark, task, settings(task, **more))]


def rows_of(spark: SparkSession, task: Task, options: dict[str, str]) -> list[Any]:
    rows = spark.read.format("kafka").options(subscribe=task.topic, **options).load().collect()
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def produce(spark: SparkSession, task: Task) -> Said:
    options = task.options
    write(
        spark,
        task,
        task.values,
        settings(
            task,
            acks=options["acks"],
            compression_type=options.get("codec", "none"),
            enable_idempotence=str(bool(options.get("idempotent"))).lower(),
            linger_ms=100,
        ),
    )
    return {}


def assign(spark: SparkSession, task: Task) -> Said:
    isolation = task.options.get("isolation", "read_uncommitted")
    return {"values": read(spark, task, isolation_level=isolation)}


def times(spark: SparkSession, task: Task) -> Said:
    """It has no call for offsets, but begins to read at a time."""

    def offsets(**more: Any) -> list[int]:
        named = {name: str(value) for name, value in more.items()}
        return [
            row["offset"] for row in rows_of(spark, task, settings(task) | named) if row["partition"] == 3
        ]

    every = offsets()
    later = offsets(startingTimestamp=task.options["later_ms"], startingOffsetsByTimestampStrategy="latest")
    return {
        "offset": offsets(startingTimestamp=task.options["time_ms"])[0],
        "after_all": later[0] if later else None,
        "begin": every[0],
        "end": every[-1] + 1,
    }


def secure(spark: SparkSession, task: Task) -> Said:
    write(spark, task, task.values, settings(task))
    values = read(spark, task)
    try:
        write(spark, task, ["never"], settings(task, task.options["wrong"], max_block_ms=1000))
    except Exception:
        return {"values": values, "is_refused": True}
    return {"values": values, "is_refused": False}


OPERATIONS = {"produce": produce, "assign": assign, "times": times, "secure": secure}


def main() -> None:
    tasks = [Task(**json.loads(line)) for line in sys.stdin]
    with session() as spark:
        for task in tasks:
            answer: dict[str, object] = {"name": task.name}
            try:
                answer["said"] = OPERATIONS[task.operation](spark, task)
            except Exception:
                answer["failure"] = traceback.format_exc()
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
