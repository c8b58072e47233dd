"""Every public method of the classes for people is given every wrong argument: it works, or raises an error
of logstore's."""

import inspect

import pytest

from logstore import OffsetIndex, Segment
from logstore.errors import LogstoreError
from logstore.segment_files import TimeIndex
from tests.segment_files.helpers import written_segment
from tests.test_hostile_arguments import HOSTILE, MAY_PASS, HisError, use_up

pytest.importorskip("pyarrow")

RIGHT = {"offset": 10_000, "position": 10**6, "timestamp_ms": 10**13, "start": 0, "stop": 3}
KINDS = {Segment: ".log", OffsetIndex: ".index", TimeIndex: ".timeindex"}


def methods():
    for kind in KINDS:
        for name, _ in inspect.getmembers(kind, callable):
            if not name.startswith("_") and name != "close":
                for each in inspect.signature(getattr(kind, name)).parameters.values():
                    if each.name not in ("self", "files"):
                        yield pytest.param(kind, name, each.name, id=f"{kind.__name__}.{name}({each.name})")


@pytest.mark.parametrize(("kind", "name", "wrong"), list(methods()))
def test_no_argument_breaks_it(tmp_path, kind, name, wrong):
    path = written_segment(tmp_path).with_suffix(KINDS[kind])
    options = {} if kind is Segment else {"writable": True}
    faults = []
    for value_name, make in HOSTILE.items():
        value, said = make(), f"{name}({wrong}={value_name})"
        with kind.open(path, **options) as opened:
            method = getattr(opened, name)
            arguments = {
                each.name: RIGHT[each.name]
                for each in inspect.signature(method).parameters.values()
                if each.default is each.empty and each.name != "path"
            }
            if name == "open":
                arguments["path"] = path
            arguments[wrong] = value
            try:
                result = method(**arguments)
                use_up(result)
                if name == "open":
                    result.close()
            except LogstoreError as error:
                str(error)
            except HisError as error:
                if error.args[0] not in MAY_PASS:
                    faults.append(f"{said}: {error.args[0]} is called")
            except Exception as error:
                faults.append(f"{said}: {type(error).__name__}: {str(error)[:80]}")
            if kind is not Segment:
                assert opened.check(), said
                assert len(kind.open(path)) == len(opened)
    assert faults == []
