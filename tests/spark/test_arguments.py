"""A single text where a list belongs: its letters would be taken for stores, the first of them for the root
directory. Without Java."""

from unittest.mock import MagicMock

import pytest

from tests.spark.conftest import missing_python

if missing_python() is not None:
    pytest.skip(missing_python(), allow_module_level=True)

import logstore
from logstore.errors import UsageError
from logstore.spark import CompactionJob, compact, new_records, recover, verify
from tests.logdir.helpers import run_python

SPARK = MagicMock()


@pytest.fixture
def path(tmp_path):
    logstore.open(tmp_path / "store").close()
    return str(tmp_path / "store")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda path: compact(SPARK, path), "paths is '/.*'; it must be a list of directories"),
        (lambda path: compact(SPARK, None), "paths is None; it must be a list of directories"),
        (lambda path: verify(SPARK, path, topics="t"), "topics is 't'; it must be a list of topic names"),
        (lambda path: recover(path, give_up="query"), "give_up is 'query'; it must be a list of sinks' ids"),
        (
            lambda path: new_records(SPARK, MagicMock(), path=path, topics="t"),
            "topics is 't'; it must be a list of topic names",
        ),
    ],
)
def test_what_is_no_list_is_refused(path, call, message):
    with pytest.raises(UsageError, match=message):
        call(path)


@pytest.mark.parametrize("timeout_ms", ["60000", -5, 0.5])
def test_a_wrong_time_to_wait_for_the_lock_is_refused(path, timeout_ms):
    with pytest.raises(UsageError, match=r"lock_timeout_ms is .*; it must be a whole number, 0 or above"):
        recover(path, lock_timeout_ms=timeout_ms)


def test_where_there_is_no_store_nothing_is_recovered(tmp_path):
    with pytest.raises(UsageError, match="does not exist"):
        recover(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="looks like the address of a broker"):
        recover("127.0.0.1:9092")


def test_a_sink_that_is_not_there_cannot_be_given_up(path):
    with pytest.raises(UsageError, match="no batch of the sink 'quary'; none is unfinished"):
        recover(path, give_up=["quary"])


def test_help_and_completion_name_what_is_imported_at_its_first_use():
    """0.7 s."""
    program = """
import pydoc, logstore.spark
assert set(logstore.spark.__all__) <= set(dir(logstore.spark))
print(pydoc.plain(pydoc.render_doc(logstore.spark)))
"""
    shown = run_python(program)
    for name in logstore.spark.__all__:
        assert name in shown.split("DATA\n")[0]


def test_a_notebook_shows_what_a_compaction_of_many_stores_did(path):
    with logstore.open(path) as store:
        store.create_topic("t", config=logstore.TopicConfig(cleanup_policy="compact")).extend([(b"k", b"v")])
        reports = {path: store.compact(now=True)}
    shown = CompactionJob(
        reports=reports, failures={"/<b>": ["LockedError: <i>"]}, elapsed_ms=7
    )._repr_html_()
    assert "t-0" in shown
    assert "/&lt;b&gt;" in shown
    assert "LockedError: &lt;i&gt;" in shown
    assert "failure" not in CompactionJob(reports=reports, failures={}, elapsed_ms=7)._repr_html_()
