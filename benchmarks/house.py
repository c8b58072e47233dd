"""The shape of the source, in numbers: ``python -m benchmarks.house``.

Counts in the text: modules in import cycles (of any kind: for types, within functions), private names that
are used from outside, long functions, many parameters, long files. Counts for a reader of six flows: the
files, the functions, and how often the flow moves from one file to another.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

SOURCE = Path(__file__).parent.parent / "src/logstore"
LONG_LINES = 70
LONG_FILE_LINES = 600
SETTLE_SECONDS = 0.2
"""Until the background has nothing more to do with what was appended: the next append then begins anew."""
MANY_PARAMETERS = 7

HASH_SEEDS = 12

_OF_NAMED_TUPLES = {"_make", "_replace", "_asdict", "_fields", "_field_defaults"}
"""Public names despite their underscore."""

Module = tuple[str, ast.Module]
Function = ast.FunctionDef | ast.AsyncFunctionDef


# The text ---------------------------------------------------------------------------------------------------


class Shape(NamedTuple):
    """The counts in the source. Each is a list, for people to look into."""

    in_circles: list[str]
    private_uses: list[str]
    long_functions: list[str]
    many_parameters: list[str]
    long_files: list[str]


def shape_of(source: Path) -> Shape:
    """Of a package's folder."""
    texts = {_name_of(path, source): path.read_text() for path in sorted(source.rglob("*.py"))}
    modules = {name: ast.parse(text) for name, text in texts.items()}
    functions = [
        (f"{name}:{node.name}", node)
        for name, tree in modules.items()
        for node in ast.walk(tree)
        if isinstance(node, Function)
    ]
    return Shape(
        sorted(name for circle in _circles(_imports(modules)) for name in circle),
        [use for module in modules.items() for use in _private_uses(module)],
        [name for name, node in functions if _line_count(node) >= LONG_LINES],
        [name for name, node in functions if _parameter_count(node) > MANY_PARAMETERS],
        [name for name, text in texts.items() if text.count("\n") > LONG_FILE_LINES],
    )


def _name_of(path: Path, source: Path) -> str:
    parts = [source.name, *path.relative_to(source).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(modules: dict[str, ast.Module]) -> dict[str, set[str]]:
    """The imports of each module from the others, anywhere in it."""
    found: dict[str, set[str]] = {name: set() for name in modules}
    for name, tree in modules.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                wanted = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                wanted = [
                    full if (full := f"{node.module}.{alias.name}") in modules else node.module
                    for alias in node.names
                ]
            else:
                continue
            found[name].update(each for each in wanted if each in modules and each != name)
    return found


def _circles(edges: dict[str, set[str]]) -> list[set[str]]:
    """Modules that reach each other."""
    reached: dict[str, set[str]] = {}
    for name in edges:
        seen: set[str] = set()
        waiting = list(edges[name])
        while waiting:
            each = waiting.pop()
            if each not in seen:
                seen.add(each)
                waiting += edges[each]
        reached[name] = seen
    circles: list[set[str]] = []
    for name, seen in reached.items():
        if name in seen and not any(name in circle for circle in circles):
            circles.append({each for each in seen if name in reached[each]})
    return circles


def _private_uses(module: Module) -> Iterator[str]:
    """``x._name`` where nothing in the module, and nothing that is called self or cls, has that name."""
    name, tree = module
    own = {node.name for node in ast.walk(tree) if isinstance(node, Function | ast.ClassDef)}
    uses = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not _is_private(node.attr):
            continue
        if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            own.add(node.attr)
        else:
            uses.append(node)
    own |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for use in uses:
        if use.attr not in own:
            yield f"{name}:{use.lineno} {ast.unparse(use)}"


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name not in _OF_NAMED_TUPLES


def _line_count(node: Function) -> int:
    """From the def to the end, without the docstring."""
    first = node.body[0]
    is_docstring = isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", None), str)
    docstring_count = (first.end_lineno or 0) - first.lineno + 1 if is_docstring else 0
    return (node.end_lineno or 0) - node.lineno + 1 - docstring_count


def _parameter_count(node: Function) -> int:
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return len([each for each in arguments if each.arg not in ("self", "cls")])


# The flows --------------------------------------------------------------------------------------------------


class Passed(NamedTuple):
    """The functions and files of one flow."""

    files: int
    functions: int
    moves: int
    """How often a call moves to another file."""


class _Tracer:
    """Notes which of the package's functions run, in order. Skips compiled functions and other packages:
    their callees count as called by their caller. Skips finalizers too, and what they call: no line of the
    flow calls them."""

    def __init__(self, source: Path) -> None:
        self._source = f"{source}/"
        self._functions: set[tuple[str, str]] = set()
        self._place = ""
        self._moves = 0
        self._finalizer: FrameType | None = None
        """The one that runs."""

    def run(self, flow: Callable[[], Any]) -> Passed:
        sys.setprofile(self._note)
        try:
            flow()
        finally:
            sys.setprofile(None)
        return Passed(len({file for file, _ in self._functions}), len(self._functions), self._moves)

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        if self._finalizer is not None:
            if event == "return" and frame is self._finalizer:
                self._finalizer = None
        elif event == "call" and frame.f_code.co_name == "__del__":
            self._finalizer = frame
        elif event == "call":
            self._enter(frame, is_call=True)
        elif event == "return" and frame.f_back is not None:
            self._enter(frame.f_back, is_call=False)

    def _enter(self, frame: FrameType, *, is_call: bool) -> None:
        file = frame.f_code.co_filename
        if not file.startswith(self._source):
            return
        if is_call:
            self._functions.add((file, frame.f_code.co_qualname))
            self._moves += bool(self._place) and file != self._place
        self._place = file


def trace_flows() -> dict[str, Passed]:
    """An append that begins a batch, a flush of it, an extend, a read, an open after a crash, and a commit of
    Spark's, each as it goes the second time, in this thread."""
    import logstore
    from logstore import NewRecord, StoreConfig

    source = Path(logstore.__file__).parent
    found = {}
    with _one_thread(), tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/store"
        config = StoreConfig(num_recovery_threads_per_data_dir=1)
        store = logstore.open(path, config=config)
        log = store.create_topic("t")[0]
        rows = [NewRecord(b"value", key=b"key")] * 100
        flows: dict[str, Callable[[], Any]] = {
            "append": lambda: log.append(b"value", key=b"key"),
            "flush": log.flush,
            "extend": lambda: log.extend(rows),
            "read": lambda: [*log.read(0)],
        }
        for name, flow in flows.items():
            flow()
            log.flush()
            time.sleep(SETTLE_SECONDS)
            if name == "flush":
                log.append(b"gathered")
            found[name] = _Tracer(source).run(flow)
        log.flush()
        log.extend(rows)
        _kill(store)
        opened: list[Any] = []
        found["open after a crash"] = _Tracer(source).run(
            lambda: opened.append(logstore.open(path, config=config))
        )
        opened[0].close()
        found["commit of Spark's"] = _trace_commit(source, f"{directory}/sink")
    return found


@contextmanager
def _one_thread() -> Iterator[None]:
    """Logs are flushed one after the other: else it differs from run to run which thread does what."""
    from logstore import turns

    values = vars(turns)
    before = values["FLUSHED_AT_A_TIME"]
    values["FLUSHED_AT_A_TIME"] = 1
    try:
        yield
    finally:
        values["FLUSHED_AT_A_TIME"] = before


def _kill(store: Any) -> None:
    store._directory.abandon()


def _trace_commit(source: Path, path: str) -> Passed:
    """Of one file that a task has staged."""
    import logstore
    from logstore.clock import SystemClock
    from logstore.config import StoreConfig
    from logstore.files import OsFiles
    from logstore.spark.commits import commit
    from logstore.spark.staging import StagedWriter, Target, staged_name

    with logstore.open(path) as store:
        topic = store.create_topic("t")
        target, config = Target("t", str(topic.topic_id), 0), topic.config
    encoder = _row_encoder()(StoreConfig(), config)

    def stage(batch: int) -> Any:
        writer = StagedWriter(OsFiles(), path, lambda: staged_name("house", batch, 0))
        rows = [(b"key", b"value")] * 100
        writer.append(target, encoder.encode(rows, SystemClock().now_ms()), config.segment_bytes)
        return writer.finish()

    commit(path, "house", 0, stage(0))
    files = stage(1)
    return _Tracer(source).run(lambda: commit(path, "house", 1, files))


def _row_encoder() -> Any:
    """The row encoder, wherever it is in the measured state."""
    try:
        return importlib.import_module("logstore.partition.encoding.row_encoder").RowEncoder
    except ImportError:
        return importlib.import_module("logstore.partition.encoding").RowEncoder


# The page ---------------------------------------------------------------------------------------------------

PAGE = Path(__file__).parent.parent / "docs/architecture.md"
BEGIN, END = "<!-- house: written by python -m benchmarks.house --page -->", "<!-- house ends -->"


def measure() -> dict[str, list[int]]:
    """The counts of the source that is imported here, by name."""
    import logstore

    shape = shape_of(Path(logstore.__file__).parent)
    counts = {name.replace("_", " "): [len(found)] for name, found in shape._asdict().items()}
    return counts | {f"flow: {name}": list(passed) for name, passed in trace_flows().items()}


def measure_most() -> dict[str, list[int]]:
    """The same, of each flow the run that moves most: the order of sets differs from process to process, and
    with it who comes first."""
    root = str(SOURCE.parent.parent)
    runs = [measure_elsewhere(root, hash_seed=seed) for seed in range(HASH_SEEDS)]
    return {name: max((run[name] for run in runs), key=lambda counts: counts[-1]) for name in runs[0]}


def measure_elsewhere(checkout: str, *, hash_seed: int = 0) -> dict[str, list[int]]:
    """The same for another checkout, by this script in a process of its own."""
    code = "import json; from benchmarks import house; print(json.dumps(house.measure()))"
    paths = f"{checkout}/src:{Path(__file__).parent.parent}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, list[int]] = json.loads(done.stdout)
    return found


def table_of(columns: dict[str, dict[str, list[int]]]) -> str:
    """As Markdown; each column is one state of the source."""
    names = list(next(iter(columns.values())))
    lines = ["| | " + " | ".join(columns) + " |", "| --- |" + " ---: |" * len(columns)]
    for name in names:
        cells = [" / ".join(map(str, column[name])) for column in columns.values()]
        lines.append(f"| {name.removeprefix('flow: ')} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def columns_on_page() -> dict[str, dict[str, list[int]]]:
    """What :data:`PAGE` says."""
    text = PAGE.read_text()
    titles, _, *lines = text[text.index(BEGIN) + len(BEGIN) : text.index(END)].strip().splitlines()
    found: dict[str, dict[str, list[int]]] = {title: {} for title in _cells(titles)[1:]}
    for line in lines:
        name, *cells = _cells(line)
        for counts, cell in zip(found.values(), cells, strict=True):
            numbers = [int(number) for number in cell.split(" / ")]
            counts[name if len(numbers) == 1 else f"flow: {name}"] = numbers
    return found


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", metavar="CHECKOUT", help="another state of the source")
    parser.add_argument("--page", action="store_true", help="write the table into docs/architecture.md")
    parser.add_argument("--list", action="store_true", help="say what was counted")
    options = parser.parse_args()
    columns = {"before": measure_elsewhere(options.against)} if options.against else {}
    if options.page and not options.against:
        columns = {title: counts for title, counts in columns_on_page().items() if title != "now"}
    table = table_of({**columns, "now": measure_most()})
    print(table)
    if options.page:
        text = PAGE.read_text()
        start, stop = text.index(BEGIN) + len(BEGIN), text.index(END)
        PAGE.write_text(f"{text[:start]}\n{table}\n{text[stop:]}")
    if options.list:
        for name, found in shape_of(SOURCE)._asdict().items():
            print(f"\n{name.replace('_', ' ')}:", *found, sep="\n  ")


if __name__ == "__main__":
    main()
