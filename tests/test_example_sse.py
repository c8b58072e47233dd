"""examples/sse.py, as a browser uses it: a real server on a port of its own, and a real HTTP client."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

import logstore

httpx = pytest.importorskip("httpx")
uvicorn = pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "sse.py"


def load_example():
    spec = importlib.util.spec_from_file_location("sse_example", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Served:
    """The example's application, its address, and the synchronous store behind it."""

    def __init__(self, app, server):
        self._app = app
        port = server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/events/prices/0"
        self.store = app.state.store
        self.log = self.store["prices"][0]

    def append(self, *numbers):
        self.log.sync.extend([b"%d" % number for number in numbers])

    def until(self, waiting_count):
        """Wait until so many followers wait for a record."""
        deadline = time.monotonic() + 20
        while self.log.waiting_count != waiting_count:
            assert time.monotonic() < deadline, self.log.waiting_count
            time.sleep(0.005)


@contextmanager
def served(path, heartbeat_seconds=15.0):
    example = load_example()
    example.HEARTBEAT_SECONDS = heartbeat_seconds
    app = example.application(str(path))
    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, log_level="error", ws="none", timeout_graceful_shutdown=5
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        deadline = time.monotonic() + 20
        while not server.started:
            assert thread.is_alive()
            assert time.monotonic() < deadline
            time.sleep(0.005)
        yield Served(app, server)
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


@contextmanager
def connected(url, last_event_id=None):
    """An iterator over the lines that the server sends."""
    headers = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
    with httpx.stream("GET", url, headers=headers, timeout=20) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        yield response.iter_lines()


def take(lines, count):
    """The next events: (id, data)."""
    found = []
    while len(found) < count:
        fields = {}
        while line := next(lines):
            name, _, value = line.partition(": ")
            fields.setdefault(name, []).append(value)
        if "id" in fields:
            found.append((fields["id"][0], "\n".join(fields["data"])))
    return found


def test_a_client_that_comes_back_misses_nothing_and_gets_nothing_twice(tmp_path):
    with served(tmp_path / "s") as site:
        site.append(*range(5))
        with connected(site.url) as lines:
            site.until(1)
            site.append(5, 6, 7)
            assert take(lines, 2) == [("0:5", "5"), ("0:6", "6")]
        site.until(0)
        site.append(*range(8, 300))
        found, last = [], "0:6"
        while len(found) < 293:
            with connected(site.url, last) as lines:
                found += take(lines, min(100, 293 - len(found)))
                last = found[-1][0]
        assert found == [(f"0:{number}", str(number)) for number in range(7, 300)]
        site.until(0)


def test_a_client_that_leaves_frees_its_follower_and_the_others_go_on(tmp_path):
    with served(tmp_path / "s") as site:
        with connected(site.url) as stays:
            with connected(site.url), connected(site.url):
                site.until(3)
            site.until(1)
            site.append(1)
            assert take(stays, 1) == [("0:0", "1")]
        site.until(0)
        assert not site.log.sync.writer.waits.is_watched


def test_a_heartbeat_comes_while_there_is_no_event(tmp_path):
    with served(tmp_path / "s", heartbeat_seconds=0.02) as site, connected(site.url) as lines:
        assert [next(lines) for _ in range(4)] == [": still here", "", ": still here", ""]
        site.append(7)
        assert take(lines, 1) == [("0:0", "7")]


def test_a_value_of_several_lines_and_one_without_a_value_are_events(tmp_path):
    with served(tmp_path / "s") as site:
        site.log.sync.extend([b"first", b"one\ntwo", (b"k", None)])
        with connected(site.url, "0:0") as lines:
            assert take(lines, 2) == [("0:1", "one\ntwo"), ("0:2", "")]


def test_an_id_that_is_not_there_begins_with_what_is(tmp_path):
    with served(tmp_path / "s") as site:
        site.append(*range(5))
        site.log.sync.roll()
        site.log.sync.delete_before(3)
        with connected(site.url, "0:0") as lines:
            assert take(lines, 2) == [("0:3", "3"), ("0:4", "4")]
        for wrong in (f"0:{2**70}", "0:99", "1:0", "what", ""):
            count = site.log.sync.log_end_offset
            with connected(site.url, wrong) as lines:
                site.until(1)
                site.append(count)
                assert take(lines, 1) == [(f"0:{count}", str(count))]
            site.until(0)


@pytest.mark.parametrize("path", ["/events/prices/1", "/events/nowhere/0", "/events/prices/99999999999"])
def test_there_is_no_such_partition(path, tmp_path):
    with served(tmp_path / "s") as site:
        assert httpx.get(site.url.removesuffix("/events/prices/0") + path).status_code == 404


def test_a_server_that_stops_closes_the_store_though_clients_listen(tmp_path):
    with served(tmp_path / "s") as site:
        site.append(1)
        store = site.store.sync
        with connected(site.url) as lines:
            site.until(1)
            site.append(2)
            assert take(lines, 1) == [("0:1", "2")]
    with pytest.raises(Exception, match="closed"):
        store["prices"]


RUN = """
import runpy, sys, uvicorn
run = uvicorn.run
uvicorn.run = lambda app, *, port, **settings: run(app, port=int(sys.argv[2]), **settings)
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def test_it_ends_when_it_is_told_to_though_browsers_listen(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    program = subprocess.Popen([sys.executable, "-c", RUN, EXAMPLE, port], cwd=tmp_path)
    try:
        with opened_stream(f"http://127.0.0.1:{port}/events/prices/0"):
            program.terminate()
            program.wait(20)
    finally:
        program.kill()
        program.wait()
    logstore.open(tmp_path / "data").close()


@contextmanager
def opened_stream(url):
    """An answer that goes on, once the server is there."""
    deadline = time.monotonic() + 20
    while True:
        try:
            with httpx.stream("GET", url) as response:
                assert response.status_code == 200
                yield
                return
        except httpx.ConnectError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
