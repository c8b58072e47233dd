"""The disk goes between the opening of a file and the look at what it is.

``fstat`` then fails, and the plain ``OSError`` of Python went through to callers who handle
:class:`~logstore.errors.StorageError`; the descriptor stayed open. Found by cutting the power of XFS under a
live writer.
"""

import errno
import os

import pytest

from logstore.errors import StorageError
from logstore.files import OsFiles


def refuse(*_):
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_file_whose_status_cannot_be_read_is_an_error_of_storage(tmp_path, monkeypatch):
    path = str(tmp_path / "f")
    opened = OsFiles().open(path, create=True)
    closed = []
    monkeypatch.setattr(os, "fstat", refuse)
    with pytest.raises(StorageError, match="reading the size of"):
        opened.size_bytes()
    monkeypatch.setattr(os, "close", closed.append)
    with pytest.raises(StorageError, match="opening"):
        OsFiles().open(path)
    monkeypatch.undo()
    os.close(*closed)
