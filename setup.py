"""What pyproject.toml cannot say: the compiled module is optional, and one build serves every Python.

Without a C compiler the install goes on without it, and the plain Python code runs: logstore.build_info()
tells which.
"""

import sysconfig
from pathlib import Path

from setuptools import Extension, setup

SOURCES = Path("src/compiled")
IS_FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))  # has no limited API yet

setup(
    ext_modules=[
        Extension(
            "logstore._compiled",
            sources=sorted(map(str, SOURCES.glob("*.c"))),
            depends=sorted(map(str, SOURCES.glob("*.h"))),
            extra_compile_args=["-O3", "-std=c11", "-Wall", "-Wextra", "-fvisibility=hidden", "-fno-plt"],
            py_limited_api=not IS_FREE_THREADED,
            optional=True,
        )
    ],
    options={} if IS_FREE_THREADED else {"bdist_wheel": {"py_limited_api": "cp311"}},
)
