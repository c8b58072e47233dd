"""A stock broker and a store do not open a directory that the other has open."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import logstore
from logstore.errors import LockedError
from tests.interop.kafka import KafkaBroker, require_kafka

pytestmark = pytest.mark.interop


def test_broker_and_store_exclude_each_other(tmp_path: Path) -> None:
    require_kafka()
    broker = KafkaBroker(tmp_path / "kafka")
    broker.start()
    try:
        assert broker._process is not None
        with pytest.raises(LockedError, match=f"held by process {broker._process.pid}:"):
            logstore.open(broker.log_dir)
        assert broker.stop()
    finally:
        broker.kill()
    with logstore.open(broker.log_dir) as store:
        shutil.copytree(broker.log_dir, tmp_path / "backup")
        os.close(os.open(broker.log_dir / ".lock", os.O_RDWR))
        with pytest.raises(RuntimeError, match="exited with 1"):
            broker.start()
        assert "Failed to acquire lock on file .lock" in broker.log_file.read_text()
        assert store.verify()
