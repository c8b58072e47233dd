"""The benchmarks measure what they say: contenders give back what they were given, a measurement that reads
something else fails, and a run turns into tables, a picture and a page."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks import figures, large, measure, report
from benchmarks.__main__ import main
from benchmarks.alone import ALONE, LARGE, measure_alone
from benchmarks.contenders import GATHERING, LOGSTORE, NAMES, PEERS, contender_class, is_available
from benchmarks.contenders.base import Contender
from benchmarks.figures import APPEND, FIGURES, SEQUENTIAL, Case, Measurement
from benchmarks.records import (
    WrongDataError,
    batches_of,
    check_record,
    digest_expected,
    digest_stored,
    row_at,
)
from benchmarks.report import REGION_END, REGION_START
from benchmarks.results import Results, percentile_95
from benchmarks.sizes import QUICK
from benchmarks.text import format_bytes, format_rate, format_seconds

COUNT = 57
ALL = [pytest.param(n, marks=pytest.mark.skipif(not is_available(n), reason=f"no {n}")) for n in NAMES]


def filled(name: str, directory: Path, batch_records: int = 10, *, is_durable: bool = False) -> Contender:
    contender = contender_class(name)(str(directory), is_durable=is_durable)
    for rows in batches_of(0, COUNT, batch_records):
        contender.append(rows)
    contender.settle()
    return contender


@pytest.fixture(autouse=True)
def without_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here is about speed, and other tests' files would be brought to disk too."""
    monkeypatch.setattr("benchmarks.measure.os.sync", lambda: None)


# Contenders


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("batch_records", [1, 10])
def test_a_contender_gives_back_every_record_after_reopening(
    name: str, batch_records: int, tmp_path: Path
) -> None:
    filled(name, tmp_path, batch_records).close()
    reopened = contender_class(name)(str(tmp_path))
    for number, record in enumerate(reopened.read_all()):
        check_record(record, number)
    assert digest_stored(reopened.read_all()) == digest_expected(COUNT)
    reopened.close()


@pytest.mark.parametrize("name", ALL)
def test_a_contender_finds_each_record_by_its_number(name: str, tmp_path: Path) -> None:
    contender = filled(name, tmp_path)
    for number in range(COUNT):
        check_record(contender.read_one(number), number)
    contender.close()


@pytest.mark.parametrize("name", ALL)
def test_a_contender_appends_behind_what_it_had(name: str, tmp_path: Path) -> None:
    filled(name, tmp_path, is_durable=True).close()
    reopened = contender_class(name)(str(tmp_path), is_durable=True)
    reopened.append([row_at(COUNT)])
    reopened.settle()
    assert digest_stored(reopened.read_all()) == digest_expected(COUNT + 1)
    reopened.close()


def test_the_plain_file_cuts_a_torn_end(tmp_path: Path) -> None:
    filled("file", tmp_path).close()
    path = tmp_path / "log.bin"
    path.write_bytes(path.read_bytes()[:-1])
    reopened = contender_class("file")(str(tmp_path))
    assert digest_stored(reopened.read_all()) == digest_expected(COUNT // 10 * 10)
    reopened.close()


# Measurements


def append(name: str, directory: Path, *, is_durable: bool = False) -> Measurement:
    return figures.measure_append(Case(APPEND, name, 10, is_durable), str(directory), COUNT)


@pytest.mark.parametrize("name", ALL)
def test_each_figure_counts_what_it_did(name: str, tmp_path: Path) -> None:
    assert append(name, tmp_path, is_durable=True).count == COUNT
    case = Case(SEQUENTIAL, name, 10)
    assert figures.measure_sequential(case, str(tmp_path)).count == COUNT
    assert figures.measure_random(case, str(tmp_path), 20).count == 20
    assert figures.measure_open(case, str(tmp_path)).stored_bytes > COUNT * 100


@pytest.mark.parametrize("figure", [figures.measure_sequential, figures.measure_open])
def test_reading_something_else_than_was_written_voids_the_measurement(
    figure: Callable[[Case, str], Measurement], tmp_path: Path
) -> None:
    append("file", tmp_path)
    note = tmp_path / "contents.json"
    note.write_text(json.dumps({"count": COUNT, "crc": 1}))
    with pytest.raises(WrongDataError):
        figure(Case("", "file", 10), str(tmp_path))


def test_a_crash_leaves_the_records_to_recovery(tmp_path: Path) -> None:
    options = [
        "--contender",
        LOGSTORE,
        "--batch",
        "10",
        "--records",
        str(COUNT),
        "--directory",
        str(tmp_path),
    ]
    measure.run_until_killed(["crash", *options])
    assert measure.run_one(["recovery", *options])["count"] == 1


def test_a_process_that_fails_is_an_error_with_its_message(tmp_path: Path) -> None:
    with pytest.raises(measure.MeasurementError, match=r"contents\.json"):
        measure.run_one(["sequential", "--directory", str(tmp_path)])


def test_many_partitions_open_with_all_their_segments(tmp_path: Path) -> None:
    large.prepare_partitions(str(tmp_path), partitions=3, segments=2)
    assert large.measure_reopen(str(tmp_path), partitions=3, segments=2)["open_seconds"] > 0
    with pytest.raises(WrongDataError):
        large.measure_reopen(str(tmp_path), partitions=3, segments=1)


def test_a_large_log_is_as_large_as_asked_for(tmp_path: Path) -> None:
    large.prepare_large(str(tmp_path), 2_000_000)
    found = large.measure_large(str(tmp_path), reads=3, least_records=1)
    assert 1_600_000 < found["size_bytes"] <= 2_000_000
    assert found["records"] % large.LARGE_BATCH_RECORDS == 0


def test_every_record_reaches_the_follower(tmp_path: Path) -> None:
    lags = large.measure_lags(str(tmp_path), samples=3)
    assert len(lags) == 3
    assert all(lag > 0 for lag in lags)


def test_a_large_log_without_the_disk_for_it_is_skipped_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"free": 1})()
    monkeypatch.setattr("benchmarks.alone.shutil.disk_usage", lambda _: usage)
    found, skipped = measure_alone(QUICK, {LARGE}, str(tmp_path), lambda _: None)
    assert found == {}
    assert "are needed" in skipped[LARGE]


# Results


def measurement(contender: str, seconds: float, figure: str = APPEND, **fields: object) -> Measurement:
    values: dict[str, object] = {
        "figure": figure,
        "contender": contender,
        "batch_records": 1000,
        "is_durable": False,
        "count": 1000,
        "seconds": seconds,
        "stored_bytes": 127_000,
        "idle_memory_bytes": 0,
        "peak_memory_bytes": 2**20,
    }
    return Measurement(**{**values, **fields})  # type: ignore[arg-type]  # fields by name


def results(*measurements: Measurement, **fields: object) -> Results:
    return Results(machine={"cpu": "abacus"}, measurements=list(measurements), alone={}, **fields)  # type: ignore[arg-type]  # likewise


def test_ratios_are_taken_within_a_round() -> None:
    found = results(
        measurement(LOGSTORE, 1.0),
        measurement("file", 0.5),
        measurement(LOGSTORE, 4.0),
        measurement("file", 1.0),
    )
    ratios = found.summaries()[Case(APPEND, "file", 1000)].relative
    assert (ratios.low, ratios.high) == (2.0, 4.0)


def test_the_report_says_where_a_peer_is_faster() -> None:
    text = report.format_summary(results(measurement(LOGSTORE, 2.0), measurement("file", 1.0)))
    assert "- Append: **file** is faster: 2.00 x at 1,000." in text
    assert "Nowhere" in report.format_summary(results(measurement(LOGSTORE, 1.0), measurement("file", 1.0)))


def test_what_was_skipped_is_in_the_report() -> None:
    text = report.format_summary(results(measurement(LOGSTORE, 1.0), skipped={LARGE: "the disk is full"}))
    assert "the disk is full" in text


def test_results_are_the_same_after_storing_and_loading(tmp_path: Path) -> None:
    found = results(measurement(LOGSTORE, 1.0), skipped={LARGE: "no disk"})
    found.store(tmp_path / "results.json")
    assert Results.load(tmp_path / "results.json") == found


def test_only_the_region_of_a_document_is_rewritten(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text(f"before\n{REGION_START}\nold\n{REGION_END}\nafter\n")
    report.rewrite_region(document, "new \\1")
    assert document.read_text() == f"before\n{REGION_START}\n\nnew \\1\n{REGION_END}\nafter\n"
    document.write_text("no region")
    with pytest.raises(ValueError, match="0 regions"):
        report.rewrite_region(document, "new")


def test_the_page_in_the_documentation_has_a_region(tmp_path: Path) -> None:
    copy = tmp_path / "benchmarks.md"
    copy.write_text((measure.ROOT / "docs" / "benchmarks.md").read_text())
    report.rewrite_region(copy, "tables")


def test_percentile_95_is_what_95_of_100_do_not_pass() -> None:
    assert percentile_95([float(n) for n in range(100)]) == 95.0
    assert percentile_95([7.0]) == 7.0


def test_numbers_have_three_digits_and_a_unit() -> None:
    assert [format_rate(n) for n in (5.0, 1234.5, 2.5e6)] == ["5.00", "1.23 k", "2.50 M"]
    assert [format_seconds(n) for n in (12.34, 0.0051, 0.000002)] == ["12.3 s", "5.10 ms", "2.00 µs"]
    assert [format_bytes(n) for n in (10, 2048, 3 * 2**20, 10 * 2**30)] == [
        "10 B",
        "2.00 KiB",
        "3.00 MiB",
        "10.0 GiB",
    ]


def test_a_tiny_run_writes_results_tables_and_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    tiny = replace(QUICK, rounds=1, records={1: 5}, flushed_records={1: 5}, random_reads={1: 2})
    monkeypatch.setattr("benchmarks.__main__.QUICK", replace(tiny, partitions=2, segments=2))
    main(
        [
            "--quick",
            "--only",
            "append,random,reopen",
            "--directory",
            str(tmp_path),
            "--output",
            str(tmp_path / "out"),
        ]
    )
    found = Results.load(tmp_path / "out" / "results.json")
    assert {(m.figure, m.contender) for m in found.measurements} >= {
        ("append", GATHERING),
        ("random", "file"),
    }
    assert "## Durable append" in (tmp_path / "out" / "results.md").read_text()
    assert (tmp_path / "out" / "images" / "benchmarks.png").stat().st_size > 10_000
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_every_figure_and_contender_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--list"])
    text = capsys.readouterr().out
    assert all(name in text for name in (*FIGURES, *ALONE, LOGSTORE, *PEERS))
