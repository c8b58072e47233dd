"""Where another user could not read a partition or one of its files, ``verify`` reported a missing segment,
to be restored from a copy, and ended with 1; ``ls`` ended with 1 as well. Nothing was lost: a permission
was missing.
"""

import os

import pytest
from tests.logdir.helpers import run_python
from tests.permissions import let_others_in

import logstore

FIRST, LAST = f"{0:020d}", f"{8:020d}"
NAMES = (
    "t-0",
    f"t-0/{FIRST}.log",
    f"t-0/{LAST}.log",
    f"t-0/{FIRST}.index",
    f"t-0/{FIRST}.timeindex",
    "t-0/partition.metadata",
    "t-0/leader-epoch-checkpoint",
    "topics.json",
    "meta.properties",
    "recovery-point-offset-checkpoint",
)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_every_command_says_that_a_permission_is_missing(tmp_path):
    path = tmp_path / "s"
    with logstore.open(path) as store:
        log = store.create_topic("t", config=logstore.TopicConfig(segment_bytes=300))[0]
        for _ in range(10):
            log.extend([(b"k", b"v" * 50)])
        assert log.segment_count == 5
        store.create_topic("u").extend([b"1"])
    for each in (path, *path.rglob("*")):
        each.chmod(0o755 if each.is_dir() else 0o644)
    let_others_in(path)
    printed = run_python(
        """
        import os, sys
        from logstore.__main__ import main

        path, names = sys.argv[1], sys.argv[2].split()
        commands = [[name, path, *rest] for name, *rest in (
            ["ls"], ["ls", "t"], ["verify"], ["verify", "t"], ["verify", "--json"],
            ["cat", "t"], ["tail", "t"], ["info", "t"],
        )]
        for command in commands:  # imports what it needs, from where the other user may not look
            main(command)
        sys.stderr = sys.stdout
        for name in names:
            os.seteuid(0)
            os.chmod(f"{path}/{name}", 0)
            os.seteuid(65534)
            for command in commands:
                print("exit", name, command[0], main(command), flush=True)
            os.seteuid(0)
            os.chmod(f"{path}/{name}", 0o755)
        """,
        path,
        " ".join(NAMES),
    )
    codes = {}
    for line in printed.splitlines():
        if line.startswith("exit"):
            _, name, command, code = line.split()
            codes.setdefault((name, command), set()).add(int(code))
    commands = ("ls", "verify", "cat", "tail", "info")
    assert set(codes) == {(name, command) for name in NAMES for command in commands}
    assert all(found <= {0, 3} for found in codes.values()), codes
    assert all(3 in codes[name, "verify"] for name in NAMES), codes
    assert all(codes["t-0", command] == {3} for command in commands)
    assert "missing segment" not in printed
    assert "Permission denied (this process's user needs the permission)" in printed
