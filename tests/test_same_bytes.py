"""The compiled loops and the plain ones write the same directories, byte for byte."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from logstore.build import compiled


def write(path, loops):
    """The files that a process writes, by name."""
    environment = os.environ | {"LOGSTORE_LOOPS": loops}
    subprocess.run(
        [sys.executable, "-m", "tests.same_bytes_program", str(path)],
        check=True,
        env=environment,
        timeout=120,
    )
    files = {
        str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()
    }
    return {name: data for name, data in files.items() if not is_random(name)}


def is_random(name):
    """Ids of the store and its topics."""
    return Path(name).name in ("meta.properties", "partition.metadata", "topics.json", ".lock")


@pytest.mark.skipif(compiled is None, reason="this run has no compiled module")
def test_a_directory_does_not_tell_which_loops_wrote_it(tmp_path):
    ours, plain = write(tmp_path / "compiled", "compiled"), write(tmp_path / "plain", "plain")
    assert sorted(ours) == sorted(plain)
    assert [name for name in ours if ours[name] != plain[name]] == []
    assert sum(name.endswith(".log") and bool(data) for name, data in ours.items()) > 40
