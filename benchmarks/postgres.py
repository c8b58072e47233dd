"""A PostgreSQL server for a measurement: its own directory, a Unix socket, and default settings."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from glob import glob
from typing import Any

_USER = "postgres"
"""Whose server it is if root starts it, which PostgreSQL refuses."""


class PostgresError(Exception):
    """The server cannot be started; says why."""


class Postgres:
    """A running server."""

    def __init__(self, socket_directory: str, version: str) -> None:
        self._socket_directory = socket_directory
        self.version = version

    def connect(self, *, is_durable: bool) -> Any:
        """A connection in autocommit mode, with or without ``synchronous_commit``.

        Raises:
            PostgresError: psycopg is not installed.
        """
        try:
            import psycopg  # an extra
        except ImportError:
            raise PostgresError("psycopg is not installed") from None
        options = f"-c synchronous_commit={'on' if is_durable else 'off'}"
        return psycopg.connect(
            host=self._socket_directory, user=_USER, dbname="postgres", options=options, autocommit=True
        )


@contextmanager
def start_postgres(directory: str) -> Iterator[Postgres]:
    """A server until the block ends, with its data in the directory; in ``/var/tmp`` if root starts it, whose
    directories other users may be unable to reach.

    Raises:
        PostgresError: there is none here, or it does not start.
    """
    programs = _programs()
    account = _account()
    data = tempfile.mkdtemp(prefix="postgres-", dir=directory if account is None else "/var/tmp")
    sockets = tempfile.mkdtemp(prefix="pg-")  # a socket's path is at most 107 bytes
    if account is not None:
        for each in (data, sockets):
            os.chown(each, account.pw_uid, account.pw_gid)
    try:
        version = _run(f"{programs}/postgres", "--version", account=account).strip()
        _run(f"{programs}/initdb", "-D", data, "-U", _USER, "-A", "trust", "--locale=C", account=account)
        control = [f"{programs}/pg_ctl", "-D", data, "-w", "-l", f"{data}/log"]
        _run(*control, "-o", f"-c listen_addresses='' -k {sockets}", "start", account=account)
        try:
            yield Postgres(sockets, version)
        finally:
            _run(*control, "-m", "fast", "stop", account=account)
    finally:
        shutil.rmtree(data, ignore_errors=True)
        shutil.rmtree(sockets, ignore_errors=True)


def _programs() -> str:
    """Where they are: on the path, or where Debian puts them.

    Raises:
        PostgresError: nowhere.
    """
    found = shutil.which("initdb")
    places = [os.path.dirname(found)] if found else sorted(glob("/usr/lib/postgresql/*/bin"))
    if not places:
        raise PostgresError("PostgreSQL is not installed: apt-get install postgresql")
    return places[-1]


def _account() -> pwd.struct_passwd | None:
    """Whose server it is; None if it is this process's own user's.

    Raises:
        PostgresError: root has no such user.
    """
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(_USER)
    except KeyError:
        raise PostgresError(f"root cannot run PostgreSQL, and there is no user {_USER!r}") from None


def _run(*command: str, account: pwd.struct_passwd | None) -> str:
    """
    Raises:
        PostgresError: it failed.
    """
    user = {} if account is None else {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    with tempfile.TemporaryFile("w+") as output:  # the server keeps a pipe open
        result = subprocess.run(command, stdout=output, stderr=output, cwd="/", **user)  # type: ignore[call-overload]
        output.seek(0)
        text = output.read()
    if result.returncode:
        raise PostgresError(f"{' '.join(command)}: {text.strip()}")
    return text
