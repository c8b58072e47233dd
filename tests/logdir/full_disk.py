"""A store on a disk that refuses the list of topics."""

import logstore
from logstore.testing import FAULTS, ManualClock

PATH = "/data"


def opened(files):
    return logstore.open(PATH, files=files, clock=ManualClock())


def values(topic):
    return [[record.value for record in log.read()] for log in topic]


def fill(files, *, writes=None):
    """From now on so many writes of the list of topics fail; None: all."""
    files.fail(FAULTS["ENOSPC"], kinds=["write"], path="topics.json", times=writes)
