"""A broker's log directory, made of what one has written: a metadata log, and topics that are empty."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.interop.fixtures import DATA

BROKER = DATA / "broker"
"""As kafka 4.4.0 left it, stopped cleanly: ``plain`` with three partitions, ``kept`` with one whose
``retention.ms`` is -1, ``compacted``, and ``gone``, which was deleted. The files of an empty log but its
``.log`` are not kept."""


def make_broker(path: Path) -> Path:
    """A copy."""
    return Path(shutil.copytree(BROKER, path))
