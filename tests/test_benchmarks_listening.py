"""The benchmark of the listener: its client gives figures and notices what is wrong, a run becomes a page,
and a goal that is missed says so. Costs some seconds: confluent-kafka and matplotlib are imported."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.listening import librdkafka, page, parts, raw, servers
from benchmarks.listening.__main__ import main
from benchmarks.listening.client import DEEDS, Client
from benchmarks.listening.measuring import (
    ACKS_ALL,
    ACKS_ONE,
    BROKER,
    OURS,
    OURS_FLUSHED,
    QUICK,
    SHAPES,
    SMALL_BATCHES,
    Line,
)
from benchmarks.listening.page import Lines, format_page, goals_of
from benchmarks.listening.parts import FETCH, PRODUCE_ALL, PRODUCE_ONE, Bench, case_of, in_turn
from benchmarks.measure import MeasurementError
from benchmarks.records import WrongDataError

import logstore
from logstore.format.batch import decode_batch

# kafka-python reads its schemas by a function that Python has deprecated
pytestmark = pytest.mark.filterwarnings("ignore:.*Use files:DeprecationWarning")

SETTINGS = servers.OurServer.topic_settings


@pytest.fixture
def store(tmp_path):
    with logstore.open(tmp_path / "store") as store:
        yield store


@pytest.fixture
def address(store):
    with store.listen() as listener:
        yield listener.address


@pytest.mark.parametrize("shape", [*SHAPES, SMALL_BATCHES], ids=lambda shape: shape.name)
def test_a_shape_is_what_it_says(shape):
    records = decode_batch(shape.batch())
    assert [len(record.value) for record in records] == [shape.value_bytes] * shape.records
    assert (len(shape.batch()) < shape.batch_bytes / 2) == shape.is_zstd


@pytest.mark.parametrize("acks", [ACKS_ONE, ACKS_ALL])
def test_what_is_produced_is_in_the_log_and_is_fetched(store, address, acks):
    DEEDS["create_topic"](address, "t", partitions=1, settings=SETTINGS)
    assert not store["t"].config.acks_all_durable
    shape = SHAPES[1]
    found = raw.measure_produce(
        address, "t", shape=shape.name, acks=acks, seconds=5, most=10 * shape.batch_bytes
    )
    assert found["bytes"] == 10 * shape.batch_bytes
    assert store["t"][0].log_end_offset == 11 * shape.records  # one before the clock
    fetched = raw.measure_fetch(address, "t", shape=shape.name, seconds=0.02)
    assert fetched["bytes"] >= 11 * shape.batch_bytes


def test_librdkafka_sends_and_receives(store, address):
    DEEDS["create_topic"](address, "t", partitions=1, settings=SETTINGS)
    how = {"shape": SHAPES[0].name, "seconds": 0.05}
    sent = librdkafka.measure_produce(address, "t", **how, acks=ACKS_ALL, most=200_000)
    assert store["t"][0].log_end_offset == sent["records"] + 1
    assert librdkafka.measure_consume(address, "t", **how)["records"] > 0
    DEEDS["delete_topic"](address, "t")
    assert "t" not in list(store)


def test_latencies_and_sessions(address):
    DEEDS["create_topic"](address, "t", partitions=3, settings=SETTINGS)
    found = raw.measure_latency(address, "t", produces=5, polls=3)
    assert all(value > 0 for value in found.values())
    for _ in range(2):  # again: it goes on behind what the first one has stored
        found = raw.measure_session(address, "t", partitions=3, seconds=0.01)
        assert found["empty"] > 0
        assert found["records"] > 0


def test_a_refused_batch_voids_a_measurement(address):
    with pytest.raises(WrongDataError, match="code 3"):
        raw.measure_produce(address, "a/b", shape=SHAPES[0].name, acks=1, seconds=1, most=0)
    DEEDS["create_topic"](address, "t", partitions=1, settings=SETTINGS)
    with pytest.raises(WrongDataError, match="nothing is in t"):
        raw.measure_fetch(address, "t", shape=SHAPES[0].name, seconds=0)


def test_the_client_process_tells_of_errors_and_goes_on(address):
    with Client() as client:
        with pytest.raises(MeasurementError, match="KeyError"):
            client.do("produce", address, "t", shape="none", acks=1, seconds=1, most=1)
        assert client.do("hold", address, count=3)["held"] == 3
        assert client.do("let_go", address)["client_cpu_seconds"] >= 0


def test_a_part_starts_its_servers(tmp_path, monkeypatch):
    """About three seconds: two processes."""
    monkeypatch.setattr(parts, "bring_to_disk", lambda: None)
    bench = Bench(QUICK._replace(connections=3), tmp_path, lambda _: None, has_broker=False)
    (found,) = parts.measure_connections(bench)
    assert (found["part"], found["server"], found["connections"]) == ("connections", OURS, 3)
    assert found["resident_bytes"] > 2**20


def test_a_part_that_fails_leaves_the_others(tmp_path, monkeypatch):
    def fail(_: Bench) -> Iterator[Line]:
        raise MeasurementError("no luck")
        yield {}

    kept = line("busy", "alone", seconds=1.0)
    output = tmp_path / "listening.json"
    output.write_text(json.dumps({"machine": {}, "lines": [kept]}))
    monkeypatch.setitem(parts.PARTS, "busy", fail)
    monkeypatch.setitem(parts.PARTS, "first", lambda _: iter([line("first", "x", seconds=2.0)]))
    command = ["--only", "busy,first", "--no-broker", "--output", str(output), "--directory", str(tmp_path)]
    with pytest.raises(SystemExit, match="not measured: busy"):
        main(command)
    assert [each["part"] for each in json.loads(output.read_text())["lines"]] == ["busy", "first"]


def test_servers_take_turns():
    assert [in_turn([1, 2], number) for number in (1, 2, 3)] == [[2, 1], [1, 2], [2, 1]]


def line(part: str, case: str, server: str = OURS, number: int = 1, **figures: float) -> Line:
    return {"part": part, "case": case, "server": server, "round": number, **figures}


def rates(server: str, number: int, seconds: float, resident_mib: float) -> list[Line]:
    figures = {
        "bytes": 1e8,
        "seconds": seconds,
        "server_cpu_seconds": seconds / 2,
        "resident_bytes": resident_mib * 2**20,
        "private_bytes": resident_mib * 2**20,
    }
    return [
        line("rates", case_of(deed, shape), server, number, **figures)
        for shape in SHAPES
        for deed in (PRODUCE_ONE, PRODUCE_ALL, FETCH)
    ]


def test_goals_are_computed_round_by_round_and_say_what_is_missed():
    flushed = case_of(PRODUCE_ALL, SHAPES[0])
    lines = [
        *rates(OURS, 1, 1.0, 100),
        *rates(OURS, 2, 2.0, 100),
        *rates(BROKER, 1, 1.2, 300),
        *rates(BROKER, 2, 2.4, 300),
        line("flushed", flushed, OURS_FLUSHED, bytes=1e6, seconds=1.0),
        line("flushed", flushed, BROKER, bytes=4e6, seconds=1.0),
        line("connections", "idle", memory_bytes=60 * 2**20),
        line("first", "first answer", seconds=0.2),
        line("latency", "one record", produce_p50_seconds=1.0, produce_p99_seconds=3.0),
        line("latency", "one record", BROKER, produce_p50_seconds=2.0, produce_p99_seconds=2.0),
    ]
    for each in lines[-2:]:
        each |= {"poll_p50_seconds": 1.0, "poll_p99_seconds": 1.0}
    found = {goal.title: (measured, goal) for goal, measured in goals_of(Lines(lines))}

    def verdict(title: str) -> tuple[float | None, str]:
        measured, goal = found[title]
        median = measured and round(measured.median, 3)
        return median, goal.verdict(median)

    assert verdict(f"{case_of(FETCH, SHAPES[0])}, vs Kafka") == (1.2, "met")
    assert verdict(f"{flushed}, flushed, vs Kafka") == (0.25, "**missed**")
    assert verdict("Memory after the load, vs Kafka") == (0.333, "met")
    assert verdict("1,000 idle connections: memory") == (60 * 2**20, "**missed**")
    assert verdict("From start to the first answer") == (0.2, "met")
    assert verdict("Produce a record, median, vs Kafka") == (0.5, "met")
    assert verdict("Produce a record, 99 %, vs Kafka") == (1.5, "**missed**")
    assert verdict("1,000 partitions, nothing new, vs Kafka") == (None, "not measured")


def test_a_run_becomes_a_page_and_a_picture(tmp_path: Path):
    found = [*rates(OURS, 1, 0.5, 100), *rates(BROKER, 1, 1.0, 300)]
    text = format_page({"machine": {"cpu": "x"}, "lines": found})
    assert f"| {case_of(FETCH, SHAPES[0])} | 200 | 100 | 2.00 x | 400 | 200 | 2.00 x |" in text
    assert "| **cpu** | x |" in text
    page.plot(Lines(found), tmp_path)
    assert (tmp_path / "listening.png").stat().st_size > 10_000
    assert "<svg" in (tmp_path / "listening.svg").read_text()


def test_the_page_has_its_place():
    """``write`` needs the marks; and the stored results, once there are any, make a page."""
    assert page.DOCUMENT.read_text().count("<!-- benchmarks:") == 2
    stored = page.ROOT / "benchmarks" / "results" / "listening.json"
    if stored.exists():
        assert "### Goals" in format_page(json.loads(stored.read_text()))
