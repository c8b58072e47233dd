"""What pyproject.toml cannot say: the compiled module is optional, and one build serves every Python.

Without a C compiler the install goes on without it, and the plain Python code runs. The build says so, where
``pip install -v`` shows it; the wheel is then one of plain Python; and so say ``logstore.build_info()`` and
the log of a program that opens a store.
"""

import shutil
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

SOURCES = Path("src/compiled")
IS_FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))  # has no limited API yet
MODULE = "logstore._compiled"


class BuildModule(build_ext):
    """Says in the last line of its output what became of the module."""

    def run(self):
        super().run()
        if not self.has_module:
            print(
                f"{MODULE} was not built: logstore will run in plain Python, many times slower. "
                "Install a C compiler, and install again",
                file=sys.stderr,
            )

    @property
    def has_module(self):
        return Path(self.get_ext_fullpath(MODULE)).is_file()


class BuildWheel(bdist_wheel):
    """Tags the wheel by what is in it: one without the module is for every platform. Nothing is in it that an
    earlier build has left: ``build`` outlives an update of the checkout, and setuptools only adds to it."""

    def run(self):
        shutil.rmtree(self.get_finalized_command("build").build_lib, ignore_errors=True)
        self.run_command("build_ext")
        if not self.get_finalized_command("build_ext").has_module:
            self.distribution.ext_modules = None
            self.root_is_pure, self.py_limited_api = True, False
        super().run()


setup(
    ext_modules=[
        Extension(
            MODULE,
            sources=sorted(map(str, SOURCES.glob("*.c"))),
            depends=sorted(map(str, SOURCES.glob("*.h"))),
            extra_compile_args=["-O3", "-std=c11", "-Wall", "-Wextra", "-fvisibility=hidden", "-fno-plt"],
            py_limited_api=not IS_FREE_THREADED,
            optional=True,
        )
    ],
    cmdclass={"bdist_wheel": BuildWheel, "build_ext": BuildModule},
    options={} if IS_FREE_THREADED else {"bdist_wheel": {"py_limited_api": "cp311"}},
)
