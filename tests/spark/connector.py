"""Spark's own Kafka connector, which is not in the pyspark package: its jars, fetched with Maven."""

from __future__ import annotations

import functools
import re
import subprocess
from pathlib import Path

from tests.interop import kafka

POM = Path(__file__).parent / "connector.xml"
CACHE = kafka.CACHE.parent / "spark-kafka"

# The pom is the only place that names the version.
_VERSION_MATCH = re.search(r"<connector\.version>(.+?)</connector\.version>", POM.read_text())
assert _VERSION_MATCH is not None, "connector.xml names no connector.version"
CONNECTOR_VERSION = _VERSION_MATCH[1]


@functools.cache
def unavailable_reason() -> str | None:
    """Why the connector and a broker cannot be had here, or None. Fetches both on the first call."""
    reason = kafka.unavailable_reason(kafka.OLD)
    if reason is not None:
        return reason
    try:
        jars()
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
        return f"Spark's Kafka connector {CONNECTOR_VERSION} could not be fetched: {error}"
    return None


def jars() -> str:
    """The value of ``spark.jars``. Fetches them on first use."""
    folder = kafka.fetch_jars(POM, CACHE / CONNECTOR_VERSION)
    return ",".join(sorted(str(path) for path in folder.glob("*.jar")))
