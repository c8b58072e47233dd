"""The commands put together. A new one is a module of :mod:`~logstore.cli.commands`, named in ``MODULES``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final, NoReturn, cast

import typer
from typer.core import TyperGroup

from logstore import _version
from logstore.cli import remarks, streams
from logstore.cli.commands import (
    Command,
    backup,
    bridge,
    cat,
    clean,
    groups,
    handover,
    info,
    lag,
    ls,
    serve,
    standby,
    verify,
)
from logstore.cli.errors import FINE, INTERRUPTED, PIPE_CLOSED, WRONG, explain, guarded

MODULES: Final = (ls, info, lag, groups, cat, verify, clean, backup, handover, bridge, standby, serve)
COMMANDS: Final[tuple[Command, ...]] = tuple(each for module in MODULES for each in module.COMMANDS)

_USAGE_ERROR = cast("type[Exception]", typer.BadParameter.__mro__[1])
"""What Typer raises for a command line that is wrong. It has no public name."""


class CommandLine(TyperGroup):
    """The group of all commands: it tells of a wrong command line as the commands tell of their errors."""

    def main(  # type: ignore[override]  # what it has besides is for programs that embed it
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        """Run a command and exit. Without one, show the help."""
        arguments = sys.argv[1:] if args is None else list(args)
        extra["standalone_mode"] = False
        streams.prepare()
        with remarks.on_standard_error():
            try:
                code = super().main(arguments or ["--help"], "logstore", **extra)
                streams.flush()
            except (BrokenPipeError, SystemExit):  # Typer makes an exit of it if it is writing the help
                streams.abandon()
                code = PIPE_CLOSED
            except (KeyboardInterrupt, typer.Abort):
                code = INTERRUPTED
            except _USAGE_ERROR as error:
                code = _tell_usage(error)
            except OSError as error:  # the help or the version could not be written
                code, message = explain(error)
                streams.tell(f"error: {message}")
        sys.exit(code or (FINE if arguments else WRONG))


def _tell_usage(error: Any) -> int:
    context = getattr(error, "ctx", None)
    message = error.format_message().rstrip()
    path = "logstore" if context is None else context.command_path
    streams.tell(
        f"error: {message}{'' if message.endswith(('.', '?')) else '.'} `{path} --help` shows what it takes"
    )
    return WRONG


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"logstore {_version.VERSION}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=_show_version, is_eager=True, help="show the version")
]

app = typer.Typer(
    cls=CommandLine,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _top(version: Version = False) -> None:
    """Look into directories of topics, logstore's and Kafka brokers', check them, and keep them in order.

    What only reads works beside a running writer and needs no permission to write. Exit codes: 0 done,
    1 damage was found, 2 the command line is wrong, 3 it cannot be done, 130 interrupted.
    """


for _command in COMMANDS:
    app.command(_command.name)(guarded(_command.function))
