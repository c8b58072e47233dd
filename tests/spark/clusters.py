"""Spark on several processes: a standalone cluster on loopback, and what its workers find installed."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

START_SECONDS = 120


def spark_home() -> Path:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


@contextlib.contextmanager
def standalone(
    directory: Path, java_home: str, hosts: Sequence[str] = ("127.0.0.1", "127.0.0.1")
) -> Iterator[str]:
    """A master, and a worker with one core on each host; yields the URL. Stops all of them afterwards."""
    environment = {
        **os.environ,
        "JAVA_HOME": java_home,
        "SPARK_HOME": str(spark_home()),
        "PYTHONPATH": "",
        "SPARK_LOCAL_IP": "127.0.0.1",  # also for what each shows to browsers
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-Dspark.master.rest.enabled=false -XX:TieredStopAtLevel=1",
    }
    processes: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> Path:
        log = directory / f"{name}.log"
        with log.open("wb") as output:
            command = [str(spark_home() / "bin" / "spark-class"), *arguments]
            processes.append(
                subprocess.Popen(command, env=environment, cwd=directory, stdout=output, stderr=output)
            )
        return log

    directory.mkdir()
    ports = ["--port", "0", "--webui-port", "0"]
    try:
        log = start("master", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", *ports)
        url = _wait_for(log, r"Starting Spark master at (spark://\S+)", processes)
        for number, host in enumerate(hosts):
            work = ["--cores", "1", "--memory", "1g", "--work-dir", str(directory / f"work-{number}")]
            place = ["--host", host, *ports]
            log = start(f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *place, *work, url)
            _wait_for(log, r"(Successfully registered with master)", processes)
        yield url
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_for(log: Path, pattern: str, processes: list[subprocess.Popen[bytes]]) -> str:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found:
            return found[1]
        if processes[-1].poll() is not None:
            break
        time.sleep(0.1)
    raise RuntimeError(f"it did not start:\n{log.read_text(errors='replace')[-3000:]}")


def python_without_logstore(directory: Path) -> Path:
    """Create an environment with all packages of this one except logstore; returns its ``python``."""
    python = make_environment(directory)
    site = site_of(directory)
    for source in (Path(path) for path in sys.path if path.endswith("site-packages")):
        for entry in source.iterdir():
            if "logstore" not in entry.name and entry.suffix != ".pth" and not (site / entry.name).exists():
                (site / entry.name).symlink_to(entry)
    return python


def make_environment(directory: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    return directory / "bin" / "python"


def site_of(directory: Path) -> Path:
    return next(directory.glob("lib/python3*/site-packages"))
