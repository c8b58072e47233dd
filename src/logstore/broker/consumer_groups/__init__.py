"""Consumer groups of the newer protocol (KIP-848): the coordinator assigns, and heartbeats carry everything.

No I/O here: storage, time and topics are given. The classic protocol is in
:mod:`~logstore.broker.groups`.
"""
