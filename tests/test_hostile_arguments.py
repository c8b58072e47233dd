"""Every public method is given every wrong argument: it works, or raises an error of logstore's, and either
way the log goes on.

The methods and their parameters are found by looking, so a new one is tested from its first day; a parameter
that needs a right value has one in ``RIGHT``. ``HOSTILE`` has wrong types, numbers of all sizes, text that no
file name can be, memory that was let go, and objects that raise whatever is asked of them. What an iterable
or a callback of the caller's raises while it is used is his own, and passes.
"""

from __future__ import annotations

import inspect
import itertools

import pytest

import logstore
from logstore.clients.quotas import StoreQuotas
from logstore.config import StoreConfig, TopicConfig
from logstore.errors import LogstoreError
from logstore.logdir.cleaner import LogCleaner
from logstore.model import ProducerIdentity
from logstore.partition.log import Log
from logstore.partition.watching.read_only import ReadOnlyLog
from logstore.store import Store, Topic
from logstore.testing.clock import ManualClock
from logstore.testing.memory import MemoryFiles
from tests.rotation import part


class HisError(Exception):
    """What the objects of a caller raise."""


def raising(*names, base=object, value=()):
    """An object that raises when one of these methods is called."""

    def refusal(name):
        def refuse(*_, **__):
            raise HisError(name)

        return refuse

    kind = type("Raising" + base.__name__.title(), (base,), {name: refusal(name) for name in names})
    return kind(*value)


def released():
    view = memoryview(bytearray(b"x" * 100))
    view.release()
    return view


ASKED = (
    "__bool__",
    "__repr__",
    "__str__",
    "__hash__",
    "__eq__",
    "__index__",
    "__int__",
    "__len__",
    "__format__",
)
COMPARED = ("__eq__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__", "__repr__", "__str__", "__format__")

HOSTILE = {
    "none": lambda: None,
    "true": lambda: True,
    "minus one": lambda: -1,
    "huge": lambda: 2**70,
    "digits": lambda: 10**5000,
    "negative": lambda: -(2**70),
    "fraction": lambda: 1.5,
    "nan": lambda: float("nan"),
    "infinity": lambda: float("inf"),
    "text": lambda: "x",
    "no text": lambda: "",
    "surrogate": lambda: "\ud800",
    "nul": lambda: "a\0b",
    "long": lambda: "x" * 300,
    "bytes": lambda: b"\0",
    "list": list,
    "list of a list": lambda: [[]],
    "mapping": lambda: {"a": []},
    "set": lambda: {1},
    "type": lambda: type,
    "object": object,
    "view": lambda: memoryview(b"ab"),
    "released": released,
    "every other byte": lambda: memoryview(b"abcd")[::2],
    "numbers": lambda: memoryview(bytes(8)).cast("i"),
    "int of a kind": lambda: type("Int", (int,), {})(1),
    "text of a kind": lambda: type("Text", (str,), {})("t"),
    "bytes of a kind": lambda: type("Bytes", (bytes,), {})(b"t"),
    **{name: lambda name=name: raising(name) for name in (*ASKED, "__iter__", "__fspath__", "__call__")},
    "all": lambda: raising(*ASKED, "__iter__", "__call__", "__getattr__"),
    "int that raises": lambda: raising(*COMPARED, "__index__", "__bool__", base=int, value=(1,)),
    "text that raises": lambda: raising(*COMPARED, "__len__", "__iter__", base=str, value=("t",)),
    "bytes that raise": lambda: raising(*COMPARED, "__len__", "__iter__", base=bytes, value=(b"t",)),
    "tuple that raises": lambda: raising(*COMPARED, "__len__", "__iter__", base=tuple, value=((b"k", b"v"),)),
    "mapping that raises": lambda: raising("__len__", "__iter__", "__repr__", "items", base=dict),
    "list of one that raises": lambda: [raising(*ASKED, "__iter__")],
    "list of a pair that raises": lambda: [(b"k", raising(*ASKED))],
    "list of a time that raises": lambda: [
        (b"k", b"v", raising(*ASKED, "__lt__", "__le__", "__gt__", "__ge__"))
    ],
    "list of headers that raise": lambda: [(b"k", b"v", None, raising(*ASKED, "__iter__"))],
    "list of what was released": lambda: [released(), (b"k", released())],
    "pairs that raise": lambda: [("a", raising(*ASKED)), (raising(*ASKED), b"v")],
    "mapping to one that raises": lambda: {"a": raising(*ASKED)},
}

MAY_PASS = ("__iter__", "__call__", "__getattr__", "items", "__fspath__")
"""Whoever gives these wants them called."""

RIGHT = {
    "order": lambda: "timestamp",
    "position": lambda: 0,
    "truncation_count": lambda: 0,
    "isolation": lambda: logstore.Isolation.HIGH_WATERMARK,
    "value": lambda: b"v",
    "key": lambda: b"k",
    "keys": lambda: [b"nowhere"],
    "records": lambda: [(b"k", b"v")],
    "offset": lambda: 0,
    "start": lambda: 0,
    "stop": lambda: 1,
    "number": lambda: 0,
    "partition": lambda: 0,
    "timestamp_ms": lambda: 0,
    "timeout": lambda: 0,
    "epoch": lambda: 0,
    "producer_id": lambda: 7,
    "producer_epoch": lambda: 0,
    "committed": lambda: True,
    "producer": lambda: ProducerIdentity(7, 0, 0),
    "batches": list,
    "data": lambda: b"",
    "path": lambda: "/nowhere",
    "name": lambda: "t",
    "topics": lambda: {"t": 1},
    "group": lambda: "g",
    "status": lambda: None,
    "source": lambda: "t",
    "target": lambda: "t",
    "function": lambda: lambda record: None,
    "partitions": lambda: 2,
    "config": TopicConfig,
    "log": lambda: None,
    "now": lambda: True,
    "dry_run": lambda: True,
    "on_progress": lambda: None,
    "done": lambda: lambda _: None,
    "callback": lambda: lambda: None,
}

SEAMS = {"files", "clock", "settings", "checkpoints", "self"}
"""Parts of the engine, and keywords of all names."""

LEFT_OUT = {
    "__init__",
    "__new__",
    "__class__",
    "__init_subclass__",
    "__subclasshook__",
    "__setattr__",
    "__exit__",
    "index",
    "count",
}
ENDS = {"close", "abandon", "stop"}


class World:
    """A store in memory, one of its readers, and what is asked of them."""

    def __init__(self):
        self.files = MemoryFiles()
        self.open()

    def open(self):
        config = StoreConfig(log_cleaner_enable=False)
        self.store = logstore.open("/store", files=self.files, clock=ManualClock(), config=config)
        topic = self.store.require_topic("t")
        topic[0].extend([(b"k", b"v")] * 3)
        topic[0].roll()
        self.store.require_topic("c", config=TopicConfig(cleanup_policy="compact"))
        self.reader = logstore.open("/store", files=self.files, clock=ManualClock(), read_only=True)

    def owner(self, kind):
        return {
            Store: lambda: self.store,
            Topic: lambda: self.store["t"],
            Log: lambda: self.store["t"][0],
            ReadOnlyLog: lambda: self.reader["t"][0],
            LogCleaner: lambda: self.store.cleaner,
            StoreQuotas: lambda: self.store.quotas,
        }[kind]()

    def check(self, said):
        """The log goes on, and nobody had to reopen it."""
        if "t" not in self.store:  # it was deleted: that was asked for
            self.store.create_topic("t")
        log = self.store["t"][0]
        assert not log.needs_reopen, f"{said} poisons the log: {log.writer.guard.failure!r}"
        if log.is_closed:
            self.store.close()
            self.open()
            log = self.store["t"][0]
        offset = log.append(b"after", key=b"k")
        assert log.record_at(offset).value == b"after", said
        log.extend([(b"k", b"v")])
        if log.log_end_offset > 2**40:
            log.truncate_fully_and_start_at(0)
        for each in self.store["c"]:
            assert not each.needs_reopen, f"{said} poisons a log"


def methods():
    for kind in (Store, Topic, Log, ReadOnlyLog, LogCleaner, StoreQuotas):
        for name, _ in inspect.getmembers(kind, callable):
            is_public = not name.startswith("_") or name in ("__getitem__", "__contains__")
            if not is_public or name in LEFT_OUT | ENDS:
                continue
            yield pytest.param(kind, name, id=f"{kind.__name__}.{name}")


def parameters_of(method):
    return [each for each in inspect.signature(method).parameters.values() if each.name not in SEAMS]


def arguments(method, wrong, value, world):
    """What a call is given: the wrong value, and right ones where something must be given."""
    positional, named = [], {}
    for each in parameters_of(method):
        if each.kind is each.VAR_POSITIONAL or each.kind is each.VAR_KEYWORD:
            continue
        if each.name == wrong:
            given = value
        elif each.name == "log":
            given = world.store["c"][0]
        elif each.name in ("files", "clock"):
            continue
        elif each.default is each.empty or each.name == "timeout" or method.__name__ == "follow":
            assert each.name in RIGHT, f"say in RIGHT what {each.name} of {method} may be"
            given = RIGHT[each.name]()
        else:
            continue
        if each.kind is each.KEYWORD_ONLY:
            named[each.name] = given
        else:
            positional.append(given)
    return positional, named


def use_up(result):
    """Begin to use what is returned: much is done only then."""
    if hasattr(result, "__next__") or hasattr(result, "read_next_batch"):
        list(itertools.islice(result, 2))


def try_call(world, owner, name, wrong, kind_of_value):
    """What is wrong with how a call ends; None if nothing is."""
    value = HOSTILE[kind_of_value]()
    said = f"{type(owner).__name__}.{name}({wrong}={kind_of_value})"
    try:
        method = getattr(owner, name)
        positional, named = arguments(method, wrong, value, world)
        result = method(*positional, **named)
        use_up(result)
        if name == "open":  # its background work would go on, and tell others of a directory that is gone
            result.close()
    except LogstoreError as error:
        str(error)
    except HisError as error:
        compares = name == "__contains__" and error.args[0] in ("__eq__", "__hash__")
        if error.args[0] not in MAY_PASS and not compares:
            return f"{said}: {error.args[0]} is called"
    except Exception as error:
        return f"{said}: {type(error).__name__}: {str(error)[:80]}"
    try:
        world.check(said)
    except Exception as error:
        world.__init__()
        return f"{said}: then {type(error).__name__}: {str(error)[:150]}"
    return None


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """Some of the values are names of a directory."""
    monkeypatch.chdir(tmp_path)


ENDLESS = {
    ("split", "parts", "huge"),
    ("split", "parts", "digits"),
    ("open", "timeout", "huge"),
    ("open", "timeout", "digits"),
    ("open", "timeout", "infinity"),
}
"""Calls that do what they are asked to, and would go on, or wait, for ages."""


def check_all(kind, name, kinds_of_values):
    pytest.importorskip("pyarrow")
    world = World()
    faults = []
    for parameter in parameters_of(getattr(world.owner(kind), name)):
        for kind_of_value in kinds_of_values:
            if (name, parameter.name, kind_of_value) in ENDLESS:
                continue
            faults.append(try_call(world, world.owner(kind), name, parameter.name, kind_of_value))
    assert list(filter(None, faults)) == []


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), list(methods()))
def test_no_argument_breaks_a_log(kind, name):
    """A sixth of them with each commit."""
    check_all(kind, name, part(list(HOSTILE), 6))


@pytest.mark.soak
@pytest.mark.parametrize(("kind", "name"), list(methods()))
def test_no_argument_at_all_breaks_a_log(kind, name):
    check_all(kind, name, HOSTILE)


# What was found ---------------------------------------------------------------------------------------------


FOUND = [
    (Store, "delete_topic", "name", "list"),
    (Store, "verify", "on_progress", "list"),
    (Log, "append", "timestamp_ms", "__repr__"),
    (Log, "append", "headers", "released"),
    (Log, "assign_leader_epoch", "epoch", "__repr__"),
    (Log, "end_offset_for_epoch", "epoch", "text"),
    (Log, "enforce_retention", "dry_run", "__bool__"),
    (Log, "append_end_marker", "committed", "__bool__"),
    (Log, "last_of_producer", "producer_id", "__hash__"),
    (Log, "last_of_producer", "producer_id", "numbers"),
    (Log, "append_batch", "data", "bytes that raise"),
    (Log, "read", "start", "digits"),
]


def test_no_argument_breaks_a_log_that_once_did():
    world = World()
    for kind, name, parameter, kind_of_value in FOUND:
        assert try_call(world, world.owner(kind), name, parameter, kind_of_value) is None


@pytest.mark.parametrize("path", ["\ud800", "a\0b", "", 5, None, b"x"])
@pytest.mark.parametrize("opens", [logstore.open, Log.open])
def test_no_path_is_refused(opens, path):
    with pytest.raises(logstore.UsageError, match="path is"):
        opens(path)


@pytest.mark.parametrize("on_progress", [5, "x", []])
def test_a_store_is_not_made_with_something_else_than_a_callback(tmp_path, on_progress):
    with pytest.raises(logstore.UsageError, match="on_progress is"):
        logstore.open(tmp_path / "s", on_progress=on_progress)
    assert not (tmp_path / "s").exists()
