"""The compiled module built with AddressSanitizer and UndefinedBehaviorSanitizer, and running with it."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src" / "compiled"
FLAGS = [
    *("-shared", "-fPIC", "-std=c11", "-O1", "-g", "-fno-omit-frame-pointer", "-Wall", "-Wextra", "-Werror"),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
]


def compiler():
    """gcc, if it is here with its AddressSanitizer; else a reason, in words."""
    gcc = shutil.which("gcc")
    if gcc is None:
        return None, "no gcc here"
    library = subprocess.run(
        [gcc, "-print-file-name=libasan.so"], capture_output=True, text=True
    ).stdout.strip()
    if not os.path.isabs(library):
        return None, "gcc has no AddressSanitizer here"
    return gcc, library


def build(gcc, path, sources=SOURCES):
    """Compile all sources into the shared library at ``path``."""
    include = sysconfig.get_path("include")
    files = sorted(map(str, Path(sources).glob("*.c")))
    done = subprocess.run(
        [gcc, *FLAGS, f"-I{include}", *files, "-o", str(path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return path


def run(library, *arguments, timeout):
    """A Python program in which each allocation is one of the sanitizer's."""
    environment = os.environ | {
        "LD_PRELOAD": library,
        "PYTHONMALLOC": "malloc",
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:abort_on_error=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "LOGSTORE_LOOPS": "compiled",
    }
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=timeout, env=environment
    )
