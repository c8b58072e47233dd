"""The command line: ``logstore`` and ``python -m logstore``.

:mod:`~logstore.cli.app` puts the commands together. Each command, or family of a few, is a module of
:mod:`~logstore.cli.commands`. They share the modules beside that: options, opening stores, errors and exit
codes, output, times. Nothing of the engine is decided here.

The only package that imports Typer and Rich.
"""

from importlib.util import find_spec

from logstore._version import how_to_install

if not (find_spec("rich") and find_spec("typer")):  # to import them takes longer than to start a server
    raise ImportError(f"the command line needs typer and rich: {how_to_install('cli')}")
