"""The benchmarks measure what they say: contenders give back what they were given, those that claim checksums
notice a flipped byte, a measurement that reads something else fails, and a run turns into tables, a picture
and a page."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks import (
    codecs,
    curves,
    figures,
    goals,
    imports,
    large,
    maps,
    measure,
    one,
    plan,
    report,
    scans,
    shares,
    wire,
)
from benchmarks.__main__ import PUBLISHED, main
from benchmarks.alone import ALONE, LARGE, measure_alone
from benchmarks.contenders import (
    AIOKAFKA,
    ARROW,
    COLUMNS,
    FILE,
    GATHERING,
    KAFKA_PYTHON,
    LIMIT,
    LMDB,
    LOGSTORE,
    NAMES,
    PEERS,
    PLAIN,
    ROCKSDICT,
    SQLITE,
    SQLITE_TIME,
    contender_class,
    is_available,
    why_missing,
)
from benchmarks.contenders.base import Contender
from benchmarks.curves import plot_curves
from benchmarks.figures import (
    APPEND,
    DURABLE,
    LARGE_SEQUENTIAL,
    ONE_THREAD,
    RANDOM,
    SEQUENTIAL,
    THREADS,
    TIME,
    Case,
    Measurement,
)
from benchmarks.goals import Goal
from benchmarks.records import (
    DATA,
    JSON,
    SMALL,
    WrongDataError,
    batches_of,
    check_record,
    digest_expected,
    digest_values,
    row_at,
)
from benchmarks.report import REGION_END, REGION_START, format_summary
from benchmarks.results import Results, Spread, percentile_95
from benchmarks.sizes import QUICK
from benchmarks.text import format_bytes, format_rate, format_seconds

import logstore
from logstore import CorruptionError
from logstore.format.compression import Codec

COUNT = 57


REOPENED = tuple(name for name in NAMES if not name.startswith("arrow"))
FOUND_BY_OFFSET = (LOGSTORE, PLAIN, SQLITE, LMDB, ROCKSDICT, FILE)
CHECKED = (LOGSTORE, PLAIN, AIOKAFKA, KAFKA_PYTHON)

# kafka-python reads its schemas by a function that Python has deprecated
pytestmark = pytest.mark.filterwarnings("ignore:.*Use files:DeprecationWarning")


@pytest.fixture(autouse=True)
def only_who_is_here(request: pytest.FixtureRequest) -> None:
    """A contender that is not installed is skipped, and shown with the reason."""
    name = getattr(request.node, "callspec", None) and request.node.callspec.params.get("name")
    if name in NAMES and (reason := why_missing(name)):
        pytest.skip(reason)


def filled(name: str, directory: Path, batch_records: int = 10, *, is_durable: bool = False) -> Contender:
    contender = contender_class(name)(str(directory), is_durable=is_durable)
    for rows in batches_of(0, COUNT, batch_records):
        contender.append(contender.prepare(rows))
    contender.settle()
    return contender


def reopened(name: str, directory: Path) -> Contender:
    return contender_class(name)(str(directory))


@pytest.fixture(autouse=True)
def without_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here is about speed, and other tests' files would be brought to disk too."""
    monkeypatch.setattr("benchmarks.measure.os.sync", lambda: None)
    monkeypatch.setattr("benchmarks.contenders.ready_bytes._LEAST_READ_BYTES", 1)


# Contenders


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("batch_records", [1, 10])
def test_a_contender_gives_back_every_record_after_reopening(
    name: str, batch_records: int, tmp_path: Path
) -> None:
    filled(name, tmp_path, batch_records).close()
    contender = reopened(name, tmp_path)
    records = list(contender.read_all())
    for number, record in enumerate(records):
        check_record(record, number)
    assert len(records) == COUNT
    contender.close()


@pytest.mark.parametrize("name", NAMES)
def test_the_quick_loop_of_a_contender_sees_every_record_and_value(name: str, tmp_path: Path) -> None:
    filled(name, tmp_path).close()
    contender = reopened(name, tmp_path)
    count, value_bytes = contender.sum_values()
    assert (count, value_bytes) == ((COUNT, 100 * COUNT) if contender.looks_at_values else (COUNT, 0))
    contender.close()


@pytest.mark.parametrize("name", FOUND_BY_OFFSET)
def test_a_contender_finds_each_record_by_its_number(name: str, tmp_path: Path) -> None:
    contender = filled(name, tmp_path)
    for number in range(COUNT):
        check_record(contender.as_stored(contender.read_one(number)), number)
    contender.close()


@pytest.mark.parametrize("name", [LOGSTORE, SQLITE_TIME])
def test_a_contender_finds_each_record_by_its_time(name: str, tmp_path: Path) -> None:
    contender = filled(name, tmp_path)
    for number in range(COUNT):
        check_record(contender.as_stored(contender.read_at_time(row_at(number)[2])), number)
    contender.close()


@pytest.mark.parametrize("name", REOPENED)
def test_a_contender_appends_behind_what_it_had(name: str, tmp_path: Path) -> None:
    filled(name, tmp_path).close()
    contender = reopened(name, tmp_path)
    contender.append(contender.prepare([row_at(COUNT)]))
    contender.settle()
    assert digest_values(record[3] for record in contender.read_all()) == digest_expected(COUNT + 1)
    contender.close()


@pytest.mark.parametrize("name", plan.FLUSHERS)
def test_a_contender_flushes(name: str, tmp_path: Path) -> None:
    filled(name, tmp_path, is_durable=True).close()
    contender = reopened(name, tmp_path)
    assert digest_values(record[3] for record in contender.read_all()) == digest_expected(COUNT)
    contender.close()


def flip_a_byte(directory: Path) -> None:
    """In a value, wherever it is stored."""
    value = row_at(COUNT // 2)[1]
    for path in [path for path in directory.rglob("*") if path.is_file()]:
        data = path.read_bytes()
        if value in data:
            at = data.index(value) + len(value) // 2
            path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


@pytest.mark.parametrize("name", CHECKED)
@pytest.mark.damaged
def test_those_that_claim_checksums_notice_a_flipped_byte(name: str, tmp_path: Path) -> None:
    filled(name, tmp_path).close()
    flip_a_byte(tmp_path)
    with pytest.raises(Exception, match=r"(?i)corrupt|damaged|checksum|crc"):  # each has its own error
        reopened(name, tmp_path).sum_values()


@pytest.mark.parametrize("name", [FILE, ROCKSDICT])
def test_those_that_check_when_opening_cut_at_a_flipped_byte(name: str, tmp_path: Path) -> None:
    filled(name, tmp_path).close()
    flip_a_byte(tmp_path)
    contender = reopened(name, tmp_path)
    assert contender.sum_values()[0] < COUNT
    contender.close()


def test_the_plain_file_cuts_a_torn_end(tmp_path: Path) -> None:
    filled(FILE, tmp_path).close()
    path = tmp_path / "log.bin"
    path.write_bytes(path.read_bytes()[:-1])
    contender = reopened(FILE, tmp_path)
    found = digest_values(record[3] for record in contender.read_all())
    assert found == digest_expected(COUNT // 10 * 10)
    contender.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_contender_says_how_it_is_used_and_what_it_promises(name: str) -> None:
    if why_missing(name) is None:
        kind = contender_class(name)
        assert kind.settings
        assert kind.promise


def test_what_is_not_installed_is_left_out_visibly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.contenders.importlib.util.find_spec", lambda name: None)
    assert not is_available(AIOKAFKA)
    assert "| **aiokafka** | not installed (aiokafka) |" in report.format_contenders()
    assert is_available(SQLITE)


# Records


@pytest.mark.parametrize("data", DATA)
def test_a_row_is_the_same_each_time_and_no_two_are_alike(data: str) -> None:
    rows = [row_at(number, data) for number in range(500)]
    assert rows == [row_at(number, data) for number in range(500)]
    assert len({value for _, value, _ in rows}) == 500


def test_events_are_json_objects() -> None:
    events = [json.loads(row_at(number, JSON)[1]) for number in range(200)]
    assert len({event["service"] for event in events}) > 3
    assert len({event["trace"] for event in events}) == 200


# Measurements


def append(name: str, directory: Path, figure: str = APPEND, data: str = SMALL) -> Measurement:
    return figures.measure_append(Case(figure, name, 10, data), str(directory), COUNT)


@pytest.mark.parametrize("name", NAMES)
def test_appending_and_reading_count_what_they_did(name: str, tmp_path: Path) -> None:
    assert append(name, tmp_path).count == COUNT
    assert figures.measure_sequential(Case(SEQUENTIAL, name, 10), str(tmp_path)).count == COUNT


@pytest.mark.parametrize("name", FOUND_BY_OFFSET)
def test_single_reads_and_opening_count_what_they_did(name: str, tmp_path: Path) -> None:
    assert append(name, tmp_path, DURABLE).count == COUNT
    assert figures.measure_random(Case(RANDOM, name, 10), str(tmp_path), 20).count == 20
    assert figures.measure_open(Case("open", name, 10), str(tmp_path)).stored_bytes > COUNT * 100


def test_a_read_by_time_counts_what_it_did(tmp_path: Path) -> None:
    append(LOGSTORE, tmp_path)
    assert figures.measure_random(Case(TIME, LOGSTORE, 10), str(tmp_path), 20).count == 20


@pytest.mark.parametrize("name", plan.THREADED)
@pytest.mark.parametrize("figure", [ONE_THREAD, THREADS])
def test_threads_append_every_record_once(name: str, figure: str, tmp_path: Path) -> None:
    assert figures.measure_threads(Case(figure, name, 1), str(tmp_path), 40).count == 40


@pytest.mark.parametrize("figure", [figures.measure_sequential, figures.measure_open])
def test_reading_something_else_than_was_written_voids_the_measurement(
    figure: Callable[[Case, str], Measurement], tmp_path: Path
) -> None:
    append(FILE, tmp_path)
    note = tmp_path / "contents.json"
    note.write_text(json.dumps({"digest": [COUNT, 100 * COUNT + 1, 1], "data": SMALL}))
    with pytest.raises(WrongDataError):
        figure(Case("", FILE, 10), str(tmp_path))


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


def test_one_figure_is_one_call() -> None:
    found = one.measure("sequential", SQLITE, batch=10, records=30)
    assert (found["contender"], found["count"]) == (SQLITE, 30)


def test_the_large_log_is_written_once_and_stays_for_all_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.measure.LARGE_READERS", {LOGSTORE: FILE, FILE: FILE})
    monkeypatch.setattr("benchmarks.measure.run_case", lambda case, place, _: (case.contender, place))
    sizes = replace(QUICK, rounds=2, large_sequential_records=20)
    rounds = measure.Rounds(sizes, {LARGE_SEQUENTIAL}, str(tmp_path), lambda _: None)
    place = str(tmp_path / LARGE_SEQUENTIAL / FILE)
    assert rounds.run() == [(LOGSTORE, place), (FILE, place), (FILE, place), (LOGSTORE, place)]
    assert figures.measure_sequential(Case(LARGE_SEQUENTIAL, FILE, 1_000), place).count == 20


def test_plain_loops_run_in_the_processes_of_their_contender(tmp_path: Path) -> None:
    assert one.measure("append", PLAIN, batch=10, records=30)["count"] == 30
    assert dict(measure.entry_of(PLAIN).environment) == {"LOGSTORE_LOOPS": "plain"}


@pytest.mark.parametrize("name", plan.CODECS_COMPARED["decode"])
@pytest.mark.parametrize("figure", plan.CODECS_COMPARED)
def test_codecs_make_the_same_bytes_and_records(
    name: str, figure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name not in plan.CODECS_COMPARED[figure]:
        pytest.skip("only decodes")
    shapes = tuple(shape for shape in codecs.SHAPES if shape.batch_kib == 16)
    monkeypatch.setattr(codecs, "SHAPES", shapes)
    found = codecs.measure_codec(figure, name, 0.0)
    assert [measurement.data for measurement in found] == [str(shape) for shape in shapes]


def test_a_codec_that_makes_other_bytes_is_void(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codecs, "SHAPES", codecs.SHAPES[:1])
    monkeypatch.setattr(codecs, "reference_batch", lambda rows: bytes(100))
    with pytest.raises(WrongDataError):
        codecs.measure_codec("encode", LOGSTORE, 0.0)


@pytest.mark.parametrize("name", plan.SCANNERS)
def test_a_scan_goes_through_the_whole_segment(name: str, tmp_path: Path) -> None:
    scans.prepare_scan(str(tmp_path), 2_000_000)
    size_bytes = (tmp_path / scans.SEGMENT_NAME).stat().st_size
    assert scans.measure_scan(name, str(tmp_path), size_bytes).count == size_bytes


@pytest.mark.parametrize("name", [LOGSTORE, AIOKAFKA, KAFKA_PYTHON])
def test_a_scan_notices_a_flipped_byte(name: str, tmp_path: Path) -> None:
    scans.prepare_scan(str(tmp_path), 2_000_000)
    path = tmp_path / scans.SEGMENT_NAME
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises((WrongDataError, CorruptionError)):
        scans.measure_scan(name, str(tmp_path), len(data))


@pytest.mark.parametrize("name", plan.MAPPED)
def test_a_map_finds_what_was_put(name: str) -> None:
    found = maps.measure_map(name, 5_000)
    assert found.count == 5_000
    assert found.stored_bytes > 5_000 * 8


def test_an_import_takes_time(tmp_path: Path) -> None:
    for of_starts in (imports.measure_imports, imports.measure_first_uses):
        (found,) = of_starts(str(tmp_path), 1)
        assert set(found) == {"compiled_seconds", "plain_seconds"}


def test_many_partitions_open_with_all_their_segments(tmp_path: Path) -> None:
    large.prepare_partitions(str(tmp_path), partitions=3, segments=2)
    assert large.measure_reopen(str(tmp_path), partitions=3, segments=2)["open_seconds"] > 0
    for records in (0, 1):
        assert large.measure_reopen_killed(str(tmp_path), partitions=3, records=records)["open_seconds"] > 0
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
        "data": SMALL,
        "count": 1000,
        "seconds": seconds,
        "stored_bytes": 127_000,
        "idle_memory_bytes": 0,
        "peak_memory_bytes": 2**20,
    }
    return Measurement(**{**values, **fields})  # type: ignore[arg-type]  # fields by name


def results(*measurements: Measurement, **fields: object) -> Results:
    values: dict[str, object] = {"machine": {"cpu": "abacus"}, "alone": {}, **fields}
    return Results(measurements=list(measurements), **values)  # type: ignore[arg-type]  # likewise


def test_ratios_are_taken_within_a_round() -> None:
    found = results(
        measurement(LOGSTORE, 1.0),
        measurement(FILE, 2.0),
        measurement(LOGSTORE, 4.0),
        measurement(FILE, 16.0),
    )
    ratio = found.summaries()[Case(APPEND, FILE, 1000)].ratio
    assert ratio is not None
    assert (ratio.low, ratio.high) == (2.0, 4.0)


def test_columns_are_compared_with_columns() -> None:
    found = results(measurement(LOGSTORE, 8.0), measurement(COLUMNS, 1.0), measurement(ARROW, 2.0))
    assert found.summaries()[Case(APPEND, ARROW, 1000)].ratio == Spread(2.0, 2.0, 2.0)
    without = results(measurement(LOGSTORE, 8.0), measurement(ARROW, 2.0))
    assert without.summaries()[Case(APPEND, ARROW, 1000)].ratio is None


def test_the_mean_of_shapes_is_geometric() -> None:
    found = results(
        *(measurement(LOGSTORE, 1.0, "encode", data=shape) for shape in "ab"),
        measurement(AIOKAFKA, 2.0, "encode", data="a"),
        measurement(AIOKAFKA, 8.0, "encode", data="b"),
    )
    assert found.mean_ratio("encode", LOGSTORE, AIOKAFKA) == Spread(4.0, 4.0, 4.0)
    assert found.worst_ratio("encode", LOGSTORE, AIOKAFKA) == Spread(2.0, 2.0, 2.0)
    assert found.mean_ratio("encode", PLAIN, AIOKAFKA) is None


def test_the_report_says_where_a_peer_is_faster() -> None:
    text = report.format_summary(results(measurement(LOGSTORE, 2.0), measurement(FILE, 1.0)))
    assert "- Append: **file** is faster: 2.00 x (100 B, 1,000 a batch)." in text
    assert "Nowhere" in report.format_summary(results(measurement(LOGSTORE, 1.0), measurement(FILE, 1.0)))


def test_the_limit_is_not_a_peer_that_is_faster() -> None:
    assert "Nowhere" in report.format_summary(results(measurement(LOGSTORE, 2.0), measurement(LIMIT, 1.0)))


@pytest.mark.parametrize(
    ("measured", "verdict"),
    [(None, "not measured"), (7.9, "**missed**"), (8.0, "met"), (9.5, "met"), (10.0, "aim met")],
)
def test_a_goal_is_missed_met_or_better(measured: float | None, verdict: str) -> None:
    assert Goal("", 8.0, 10.0, lambda _: None).verdict(measured) == verdict


def test_of_a_ceiling_less_is_better() -> None:
    goal = Goal("", 64.0, 32.0, lambda _: None, is_ceiling=True)
    assert [goal.verdict(n) for n in (65.0, 64.0, 32.0)] == ["**missed**", "met", "aim met"]


def test_an_aim_alone_is_never_missed() -> None:
    goal = Goal("", None, 2.0, lambda _: None)
    assert [goal.verdict(n) for n in (1.0, 2.0)] == ["aim not met", "aim met"]


def test_the_table_of_goals_is_made_from_the_measurements() -> None:
    found = results(measurement(LOGSTORE, 1.0), measurement(SQLITE, 9.0), measurement(LMDB, 1.0))
    lines = {line.split(" | ")[0].lstrip("| "): line for line in goals.format_goals(found).splitlines()}
    assert "| met | 9.00 x | 8.00 x |" in lines["Append rows, 1,000 a batch, vs sqlite"]
    assert "**missed** | 1.00 x | 2.00 x" in lines["Append rows, 1,000 a batch, vs lmdb"]
    assert "not measured" in lines["Import"]


def test_what_the_scan_must_reach_depends_on_the_processor() -> None:
    titles = [goal.title for goal in goals.goals_for({"crc32c": "x86-64 vpclmulqdq 512"})]
    assert any("wide carry-less" in title and "without" not in title for title in titles)
    assert any("without wide" in goal.title for goal in goals.goals_for({"crc32c": "crc32c package"}))


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


@pytest.mark.parametrize("page", ["docs/benchmarks.md", "README.md"])
def test_a_page_with_results_has_one_region_for_them(page: str, tmp_path: Path) -> None:
    copy = tmp_path / "page.md"
    copy.write_text((measure.ROOT / page).read_text())
    report.rewrite_region(copy, "tables")


def test_percentile_95_is_what_95_of_100_do_not_pass() -> None:
    assert percentile_95([float(n) for n in range(100)]) == 95.0
    assert percentile_95([7.0]) == 7.0


def test_numbers_have_three_digits_and_a_unit() -> None:
    assert [format_rate(n) for n in (5.0, 1234.5, 2.5e6)] == ["5.00", "1.23 k", "2.50 M"]
    assert [format_seconds(n) for n in (12.34, 0.0051, 0.000002)] == ["12.3 s", "5.10 ms", "2.00 µs"]
    assert format_seconds(-0.0418) == "-41.8 ms"
    assert [format_bytes(n) for n in (10, 2048, 3 * 2**20, 10 * 2**30)] == [
        "10 B",
        "2.00 KiB",
        "3.00 MiB",
        "10.0 GiB",
    ]


@pytest.mark.slow
def test_a_tiny_run_writes_results_tables_and_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    tiny = replace(QUICK, records={(SMALL, 1): 5}, flushes={1: 5}, random_reads={1: 2}, partitions=2)
    monkeypatch.setattr("benchmarks.__main__.QUICK", replace(tiny, segments=2))
    monkeypatch.setattr(plan, "APPENDERS", {(SMALL, 1): (LOGSTORE, GATHERING, FILE)})
    monkeypatch.setattr("benchmarks.measure.APPENDERS", plan.APPENDERS)
    monkeypatch.setattr("benchmarks.measure.readers", lambda *_: (LOGSTORE, FILE))
    monkeypatch.setattr("benchmarks.measure.FLUSHERS", (LOGSTORE, FILE))
    wanted = "append,random,durable,reopen"
    main(["--quick", "--only", wanted, "--directory", str(tmp_path), "--output", str(tmp_path / "out")])
    found = Results.load(tmp_path / "out" / "results.json")
    assert {(m.figure, m.contender) for m in found.measurements} >= {(APPEND, GATHERING), (RANDOM, FILE)}
    text = (tmp_path / "out" / "results.md").read_text()
    assert "## Durable append" in text
    assert "## Goals" in text
    assert (tmp_path / "out" / "images" / "benchmarks.png").stat().st_size > 10_000
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_the_pictures_show_everything_of_the_stored_results(tmp_path: Path) -> None:
    """Costs 2 s: matplotlib draws."""
    pytest.importorskip("matplotlib")
    stored = Results.load(PUBLISHED.results / "results.json")
    events = {case.contender for case in stored.rounds() if case.data == JSON and case.figure == APPEND}
    assert events == set(curves.CODEC_NAMES)
    plot_curves(replace(stored, measurements=[]), tmp_path / "none")
    assert list((tmp_path / "none").iterdir()) == []
    plot_curves(stored, tmp_path)
    for name in ("batches", "codecs"):
        assert (tmp_path / f"{name}.svg").stat().st_size > 10_000
        assert f"images/{name}.svg" in format_summary(stored)
        assert (PUBLISHED.images / f"{name}.svg").exists()


@pytest.mark.parametrize("replicated", [False, True])
def test_batches_of_the_wire_are_all_appended_and_have_records_of_100_bytes(
    replicated: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "_ROUND_RECORDS", 50)
    (batch,) = wire.batches_of(1000, 1000, Codec.NONE)
    assert round(len(batch) / 1000) == 101  # with its share of the batch's header, and offsets of two bytes
    with logstore.open(tmp_path) as store:
        log = store.create_topic("t")[0]
        taken = wire.time_appends(log, 10, Codec.ZSTD, 2, replicated=replicated)
        assert log.log_end_offset == 50
        assert len(list(log.read())) == 50
        assert taken.whole > 0
        log.append(b"the lock is the log's own again", flush=True)


def test_every_figure_and_contender_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--list"])
    text = capsys.readouterr().out
    assert all(name in text for name in (*plan.RACED_FIGURES, *ALONE, LOGSTORE, *PEERS))


def test_updates_of_share_partitions_are_stored_and_timed(tmp_path: Path) -> None:
    costs = shares.measure(str(tmp_path / "s"), shares.Shape(10, 2), 200)
    assert 0 < costs.update < 10_000
    assert 0 < costs.loaded_record < 10_000
