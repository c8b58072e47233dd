"""Of what may have been durable recovery kept only the newest eight files and 64 MiB of a segment: a damaged
checkpoint beside one damaged batch destroyed the rest of a log, and the report named files that were gone."""

import pytest
from tests.partition.helpers import Partition

import logstore
from logstore import TopicConfig
from logstore.partition.recovery import aside

CHECKPOINT = "recovery-point-offset-checkpoint"


def forget_clean_stop(partition):
    """Without the index recovery reads all of the segment."""
    partition.path.joinpath(".kafka_cleanshutdown").unlink()
    partition.file(suffix=".index").unlink()


def on_disk(partition):
    return sum(partition.file(base).stat().st_size for base in partition.bases()) + len(
        partition.kept_aside()
    )


@pytest.mark.parametrize("contents", [None, b"damaged"])
def test_without_a_recovery_point_every_segment_behind_damage_is_kept(partition, contents):
    partition.write_segments(*[10] * 20)
    partition.crash()
    before = on_disk(partition)
    position = partition.corrupt_batch(4, 10)
    checkpoint = partition.path / CHECKPOINT
    checkpoint.unlink() if contents is None else checkpoint.write_bytes(contents)
    report = partition.open().recovery
    assert partition.read() == list(range(14))
    assert on_disk(partition) == before
    assert {path.rpartition("/")[2] for path in report.kept_aside} == set(partition.names("*.torn-*"))
    assert f"00000000000000000010.torn-{position:010d}.kept" in partition.names()


def test_a_loss_that_is_accepted_is_kept_whole_and_for_good(tmp_path, monkeypatch):
    monkeypatch.setattr(aside, "MAX_KEPT_BYTES", 100)
    monkeypatch.setattr(aside, "_PIECE_BYTES", 64)
    partition = Partition(tmp_path / "t-0")
    partition.write(40)
    partition.close()
    position = partition.corrupt_batch(4)
    cut = partition.file().read_bytes()[position:]
    forget_clean_stop(partition)
    partition.open(accept_loss=True)
    assert partition.kept_aside() == cut
    for number in range(12):  # torn ends since, of which eight are kept
        partition.write(1)
        partition.crash()
        partition.extend_file(b"torn %d" % number)
        partition.open()
    kept = [name for name in partition.names("*.torn-*") if name.endswith(".kept")]
    assert len(kept) == 1
    assert partition.path.joinpath(kept[0]).read_bytes() == cut
    assert len(partition.names("*.torn-*")) == 9
    partition.crash()


def test_what_was_kept_before_under_the_same_name_stays(partition):
    for _ in range(3):
        partition.write(10 - partition.log.log_end_offset)
        partition.close()
        partition.corrupt_batch(4)
        forget_clean_stop(partition)
        partition.open(accept_loss=True)
    assert len(partition.names("*.torn-*.kept*")) == 3


def test_zeros_are_not_kept(partition):
    partition.write(10)
    partition.close()
    position, _ = partition.batches()[4]
    size_bytes = partition.file().stat().st_size
    partition.truncate_file(position)
    partition.extend_file(bytes(size_bytes - position))
    forget_clean_stop(partition)
    report = partition.open(accept_loss=True).recovery
    assert (partition.read(), report.kept_aside) == (list(range(4)), [])
    assert partition.names("*.torn-*") == []


def test_erasing_removes_what_was_kept(tmp_path):
    with logstore.open(tmp_path) as store:
        log = store.create_topic("t", config=TopicConfig(segment_bytes=500))[0]
        for number in range(40):
            log.append(b"%d" % number, key=b"k%d" % number, flush=True)
    for name in (CHECKPOINT, ".kafka_cleanshutdown"):
        (tmp_path / name).unlink()
    path = sorted((tmp_path / "t-0").glob("*.log"))[1]
    path.write_bytes(path.read_bytes()[:-1])
    with logstore.open(tmp_path) as store:
        assert len(list((tmp_path / "t-0").glob("*.kept"))) > 5
        store["t"][0].erase(keys=[b"k0"])
        assert list((tmp_path / "t-0").glob("*.torn-*")) == []
