"""``verify`` called garbage in ``meta.properties`` sound: any text is a file of Kafka's oldest version,
which need not say anything. With a damaged ``topics.json`` the command ended with an error, which
advised to run it.
"""

import json

import pytest

import logstore
from logstore.__main__ import main
from logstore.errors import CorruptionError

pytestmark = pytest.mark.damaged


@pytest.fixture
def path(tmp_path):
    with logstore.open(tmp_path / "s") as store:
        store.create_topic("t").extend([b"1", b"2"])
        store.create_topic("other").extend([b"1"])
    return tmp_path / "s"


def damages(data):
    yield b""
    yield b"garbage\n"
    yield bytes(range(1, 81))
    yield bytes(80)
    for end in range(1, data.index(b"node.id=") + len(b"node.id=")):
        yield data[:end]


def test_a_damaged_identity_is_a_problem_and_stops_the_writer(path):
    file = path / "meta.properties"
    right = file.read_bytes()
    for data in damages(right):
        file.write_bytes(data)
        with logstore.open(path, read_only=True) as reader:
            (problem,) = reader.verify().problems
            assert problem.path == str(file)
            assert [record.value for record in reader["t"].read()] == [b"1", b"2"]
        with pytest.raises(CorruptionError, match=r"meta\.properties.*Restore the file; or move it away"):
            logstore.open(path)
    file.write_bytes(right)
    with logstore.open(path) as store:
        assert store.verify()


@pytest.mark.parametrize("data", [b"", b"garbage", b'{"version": 1, "topics": {"t": 5}}'])
def test_a_damaged_catalogue_is_reported_with_all_else_that_is_wrong(path, capsys, data):
    (path / "topics.json").write_bytes(data)
    log = path / "other-0" / f"{0:020d}.log"
    flipped = bytearray(log.read_bytes())
    flipped[-1] ^= 1
    log.write_bytes(flipped)
    assert main(["verify", str(path)]) == 1
    shown = capsys.readouterr().out
    assert "topics.json" in shown
    assert "move it away" in shown
    assert str(log) in shown
    assert main(["verify", str(path), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert {problem["path"] for problem in report["problems"]} >= {str(path / "topics.json"), str(log)}
    assert report["partitions"] == 2
    assert main(["verify", str(path), "t", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert [problem["path"] for problem in report["problems"]] == [str(path / "topics.json")]
    assert main(["verify", str(path), "nope"]) == 3
    assert "there is no topic 'nope'" in capsys.readouterr().err
