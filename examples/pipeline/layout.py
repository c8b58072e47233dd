"""Where things lie, for the demo and for the driver that it runs."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Layout(NamedTuple):
    """Everything below one directory. Paths are plain strings, as Spark wants them."""

    directory: Path

    @property
    def store(self) -> str:
        return str(self.directory / "store")

    @property
    def parquet(self) -> str:
        return str(self.directory / "weeks.parquet")

    @property
    def picture(self) -> str:
        return str(self.directory / "pipeline.png")

    @property
    def log(self) -> Path:
        """What Spark says."""
        return self.directory / "driver.log"

    def checkpoint(self, query: str) -> str:
        return str(self.directory / "checkpoints" / query)
