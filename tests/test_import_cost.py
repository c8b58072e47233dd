"""``import logstore`` costs next to nothing, and a store only what it needs: the rest is imported where it is
used."""

import pytest

from tests.logdir.helpers import run_python

HEAVY = (
    "numpy",
    "crc32c",
    "zstandard",
    "lz4",
    "snappy",
    "asyncio",
    "multiprocessing",
    "concurrent.futures",
    "email",
    "http",
    "socket",
    "ssl",
    "urllib",
    "subprocess",
    "importlib.metadata",
    "pathlib",
    "tempfile",
    "shutil",
    "unittest",
    "decimal",
    "hashlib",
    "logging",
    "typer",
    "rich",
)
LOADED = "import sys; before = set(sys.modules); {}; print(*sorted(set(sys.modules) - before))"


def test_the_package_alone_imports_nothing():
    loaded = run_python(LOADED.format("import logstore")).split()
    assert loaded == ["logstore", "logstore._version"]


def test_an_error_is_caught_without_the_engine():
    loaded = run_python(LOADED.format("import logstore; logstore.LogstoreError")).split()
    assert len([name for name in loaded if name.startswith("logstore")]) == 3


def test_submodules_are_there_without_an_import_of_their_own():
    names = run_python("import logstore; print(logstore.replica.Node.__name__, logstore.errors.__name__)")
    assert names.split() == ["Node", "logstore.errors"]


@pytest.fixture(scope="module")
def loaded():
    return run_python(LOADED.format("import logstore; logstore.open")).split()


@pytest.mark.parametrize("module", HEAVY)
def test_a_heavy_module_is_not_imported(loaded, module):
    assert module not in loaded


def test_few_modules_are_imported_at_all(loaded):
    ours = [name for name in loaded if name.startswith("logstore")]
    folders = {name.rpartition(".")[0] for name in ours}
    assert len([name for name in ours if name not in folders]) < 106
    assert len([name for name in loaded if not name.startswith("logstore")]) < 80


def test_a_clean_open_needs_no_codec_and_no_thread_pool(tmp_path):
    code = f"import logstore; logstore.open({str(tmp_path / 's')!r}).close()"
    run_python(code)
    loaded = run_python(LOADED.format(code)).split()
    assert not {"numpy", "zstandard", "lz4", "snappy", "concurrent.futures", "asyncio"} & set(loaded)


def test_a_broker_imports_messages_and_handlers_when_clients_ask(tmp_path):
    code = f"import logstore; logstore.open({str(tmp_path / 's')!r}).listen()"
    loaded = run_python(LOADED.format(code)).split()
    apart = [
        name for name in loaded if name.startswith(("logstore.wire.messages.", "logstore.wire.handlers."))
    ]
    assert not [name for name in apart if name.endswith((".produce", ".share_fetch", ".end_txn"))]
    assert len(apart) < 30
