"""The names that users depend on, and how they are described."""

import ast
import inspect
import itertools
import re
from pathlib import Path

import pytest

import logstore
from logstore import errors

SOURCE = Path(logstore.__file__).parent

PUBLIC = {
    "CompactionReport",
    "CorruptionError",
    "EraseReport",
    "FencedError",
    "Isolation",
    "Log",
    "LogCleaner",
    "LogstoreError",
    "NewRecord",
    "OffsetIndex",
    "ProducerIdentity",
    "Record",
    "RetriableError",
    "Segment",
    "StorageError",
    "Store",
    "StoreConfig",
    "Topic",
    "TopicConfig",
    "TopicPartition",
    "UsageError",
    "build_info",
    "connect",
    "handover",
    "open",
    "open_or_connect",
}


def test_the_public_names_are_these():
    assert set(logstore.__all__) == PUBLIC
    assert len(PUBLIC) <= 30
    assert sorted(logstore.__all__) == list(logstore.__all__)


def test_every_public_name_is_there():
    assert all(hasattr(logstore, name) for name in logstore.__all__)
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", logstore.__version__)


def test_typed():
    assert (SOURCE / "py.typed").is_file()


# Errors -----------------------------------------------------------------------------------------------------


def tree_in_docstring():
    """(name, parent) of every line of the tree in the docstring of logstore.errors."""
    found, path = {}, []
    for line in errors.__doc__.splitlines():
        match = re.match(r"    ([│├└─ ]*)(\w+Error)\b", line)
        if match:
            depth = len(match[1]) // 4
            path[depth:] = [match[2]]
            found[match[2]] = path[depth - 1] if depth else "Exception"
    return found


def tree_of_classes():
    classes = [
        each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, Exception)
    ]
    return {each.__name__: each.__bases__[0].__name__ for each in classes}


def test_the_errors_are_those_of_the_docstring():
    assert tree_in_docstring() == tree_of_classes()


def test_the_errors_are_few_in_five_families():
    tree = tree_of_classes()
    assert len(tree) <= 30
    assert {name for name, parent in tree.items() if parent == "LogstoreError"} == {
        "UsageError",
        "CorruptionError",
        "StorageError",
        "FencedError",
        "RetriableError",
    }


@pytest.mark.parametrize(
    ("ours", "pythons"),
    [
        ("UnknownTopicError", KeyError),
        ("UnknownGroupError", KeyError),
        ("StorageError", OSError),
        ("DiskFullError", OSError),
    ],
)
def test_errors_are_also_what_python_calls_them(ours, pythons):
    assert issubclass(getattr(errors, ours), pythons)


@pytest.mark.parametrize("name", tree_of_classes())
def test_every_error_says_what_it_means(name):
    assert getattr(errors, name).__doc__


def test_errors_elsewhere_in_the_package_are_private():
    elsewhere = [
        (file.name, node.name)
        for file in SOURCE.rglob("*.py")
        if file.name != "errors.py"
        and "testing" not in file.parts  # what a test fails with is no error of logstore
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef) and node.name.endswith("Error") and not node.name.startswith("_")
    ]
    assert elsewhere == []


# Docstrings -------------------------------------------------------------------------------------------------


def public_members(owner):
    for name in dir(owner):
        member = inspect.getattr_static(owner, name)
        if name.startswith("_") or not str(getattr(member, "__module__", "logstore")).startswith("logstore"):
            continue
        if isinstance(member, property | staticmethod | classmethod) or inspect.isfunction(member):
            yield name, member


@pytest.mark.parametrize("owner", [logstore.Store, logstore.Topic, logstore.Log, logstore.LogCleaner])
def test_every_public_method_is_described(owner):
    bare = [
        name
        for name, member in public_members(owner)
        if not (getattr(member, "fget", None) or getattr(member, "__func__", member)).__doc__
    ]
    assert bare == []


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_public_name_is_described(name):
    assert len(inspect.getdoc(getattr(logstore, name))) > 10


def test_every_module_says_what_it_knows():
    bare = [str(file) for file in SOURCE.rglob("*.py") if not ast.get_docstring(ast.parse(file.read_text()))]
    assert [file for file in bare if not file.endswith("_version.py")] == []


def test_arguments_after_the_second_are_named():
    """Except offsets: ``read(start, stop)``; and where there is a source and a target."""
    crowded = []
    for owner in (logstore.Store, logstore.Topic, logstore.Log):
        for name, member in public_members(owner):
            function = getattr(member, "__func__", member)
            if not inspect.isfunction(function):
                continue
            positional = [
                each
                for each in inspect.signature(function).parameters.values()
                if each.kind is each.POSITIONAL_OR_KEYWORD
            ]
            if len(positional) > 3:  # self and two more
                crowded.append(f"{owner.__name__}.{name}")
    assert crowded == ["Store.transform"]


# Words ------------------------------------------------------------------------------------------------------

FORBIDDEN = {
    "message_set",
    "messageset",
    "shard",
    "shards",
    "journal",
    "channel",
    "prune",
    "trim",
    "rotate",
    "fsync_now",
    "persist",
    "leo",
    "lso",
    "hw",
    "master",
    "slave",
    "manager",
    "util",
    "utils",
    "helper",
    "helpers",
    "handler",
    "abstract",
    "impl",
    "misc",
}
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def identifiers(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def test_no_name_uses_a_word_that_we_do_not_use():
    found = set()
    for file in SOURCE.rglob("*.py"):
        for name in [file.stem, *identifiers(ast.parse(file.read_text()))]:
            words = [word.lower() for word in WORD.findall(name)]
            joined = {f"{first}_{second}" for first, second in itertools.pairwise(words)}
            if FORBIDDEN & {*words, *joined}:
                found.add(f"{file.name}: {name}")
    assert found == set()


def test_no_file_speaks_of_unfinished_work():
    marks = ("TO" + "DO", "FIX" + "ME", "X" * 3)
    found = [str(file) for file in SOURCE.rglob("*.py") if any(mark in file.read_text() for mark in marks)]
    assert found == []
