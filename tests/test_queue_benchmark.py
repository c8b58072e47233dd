"""The benchmark of queues counts what was done, and its results become a page."""

import json

import pytest
from benchmarks import measure, queues, report
from benchmarks.postgres import PostgresError, start_postgres
from benchmarks.queue_contenders import CONTENDERS, OURS_LOOP, OURS_SINGLE, Contender, Load


@pytest.fixture(autouse=True)
def no_sync(monkeypatch):
    monkeypatch.setattr("benchmarks.queues.bring_to_disk", lambda: None)


@pytest.mark.parametrize("is_durable", [True, False])
@pytest.mark.parametrize("name", [name for name, each in CONTENDERS.items() if each.needs != "psycopg"])
def test_workers_do_every_job_once(name, is_durable, tmp_path):
    if why := CONTENDERS[name].why_not(""):
        pytest.skip(why)
    assert queues.rate_of(name, Load(str(tmp_path / "queue"), 30, 2, is_durable)) > 0


@pytest.mark.slow
def test_postgres_does_so_too(tmp_path):
    """Two seconds where there is a server, ten on a busy machine."""
    pytest.importorskip("psycopg")
    try:
        with start_postgres(str(tmp_path)) as server:
            for name, each in CONTENDERS.items():
                if each.needs == "psycopg":
                    assert queues.rate_of(name, Load("", 30, 2, True, server)) > 0
    except PostgresError as error:
        pytest.skip(str(error))


def test_a_contender_that_loses_a_job_is_no_contender(tmp_path, monkeypatch):
    class Losing:
        def __enter__(self):
            return [lambda: 29]

        def __exit__(self, *_):
            pass

    monkeypatch.setitem(CONTENDERS, "losing", Contender(lambda load: Losing(), OURS_SINGLE, 1, 1))
    with pytest.raises(queues.WrongCountError, match="losing: 29 of 30"):
        queues.rate_of("losing", Load(str(tmp_path), 30, 1, True))


def test_a_job_reaches_one_of_the_workers_that_wait(tmp_path):
    found = queues.delays(str(tmp_path), 20, 2)
    assert 0 < found["median"] <= found["p99"]


def test_as_many_jobs_are_put_off_as_a_partition_takes(tmp_path, monkeypatch):
    monkeypatch.setattr("logstore.broker.share.partition.MAX_SPANS", 100)
    first, last = queues.put_off(str(tmp_path), [20], 10)
    assert first["put_off"] == 30
    assert first["other_seconds"] > 0
    assert 80 <= last["put_off"] <= 100
    assert last["other_seconds"] is None


def test_who_is_left_out_has_a_row_that_says_why():
    results = json.loads(queues.RESULTS.read_text())
    left_out = "huey, SQLite"
    results["left_out"][left_out] = "not today"
    page = queues.format_page(results)
    assert f"| {left_out} | not today |" in page
    assert f"| {OURS_LOOP} |" in page


def test_the_page_has_one_region_for_the_results(tmp_path):
    copy = tmp_path / "page.md"
    copy.write_text(queues.DOCUMENT.read_text())
    for program in ("benchmarks", "benchmarks.queues"):
        report.rewrite_region(copy, "tables", program=program)
    assert copy.read_text().count("\ntables\n") == 2
    assert (measure.ROOT / "docs" / "images" / "queues.svg").exists()
