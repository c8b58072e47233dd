"""The pipeline: two streaming queries with a topic between them. This is the file to look at.

::

    flights ---+                                      +--> weeks.parquet, a directory for each batch
               +-- enrich --> enriched -- summarise --+
    planes ----+                                      +--> weekly, a compacted topic: the current table

Each query goes on from its checkpoint, wherever it was stopped or killed, and what it has written is there
once: ``enriched`` by the sink's own commit, the Parquet by the commit that holds the batch's number, and the
topic ``weekly`` by the ``writeId`` of the batch.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from layout import Layout
from logstore.spark import ParquetOutput, current_table

FLIGHT = "carrier string, flight int, tailnum string, origin string, dest string, dep_delay int"
PLANE = "manufacturer string, model string, seats int"
DISORDER = "90 days"
"""How much the event time may go back: the partitions of ``enriched`` grow by a batch of the other query at a
time, and each such batch is some six weeks."""
FIRST_MONDAY = "4 days"
"""Windows are counted from 1 January 1970, a Thursday."""


def enrich(spark: SparkSession, layout: Layout, most_records: int) -> StreamingQuery:
    """Each flight with what is known of its aircraft, in the partition and the order of the flights.

    Ends with the last flight that there is now.
    """
    planes = current_table(spark, layout.store, "planes").select(
        "key", f.from_json(f.col("value").cast("string"), PLANE).alias("plane")
    )
    flights = (
        spark.readStream.format("logstore")
        .option("path", layout.store)
        .option("subscribe", "flights")
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", most_records)
        .load()
        .withColumn("flight", f.from_json(f.col("value").cast("string"), FLIGHT))
    )
    enriched = flights.join(f.broadcast(planes), "key", "left").select(
        "key",
        _json(f.col("flight.*"), f.col("plane.*")),
        "headers",
        "partition",
        "timestamp",
    )
    return (
        enriched.writeStream.format("logstore")
        .option("path", layout.store)
        .option("topic", "enriched")
        .option("checkpointLocation", layout.checkpoint("enrich"))
        .queryName("enrich")
        .trigger(availableNow=True)
        .start()
    )


def summarise(spark: SparkSession, layout: Layout, most_records: int) -> StreamingQuery:
    """Flights, delays and seats of each week and maker of aircraft. Goes on until it is stopped."""
    flights = (
        spark.readStream.format("logstore")
        .option("path", layout.store)
        .option("subscribe", "enriched")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", most_records)
        .load()
        .withColumn("flight", f.from_json(f.col("value").cast("string"), f"{FLIGHT}, {PLANE}"))
        .select("timestamp", "flight.*")
    )
    weeks = (
        flights.withWatermark("timestamp", DISORDER)
        .groupBy(
            f.window("timestamp", "7 days", startTime=FIRST_MONDAY),
            f.coalesce("manufacturer", f.lit("unknown")).alias("manufacturer"),
        )
        .agg(
            f.count("*").alias("flights"),
            f.count("dep_delay").alias("departures"),
            f.sum("dep_delay").alias("delay_minutes"),
            f.sum("seats").alias("seats"),
        )
        .withColumn("week", f.to_date("window.start"))
        .drop("window")
    )
    parquet = ParquetOutput(layout.parquet)

    def write(rows: DataFrame, batch_id: int) -> None:
        """The weeks that a batch has changed, as they are now: to Parquet, and to the topic."""
        rows.persist()
        parquet.write_batch(rows, batch_id)
        (
            rows.select(
                f.concat_ws(" ", "week", "manufacturer").cast("binary").alias("key"),
                _json(*map(f.col, rows.columns)),
            )
            .write.format("logstore")
            .mode("append")
            .option("path", layout.store)
            .option("topic", "weekly")
            .option("writeId", f"weekly {batch_id} of {_query_id(rows)}")
            .save()
        )
        rows.unpersist()

    return (
        weeks.writeStream.foreachBatch(write)
        .outputMode("update")
        .option("checkpointLocation", layout.checkpoint("summarise"))
        .queryName("summarise")
        .trigger(processingTime="1 second")
        .start()
    )


def _json(*columns: Column) -> Column:
    return f.to_json(f.struct(*columns)).cast("binary").alias("value")


def _query_id(rows: DataFrame) -> str | None:
    """Of the streaming query that these rows are a batch of. It is another one with another checkpoint."""
    return rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
