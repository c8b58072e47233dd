import dataclasses

import pytest

import logstore
from logstore.errors import UnknownTopicError, UsageError
from logstore.model import TopicPartition

pytestmark = pytest.mark.slow
COMPACTED = logstore.TopicConfig(cleanup_policy="compact", segment_bytes=4096)


@pytest.fixture
def path(tmp_path):
    with logstore.open(tmp_path / "store") as store:
        for name, partitions in (("a", 2), ("b", 1)):
            topic = store.create_topic(name, partitions=partitions)
            for log in topic:
                log.extend([b"x" * 100] * 50)
        topic = store.create_topic("table", partitions=2, config=COMPACTED)
        for log in topic:
            for number in range(40):
                log.extend([(b"%d" % (number % 3), b"y" * 500)])
    return str(tmp_path / "store")


def comparable(report):
    return dataclasses.replace(report, duration_ms=0)


def test_the_report_is_that_of_the_store(spark, path):
    from logstore.spark import verify

    with logstore.open(path, read_only=True) as store:
        assert comparable(verify(spark, path)) == comparable(store.verify())
        assert comparable(verify(spark, path, topics=["b"])) == comparable(store["b"].verify())


@pytest.mark.damaged
def test_damage_in_any_partition_is_in_the_report(spark, path):
    from logstore.spark import verify

    with open(f"{path}/a-1/00000000000000000000.log", "rb+") as file:
        file.seek(200)
        file.write(b"\xff")
    report = verify(spark, path)
    assert not report
    assert [problem.path for problem in report.problems] == [f"{path}/a-1/00000000000000000000.log"]
    assert report.partition_count == 5


@pytest.mark.damaged
def test_a_damaged_checkpoint_is_reported_once(spark, path):
    from logstore.spark import verify

    with open(f"{path}/recovery-point-offset-checkpoint", "wb") as file:
        file.write(b"what")
    report = verify(spark, path)
    assert [problem.kind.value for problem in report.problems] == ["checkpoint"]


def test_what_is_no_store_or_topic_is_told(spark, path, tmp_path):
    from logstore.spark import verify

    with pytest.raises(UsageError):
        verify(spark, tmp_path / "nowhere")
    with pytest.raises(UnknownTopicError, match="nothing"):
        verify(spark, path, topics=["nothing"])


def test_stores_are_compacted_side_by_side(spark, path, tmp_path):
    from logstore.spark import compact

    with logstore.open(tmp_path / "other") as store:
        store.create_topic("plain").extend([b"x"])
    job = compact(spark, [path, tmp_path / "other"], now=True)
    assert job
    assert set(job.reports[path]) == {TopicPartition("table", 0), TopicPartition("table", 1)}
    assert job.reports[str(tmp_path / "other")] == {}
    assert job.saved_bytes > 20_000
    assert "2 logs of 2 stores" in str(job)
    with logstore.open(path) as store:
        for log in store["table"]:
            assert len({record.key for record in log.read()}) == 3
            assert sum(1 for _ in log.read()) < 40


def test_a_store_that_is_open_elsewhere_is_told_and_the_others_are_compacted(spark, path, tmp_path):
    from logstore.spark import compact

    with logstore.open(tmp_path / "other") as store:
        store.create_topic("table", config=COMPACTED)
        job = compact(spark, [tmp_path / "other", path], now=True)
    assert not job
    assert list(job.failures) == [str(tmp_path / "other")]
    assert "LockedError" in job.failures[str(tmp_path / "other")][0]
    assert len(job.reports[path]) == 2
    assert "LockedError" in str(job)
