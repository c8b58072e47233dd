"""Letting another user reach a test's directory, which pytest keeps closed, one level deeper under xdist."""

import tempfile
from itertools import takewhile
from pathlib import Path


def let_others_in(path: Path) -> None:
    """Make every directory above ``path``, up to the temporary directory, one that others may pass."""
    top = Path(tempfile.gettempdir())
    for ancestor in takewhile(lambda folder: folder != top, path.parents):
        ancestor.chmod(0o755)
