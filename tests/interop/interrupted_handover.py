"""A handover that is killed at a step: ``python interrupted_handover.py STEP SOURCE TARGET TOPIC``."""

from __future__ import annotations

import os
import sys

import logstore
from logstore.files import OsFiles

STEPS = ("copying", "staged", "set aside", "placed")


def main(step: str, source: str, target: str, topic: str) -> None:
    if step == "copying":
        set_modified_ms = OsFiles.set_modified_ms

        def set_and_die(self: OsFiles, path: str, modified_ms: int) -> None:
            set_modified_ms(self, path, modified_ms)
            if path.endswith(".log"):
                os.truncate(path, os.path.getsize(path) // 2)
                os._exit(9)

        OsFiles.set_modified_ms = set_and_die
    rename = OsFiles.rename

    def rename_and_die(self: OsFiles, old: str, new: str) -> None:
        is_aside, is_placed = new.endswith("-stray"), old.endswith("-stray")
        if step == "staged" and is_aside:
            os._exit(9)
        rename(self, old, new)
        if (step == "set aside" and is_aside) or (step == "placed" and is_placed):
            os._exit(9)

    OsFiles.rename = rename_and_die
    logstore.handover(source, target, topics=[topic])


if __name__ == "__main__":
    main(*sys.argv[1:])
