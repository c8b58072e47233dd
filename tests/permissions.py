"""Opens a test's directory to other users. Pytest keeps it closed, under xdist one level deeper."""

import tempfile
from itertools import takewhile
from pathlib import Path


def let_others_in(path: Path) -> None:
    """Let others pass through every directory above ``path``, up to the temporary directory."""
    top = Path(tempfile.gettempdir())
    for ancestor in takewhile(lambda folder: folder != top, path.parents):
        ancestor.chmod(0o755)
