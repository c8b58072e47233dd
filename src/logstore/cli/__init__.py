"""The command line: ``logstore`` and ``python -m logstore``.

:mod:`~logstore.cli.app` puts the commands together. Each command, or family of a few, is a module of
:mod:`~logstore.cli.commands`. They share the modules beside that: options, opening stores, errors and exit
codes, output, times. Nothing of the engine is decided here.

The only package that imports Typer and Rich.
"""

from logstore._version import how_to_install

try:
    import rich  # noqa: F401
    import typer  # noqa: F401
except ImportError as missing:
    raise ImportError(f"the command line needs typer and rich: {how_to_install('cli')}") from missing
