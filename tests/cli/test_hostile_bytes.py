"""Nothing that a record, a header, a file name or an argument holds does anything to a terminal."""

import json
import os
import pty
import re
import shutil
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import logstore
from logstore import NewRecord
from logstore.cli.escaping import escaped, escaped_bytes, json_text
from logstore.format.messages.group_records import GroupMetadataValue, MemberMetadata
from logstore.model import OffsetAndMetadata
from tests.cli.helpers import PROGRAM, TIME_MS

HOSTILE = [
    b"\x1b]0;owned\x07",
    b"\x1b[2J\x1b[31mred",
    b"\x9b31m\x90q\xff\xfe",
    "\x9b31m\x85\u2028".encode(),
    "\u202eevil\u2066\u200b\ufeff".encode(),
    b"\r\n\t\x00\x08\x7f",
    b"[bold red]not bold[/] :smile:",
    b"\xed\xa0\x80 half",
    "\U000e0041\ue000".encode(),
    b"back\\slash \\N",
]
OURS = re.compile(rb"\x1b\[[0-9;]*m")
"""Colours."""
OURS_OF_A_BAR = re.compile(rb"\x1b\[\?25[lh]|\x1b\[[12][KA]|\r")
"""Hides the cursor and writes the line anew."""


def in_terminal(*arguments, program=PROGRAM, **environment):
    """What a command writes to a terminal, and its exit code."""
    master, slave = pty.openpty()
    child = subprocess.Popen(
        [*program, *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=os.environ | {"TERM": "xterm-256color"} | environment,
    )
    os.close(slave)
    written = b""
    while True:
        try:
            piece = os.read(master, 65_536)
        except OSError:  # the child has closed it
            break
        if not piece:
            break
        written += piece
    os.close(master)
    return written.replace(b"\r\n", b"\n"), child.wait(60)


def check_harmless(written):
    text = OURS.sub(b"", written).decode()
    bad = [character for character in text if not (character.isprintable() or character == "\n")]
    assert not bad, bad


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Topics are called what Kafka allows; all else is hostile, the directory's name too."""
    path = os.fsencode(tmp_path_factory.mktemp("s")) + b"/\x1b[31m\xff\xe2\x80\xaedir"
    os.mkdir(path)
    path = os.fsdecode(path)
    with logstore.open(path) as store:
        log = store.create_topic("orders")[0]
        log.extend([NewRecord(each, each, timestamp_ms=TIME_MS) for each in HOSTILE])
        headers = [("\x1b[31m\u202e" + "h", each) for each in HOSTILE]
        log.extend([NewRecord(b"v", None, tuple(headers), TIME_MS)], flush=True)
        note = OffsetAndMetadata(1, "\x1b[31m\u202enote")
        store.offsets("\x1b[31m\u202eg").commit({("orders", 0): note})
        instance_id, member_id = "\x9b31mi", "\u202em"
        member = MemberMetadata(member_id, instance_id, "\x1b[31mc", "\x1b]0;h\x07", 1000, 60_000, b"", b"")
        value = GroupMetadataValue("consumer", 1, "\x1b[31mrange", member_id, 0, (member,))
        store._committed_offsets().store_group("\x1b[31m\u202em", value)
    with open(os.fsencode(path) + b"/orders-0/\x1b[31m\n\x9b.tmp", "wb"):
        pass
    return path


COMMANDS = [
    ["ls", "DIR"],
    ["ls", "DIR", "orders"],
    ["ls", "DIR", "\x1b[31mtopic\x9b"],
    ["info", "DIR"],
    ["info", "DIR", "orders"],
    ["info", "DIR/orders-0/00000000000000000000.log"],
    ["info", "DIR/orders-0/00000000000000000000.log", "--all"],
    ["info", "DIR/orders-0/\x1b[31m"],
    ["lag", "DIR"],
    ["lag", "DIR", "\x1b[31m"],
    ["groups", "DIR"],
    ["groups", "DIR", "\x1b[31m"],
    ["groups", "DIR", "\x1b[31m\u202eg"],
    ["groups", "DIR", "\x1b[31m\u202eg", "--reset", "earliest", "--dry-run"],
    ["groups", "DIR", "\x1b[31m\u202eg", "--reset", "\x1b[31m"],
    ["groups", "DIR", "\x1b[31m\u202eg", "--reset", "latest", "--topic", "\x1b[31mt"],
    ["groups", "DIR", "\x1b[31m\u202em"],
    ["groups", "DIR", "\x1b[31m\u202em", "--delete"],
    ["cat", "DIR", "orders"],
    ["cat", "DIR", "orders", "--from", "\x1b[31m\u202e"],
    ["cat", "DIR", "orders", "--\x1b[31m"],
    ["cat", "DIR", "orders", "--format", "raw"],
    ["cat", "DIR", "orders", "-p", "\x1b[31m"],
    ["tail", "DIR", "orders"],
    ["verify", "DIR", "-q"],
    ["compact", "DIR", "orders", "-q"],
    ["retain", "DIR"],
    ["handover", "DIR", "DIR", "-q"],
    ["handover", "DIR", "DIR2", "--dry-run", "-q"],
    ["\x1b[31mcommand"],
]
ALL = """
import json, sys
from logstore.__main__ import main
for arguments in json.loads(sys.argv[1]):
    print(flush=True)
    code = main(arguments)
    print("code", code, *map(ascii, arguments), flush=True)
"""
"""Runs one command after the other."""


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_what_is_written_does_nothing_to_the_terminal(store, form):
    lines = [[*(each.replace("DIR", store) for each in arguments), *form] for arguments in COMMANDS]
    written, code = in_terminal(json.dumps(lines), program=[sys.executable, "-c", ALL])
    assert code == 0
    parts = re.split(rb"code (\d+) .*\n", written)
    assert len(parts) == 2 * len(COMMANDS) + 1
    for number, arguments in enumerate(COMMANDS):
        said, code = parts[2 * number], int(parts[2 * number + 1])
        check_harmless(said)
        assert said.strip() or arguments[0] == "verify", arguments
        assert b"Traceback" not in said
        assert code in (0, 2, 3), arguments


def test_colours_are_for_terminals(store):
    coloured, _ = in_terminal("cat", store, "orders")
    assert OURS.search(coloured)
    plain, _ = in_terminal("cat", store, "orders", NO_COLOR="1")
    assert b"\x1b" not in plain
    assert OURS.sub(b"", coloured) == plain
    piped = subprocess.run([*PROGRAM, "cat", store, "orders"], capture_output=True, check=True).stdout
    assert piped == plain


def test_a_bar_comes_to_a_terminal_and_only_there(tmp_path, store):
    copy = tmp_path / "copy"
    shutil.copytree(store, copy)
    shown, _ = in_terminal("verify", str(copy))
    assert b"verifying" in shown
    check_harmless(OURS_OF_A_BAR.sub(b"", shown))
    quiet, _ = in_terminal("verify", str(copy), "--quiet")
    assert b"verifying" not in quiet
    piped = subprocess.run([*PROGRAM, "verify", str(copy)], capture_output=True, check=True)
    assert piped.stderr == b""


@given(st.text() | st.binary().map(lambda data: data.decode("utf-8", "surrogateescape")))
@example("\x7f\u2028\ud800\U000e0041\\")
def test_escapes_are_printable_and_can_be_undone(text):
    shown = escaped(text)
    assert shown.isprintable()

    def character(match):
        body = match[1]
        if body in ("\\", "n", "r", "t"):
            return {"\\": "\\", "n": "\n", "r": "\r", "t": "\t"}[body]
        code = int(body[1:], 16)
        return chr(code + 0xDC00) if body[0] == "x" and code >= 0x80 else chr(code)

    assert re.sub(r"\\(\\|[nrt]|x..|u....|U........)", character, shown) == text
    value = {"text": [text]}
    assert json_text(value).isprintable()
    assert json.loads(json_text(value)) == value


def test_null_is_told_from_its_escape():
    assert escaped_bytes(None) == "\\N"
    assert escaped_bytes(b"\\N") == "\\\\N"
