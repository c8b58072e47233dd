"""A stock Apache Kafka for the tests: fetch its jars, run its programs, run one broker.

Knows Maven, the JVM and how a KRaft broker is configured, formatted, started and stopped, and how a partition
directory of ours is put under it. Does not know the client package (`clients` does), the dump tool (`dump`)
or the committed data (`fixtures`). Java and Maven are all it needs; `unavailable_reason` is the one place
that decides whether they suffice.

Import it as `tests.interop.kafka`: the plain name `kafka` is the client package.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from tests.interop import clients

HERE = Path(__file__).resolve().parent
POM = HERE / "pom.xml"
CACHE = HERE.parents[1] / ".cache" / "kafka"

TOOLS_POM = HERE / "pom-tools.xml"


def _version_in(pom: Path) -> str:
    """The poms are the only places that name versions."""
    found = re.search(r"<kafka\.version>(.+?)</kafka\.version>", pom.read_text())
    assert found is not None, f"{pom} names no kafka.version"
    return found[1]


NEWEST = _version_in(POM)
"""What the tests run unless they say otherwise."""
OLD = "3.9.2"
"""The last line before 4.0: message formats 0 and 1 can still be written, and Java 11 runs it."""
TOOLS_VERSION = _version_in(TOOLS_POM)
"""Of the tools for 4.x, which are in a package of their own; it may come out later than the broker."""

# A small heap and the cheapest collector and compiler: these JVMs live for seconds and share two cores.
JVM_FLAGS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")

MINIMUM_JAVA = 17  # for a broker of 4.x, and what the programs of this folder are written for
FETCH_TIMEOUT_S = 600
START_TIMEOUT_S = 90
STOP_TIMEOUT_S = 45

CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
LOG_START_FILE = "log-start-offset-checkpoint"
OFFSET_CHECKPOINT_FILES = (
    RECOVERY_POINT_FILE,
    LOG_START_FILE,
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
)


# --- the jars -------------------------------------------------------------------------------------


@functools.cache
def unavailable_reason(version: str = NEWEST) -> str | None:
    """Why Kafka cannot be run here, or None when it can. Fetches the jars on the first call."""
    java = _java_problem()
    if java is not None:
        return java
    try:
        jars(version)
        tool_jars(version)
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
        return f"Apache Kafka {version} could not be fetched: {error}"
    return None


def require_kafka(version: str = NEWEST) -> None:
    """Skip the calling test, saying why, when Kafka cannot be run here."""
    reason = unavailable_reason(version)
    if reason is not None:
        pytest.skip(reason)


def _java_problem() -> str | None:
    if shutil.which("java") is None:
        return "no java on the path"
    shown = subprocess.run(
        ["java", "-version"], capture_output=True, text=True, timeout=60, check=False
    ).stderr
    version = re.search(r'version "(?:1\.)?(\d+)', shown)
    if version is None or int(version[1]) < MINIMUM_JAVA:
        return f"Java {MINIMUM_JAVA} or later is needed, found: {shown.strip()}"
    return None


def jars(version: str = NEWEST) -> Path:
    """The folder of Kafka's jars, fetched on first use."""
    return fetch_jars(POM, CACHE / version, f"-Dkafka.version={version}")


def tool_jars(version: str = NEWEST) -> Path:
    """The folder of jars with ``DumpLogSegments`` for files of a version."""
    return jars(version) if version == OLD else fetch_jars(TOOLS_POM, CACHE / f"tools-{TOOLS_VERSION}")


def fetch_jars(pom: Path, folder: Path, *options: str) -> Path:
    """The folder, with the jars that a pom lists; fetched with Maven if it is not there.

    A file lock lets one process fetch while the others wait. The fetch goes to a temporary folder that is
    renamed when complete, so a folder under the final name is always whole. Raises RuntimeError with what
    Maven says.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.parent / "fetch.lock"):
        if not folder.is_dir():
            _fetch_jars(pom, folder, options)
    return folder


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch_jars(pom: Path, folder: Path, options: Sequence[str]) -> None:
    if shutil.which("mvn") is None:
        raise RuntimeError("no mvn on the path")
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetch-") as scratch:
        libs = Path(scratch, "libs")
        command = ["mvn", "-q", "-B", "-f", os.fspath(pom), "dependency:copy-dependencies"]
        done = subprocess.run(
            [*command, *options, "-DincludeScope=runtime", f"-DoutputDirectory={libs}"],
            capture_output=True,
            text=True,
            timeout=FETCH_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            errors = [line for line in done.stdout.splitlines() if "[ERROR]" in line] or [done.stderr.strip()]
            raise RuntimeError(f"mvn exited with {done.returncode}: {errors[0][:400]}")
        libs.rename(folder)


# --- programs -------------------------------------------------------------------------------------


def java_command(
    main: str,
    *args: str,
    level: str = "ERROR",
    classes: Path | None = None,
    flags: Sequence[str] = JVM_FLAGS,
) -> list[str]:
    """The command line of a class of Kafka's jars or of a `.java` file, logging to stderr from `level` on."""
    logging = f"-Dlog4j.configuration={(HERE / 'log4j.properties').as_uri()}"
    path = f"{classes or jars()}/*"
    return ["java", *flags, logging, f"-Drig.level={level}", "-cp", path, main, *args]


def run_java(
    main: str, *args: str, stdin: str | None = None, timeout_s: float = 120, classes: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a Java program to its end and return its output; the exit status is the caller's to judge."""
    return subprocess.run(
        java_command(main, *args, classes=classes),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def run_dump_tool(*args: str, version: str = NEWEST) -> subprocess.CompletedProcess[str]:
    """Run ``DumpLogSegments``: of 3.9 the version's own, else the newest that is out."""
    main = "kafka.tools.DumpLogSegments" if version == OLD else "org.apache.kafka.tools.DumpLogSegments"
    return run_java(main, *args, classes=tool_jars(version))


def run_program(
    name: str, *args: str, stdin: str | None = None, timeout_s: float = 240, version: str = NEWEST
) -> str:
    """Run a `.java` file of this folder and return its stdout; raises RuntimeError with its output."""
    done = run_java(os.fspath(HERE / name), *args, stdin=stdin, timeout_s=timeout_s, classes=jars(version))
    if done.returncode != 0:
        raise RuntimeError(
            f"{name} exited with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        )
    return done.stdout


# --- checkpoint files -----------------------------------------------------------------------------


def read_checkpoint(path: Path) -> dict[tuple[str, int], int]:
    """The (topic, partition) -> offset entries of a checkpoint file; empty when it does not exist."""
    if not path.exists():
        return {}
    fields = [line.split(" ") for line in path.read_text().splitlines()[2:]]
    return {(topic, int(partition)): int(offset) for topic, partition, offset in fields}


def write_checkpoint(path: Path, entries: Mapping[tuple[str, int], int]) -> None:
    """Replace a checkpoint file. The broker is down, so the plain write is enough."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in entries.items()]
    path.write_text("\n".join(["0", str(len(lines)), *lines]) + "\n")


# --- the broker -----------------------------------------------------------------------------------


class KafkaBroker:
    """One stock KRaft node, broker and controller in one process, on loopback.

    `home` gets server.properties and broker.log; `log_dir` (by default `home/data`) gets the partition
    directories and, as by default, the metadata log. `config` adds to or overrides the broker's settings.
    Nothing runs until `start`; as a context manager it starts on entry and stops on exit.
    """

    CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"

    def __init__(
        self,
        home: Path,
        *,
        log_dir: Path | None = None,
        config: Mapping[str, object] | None = None,
        version: str = NEWEST,
        jvm_flags: Sequence[str] = JVM_FLAGS,
        node_id: int = 1,
        joins: KafkaBroker | None = None,
    ) -> None:
        """``joins``: the broker whose cluster and controller this one has, without being a controller."""
        self.version = version
        self.node_id = node_id
        self._joins = joins
        self._jvm_flags = tuple(jvm_flags)
        self.home = home
        self.log_dir = log_dir or home / "data"
        self.log_file = home / "broker.log"
        self.port = self.controller_port = 0
        self._ports: list[int] = []
        self._extra = dict(config or {})
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap(self) -> str:
        """host:port for clients. Changes with every start: each takes fresh ports."""
        return f"127.0.0.1:{self.port}"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Of the process that runs."""
        assert self._process is not None
        return self._process.pid

    # --- life ---

    def format(self) -> None:
        """Format the storage with Kafka's tool; needed once per `home`, done by `start` when it was not."""
        self._write_properties()
        done = run_java(
            "kafka.tools.StorageTool",
            "format",
            "-t",
            self.CLUSTER_ID,
            "-c",
            os.fspath(self._properties),
            "-g",
            classes=jars(self.version),
        )
        if done.returncode != 0:
            raise RuntimeError(f"the storage was not formatted:\n{done.stdout}\n{done.stderr}")

    def start(self, *, unclean: bool = False, same_ports: bool = False) -> None:
        """Start and return when the broker serves requests; with `same_ports`, where it did before.

        With `unclean`, the clean-shutdown marker and the recovery points go first, so that the broker reads
        and checks every segment and rebuilds its indexes and producer state. Raises RuntimeError with the end
        of broker.log.
        """
        if self.is_running:
            raise RuntimeError("the broker is running already")
        if not (self.log_dir / "meta.properties").exists():
            self.format()
        if unclean:
            (self.log_dir / CLEAN_SHUTDOWN_FILE).unlink(missing_ok=True)
            (self.log_dir / RECOVERY_POINT_FILE).unlink(missing_ok=True)
        for attempt in range(3):
            self._write_properties(same_ports=same_ports)
            failure = self._launch()
            if failure is None:
                return
            # Ports are picked by binding and letting go, so another process can take one in between.
            if attempt == 2 or "Address already in use" not in failure:
                raise RuntimeError(failure)

    def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        """Ask the broker to end, kill it after `timeout_s`; True when it ended by itself, a clean stop."""
        process = self._process
        if process is None:
            return True
        self._process = None
        process.terminate()
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return False
        return True

    def kill(self) -> None:
        """End the broker with SIGKILL, as a crash does: no index is trimmed, no marker is written."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _launch(self) -> str | None:
        """Start the process; None when it serves, otherwise what went wrong, with the process gone."""
        seen = self.log_file.stat().st_size if self.log_file.exists() else 0
        command = java_command(
            "kafka.Kafka",
            os.fspath(self._properties),
            level="INFO",
            classes=jars(self.version),
            flags=self._jvm_flags,
        )
        with self.log_file.open("ab") as log:
            self._process = process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.home
            )
        atexit.register(_kill_quietly, process)
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and process.poll() is None:
            if b"Kafka Server started" in self.log_file.read_bytes()[seen:]:
                return None
            time.sleep(0.05)
        state = "did not start in time" if process.poll() is None else f"exited with {process.returncode}"
        self.kill()
        return f"the broker {state}:\n{self.log_file.read_bytes()[seen:].decode(errors='replace')[-4000:]}"

    @property
    def _properties(self) -> Path:
        return self.home / "server.properties"

    def _write_properties(self, *, same_ports: bool = False) -> None:
        """Write server.properties: two free ports; one partition and one replica for internal topics."""
        self.log_dir.mkdir(parents=True, exist_ok=True)
        self.home.mkdir(parents=True, exist_ok=True)
        if not same_ports:
            self._ports = _free_ports(2)
        self.port, self.controller_port = self._ports
        settings: dict[str, object] = {
            "process.roles": "broker,controller",
            "node.id": self.node_id,
            "controller.quorum.voters": f"{self.node_id}@127.0.0.1:{self.controller_port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": self.log_dir,
            "auto.create.topics.enable": "false",
            "offsets.topic.num.partitions": 1,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            "num.network.threads": 1,
            "num.io.threads": 2,
            "background.threads": 2,
            "broker.heartbeat.interval.ms": 500,
            # After `kill` the next start waits for the dead session to end; the default is 9 s.
            "broker.session.timeout.ms": 4000,
            # The cleaner's buffer is on the heap; the default of 128 MiB is a quarter of ours.
            "log.cleaner.dedupe.buffer.size": 4 * 1024 * 1024,
            # Old fixtures must not be removed for their age while a test reads them.
            "log.retention.ms": -1,
        }
        if self._joins is not None:
            voter = f"{self._joins.node_id}@127.0.0.1:{self._joins.controller_port}"
            listener = f"PLAINTEXT://127.0.0.1:{self.port}"
            settings |= {"process.roles": "broker", "controller.quorum.voters": voter, "listeners": listener}
        settings |= self._extra
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    # --- topics and partitions ---

    def partition_dir(self, topic: str, partition: int = 0) -> Path:
        return self.log_dir / f"{topic}-{partition}"

    def create_topic(
        self, topic: str, *, partitions: int = 1, config: Mapping[str, object] | None = None
    ) -> None:
        """Create a topic and wait until its partition directories, topic id included, are on the disk."""
        self.create_topics({topic: partitions}, {topic: config or {}})

    def create_topics(
        self, partitions: Mapping[str, int], config: Mapping[str, Mapping[str, object]]
    ) -> None:
        """Several at once: topic -> number of partitions, and topic -> settings."""
        clients.create_topics(self.bootstrap, partitions, config)
        directories = [
            self.partition_dir(topic, number)
            for topic, count in partitions.items()
            for number in range(count)
        ]
        wait_for(
            lambda: all((directory / "partition.metadata").exists() for directory in directories),
            f"the partition directories of {', '.join(partitions)}",
        )

    def place_partition(
        self, topic: str, partition: int, source_dir: Path, *, log_start_offset: int | None = None
    ) -> None:
        """Replace the files of an existing partition by those of `source_dir`, for the next start to recover.

        The broker must be stopped and must have created the topic: KRaft moves a directory away unless its
        partition.metadata has the topic id of the controller, so that file stays the broker's own. The
        partition's checkpoint entries and the clean-shutdown marker go, so the next start reads every placed
        segment from its beginning. `log_start_offset` is for a log whose start is above its first segment's
        base.
        """
        if self.is_running:
            raise RuntimeError("stop the broker before placing a partition")
        target = self.partition_dir(topic, partition)
        identity = (target / "partition.metadata").read_bytes()
        shutil.rmtree(target)
        shutil.copytree(source_dir, target)
        (target / "partition.metadata").write_bytes(identity)
        for name in OFFSET_CHECKPOINT_FILES:
            entries = read_checkpoint(self.log_dir / name)
            entries.pop((topic, partition), None)
            if name == LOG_START_FILE and log_start_offset is not None:
                entries[topic, partition] = log_start_offset
            write_checkpoint(self.log_dir / name, entries)
        (self.log_dir / CLEAN_SHUTDOWN_FILE).unlink(missing_ok=True)

    def serve_partitions(self, sources: Mapping[str, Sequence[Path]]) -> None:
        """Serve copies of partition directories: topic -> one directory per partition.

        Creates the topics on the running broker, stops it, places the directories and starts it uncleanly,
        all topics in one restart. `bootstrap` has changed afterwards.
        """
        for topic, directories in sources.items():
            self.create_topic(topic, partitions=len(directories))
        self.stop()
        for topic, directories in sources.items():
            for partition, directory in enumerate(directories):
                self.place_partition(topic, partition, directory)
        self.start(unclean=True)


def wait_for(condition: Callable[[], bool], what: str, *, timeout_s: float = 30) -> None:
    """Poll until `condition` holds; raises TimeoutError naming `what`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_s} s for {what}")
        time.sleep(0.05)


def _free_ports(count: int) -> list[int]:
    """Distinct ports of loopback that nothing listened on a moment ago."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _kill_quietly(process: subprocess.Popen[bytes]) -> None:
    """The last resort at interpreter exit: no broker outlives the tests."""
    if process.poll() is None:
        process.kill()
        process.wait()
