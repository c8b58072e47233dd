"""A partition cannot be opened for want of file descriptors, and the warning that says so needs one.

``logging`` is imported by the first warning. That import failed with a plain ``OSError``, which took the
place of the error that was being reported: the store did not open at all. Found by opening a store with none,
one, two, ... descriptors left.
"""

import builtins
import errno
import os

from logstore.warning import warn


def test_a_warning_that_cannot_be_given_is_not_an_error(monkeypatch):
    plain = builtins.__import__

    def refuse(name, *arguments):
        if name == "logging":
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return plain(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", refuse)
    warn("nobody will hear this")
