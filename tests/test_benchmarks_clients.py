"""The benchmark of clients: every case counts what it did, a run becomes a page, and a goal that is missed
says so. Costs some seconds: stores are made and killed in other processes, and matplotlib is imported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.clients import page
from benchmarks.clients.__main__ import is_available, main, merge
from benchmarks.clients.measuring import CONFLUENT, OURS, QUICK, SQLITE, Line, percentile
from benchmarks.clients.page import Lines, format_page, goals_of
from benchmarks.clients.parts import IDLE, KILLED, OPEN, PARTS
from benchmarks.clients.rates import check_count
from benchmarks.records import WrongDataError

TINY = QUICK._replace(
    records=300,
    flushed_records=100,
    slow_records=20,
    slow_flushes=3,
    mock_records=2_000,
    delays=8,
    commits=5,
    flushed_commits=3,
    groups=8,
    idle=5,
    idle_seconds=0.01,
    transactions=2,
    flushed_transactions=2,
    open_transactions=3,
)
# kafka-python reads its schemas by a function that Python has deprecated
pytestmark = pytest.mark.filterwarnings("ignore:.*Use files:DeprecationWarning")

CASES = [
    (part, case)
    for part, known in PARTS.items()
    for case in known.cases
    if (part, case) != ("partitions", "2")
]


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here is about speed."""
    monkeypatch.setattr("benchmarks.clients.transactions._REST_SECONDS", 0.0)
    monkeypatch.setattr("benchmarks.clients.__main__.bring_to_disk", lambda: None)


@pytest.mark.parametrize(("part", "case"), CASES)
def test_every_case_gives_figures(part: str, case: str, tmp_path: Path) -> None:
    if not is_available(case):
        pytest.skip("its library is not installed")
    found = PARTS[part].cases[case](str(tmp_path), TINY)
    assert all(value > 0 for name, value in found.items() if name not in ("threads", "share", "memory_bytes"))


def test_what_did_not_arrive_voids_a_measurement() -> None:
    check_count(3, 3)
    with pytest.raises(WrongDataError, match="2 records of 3"):
        check_count(2, 3)


def test_a_part_is_measured_in_processes_and_keeps_the_others(tmp_path: Path) -> None:
    output = tmp_path / "clients.json"
    kept = line("commits", OURS, seconds=1.0)
    output.write_text(json.dumps({"machine": {}, "lines": [kept, line("waiting", IDLE, threads=9)]}))
    main(["--size", "quick", "--only", "waiting", "--output", str(output), "--directory", str(tmp_path)])
    lines = json.loads(output.read_text())["lines"]
    assert lines[0] == kept
    assert [(each["part"], each["threads"]) for each in lines[1:]] == [("waiting", 0)]


def line(part: str, case: str, number: int = 1, **figures: float) -> Line:
    return {"part": part, "case": case, "round": number, **figures}


def rates(case: str, number: int, sent_seconds: float, received_seconds: float = 0.1) -> Line:
    return line(
        "rates",
        case,
        number,
        records=1_000_000,
        sent_seconds=sent_seconds,
        received_seconds=received_seconds,
        iterated_seconds=0.3,
        cpu_sent_seconds=2 * sent_seconds,
        cpu_received_seconds=2 * received_seconds,
    )


def test_goals_are_computed_round_by_round_and_say_what_is_missed() -> None:
    lines = [
        rates(OURS, 1, 0.5),
        rates(OURS, 2, 2.0),
        rates(OURS, 3, 0.5),
        rates(SQLITE, 1, 2.0, 0.05),
        rates(SQLITE, 2, 8.0, 0.05),
        rates(SQLITE, 3, 1.0, 0.05),
        line("loading", KILLED, seconds=1.5),
        line("waiting", IDLE, threads=0, share=0.02, memory_bytes=5_000),
        line("open", OPEN, open=10, seconds=1.0, memory_bytes=60 * 2**20, threads=1),
    ]
    found = {goal.title: (measured, goal) for goal, measured in goals_of(Lines(lines))}

    def verdict(title: str) -> tuple[float | None, str]:
        measured, goal = found[title]
        return measured and measured.median, goal.verdict(measured and measured.median)

    assert verdict("send(), records per second") == (2e6, "met")
    assert verdict("poll(), records per second") == (1e7, "aim met")
    assert verdict("send(), vs sqlite3") == (4.0, "met")
    assert verdict("poll(), vs sqlite3") == (0.5, "**missed**")
    assert verdict("send(), vs confluent-kafka") == (None, "not measured")
    assert verdict("Load 10,000 groups, after a kill") == (1.5, "**missed**")
    assert verdict("1,000 consumers wait: threads") == (0, "met")
    assert verdict("1,000 consumers wait: of one core") == (0.02, "**missed**")
    assert verdict("10,000 open transactions: memory") == (60 * 2**20, "**missed**")


def test_a_run_becomes_a_page_and_a_picture(tmp_path: Path) -> None:
    found = [rates(OURS, 1, 0.5), rates(CONFLUENT, 1, 1.0, 0.2)]
    text = format_page({"machine": {"date": "today", "commit": "abc", "cpu": "x"}, "lines": found})
    assert "| confluent-kafka | 1.00 M/s | 2.00 x | 500 k | 5.00 M/s | 2.00 x | 2.50 M |" in text
    assert "| logstore, record by record |  |  |  | 3.33 M/s |  |  |" in text
    assert "| **cpu** | x |" in text
    page.plot(Lines(found), tmp_path)
    assert (tmp_path / "clients.png").stat().st_size > 10_000
    assert "<svg" in (tmp_path / "clients.svg").read_text()


def test_new_lines_replace_those_of_their_part() -> None:
    old = {"machine": {"cpu": "old"}, "lines": [line("a", "x"), line("b", "x")]}
    new = merge(old, "a", {"cpu": "new"}, [line("a", "y")])
    assert [(each["part"], each["case"]) for each in new["lines"]] == [("b", "x"), ("a", "y")]
    assert new["machine"] == {"cpu": "new"}


def test_percentiles() -> None:
    values = [float(number) for number in range(1_000)]
    assert [percentile(values, share) for share in (0.5, 0.99, 0.999, 1.0)] == [500, 990, 999, 999]
