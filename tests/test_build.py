"""Which code runs, who says so, and that the compiled module can be imported more than once."""

import os
import subprocess
import sys

import pytest

import logstore
from logstore import build
from tests.logdir.helpers import run_python
from tests.pythons import find_python

SAYS = "import logstore; print(*logstore.build_info(), sep='\\n')"
HIDDEN = "import sys; sys.modules['logstore._compiled'] = None; "
"""As on an installation without the compiled module."""

needs_compiled = pytest.mark.skipif(build.compiled is None, reason="no compiled module here")


def says(code=SAYS, **environment):
    is_compiled, reason, crc32c = run_python(code, env=os.environ | environment).splitlines()
    return is_compiled == "True", reason, crc32c


def refused(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | environment
    )
    assert done.returncode != 0
    return done.stderr.splitlines()[-1]


def test_plain_is_plain():
    assert says(LOGSTORE_LOOPS="plain") == (False, "LOGSTORE_LOOPS=plain", "crc32c package")


@needs_compiled
def test_compiled_is_compiled():
    is_compiled, reason, crc32c = says(LOGSTORE_LOOPS="compiled")
    assert (is_compiled, reason) == (True, "LOGSTORE_LOOPS=compiled")
    assert crc32c == build.compiled.CRC32C_KERNEL


@needs_compiled
def test_an_installed_module_is_used():
    assert says(LOGSTORE_LOOPS="")[:2] == (True, "the compiled module is installed")


def test_without_the_module_plain_code_runs_and_the_reason_is_told():
    is_compiled, reason, _ = says(HIDDEN + SAYS, LOGSTORE_LOOPS="")
    assert not is_compiled
    assert "has no compiled module" in reason


def test_insisting_on_a_module_that_is_not_there_fails():
    error = refused(HIDDEN + SAYS, LOGSTORE_LOOPS="compiled")
    assert "ImportError: LOGSTORE_LOOPS=compiled, but this installation has no compiled module" in error


def test_a_choice_that_there_is_not_fails():
    assert "LOGSTORE_LOOPS is 'fast'" in refused(SAYS, LOGSTORE_LOOPS="fast")


def test_build_info_says_what_this_process_uses():
    assert logstore.build_info().is_compiled == (build.compiled is not None)


# The module itself

PLAY = """
import importlib.machinery, importlib.util, sys

def load(path):
    loader = importlib.machinery.ExtensionFileLoader("logstore._compiled", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("logstore._compiled", loader))
    loader.exec_module(module)
    return module

def play(module):
    encoded = module.encode_records([b"k", None], [b"v", b"w"], 5, None, 5, None, 0)
    where = (encoded, 0, len(encoded), 2, 10, 5, None, 1, False)
    records = module.decode_records(*where, 7, ("t", 3))
    assert [(record.topic, record.partition, record.leader_epoch) for record in records] == [("t", 3, 7)] * 2
    assert [tuple(record) for record in records] == [(10, 5, b"k", b"v", ()), (11, 5, None, b"w", ())]
    assert type(records[0]) is module.Record
    offsets = module.OffsetMap(1000, bytes(16))
    assert offsets.put_section(encoded, 0, len(encoded), 2, 10, 1, 0) == 2
    assert offsets.get(b"k") == 10
    assert module.crc32c(b"123456789") == 0xE3069283
    return records, offsets
"""


@needs_compiled
def test_a_second_module_object_has_a_state_of_its_own():
    run_python(
        PLAY
        + """
import gc
first, second = load(sys.argv[1]), load(sys.argv[1])
assert first is not second and first.Record is not second.Record
play(first)
play(second)
kept = play(first)
del first
gc.collect()
play(second)
assert kept[0][0].key == b"k" and kept[0][0].topic == "t" and kept[1].get(b"k") == 10
""",
        build.compiled.__file__,
    )


@needs_compiled
def test_each_interpreter_has_a_module_of_its_own():
    pytest.importorskip("_xxsubinterpreters", reason="this Python has no such module of interpreters")
    run_python(
        f"""
import sys
import _xxsubinterpreters as interpreters
code = {PLAY!r} + "for _ in range(3): play(load(%r))" % sys.argv[1]
exec(code)
for _ in range(3):
    interpreter = interpreters.create()
    interpreters.run_string(interpreter, code)
    interpreters.destroy(interpreter)
exec(code)
""",
        build.compiled.__file__,
    )


@needs_compiled
@pytest.mark.slow
@pytest.mark.parametrize("minor", [11, 12, 13, 14])
def test_one_module_serves_every_python(minor):
    python = find_python(minor)
    if python is None:
        pytest.skip(f"no Python 3.{minor} here")
    code = PLAY + "play(load(sys.argv[1])); print(sys.version_info.minor)"
    done = subprocess.run([python, "-c", code, build.compiled.__file__], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == (str(minor), "")
