"""``logstore serve`` reads plain command lines without Typer: they mean what they mean to Typer. About a
second: one process, which imports the engine."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from hypothesis import given
from hypothesis import strategies as st

import logstore
from logstore.cli import serving
from logstore.cli.app import app
from logstore.cli.commands.serve import SERVED
from logstore.cli.serving import Serving, parse_plain
from logstore.connected import Sasl
from logstore.errors import LockedError
from logstore.model import TopicPartition
from logstore.security import ClientTls
from tests.wire.security.certificates import OPENSSL, Authority

WORDS = [
    "shop",
    "--listen",
    "127.0.0.1:0",
    "/run/shop.sock",
    "--advertised",
    "shop.example.com:9092",
    "--set",
    "num.partitions=3",
    "a=b=c",
    "nothing",
    "--json",
    "--quiet",
    "-q",
    "--allow-anonymous",
    "--audit",
    "--metrics",
    "--certificate",
    "--key",
    "--client-ca",
    "--listen=x:1",
    "--",
    "-",
    "-h",
    "",
]


class Told:
    """In place of a signal: does something when it is waited for, and says whether that is the end."""

    def __init__(self, do):
        self._do = do

    def wait(self, seconds):
        return self._do()


def by_typer(words):
    """What the command asks for, read by Typer; None if it ends before that."""
    asked = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serving, "serve", asked.append)
        with pytest.raises(SystemExit):
            app(["serve", *words])
    return asked[0] if asked else None


def told_apart(wanted):
    return wanted._replace(addresses=list(wanted.addresses), settings=list(wanted.settings))


@given(st.lists(st.sampled_from(WORDS), max_size=6))
def test_plain_words_mean_what_they_mean_to_typer(words):
    plain = parse_plain(words)
    if plain is not None:
        assert told_apart(plain) == told_apart(by_typer(words))


def test_the_usual_ways_are_plain():
    assert parse_plain(["shop"]) == Serving("shop")
    words = ["--json", "shop", "--listen", "127.0.0.1:0", "--set", "num.partitions=3", "-q"]
    wanted = Serving("shop", ["127.0.0.1:0"], settings=["num.partitions=3"], is_json=True, is_quiet=True)
    assert parse_plain(words) == wanted


@pytest.mark.parametrize(
    "words", [[], ["a", "b"], ["a", "--listen"], ["a", "--set", "x"], ["a", "--help"], ["a", "--listen=b"]]
)
def test_typer_reads_the_others(words):
    assert parse_plain(words) is None


@pytest.mark.skipif(OPENSSL is None, reason="the program openssl, which makes certificates, is missing")
def test_with_certificates(tmp_path, monkeypatch, capsysbinary):
    """Clients without one are not let in; a Unix socket is for the same user, and needs none."""
    authority = Authority(tmp_path / "ca")
    certificate, key = authority.certify("server", "/CN=server", ["127.0.0.1"])
    clients = ClientTls(authority.root, *authority.certify("client", "/CN=client"))
    heard = []

    def ask():
        first, second = map(json.loads, capsysbinary.readouterr().out.splitlines())
        heard.append(logstore.connect(second["address"]).topics())
        with logstore.connect(first["address"], tls=clients) as connected:
            heard.append(connected.topics())
        for tls in (None, ClientTls(authority.root)):
            with pytest.raises(logstore.RetriableError):
                logstore.connect(first["address"], tls=tls, request_timeout_ms=500)
        return True

    monkeypatch.setattr(serving, "until_told", lambda: Told(ask))
    words = ["--listen", "127.0.0.1:0", "--listen", tmp_path / "socket", "--certificate", certificate]
    words += ["--key", key, "--client-ca", authority.root, "--json", tmp_path / "shop"]
    assert serving.run_plain(parse_plain(list(map(str, words)))) == 0
    assert heard == [{}, {}]


def test_a_key_without_a_certificate(tmp_path, capsysbinary):
    with pytest.raises(SystemExit) as ended:
        app(["serve", str(tmp_path / "shop"), "--key", "server.key"])
    assert ended.value.code == 2
    assert b"--certificate" in capsysbinary.readouterr().err


def test_what_is_said_has_the_fields_of_the_documentation(tmp_path, monkeypatch, capsysbinary):
    monkeypatch.setattr(serving, "until_told", lambda: Told(lambda: True))
    wanted = Serving(str(tmp_path / "s"), ["127.0.0.1:0"], is_json=True, metrics="127.0.0.1:0")
    assert serving.run_plain(wanted) == 0
    said = capsysbinary.readouterr()
    assert all(f'"{name}":'.encode() in said.out for name in SERVED.fields)
    assert b"closing" in said.err


def scrape(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def test_prometheus_finds_the_metrics(tmp_path, monkeypatch, capsysbinary):
    """While it serves, and not after that."""
    found = []

    def look():
        (address, url) = re.findall(r"at (\S+?)(?:,|$)", capsysbinary.readouterr().out.decode().strip())
        with logstore.connect(address) as connected:
            connected.create_topic("t")
            found.extend([url, scrape(url)])
        return True

    monkeypatch.setattr(serving, "until_told", lambda: Told(look))
    words = [str(tmp_path / "shop"), "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]
    assert serving.run_plain(parse_plain(words)) == 0
    url, text = found
    assert 'logstore_log_end_offset{partition="0",topic="t"} 0.0' in text
    assert "logstore_listener_connections" in text
    with pytest.raises(urllib.error.URLError):
        scrape(url)


@pytest.mark.parametrize(
    ("address", "code", "why"),
    [
        ("9100", 2, "is no address"),
        ("/run/metrics", 2, "is a path"),
        ("127.0.0.1:in use", 3, "metrics cannot be served at 127.0.0.1:[0-9]+: Address already in use"),
        ("no.such.host.invalid:9100", 3, "metrics cannot be served at no.such.host.invalid:9100: "),
    ],
)
def test_metrics_that_cannot_be_served(tmp_path, monkeypatch, capsysbinary, address, code, why):
    monkeypatch.setattr(serving, "until_told", lambda: Told(lambda: True))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = address.replace("in use", str(taken.getsockname()[1]))
        wanted = Serving(str(tmp_path / "shop"), ["127.0.0.1:0"], is_quiet=True, metrics=address)
        assert serving.run_plain(wanted) == code
    said = capsysbinary.readouterr()
    assert not said.out
    assert re.search(why, said.err.decode())


def test_a_directory_that_is_replaced_ends_it(tmp_path, monkeypatch, capsysbinary):
    """It could only refuse what clients send; started again, it has the directory that is there now."""
    looks = []

    def replace():
        looks.append(1)
        if len(looks) == 2:
            (tmp_path / "s").rename(tmp_path / "moved")
            (tmp_path / "s").mkdir()
        return len(looks) > 9

    monkeypatch.setattr(serving, "until_told", lambda: Told(replace))
    assert serving.run_plain(Serving(str(tmp_path / "s"), ["127.0.0.1:0"])) == 3
    assert len(looks) == 2
    said = capsysbinary.readouterr().err
    assert b"error: " in said
    assert b".lock was removed: " in said


def test_errors_are_told_as_those_of_other_commands(tmp_path, capsysbinary):
    wrong = serving.run_plain(Serving(str(tmp_path / "s"), settings=["no.such=1"]))
    assert wrong == 2
    assert b"error: " in capsysbinary.readouterr().err


def test_an_address_that_is_in_use_is_not_blamed_on_standard_output(tmp_path, capsysbinary):
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        assert serving.run_plain(Serving(str(tmp_path), addresses=(address,))) == 3
    said = capsysbinary.readouterr().err.decode()
    assert said == f"error: cannot listen on {address}: Address already in use\n"


def test_a_server_starts_without_typer(tmp_path):
    code = (
        "import sys, logstore.cli.serving as s; s.serve = lambda wanted: None\n"
        "from logstore.__main__ import main; assert main(['serve', 'x']) == 0\n"
        "print({'typer', 'rich', 'pydantic'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize("is_audited", [False, True])
def test_it_tells_of_logins_that_fail(tmp_path, monkeypatch, capsysbinary, is_audited):
    with logstore.open(tmp_path / "s") as store:
        store.users.set_password("alice", "a secret of some length")

    def ask():
        served = json.loads(capsysbinary.readouterr().out)
        login = Sasl(username="alice\n", password="wrong", mechanism="PLAIN")
        with pytest.raises(logstore.UsageError):
            logstore.connect(served["address"], sasl=login)
        return True

    monkeypatch.setattr(serving, "until_told", lambda: Told(ask))
    settings = ["sasl.enabled.mechanisms=PLAIN"]
    wanted = Serving(
        str(tmp_path / "s"), ["127.0.0.1:0"], settings=settings, is_json=True, is_audited=is_audited
    )
    assert serving.run_plain(wanted) == 0
    told = [line for line in capsysbinary.readouterr().err.decode().splitlines() if line != "closing"]
    if not is_audited:
        assert told == []
        return
    (line,) = told
    assert re.fullmatch(r"audit: [0-9-]+T[0-9:]+Z login failed: 'alice\\+n' from 127\.0\.0\.1 by .*", line)


def test_a_long_opening_tells_how_far_it_is(monkeypatch, capsys):
    from logstore.cli import remarks
    from logstore.logdir.open_logs import OpenProgress

    seconds = iter([0.0, 0.1, 2.1, 2.1, 2.2, 4.2, 4.2])
    tell = remarks.of_opening("shop", now=lambda: next(seconds))
    for done in (1, 700, 701, 1400):
        tell(OpenProgress(done, 5000, TopicPartition("t", done), None))
    assert capsys.readouterr().err.splitlines() == [
        "opening shop: 700 of 5000 partitions",
        "opening shop: 1400 of 5000 partitions",
    ]


@pytest.mark.parametrize("option", [{}, {"is_quiet": True}, {"is_json": True}])
def test_quiet_and_json_tell_nothing_of_an_opening(tmp_path, monkeypatch, option):
    given = []

    def open_store(*_, on_progress=None, **__):
        given.append(on_progress)
        raise LockedError("no")

    monkeypatch.setattr(serving, "open_store", open_store)
    with pytest.raises(LockedError):
        serving.serve(Serving(directory=str(tmp_path), **option))
    assert [each is None for each in given] == [bool(option)]
