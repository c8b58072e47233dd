"""Messages and pages said ``pip install 'logstore[arrow]'``. On the package index that name is somebody
else's: whoever did as told got other people's code, without the extra, and the same error again.

And a build that found no compiler said so where pip shows nothing; the wheel claimed to be for one platform.
``tests/test_wheels.py`` holds the wheels to it.
"""

import os
import re
import tomllib
from pathlib import Path

import pytest
from tests.logdir.helpers import run_python

from logstore import build
from logstore._version import DISTRIBUTION, how_to_install

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FOLDERS = ("src", "docs", "examples", "tests", "benchmarks")
SINGLE = ("README.md", "CHANGELOG.md", "Makefile", "pyproject.toml", "setup.py")
ENDINGS = {".py", ".md", ".toml", ".txt", ".c", ".h", ".sh"}

INSTALLED = re.compile(r"pip install((?:\s+-[-\w]+)*)\s+(['\"]?)([^\s'\"`]+)")
"""Options, and what is installed first."""
EXTRA = re.compile(rf"([-\w.]+)\[({'|'.join(PROJECT['optional-dependencies'])})(?:,[\w,]+)?\]")
"""A name with one of our extras."""

OTHERS = {"upgrade", "pip", "setuptools"}
"""What a checkout makes its environment of."""


def texts():
    for path in [ROOT / name for name in SINGLE] + [
        path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*"))
    ]:
        is_text = path.is_file() and (path.suffix in ENDINGS or path.name == "Makefile")
        if is_text and path != Path(__file__) and "egg-info" not in str(path):
            yield str(path.relative_to(ROOT)), path.read_text()


def wrong_lines(text):
    """What is to be installed, or is named with an extra, and is not ours; and extras that there are not."""
    found = []
    for match in INSTALLED.finditer(text):
        name, _, extras = match[3].rstrip(".,;:)").partition("[")
        if name in (".", "") or name in OTHERS or name.startswith(("-", "{", "$", ".")):
            continue
        if name != DISTRIBUTION or not set(filter(None, extras.rstrip("]").split(","))) <= set(
            PROJECT["optional-dependencies"]
        ):
            found.append(match[0])
    found += [match[0] for match in EXTRA.finditer(text) if match[1] not in (DISTRIBUTION, ".")]
    return found


def test_the_name_is_that_of_the_metadata():
    assert PROJECT["name"] == DISTRIBUTION


def test_every_line_that_says_what_to_install_names_it():
    found = {path: lines for path, text in texts() if (lines := wrong_lines(text))}
    assert found == {}


def test_the_search_finds_what_was_wrong():
    assert wrong_lines("pip install 'logstore[arrow]'") == ["pip install 'logstore[arrow]", "logstore[arrow]"]
    assert wrong_lines("comes with `logstore[demo]`") == ["logstore[demo]"]
    assert wrong_lines("pip install -U logstore") == ["pip install -U logstore"]
    assert wrong_lines(f"pip install '{DISTRIBUTION}[nothing]'") == [f"pip install '{DISTRIBUTION}[nothing]"]
    assert wrong_lines(f"pip install '{DISTRIBUTION}[arrow,spark]', pip install -e '.[test]'") == []
    assert sum(text.count("pip install") for _, text in texts()) > 20


def test_messages_take_it_from_one_place():
    """Docstrings are no messages: they are held to the name by the search above."""
    assert how_to_install("arrow") == f"pip install '{DISTRIBUTION}[arrow]'"
    hint = re.compile(r"(f?)\"[^\"\n]*pip install '")
    literal = [path for path, text in texts() if path.startswith("src/") and hint.search(text)]
    assert literal == ["src/logstore/_version.py"]


MODULES = {
    "arrow": "logstore.partition.reading.arrow",
    "spark": "logstore.spark.source",
    "cli": "logstore.cli",
}


@pytest.mark.parametrize("extra", MODULES)
def test_a_missing_package_says_what_to_install(extra):
    module = MODULES[extra]
    missing = {"arrow": "pyarrow", "spark": "pyspark", "cli": "typer"}[extra]
    printed = run_python(
        f"import sys; sys.modules[{missing!r}] = None\n"
        "try:\n"
        f"    import {module}\n"
        "except ImportError as error:\n"
        "    print(error)"
    )
    assert f"pip install '{DISTRIBUTION}[{extra}]'" in printed


def test_the_program_says_it_in_a_sentence():
    printed = run_python(
        "import sys; sys.modules['rich'] = None; sys.stderr = sys.stdout\n"
        "from logstore.__main__ import main\n"
        "print(main(['ls']))"
    )
    assert printed == f"the command line needs typer and rich: pip install '{DISTRIBUTION}[cli]'\n3\n"


# A build without a compiler ---------------------------------------------------------------------------------

OPENS_TWICE = """
import sys
sys.modules['logstore._compiled'] = None  # as where it was not built
import logstore
print('imported')
for _ in range(2):
    with logstore.open(sys.argv[1]) as store:
        store.require_topic('t')
print(logstore.build_info().is_compiled)
"""
TO_STDOUT = "import logging, sys; logging.basicConfig(stream=sys.stdout)\n"


def lines_of(tmp_path, **environment):
    printed = run_python(TO_STDOUT + OPENS_TWICE, tmp_path / "s", env=os.environ | environment)
    return printed.splitlines()


def test_who_runs_plain_python_by_accident_is_told_once_when_a_store_is_opened(tmp_path):
    imported, told, is_compiled = lines_of(tmp_path, LOGSTORE_LOOPS="")
    assert (imported, is_compiled) == ("imported", "False")
    assert told.startswith("WARNING:logstore.partition.state.context:logstore runs in plain Python")
    assert "has no compiled module" in told
    assert build.INSTALL_AGAIN in told


def test_who_has_chosen_it_is_not(tmp_path):
    assert lines_of(tmp_path, LOGSTORE_LOOPS="plain") == ["imported", "False"]
