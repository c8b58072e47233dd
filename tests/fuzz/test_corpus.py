"""Every file of the corpus is read as every engine reads it, and refused with an error of logstore or not."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.fuzz import make_corpus
from tests.fuzz.readers import READERS, check, is_refused

CORPUS = make_corpus.CORPUS
MOST_SECONDS = 10
"""For one small file, on a loaded machine, with an import that comes first."""


def files_of(name):
    return sorted((CORPUS / name).iterdir())


@pytest.mark.parametrize("name", READERS)
def test_every_file_is_read_or_refused(name):
    for path in files_of(name):
        began = time.process_time()
        check(name, path.read_bytes())
        assert time.process_time() - began < MOST_SECONDS, path


@pytest.mark.parametrize("name", [name for name in READERS if name not in ("segment", "batches", "names")])
def test_right_files_are_read(name):
    """Else the corpus would say nothing: a reader that refuses everything passes the test above."""
    for path in files_of(name):
        if path.name.startswith("right"):
            result = check(name, path.read_bytes())
            parts = result if isinstance(result, tuple | list) else [result]
            assert not is_refused(result), (path, result)
            assert not any(map(is_refused, parts)), (path, result)


def test_the_corpus_is_what_its_script_writes(tmp_path):
    make_corpus.main(tmp_path)
    made = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.glob("*/*")}
    kept = {
        path.relative_to(CORPUS): path.read_bytes()
        for path in CORPUS.glob("*/*")
        if not path.name.startswith("found-")
    }
    assert made == kept
    assert len(made) > 300


def test_every_reader_has_a_folder_and_every_folder_a_reader():
    folders = {path.name for path in Path(CORPUS).iterdir()}
    assert folders == {*READERS, "directory"}
