"""A program that PyInstaller has packed finds all of logstore, also what is imported by its name. Costs 15 s,
in one of eight turns."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import logstore
from logstore._pyinstaller import hook_directories
from tests.rotation import in_turn

PROGRAM = """
import logstore

with logstore.open("s") as store, store.listen() as listener, logstore.connect(listener.address) as client:
    client.create_topic("t", partitions=1)
    with client.producer(transactional_id="x") as producer, producer.transaction():
        producer.send("t", b"v")
    with client.consumer("t", group="g", auto_offset_reset="earliest") as consumer:
        while not (records := consumer.poll(timeout=1)):
            pass
        consumer.commit()
    print(records[0].value, logstore.build_info().is_compiled)
"""
LEFT_OUT = ("matplotlib", "numpy", "pandas", "pyarrow", "pyspark")
"""What would take long to pack, and is not needed."""


@pytest.mark.slow
@in_turn(3, 8)
def test_a_packed_program_finds_all_of_logstore(tmp_path):
    (tmp_path / "app.py").write_text(PROGRAM)
    options = [option for name in LEFT_OUT for option in ("--exclude-module", name)]
    options += [option for path in hook_directories() for option in ("--additional-hooks-dir", path)]
    packed = subprocess.run(
        [sys.executable, "-m", "PyInstaller", "--log-level", "ERROR", *options, "app.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert packed.returncode == 0, packed.stderr
    ran = subprocess.run(
        [tmp_path / "dist" / "app" / "app"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (ran.stdout, ran.stderr) == (f"b'v' {logstore.build_info().is_compiled}\n", "")


def test_the_hook_is_where_it_is_looked_for():
    (directory,) = hook_directories()
    assert [path.name for path in Path(directory).glob("hook-*.py")] == ["hook-logstore.py"]
