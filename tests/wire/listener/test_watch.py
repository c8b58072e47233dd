"""The thread that waits for all connections."""

from __future__ import annotations

import os
import socket
import threading

from logstore.wire.listener.watch import Watch


def test_who_gets_the_descriptor_of_one_that_has_hung_up_is_not_told_that_it_has():
    """Another thread closes the old connection in the moment in which the watch lets the new one in."""
    watch, told, is_done = Watch("watch", lambda: None), [], threading.Event()
    listening = socket.create_server(("127.0.0.1", 0))
    own, other = socket.socketpair()
    descriptor, connected = own.fileno(), []

    def accept():
        connected.append(listening.accept()[0])
        watch.remove(descriptor)
        own.close()
        os.dup2(connected[0].fileno(), descriptor)
        watch.add(descriptor, lambda is_gone: told.append(("the new one", is_gone)))
        watch.after(0, is_done.set)

    with listening, other, socket.create_connection(listening.getsockname()):
        watch.add_listening(listening, accept)
        watch.add(descriptor, lambda is_gone: told.append(("the old one", is_gone)))
        watch.until_gone(descriptor)
        other.close()
        watch.start()
        assert is_done.wait(10)
        watch.close()
    os.close(descriptor)
    connected[0].close()
    assert told == [("the old one", True)]
