"""What is installed: a wheel with the compiled module where there is a compiler, else one without it.

Everything is built from the source distribution, in a folder of its own, without the network.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from logstore._version import VERSION
from tests.logdir.helpers import run_python
from tests.rotation import in_turn

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
BUILD = "import sys, setuptools.build_meta as b; print(getattr(b, 'build_' + sys.argv[1])(sys.argv[2]))"
PLAY = """
import logstore
from logstore.format.loops import decode_records, encode_records
from logstore.format.offset_map import OffsetMap
encoded = encode_records([b"k"], [b"v"], 5, None, 5)
assert decode_records(encoded, 0, len(encoded), 1, 7, 5, None)[0] == (7, 5, b"k", b"v", ())
assert OffsetMap(1000, bytes(16)).put(b"k", 1)
with logstore.open(sys.argv[1]) as store:
    log = store.require_topic("t")
    log.append(b"v")
print(*logstore.build_info(), logstore.__file__, sep="\\n")
"""


def build_in(kind, folder, into, **environment):
    done = subprocess.run(
        [sys.executable, "-c", BUILD, kind, str(into)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": "", **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done


def run_build(kind, folder, into, **environment):
    """Build in ``folder``; the path of what was made."""
    return into / build_in(kind, folder, into, **environment).stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    pytest.importorskip("setuptools", "77")
    folder = tmp_path_factory.mktemp("checkout") / "logstore"
    folder.mkdir()
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    left_out = shutil.ignore_patterns("*.so", "*.pyd", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT / "src", folder / "src", ignore=left_out)
    return run_build("sdist", folder, tmp_path_factory.mktemp("sdist"))


def unpack(sdist, into):
    with tarfile.open(sdist) as archive:
        archive.extractall(into, filter="data")
    (folder,) = into.iterdir()
    return folder


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory):
    if shutil.which("cc") is None:
        pytest.skip("no C compiler here")
    folder = unpack(sdist, tmp_path_factory.mktemp("build"))
    return run_build("wheel", folder, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def wheel_without_compiler(sdist, tmp_path_factory):
    folder = unpack(sdist, tmp_path_factory.mktemp("build"))
    return run_build("wheel", folder, tmp_path_factory.mktemp("wheel"), CC="/bin/false")


def names_in(wheel):
    return zipfile.ZipFile(wheel).namelist()


def compiled_in(wheel):
    return [name for name in names_in(wheel) if "_compiled" in name]


def installed(wheel, tmp_path, **environment):
    """Unpack the wheel and run a store with it; what build_info() says there."""
    folder = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(folder)
    environment = {**os.environ, "PYTHONPATH": str(folder), "LOGSTORE_LOOPS": "", **environment}
    printed = run_python("import sys" + PLAY, tmp_path / "store", env=environment, cwd=tmp_path)
    is_compiled, reason, _, file = printed.splitlines()
    assert file.startswith(str(folder))
    return is_compiled == "True", reason


def test_the_source_distribution_holds_all_that_the_module_is_made_of(sdist):
    with tarfile.open(sdist) as archive:
        found = {Path(name).name for name in archive.getnames() if "/src/compiled/" in name}
    assert found == {path.name for path in (ROOT / "src" / "compiled").glob("*.[ch]")}


def test_a_wheel_is_for_every_python_from_3_11_on(wheel):
    assert wheel.name.startswith("embedded_logstore-")
    assert "-cp311-abi3-" in wheel.name
    assert "logstore/_pyinstaller/hook-logstore.py" in names_in(wheel)
    (entries,) = [name for name in names_in(wheel) if name.endswith(".dist-info/entry_points.txt")]
    assert b"hook-dirs = logstore._pyinstaller:hook_directories" in zipfile.ZipFile(wheel).read(entries)


def test_a_wheel_without_the_module_is_for_every_platform(wheel_without_compiler):
    assert wheel_without_compiler.name == f"embedded_logstore-{VERSION}-py3-none-any.whl"
    archive = zipfile.ZipFile(wheel_without_compiler)
    (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/WHEEL")]
    assert "Root-Is-Purelib: true" in archive.read(name).decode()
    assert "logstore/__init__.py" in archive.namelist()
    assert not [name for name in archive.namelist() if ".data/" in name]


def test_the_build_says_that_there_is_no_module(sdist, tmp_path):
    folder = unpack(sdist, tmp_path / "build")
    done = build_in("wheel", folder, tmp_path, CC="/bin/false")
    assert "logstore._compiled was not built: logstore will run in plain Python" in done.stderr


def test_nothing_is_left_of_an_earlier_build_in_the_same_checkout(sdist, tmp_path):
    """Modules that an update has removed were installed all the same."""
    folder = unpack(sdist, tmp_path / "build")
    gone = folder / "src" / "logstore" / "gone.py"
    gone.touch()
    assert "logstore/gone.py" in names_in(run_build("wheel", folder, tmp_path, CC="/bin/false"))
    gone.unlink()
    assert "logstore/gone.py" not in names_in(run_build("wheel", folder, tmp_path, CC="/bin/false"))


def test_a_wheel_holds_the_compiled_module_the_package_and_what_spark_looks_for(wheel):
    assert compiled_in(wheel) == ["logstore/_compiled.abi3.so"]
    assert "logstore/py.typed" in names_in(wheel)
    others = {name for name in names_in(wheel) if not name.startswith("logstore/")}
    assert sorted(name for name in others if ".dist-info/" not in name) == [
        "pyspark_logstore/__init__.py",
        "pytest_logstore/__init__.py",
    ]
    assert [name for name in names_in(wheel) if name.endswith((".c", ".h"))] == []


def test_what_a_wheel_installs_runs_compiled(wheel, tmp_path):
    assert installed(wheel, tmp_path) == (True, "the compiled module is installed")


def test_the_module_of_a_wheel_asks_for_the_limited_api_only(wheel, tmp_path):
    if shutil.which("nm") is None:
        pytest.skip("no nm here")
    path = zipfile.ZipFile(wheel).extract("logstore/_compiled.abi3.so", tmp_path)
    asked = subprocess.run(["nm", "-D", "--undefined-only", path], capture_output=True, text=True, check=True)
    private = [line.split()[-1] for line in asked.stdout.splitlines() if " _Py" in line]
    assert set(private) <= STABLE_PRIVATE, private


STABLE_PRIVATE = {
    *("_Py_Dealloc", "_Py_NoneStruct", "_Py_TrueStruct", "_Py_FalseStruct", "_Py_NotImplementedStruct"),
    *("_PyArg_ParseTuple_SizeT", "_PyArg_ParseTupleAndKeywords_SizeT", "_Py_BuildValue_SizeT"),
    *("_PyObject_New", "_PyObject_NewVar", "_PyObject_GC_New", "_PyObject_GC_NewVar", "_Py_EllipsisObject"),
}
"""Private by their names, but part of the stable ABI."""


def test_without_a_compiler_the_install_goes_on_and_plain_code_runs(wheel_without_compiler, tmp_path):
    assert compiled_in(wheel_without_compiler) == []
    is_compiled, reason = installed(wheel_without_compiler, tmp_path)
    assert not is_compiled
    assert "has no compiled module (No module named" in reason


def test_a_module_of_another_platform_is_told_and_plain_code_runs(wheel_without_compiler, tmp_path):
    broken = tmp_path / "broken.whl"
    shutil.copy(wheel_without_compiler, broken)
    with zipfile.ZipFile(broken, "a") as archive:
        archive.writestr("logstore/_compiled.abi3.so", b"\x7fELF of something else")
    is_compiled, reason = installed(broken, tmp_path)
    assert not is_compiled
    assert "has no compiled module (" in reason
    assert "_compiled.abi3.so" in reason


TYPED_OUT = """
import os, sys
from pathlib import Path
import logstore
from tests.pages import run_page
assert logstore.__file__.startswith(sys.prefix), logstore.__file__
for page in ("README.md", "docs/tutorial.md"):
    directory = Path(sys.argv[1]) / page.replace("/", "-")
    directory.mkdir()
    os.chdir(directory)
    run_page(page, directory, skips=("logstore.spark",))
print("typed out")
"""


@in_turn(0, 4)
def test_readme_and_tutorial_run_in_a_fresh_environment(wheel, tmp_path):
    """With nothing but what the install brings. 20 s, and the network; without one it is skipped."""
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    python = environment / "bin" / "python"
    install = [python, "-m", "pip", "install", "-q", "--no-compile", wheel]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode and "No matching distribution" in done.stderr:
        pytest.skip("no package index here")
    assert done.returncode == 0, done.stderr
    typed = subprocess.run(
        [python, "-c", TYPED_OUT, tmp_path],
        env={**os.environ, "PYTHONPATH": str(ROOT), "LOGSTORE_LOOPS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert typed.stdout.endswith("typed out\n"), typed.stderr
