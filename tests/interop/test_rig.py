"""The rig by itself: broker, clients, dump tool and committed data work together, and faults are seen."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop import clients
from tests.interop.clients import NewRecord
from tests.interop.dump import DumpError, dump_log
from tests.interop.fixtures import case_names, decode_bytes, encode_bytes, load_case
from tests.interop.kafka import KafkaBroker, require_kafka

SERVED = ("codec-lz4", "compacted", "killed", "legacy-mixed", "segments", "transactional-open")


@pytest.fixture(scope="module")
def module_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    require_kafka()
    with KafkaBroker(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture
def broker(module_broker: KafkaBroker) -> KafkaBroker:
    """The module's broker, running whatever the test before did; tests use topics of their own."""
    if not module_broker.is_running:
        module_broker.start()
    return module_broker


@pytest.mark.interop
def test_what_was_produced_is_consumed_and_dumped(broker: KafkaBroker) -> None:
    broker.create_topic("produced")
    # A client sends a batch plain when compressing it gains nothing.
    text = b"text that compresses " * 10
    first = [NewRecord(b"a", text, (("h", b"x"),), 1000), NewRecord(None, text, (), 1001)]
    second = [NewRecord(b"b", None, (("h", text),), 2000)]
    offsets = clients.produce(broker.bootstrap, "produced", [first, second], codec="zstd")
    seen = clients.consume(broker.bootstrap, "produced")
    assert offsets == [record.offset for record in seen] == [0, 1, 2]
    assert seen[0] == (0, 1000, "CreateTime", b"a", text, (("h", b"x"),), 0)
    assert (seen[1].key, seen[2].value) == (None, None)

    assert broker.stop()
    dumped = dump_log(broker.partition_dir("produced"))
    log = dumped[broker.partition_dir("produced") / "00000000000000000000.log"]
    assert [batch["compresscodec"] for batch in log.batches] == ["zstd", "zstd"]
    assert [(record.offset, record.header_keys) for record in log.records] == [
        (0, ("h",)),
        (1, ()),
        (2, ("h",)),
    ]
    assert log.records[0].text == f"key: a payload: {text.decode()}".strip()


@pytest.mark.interop
def test_an_aborted_transaction_is_hidden_from_read_committed(broker: KafkaBroker) -> None:
    broker.create_topic("transactions")
    transactions = [([NewRecord(b"k", b"kept")], True), ([NewRecord(b"k", b"aborted")], False)]
    clients.produce_transactions(broker.bootstrap, "transactions", transactions, transactional_id="rig")
    everything = clients.consume(broker.bootstrap, "transactions")
    committed = clients.consume(broker.bootstrap, "transactions", isolation="read_committed")
    assert [record.value for record in everything] == [b"kept", b"aborted"]
    assert committed == everything[:1]


@pytest.mark.interop
def test_placed_partitions_are_recovered_and_served(broker: KafkaBroker) -> None:
    cases = {name: load_case(name).partitions[0] for name in SERVED}
    broker.serve_partitions({name: [case.directory] for name, case in cases.items()})
    for name, case in cases.items():
        assert clients.consume(broker.bootstrap, name) == list(case.records), name
        committed = clients.consume(broker.bootstrap, name, isolation="read_committed")
        assert committed == list(case.committed), name
    case = cases["segments"]
    assert clients.offset_for_time(broker.bootstrap, "segments", case.records[200].timestamp_ms) == 200


@pytest.mark.interop
@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
def test_the_dump_tool_sees_damage(tmp_path: Path, suffix: str) -> None:
    require_kafka()
    copy = tmp_path / "segments-0"
    shutil.copytree(load_case("segments").partitions[0].directory, copy)
    victim = copy / f"00000000000000000000{suffix}"
    damaged = bytearray(victim.read_bytes())
    damaged[-1] ^= 1
    victim.write_bytes(damaged)
    with pytest.raises(DumpError):
        dump_log(copy)


@pytest.mark.interop
def test_the_dump_tool_finds_no_fault_in_the_committed_data() -> None:
    require_kafka()
    # After SIGKILL the indexes end in zeros, which the tool takes for entries.
    cases = [load_case(name) for name in case_names() if name != "killed"]
    partitions = [partition for case in cases for partition in case.partitions]
    dumped = dump_log([partition.directory for partition in partitions], allow_gaps=True)
    for partition in partitions:
        logs = [dumped[path] for path in sorted(partition.directory.glob("*.log"))]
        offsets = [
            record.offset for log in logs for record in log.records if "endTxnMarker" not in record.text
        ]
        visible = [offset for offset in offsets if offset >= partition.log_start_offset]
        assert visible == [record.offset for record in partition.records], partition.directory


def test_the_committed_data_is_complete() -> None:
    assert {f"codec-{codec}" for codec in ("none", "gzip", "snappy", "lz4", "zstd")} <= set(
        case_names("codec-")
    )
    for name in case_names():
        for partition in load_case(name).partitions:
            assert list(partition.directory.glob("*.log")), name
            assert set(partition.committed) <= set(partition.records), name


@pytest.mark.parametrize("value", [None, b"", b"x", b"ab" * 600, bytes(2000), bytes(range(256)) * 5 + b"end"])
def test_values_survive_expected_json(value: bytes | None) -> None:
    assert decode_bytes(encode_bytes(value)) == value
