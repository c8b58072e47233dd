"""A damaged ``partition.metadata`` stopped every reader and no writer: the store opened, read and appended,
and warned that it ignored the id. Readers elsewhere warned of the same, and then raised because of it.
"""

import pytest

import logstore
from logstore.__main__ import main


@pytest.fixture
def path(tmp_path):
    with logstore.open(tmp_path / "s") as store:
        store.create_topic("t").extend([b"1", b"2"])
    return tmp_path / "s"


def damage(path):
    (path / "t-0" / "partition.metadata").write_bytes(b"garbage\n")


def ways_of_reading(store):
    topic = store["t"]
    return [
        [record.value for record in topic.read()],
        [record.value for record in topic[0].follow(0, timeout=0)],
        topic.read_arrow()["value"].to_pylist(),
    ]


@pytest.mark.damaged
def test_writer_and_readers_agree(path):
    damage(path)
    with logstore.open(path, read_only=True) as reader, logstore.open(path) as writer:
        for store in (writer, reader):
            assert ways_of_reading(store) == [[b"1", b"2"]] * 3
            (found,) = store.verify().problems
            assert found.path == str(path / "t-0" / "partition.metadata")
        writer["t"].append(b"3", flush=True)
        assert [record.value for record in reader["t"].read()] == [b"1", b"2", b"3"]


@pytest.mark.damaged
def test_damage_and_repair_under_an_open_reader(path):
    file = path / "t-0" / "partition.metadata"
    right = file.read_bytes()
    with logstore.open(path, read_only=True) as before:
        assert [record.value for record in before["t"].read()] == [b"1", b"2"]
        damage(path)
        with logstore.open(path, read_only=True) as after, logstore.open(path) as writer:
            for contents in (None, right):
                if contents is not None:
                    file.write_bytes(contents)
                writer["t"].append(b"3", flush=True)
                for reader in (before, after):
                    values = [record.value for record in writer["t"].read()]
                    assert [record.value for record in reader["t"].read()] == values


@pytest.mark.damaged
def test_cat_prints_what_is_there(path, capsys):
    damage(path)
    assert main(["cat", str(path), "t", "--format", "raw"]) == 0
    assert capsys.readouterr().out.split() == ["1", "2"]
