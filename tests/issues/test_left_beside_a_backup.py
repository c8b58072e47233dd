"""A backup that was refused left ``full.partial`` with a lock in it. One that was killed in its first
moments left the same, and that opened as a store: ``verify`` called it sound and empty.
"""

import pytest

import logstore
from logstore.errors import LockedError, UsageError


@pytest.fixture
def store(tmp_path):
    with logstore.open(tmp_path / "data") as store:
        store.create_topic("t").extend([b"x"] * 10)
        yield store


def test_a_refused_call_leaves_nothing(store, tmp_path):
    full = tmp_path / "full"
    full.mkdir()
    (full / "letters").write_text("dear")
    with logstore.open(tmp_path / "other") as other:
        other.backup(tmp_path / "others")
    before = sorted(tmp_path.rglob("*"))
    for path in (full, tmp_path / "others"):
        with pytest.raises(UsageError):
            store.backup(path)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("names", [[], [".lock"], [".lock", "backup.unfinished"]])
def test_what_a_killed_call_leaves_is_no_store(store, tmp_path, names):
    partial = tmp_path / "b.partial"
    partial.mkdir()
    for name in names:
        (partial / name).touch()
    for options in ({"read_only": True}, {"create": False}):
        with pytest.raises(UsageError, match="is an unfinished backup"):
            logstore.open(partial, **options)
    store.backup(tmp_path / "b")
    assert not partial.exists()


def test_a_call_beside_another_says_so(store, tmp_path):
    def beside(_):
        with pytest.raises(
            LockedError, match=r"another call is making a backup to .*b; wait for it"
        ) as raised:
            store.backup(tmp_path / "b")
        assert "open(" not in str(raised.value)

    store.backup(tmp_path / "b", on_progress=beside)
