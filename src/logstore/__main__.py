"""The commands: ``python -m logstore``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from logstore.errors import LogstoreError
from logstore.exchange.handover import handover
from logstore.exchange.report import HandoverProgress


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m logstore", description="Tools for directories of topics."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    _add_handover(commands.add_parser("handover", help="copy topics to or from a broker's log directory"))
    given = vars(parser.parse_args(arguments))
    try:
        return _run_handover(given)
    except LogstoreError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1


def _add_handover(command: argparse.ArgumentParser) -> None:
    command.add_argument("source", help="a store, or one of a broker's log.dirs; nobody may have it open")
    command.add_argument("target", help="the same; a path that does not exist becomes a store")
    command.add_argument("--topic", action="append", metavar="NAME", help="may be given several times")
    command.add_argument("--dry-run", action="store_true", help="check, change nothing, print the plan")
    command.add_argument("--abort-transactions", action="store_true", help="abort open ones in the copy")
    command.add_argument("--accept-settings", action="store_true", help="even if the broker soon deletes")
    command.add_argument("--source-metadata", metavar="DIR", help="metadata.log.dir of the source's broker")
    command.add_argument("--target-metadata", metavar="DIR", help="metadata.log.dir of the target's broker")


def _run_handover(given: dict[str, object]) -> int:
    options = {name: value for name, value in given.items() if name not in ("command", "topic")}
    report = handover(topics=given["topic"], on_progress=_show, **options)  # type: ignore[arg-type]
    print(report)
    return 0


def _show(progress: HandoverProgress) -> None:
    if sys.stderr.isatty():
        end = "\n" if progress.done_bytes == progress.total_bytes else "\r"
        print(f"{progress.done_bytes} of {progress.total_bytes} bytes", end=end, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
