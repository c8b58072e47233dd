"""``python -m benchmarks.spark``: logstore as a data source of Spark, beside Parquet, beside Spark's own
Kafka connector with a stock broker on the same machine, and beside Spark's rate source.

All in one run: one session of two cores, everything from the system's cache, ways in turn, the first round to
warm up. The connector's jars and the broker come from the Java package registry; if it cannot be reached,
their lines are missing. ``--only`` measures parts and keeps the other parts' lines of
``benchmarks/results/spark.json``, which is written after every part. Rewrites ``docs/spark-speed.md`` and its
picture.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import logstore.spark
from benchmarks import spark_page
from benchmarks.measure import ROOT, scratch_directory
from benchmarks.process import describe_machine, touch_free_memory
from benchmarks.spark_parts import FULL, LARGE, PARTS, QUICK, Bench, Line, Sizes, jvm_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.interop.kafka import KafkaBroker

RESULTS = ROOT / "benchmarks" / "results" / "spark.json"


@contextmanager
def _broker(directory: Path) -> Iterator[tuple[KafkaBroker | None, str]]:
    """A running broker and the connector's jars; None and the reason if they are not available."""
    from tests.interop.kafka import OLD, KafkaBroker
    from tests.spark import connector

    reason = connector.unavailable_reason()
    if reason is not None:
        yield None, reason
        return
    settings = {
        "num.io.threads": 4,
        "num.network.threads": 3,
    }  # the rig's own settings are for tests; these are more like Kafka's
    with KafkaBroker(directory, config=settings, version=OLD) as broker:
        yield broker, connector.jars()


@contextmanager
def _session(directory: Path, jars: str) -> Iterator[SparkSession]:
    settings = {
        "spark.driver.memory": "2g",
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.streaming.numRecentProgressUpdates": 10_000,
        **({"spark.jars": jars} if jars else {}),
    }
    spark = logstore.spark.session("benchmark", cluster="local[2]", settings=settings)
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def _describe(spark: SparkSession, directory: str, jars: str) -> dict[str, str]:
    import pyarrow

    names = (Path(jar).stem for jar in jars.split(",") if "spark-sql-kafka" in jar)
    return describe_machine(directory) | {
        "spark": spark.version,
        "java": str(jvm_of(spark).System.getProperty("java.version")),
        "pyarrow": pyarrow.__version__,
        "connector": next(names, "none"),
    }


def measure(wanted: list[str], sizes: Sizes, directory: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Part by part: its name, and the machine and its lines."""
    started = perf_counter()

    def report(text: str) -> None:
        print(f"{perf_counter() - started:6.0f} s  {text}", file=sys.stderr, flush=True)

    place = Path(directory)
    with _broker(place / "broker") as (broker, jars), _session(place, jars if broker else "") as spark:
        if broker is None:
            report(f"without the connector: {jars}")
        machine = _describe(spark, directory, jars if broker else "")
        bench = Bench(spark, broker, place, sizes, report)
        for part in wanted:
            yield part, {"machine": machine, "lines": list(PARTS[part](bench))}


def merge(old: dict[str, Any], new: dict[str, Any], part: str) -> dict[str, Any]:
    """New lines instead of the old ones of the same part. The machine is that of the newest."""
    kept: list[Line] = [line for line in old.get("lines", []) if line["part"] != part]
    return {**new, "lines": kept + new["lines"]}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="little of everything; prints and writes nothing"
    )
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts, by commas: {', '.join(PARTS)}")
    parser.add_argument("--rounds", type=int, help="how often, after the round that warms up")
    parser.add_argument("--large", action="store_true", help=f"also read {LARGE:,} records (15 GB of disk)")
    parser.add_argument("--directory", help="where to measure; on the disk that you want to know about")
    parser.add_argument(
        "--page", action="store_true", help="measure nothing: write the page from the results"
    )
    parser.add_argument(
        "--output", help="a file for the results instead of the repository's; no page is written"
    )
    arguments = parser.parse_args()
    path = Path(arguments.output) if arguments.output else RESULTS
    results = json.loads(path.read_text()) if path.exists() and not arguments.quick else {}
    if arguments.page:
        spark_page.write(results)
        return
    wanted = arguments.only.split(",")
    if unknown := set(wanted) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    sizes = QUICK if arguments.quick else FULL
    if arguments.large:
        sizes = sizes._replace(growing=(*sizes.growing, LARGE))
    if arguments.rounds:
        sizes = sizes._replace(rounds=arguments.rounds)
    if not arguments.quick:
        touch_free_memory()
    with scratch_directory(arguments.directory) as directory:
        for part, found in measure(wanted, sizes, directory):
            results = merge(results, found, part)
            if not arguments.quick:  # keep each part, even if the next one fails
                path.write_text(json.dumps(results, indent=1) + "\n")
    if arguments.quick:
        print(spark_page.format_page(results))
    elif not arguments.output:
        spark_page.write(results)


if __name__ == "__main__":
    main()
