"""Clients that are programs: a line of JSON for each task goes in, and one with what was seen comes out."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.interop import kafka
from tests.spark import connector
from tests.spark.conftest import missing as missing_spark
from tests.wire.clients.columns import Answers, ClientError, lacking
from tests.wire.clients.features import Said, Task

HERE = Path(__file__).resolve().parent
TAKES_SECONDS = 180
KAFKAJS_VERSION = "2.2.4"
FRANZ_GO = HERE / "franz_go"
KAFKAJS = kafka.CACHE.parent / "kafkajs" / KAFKAJS_VERSION


def answers_in(text: str) -> dict[str, Said | Exception]:
    """A line of JSON for each task, with what was ``said``, or the ``failure``."""
    found: dict[str, Said | Exception] = {}
    for line in text.splitlines():
        if line.startswith("{"):
            answer = json.loads(line)
            failure = answer.get("failure")
            found[answer["name"]] = answer["said"] if failure is None else ClientError(failure)
    return found


class Program:
    """A client behind a program. Whoever makes one says which it is, and what it lacks."""

    name: str
    needs_java = False

    def command(self) -> list[str]:
        raise NotImplementedError

    def run(self, tasks: Iterable[Task]) -> Answers:
        tasks = list(tasks)
        done = subprocess.run(
            self.command(),
            input="".join(json.dumps(each._asdict()) + "\n" for each in tasks),
            capture_output=True,
            text=True,
            timeout=TAKES_SECONDS,
            check=False,
        )
        found = answers_in(done.stdout)
        unanswered = ClientError(
            f"no answer; the program ended with {done.returncode}: {done.stderr[-3000:]}"
        )
        return {each.name: found.get(each.name, unanswered) for each in tasks}


class JavaClient(Program):
    """Kafka's own, in one JVM."""

    needs_java = True

    def __init__(self, version: str) -> None:
        self.name = "Kafka's Java " + version.rpartition(".")[0]
        self._version = version

    def missing(self) -> str | None:
        return kafka.unavailable_reason(self._version)

    def version(self) -> str:
        return self._version

    def lacks(self) -> set[str]:
        return set()

    def command(self) -> list[str]:
        return kafka.java_command(os.fspath(HERE / "Features.java"), classes=kafka.jars(self._version))


class KafkaJs(Program):
    """For Node.js."""

    name = "kafkajs"

    def missing(self) -> str | None:
        return _missing_kafkajs()

    def version(self) -> str:
        return KAFKAJS_VERSION

    def lacks(self) -> set[str]:
        operations = {
            *(
                "produce",
                "transact",
                "transform",
                "assign",
                "times",
                "share",
                "topics",
                "configs",
                "partitions",
            ),
            *("delete_records", "groups", "reset", "acls", "secure"),
        }
        codecs = {f"produce-{codec}" for codec in ("snappy", "lz4", "zstd")}  # packages of their own
        assignors = {f"group-{each}" for each in ("range", "sticky", "cooperative-sticky")}
        return lacking(operations, {"assign"} | codecs | assignors)  # it reads in groups only

    def command(self) -> list[str]:
        return ["node", os.fspath(HERE / "features.js"), os.fspath(KAFKAJS / "kafkajs")]


@functools.cache
def _missing_kafkajs() -> str | None:
    """Fetches it on the first call."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return "no node, or no npm, on the path"
    if KAFKAJS.is_dir():
        return None
    KAFKAJS.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=KAFKAJS.parent, prefix="fetch-") as scratch:
        command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", scratch]
        done = subprocess.run(
            [*command, f"kafkajs@{KAFKAJS_VERSION}"], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            return f"kafkajs could not be fetched: {done.stderr.strip()[-400:]}"
        if not KAFKAJS.is_dir():  # another process may have been quicker
            Path(scratch, "node_modules").rename(KAFKAJS)
    return None


class FranzGo(Program):
    """For Go."""

    name = "franz-go"

    def missing(self) -> str | None:
        built = _built_franz_go()
        return built if isinstance(built, str) else None

    def version(self) -> str:
        found = re.search(r"twmb/franz-go v(\S+)", (FRANZ_GO / "go.mod").read_text())
        assert found is not None, "go.mod names no version of franz-go"
        return found[1]

    def lacks(self) -> set[str]:
        return set()

    def command(self) -> list[str]:
        return [os.fspath(_built_franz_go())]


@functools.cache
def _built_franz_go() -> Path | str:
    """The program, or why there is none. Go fetches and builds it, and what it needs, on the first call: a
    minute on a new machine."""
    if shutil.which("go") is None:
        return "no go on the path"
    sources = b"".join(path.read_bytes() for path in sorted(FRANZ_GO.glob("*.*")))
    program = kafka.CACHE.parent / "franz-go" / hashlib.sha256(sources).hexdigest()[:16]
    if not program.exists():
        done = subprocess.run(
            ["go", "build", "-o", os.fspath(program), "."],
            cwd=FRANZ_GO,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            return f"franz-go could not be built: {done.stderr.strip()[-400:]}"
    return program


class SparkConnector(Program):
    """Spark's own connector for Kafka, which is not a client of its own, but has one inside."""

    name = "Spark's connector"
    needs_java = True

    def missing(self) -> str | None:
        return missing_spark() or connector.unavailable_reason()

    def version(self) -> str:
        return connector.CONNECTOR_VERSION

    def lacks(self) -> set[str]:
        return lacking({"produce", "assign", "times", "secure"})

    def command(self) -> list[str]:
        return [sys.executable, "-m", "tests.wire.clients.spark_program", connector.jars()]
