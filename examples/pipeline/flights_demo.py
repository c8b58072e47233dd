"""What this demo takes from ``examples/flights``: the source, the loading, how things are shown."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "flights"))

import display
from load import load, partition_of
from plot import ALARM, FAINT, STYLE
from source import Flights, data_folder, midnight_ms
from writer import Sample

__all__ = [
    "ALARM",
    "FAINT",
    "STYLE",
    "Flights",
    "Sample",
    "data_folder",
    "display",
    "load",
    "midnight_ms",
    "partition_of",
]
