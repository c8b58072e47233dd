"""The options of reads and writes: their names, their values, and a clear error for wrong ones.

Names are those of Spark's Kafka connector where it has one, and case does not matter, as in Spark. Each
option is declared once, in :data:`OPTIONS`; the code that uses it knows what it does.
"""

from __future__ import annotations

import enum
import json
import os
import re
import sys
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, NoReturn
from urllib.parse import unquote, urlsplit

from logstore.arguments import did_you_mean
from logstore.errors import InvalidConfigError
from logstore.model import Isolation


class Use(enum.Flag):
    """The reads and writes that an option is for."""

    BATCH_READ = enum.auto()
    STREAM_READ = enum.auto()
    BATCH_WRITE = enum.auto()
    STREAM_WRITE = enum.auto()
    READ = BATCH_READ | STREAM_READ
    WRITE = BATCH_WRITE | STREAM_WRITE
    ANY = READ | WRITE


_USE_NAMES: Final = {
    Use.BATCH_READ: "spark.read",
    Use.STREAM_READ: "spark.readStream",
    Use.BATCH_WRITE: "df.write",
    Use.STREAM_WRITE: "df.writeStream",
}


class Option(NamedTuple):
    """One option, as users spell it."""

    name: str
    uses: Use
    is_secret: bool = False
    """Its value is not shown in errors."""


SERVERS: Final = "kafka.bootstrap.servers"
"""The option that names brokers, instead of a directory."""


OPTIONS: Final = (
    Option("path", Use.ANY),
    # which partitions
    Option("subscribe", Use.READ),
    Option("subscribePattern", Use.READ),
    Option("assign", Use.READ),
    # which offsets
    Option("startingOffsets", Use.READ),
    Option("startingOffsetsByTimestamp", Use.READ),
    Option("startingTimestamp", Use.READ),
    Option("startingOffsetsByTimestampStrategy", Use.READ),
    Option("endingOffsets", Use.BATCH_READ),
    Option("endingOffsetsByTimestamp", Use.BATCH_READ),
    Option("endingTimestamp", Use.BATCH_READ),
    # how they are read
    Option("kafka.isolation.level", Use.READ),
    Option("failOnDataLoss", Use.READ),
    Option("includeHeaders", Use.READ),
    Option("minPartitions", Use.READ),
    Option("maxRecordsPerPartition", Use.READ),
    Option("onCorruptBatch", Use.READ),
    Option("latestByKey", Use.BATCH_READ),
    # from brokers instead of a directory
    Option(SERVERS, Use.READ),
    Option("kafka.client.id", Use.READ),
    Option("kafka.request.timeout.ms", Use.READ),
    Option("kafka.max.partition.fetch.bytes", Use.READ),
    Option("kafka.security.protocol", Use.READ),
    Option("kafka.sasl.mechanism", Use.READ),
    Option("kafka.sasl.jaas.config", Use.READ, is_secret=True),
    Option("kafka.ssl.truststore.type", Use.READ),
    Option("kafka.ssl.truststore.location", Use.READ),
    Option("kafka.ssl.truststore.certificates", Use.READ),
    Option("kafka.ssl.keystore.type", Use.READ),
    Option("kafka.ssl.keystore.location", Use.READ),
    Option("kafka.ssl.key.password", Use.READ, is_secret=True),
    Option("kafka.ssl.endpoint.identification.algorithm", Use.READ),
    # how much of a stream is read at a time
    Option("maxOffsetsPerTrigger", Use.STREAM_READ),
    Option("minOffsetsPerTrigger", Use.STREAM_READ),
    Option("maxTriggerDelay", Use.STREAM_READ),
    # where it is written
    Option("topic", Use.WRITE),
    Option("partitions", Use.WRITE),
    Option("writeId", Use.BATCH_WRITE),
    Option("sinkId", Use.STREAM_WRITE),
    Option("lockTimeoutMs", Use.WRITE),
)
"""All options."""

BROKER_OPTIONS: Final = tuple(
    option.name
    for option in OPTIONS
    if option.name.startswith("kafka.") and option.name not in (SERVERS, "kafka.isolation.level")
)
"""Those that mean something only with :data:`SERVERS`."""

_BY_NAME: Final = {option.name.lower(): option for option in OPTIONS}

_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname", "outputmode"})
"""Spark's own options, which it passes on."""

_UNITS_MS: Final = {
    **dict.fromkeys(("", "ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}


class _ComesTwiceError(ValueError):
    """A name that comes twice in a JSON object, of which Python's parser keeps the last value."""


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _ComesTwiceError(repr(next(name for name in names if names.count(name) > 1)))
    return found


def wrong_option(message: str) -> InvalidConfigError:
    """The error for a wrong option, to be raised at once.

    Spark makes the data source in a Python process of its own, and what an error there becomes is the
    traceback of that process, with the message behind it. A wrong option is the user's line, which that
    traceback does not show. So PySpark is told to send the message alone, as the setting
    ``spark.sql.execution.pyspark.udf.hideTraceback.enabled`` does for all errors. The process ends with the
    error, and the request with it.
    """
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    if main is not None and main.name.startswith("pyspark."):
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
    return InvalidConfigError(message)


def check_names(raw: Mapping[str, str]) -> None:
    """
    Raises:
        InvalidConfigError: an option that no read or write has.
    """
    for name, value in raw.items():
        lower = name.lower()
        if lower == "paths":
            raise wrong_option(f"option paths is {value!r}: a store is one directory")
        if lower not in _BY_NAME and lower not in _OF_SPARK:
            hint = did_you_mean(name, [option.name for option in OPTIONS])
            raise wrong_option(
                f"option {name}: there is no option of this name{hint}"
            )  # its value may be a secret


class Options:
    """The options of one read or write. Can be pickled. Each method takes the option's name as users spell
    it."""

    def __init__(self, raw: Mapping[str, str], use: Use) -> None:
        """
        Raises:
            InvalidConfigError: an option that is unknown, or not for this use.
        """
        check_names(raw)
        self.use = use
        self._raw = {name.lower(): value for name, value in raw.items()}
        for name, value in self._raw.items():
            option = _BY_NAME.get(name)
            if option is not None and not option.uses & use:
                uses = ", ".join(text for flag, text in _USE_NAMES.items() if flag & option.uses)
                reason = f"it is for {uses}, not for {_USE_NAMES[use]}"
                if name == SERVERS:
                    reason += '; Spark\'s own connector, format("kafka"), writes to brokers'
                self.refuse(option.name, reason, value)

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._raw

    def text(self, name: str) -> str | None:
        """An option's value as given; None if it was not given."""
        return self._raw.get(name.lower())

    def identity(self, name: str) -> str | None:
        """What tells one write from another; None if it was not given. If an empty text counted as not given,
        a program that has lost its id would write its rows twice."""
        text = self.text(name)
        if text is not None and not text.strip():
            self.refuse(name, "it must not be empty")
        return text

    def refuse(self, name: str, reason: str, value: str | None = None) -> NoReturn:
        """
        Raises:
            InvalidConfigError: always; names the option, its value and the reason.
        """
        option = _BY_NAME.get(name.lower())
        shown = "hidden here" if option and option.is_secret else repr(value or self.text(name))
        raise wrong_option(f"option {name} is {shown}: {reason}")

    def flag(self, name: str, *, default: bool) -> bool:
        """``true`` or ``false``."""
        text = self.text(name)
        if text is None:
            return default
        if text.strip().lower() not in ("true", "false"):
            self.refuse(name, "it must be true or false")
        return text.strip().lower() == "true"

    def number(self, name: str, *, least: int = 1) -> int | None:
        """A whole number of at least ``least``; None if it was not given."""
        text = self.text(name)
        if text is None:
            return None
        if not re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", text) or int(text) < least:
            self.refuse(name, f"it must be a whole number, {least} or above")
        return int(text)

    def duration_ms(self, name: str, *, default: int) -> int:
        """A time as Spark writes it: ``500ms``, ``15m``, ``2 hours``; milliseconds if there is no unit."""
        text = self.text(name)
        if text is None:
            return default
        found = re.fullmatch(r"\s*([0-9]{1,12})\s*([a-z]*)\s*", text.lower())
        unit_ms = _UNITS_MS.get(found[2]) if found else None
        if found is None or unit_ms is None:
            self.refuse(name, "it must be a time like 500ms, 30s, 15m or 2h")
        return int(found[1]) * unit_ms

    def choice(self, name: str, choices: tuple[str, ...], *, default: str) -> str:
        """One of several words; case does not matter."""
        text = self.text(name)
        word = default if text is None else text.strip().lower()
        if word not in choices:
            self.refuse(name, f"it must be one of {', '.join(choices)}")
        return word

    def json(self, name: str) -> Any:
        """The decoded JSON; None if the option was not given."""
        text = self.text(name)
        if text is None:
            return None
        try:
            return json.loads(text, object_pairs_hook=_without_doubles)
        except _ComesTwiceError as error:
            return self.refuse(name, f"{error} comes twice in it")
        except ValueError as error:
            return self.refuse(name, f"it is not JSON ({error})")

    # What several uses share

    def directory(self) -> str:
        """The absolute path of the store. Tasks run in other working directories: call it on the driver."""
        text = self.text("path")
        if not text:
            raise wrong_option(
                f"option path is missing: it names the store's directory; option {SERVERS} names brokers"
            )
        parts = urlsplit(text)
        if parts.scheme == "file" and parts.netloc in ("", "localhost"):
            text = unquote(parts.path)
        elif re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", text):
            self.refuse("path", "a store is a directory that every machine of the job has mounted")
        return os.path.abspath(text)

    def isolation(self) -> Isolation:
        """``read_uncommitted``, the default as in the connector, reads up to the high watermark."""
        level = self.choice(
            "kafka.isolation.level", ("read_uncommitted", "read_committed"), default="read_uncommitted"
        )
        return Isolation.COMMITTED if level == "read_committed" else Isolation.HIGH_WATERMARK


def skips_corrupt_batches(options: Options) -> bool:
    """Whether damaged batches are counted and left out; otherwise they are errors.

    Raises:
        InvalidConfigError: ``onCorruptBatch`` is not ``fail`` or ``skip``.
    """
    return options.choice("onCorruptBatch", ("fail", "skip"), default="fail") == "skip"
