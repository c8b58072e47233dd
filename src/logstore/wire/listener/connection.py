"""One client's connection. Requests are answered one after the other, in their order, as Kafka does:
producers rely on it.

A connection is run by one thread at a time, and by none while there is nothing to do but wait: for bytes, for
room to send, for a result, or for a throttle to end. Then it is parked, and whatever it waits for resumes it.

Lock: ``_lock`` guards whether it is parked. It is held for that alone.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import Final

from logstore.broker.pending import Answered
from logstore.errors import FencedError, LogstoreError
from logstore.warning import inform, is_due, warn
from logstore.wire.apis import ApiKey
from logstore.wire.frames import FrameReader
from logstore.wire.handlers.call import HANG_UP, Call, NoAnswer
from logstore.wire.listener import answering
from logstore.wire.listener.answering import Answer, Asked
from logstore.wire.listener.intercepting import (
    Action,
    Delay,
    Drop,
    DropAnswer,
    HangUp,
    Intercept,
    Intercepted,
    Refuse,
)
from logstore.wire.listener.login import MAX_BYTES_BEFORE, Login
from logstore.wire.listener.transport import NO_TLS, TlsTransport, Transport, pieces_of
from logstore.wire.listener.watch import Watch
from logstore.wire.listener.workers import Workers

_CHUNK_BYTES: Final = 64 * 1024
_LARGEST_CHUNK_BYTES: Final = 256 * 1024
"""What is received at once from a client that sends many requests. Most of a large one comes where it
belongs."""
_WAITS_FOR_NEWS: Final = frozenset({ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
"""Requests that wait for what may never come. A client that gets no answer can safely repeat them."""
_UNHEARD_SECONDS: Final = 1
"""How long a client may send on a connection that answers nothing more. Most hang up when an answer is
overdue; kafkajs would go on for ever."""
_LINGER_MS: Final = 5
"""How long a thread stays with a connection for its next request. To hand it over costs more than most
requests."""
_NO_CERTIFICATE: Final = "PEER_DID_NOT_RETURN_A_CERTIFICATE"
"""As OpenSSL calls it."""
_told_at: dict[str, float] = {}
"""When the log last heard of a client that does not come to its first request, by the kind of the error. Such
clients try again several times a second."""


class _Park(Enum):
    """What a connection waits for."""

    READ = "bytes"
    WRITE = "room to send"
    ANSWER = "a result"
    THROTTLE = "the end of a throttle"


class _Step:
    """How long a request has been arriving, or an answer leaving, without getting on."""

    __slots__ = ("_bytes", "_since")

    def __init__(self) -> None:
        self._since = 0.0
        self._bytes = 0

    def go_on(self, size_bytes: int, now: float) -> None:
        """So much has come or gone, and there is more."""
        self._bytes += size_bytes
        if not self._since or self._bytes >= _CHUNK_BYTES:
            self._since, self._bytes = now, 0

    def end(self) -> None:
        """All has."""
        self._since, self._bytes = 0.0, 0

    def seconds(self, now: float) -> float:
        """Since when it has not got on by a chunk."""
        return now - self._since if self._since else 0.0


class Connection:
    """See the module."""

    def __init__(
        self,
        connected: socket.socket,
        transport: Transport,
        call: Call,
        *,
        as_client: Callable[[Call], None],
        intercept: Intercept | None,
        watch: Watch,
        workers: Workers,
        on_close: Callable[[Connection], None],
    ) -> None:
        self._socket = connected
        self._descriptor = connected.fileno()
        self._transport = transport
        self.call = call
        self._as_client = as_client
        self._intercept = intercept
        self._watch = watch
        self._workers = workers
        self._on_close = on_close
        self._login = Login(call, as_client)
        self._chunk_bytes = _CHUNK_BYTES
        self._reader = FrameReader(max_bytes=call.node.config.socket_request_max_bytes)
        self._is_known = False
        """Whether the client was asked who it is, and may send large requests."""
        self._frames: deque[memoryview] = deque()
        self._delayed: Asked | None = None
        self._answer: Answer | None = None
        self._is_silent = False
        """Whether the answer is not to be sent."""
        self._unheard_since: float | None = None
        """When an answer was dropped: answers come in order, so there can be no other behind it."""
        self._out: deque[memoryview] = deque()
        self._withheld: deque[memoryview] = deque()
        """The answer to a login that has failed, until :attr:`_muted_until`."""
        self._muted_until = 0.0
        self._lock = threading.Lock()
        self._is_parked = True
        self._is_closed = False
        self.is_draining = False
        """Whether it is closed when what was asked is answered."""
        self._step = _Step()
        self._began_at = self._active_at = time.monotonic()

    # Between waits

    def resume(self, is_gone: bool = False) -> None:
        """Go on, in another thread, if nothing else has made it go on."""
        with self._lock:
            if not self._is_parked:
                return
            self._is_parked = False
        self._workers.submit(self._run_alone if is_gone and self._answer is not None else self._run)

    def _run_alone(self) -> None:
        """The client has hung up while it waited for an answer. What it had sent after that still counts, as
        in Kafka: a consumer that closes in the middle of a rebalance says so behind its JoinGroup."""
        answer, self._answer = self._answer, None
        self._is_silent = False
        if answer is not None:
            answer.pending.cancel()
        if self.is_draining:
            self._close()
        else:
            self._run()

    def _run(self) -> None:
        try:
            park = self._work()
        except LogstoreError as error:  # what it sends cannot be read, or is not served
            self._tell(type(error).__name__, str(error))
            park = None
        except ssl.SSLError as error:
            self._tell_of(error)
            park = None
        except OSError:  # the client is gone
            park = None
        except MemoryError:
            warn(
                "the connection of %s is closed: no memory is left for its request. Give the process more, "
                "or lower socket_request_max_bytes, max_connections and fetch_memory_bytes of the listener",
                self.call.host,
            )
            park = None
        except BaseException:
            self._close()
            raise
        if park is None or not self._park(park):
            self._close()
            return
        answer = self._answer
        if park is _Park.ANSWER and answer is not None:
            answer.pending.on_wake(self.resume)
        elif park is _Park.THROTTLE:
            self._watch.after(max(self._muted_until - time.monotonic(), 0.0), self.resume)

    def _tell(self, kind: str, why: str) -> None:
        """Clients that do not get in at all are mostly set up wrongly, and many say no more than that the
        broker is gone. So the log says why: of each kind once a minute as a warning."""
        is_stranger = self._is_stranger or self._reader.is_tls
        tell = warn if is_stranger and is_due(_told_at, kind) else inform
        tell("the connection of %s is closed: %s", self.call.host, why)

    def _tell_of(self, error: ssl.SSLError) -> None:
        """TLS has failed. A certificate that is not taken, or is missing, is a login that fails."""
        reason = error.reason or str(error)
        if isinstance(error, ssl.SSLCertVerificationError):
            reason = error.verify_message
        is_told = "_ALERT_" in reason
        hint = ", says the client" if is_told else "; it may speak without TLS" if reason in NO_TLS else ""
        self._tell("alert" if is_told else type(error).__name__, f"TLS: {reason}{hint}")
        if isinstance(error, ssl.SSLCertVerificationError) or reason == _NO_CERTIFICATE:
            self.call.note_failed_login(None, "TLS", reason)

    def _park(self, park: _Park) -> bool:
        """Returns whether there is still something to wait for."""
        with self._lock:  # the descriptor is this connection's as long as it is held
            if self._is_closed or (self.is_draining and park is _Park.READ):
                return False
            self._is_parked = True
            if park is not _Park.THROTTLE:
                self._watch_for(park)
            return True

    def _watch_for(self, park: _Park) -> None:
        if park is _Park.ANSWER:
            self._watch.until_gone(self._descriptor)
        elif park is _Park.WRITE or self._transport.wants_write:
            self._watch.until_writable(self._descriptor)
        else:
            self._watch.until_readable(self._descriptor)

    def _work(self) -> _Park | None:
        """Do all that can be done without waiting; returns what to wait for, or None at the end."""
        while True:
            if self._out:
                if not self._send():
                    return _Park.WRITE
                continue
            if self._unheard_since is not None:
                return self._ignore(self._unheard_since)
            if self._muted_until:
                if self._muted_until > time.monotonic():
                    return _Park.THROTTLE
                self._muted_until = 0.0
                self._out, self._withheld = self._withheld, deque()
                continue
            if self._answer is not None:
                if not self._finish():
                    return _Park.ANSWER
                continue
            if self._delayed is not None:
                asked, self._delayed = self._delayed, None
                self._answer = answering.answer(self.call, asked)
            elif self._frames:
                self._take(self._frames.popleft())
            elif self.is_draining:
                return None
            elif self._reader.fault is not None:  # all in front of it is answered
                raise self._reader.fault
            else:
                size_bytes = self._receive()
                if size_bytes == 0:
                    return None
                if size_bytes is None:
                    return _Park.READ

    # In

    def _ignore(self, since: float) -> _Park | None:
        """What comes behind a request that was dropped, until the client hangs up."""
        while data := self._transport.receive(self._chunk_bytes):
            if time.monotonic() - since > _UNHEARD_SECONDS:
                return None
        return _Park.READ if data is None else None

    def _receive(self) -> int | None:
        """Returns how many bytes have come: 0 at the end, None if there are none yet."""
        size_bytes = self._receive_now()
        if size_bytes is None and self._workers.has_room and self._transport.wait(_LINGER_MS):
            size_bytes = self._receive_now()
        if not size_bytes:
            return size_bytes
        self._active_at = time.monotonic()
        if self._reader.missing_bytes:
            self._step.go_on(size_bytes, self._active_at)
        else:
            self._step.end()
        return size_bytes

    def _receive_now(self) -> int | None:
        room = self._reader.room()
        if room is not None:  # of a frame that has begun, to where it belongs
            size_bytes = self._transport.receive_into(room)
            room.release()
            if size_bytes:
                self._frames.extend(self._reader.fill(size_bytes))
            return size_bytes
        data = self._transport.receive(self._chunk_bytes)
        if not data:
            return None if data is None else 0
        if not self._is_known:
            self._know()
        self._frames.extend(self._reader.feed(data))
        if self._reader.missing_bytes >= _LARGEST_CHUNK_BYTES:
            self._chunk_bytes = _CHUNK_BYTES
        elif len(data) == self._chunk_bytes:
            self._chunk_bytes = min(2 * self._chunk_bytes, _LARGEST_CHUNK_BYTES)
        elif 4 * len(data) < self._chunk_bytes:
            self._chunk_bytes = _CHUNK_BYTES
        return len(data)

    def _know(self) -> None:
        """Something has come for the first time, or since a login is awaited."""
        self._is_known = not self._login.is_awaited
        most = self.call.node.config.socket_request_max_bytes
        self._reader.max_bytes = most if self._is_known else min(most, MAX_BYTES_BEFORE)
        if self._is_known:
            self._login.take_certificate(self._transport.certificate())

    def _take(self, frame: memoryview) -> None:
        raw = self._login.raw_answer(frame)
        if raw is not None:
            self._out = pieces_of(raw)
            self._hang_up_after_a_failed_login()
            self._withhold_after_a_failed_login()
            return
        call = self.call
        if self._intercept is not None:  # it may keep the request, whose batches would be given their offsets
            frame = frame.toreadonly()
        asked = answering.read(call, frame)
        if isinstance(asked, Answer):
            self._answer = asked
            return
        if (asked.header.client_id or "") != call.client_id:
            call.client_id = asked.header.client_id or ""
            self._as_client(call)
        if not self._login.allows(asked.key):
            raise FencedError(f"{asked.key.name} without a login")
        if self._intercept is not None and self._is_intercepted(self._intercept, asked):
            return
        self._answer = answering.answer(call, asked)

    def _is_intercepted(self, intercept: Intercept, asked: Asked) -> bool:
        call = self.call
        action: Action | None = intercept(
            Intercepted(asked.key, asked.header.api_version, asked.request, call.client_id, call.principal)
        )
        if isinstance(action, HangUp):
            self._answer = Answer(asked.header, Answered(HANG_UP), asked.header.api_version)
        if isinstance(action, Refuse):
            self._answer = answering.refuse_instead(call, asked, action.code)
        elif isinstance(action, Delay):
            self._delayed = asked
            self._muted_until = time.monotonic() + action.seconds
        elif isinstance(action, Drop):
            self._drop_answers(asked.key != ApiKey.PRODUCE or asked.request.acks != 0)
        elif isinstance(action, DropAnswer):
            self._is_silent = True
            return False
        return isinstance(action, (HangUp, Refuse, Delay, Drop))

    def _drop_answers(self, is_awaited: bool) -> None:
        """Of a request, and of what is behind it if the client waits for this one."""
        if is_awaited:
            self._unheard_since = time.monotonic()
            self._frames.clear()

    # Out

    def _finish(self) -> bool:
        """Send the answer, if it is there."""
        answer = self._answer
        assert answer is not None
        response = answer.pending.poll()
        if response is None:
            self.call.room.wait()
            return False
        if response is HANG_UP:
            self._hang_up()
        elif answer.header.api_key == ApiKey.SASL_HANDSHAKE:
            self._login.note_handshake(answer.version)
            self._hang_up_after_a_failed_login()
        elif answer.header.api_key == ApiKey.SASL_AUTHENTICATE:
            self._login.note_step()
            self._hang_up_after_a_failed_login()
        self._answer = None
        throttle_ms = answer.pending.throttle_time_ms
        if throttle_ms:
            self._muted_until = time.monotonic() + throttle_ms / 1000
        is_silent, self._is_silent = self._is_silent, False
        if is_silent:
            self._drop_answers(not isinstance(response, NoAnswer))
        elif not isinstance(response, NoAnswer):
            self._out = pieces_of(answering.encode(answer, response, throttle_ms, self.call.node.store_path))
        self.call.room.hold(sum(map(len, self._out)))
        self._withhold_after_a_failed_login()
        return True

    def _hang_up_after_a_failed_login(self) -> None:
        if self._login.has_failed:
            self._hang_up()

    def _withhold_after_a_failed_login(self) -> None:
        delay_ms = self.call.node.config.connection_failed_authentication_delay_ms
        if self._login.has_failed and delay_ms:
            self._withheld, self._out = self._out, deque()
            self._muted_until = time.monotonic() + delay_ms / 1000

    def _hang_up(self) -> None:
        """When the answer was sent."""
        self.is_draining = True
        self._frames.clear()

    def _send(self) -> bool:
        """Returns whether all was sent. A client that takes it meanwhile has this thread to the end."""
        while True:
            sent_bytes, is_all = self._transport.send(self._out)
            if is_all:
                self._step.end()
                self.call.room.hold(0)
                return True
            self._step.go_on(sent_bytes, time.monotonic())
            if not (self._workers.has_room and self._transport.wait_to_send(_LINGER_MS)):
                return False

    # The end

    def overdue(self, now: float) -> str | None:
        """Why it is to be closed at this time, if it is."""
        config = self.call.node.config
        if self._step.seconds(now) > config.socket_step_timeout_ms / 1000:
            return f"a request or an answer took longer than {config.socket_step_timeout_ms} ms"
        is_idle = self._answer is None and not self._muted_until
        if is_idle and self._is_stranger and now - self._began_at > config.socket_step_timeout_ms / 1000:
            return f"the client has not said who it is within {config.socket_step_timeout_ms} ms"
        if is_idle and now - self._active_at > config.connections_max_idle_ms / 1000:
            return f"nothing was asked for {config.connections_max_idle_ms} ms"
        return None

    @property
    def _is_stranger(self) -> bool:
        """Whether the client was to log in, or to ask something over TLS, and has not."""
        if self.call.sasl is not None:
            return self._login.is_awaited
        return isinstance(self._transport, TlsTransport) and not self._is_known

    def end(self) -> None:
        """Close it, unless a thread is working for it: then it is closed when that has finished."""
        with self._lock:
            self.is_draining = True
            if not self._is_parked:
                return
            if self._answer is not None or self._out or self._withheld:
                return
            self._is_parked = False
        self._close()

    @property
    def waits_for_news(self) -> bool:
        """Whether its client waits for what may never come."""
        answer = self._answer
        return answer is not None and answer.header.api_key in _WAITS_FOR_NEWS

    def abort(self) -> None:
        """Close it now. A thread that works for it finds that out."""
        self.is_draining = True
        with suppress(OSError):  # it is closed already
            self._socket.shutdown(socket.SHUT_RDWR)
        self.resume(is_gone=True)

    def _close(self) -> None:
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._watch.remove(self._descriptor)
            self._transport.end()
            self._socket.close()
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.pending.cancel()
        self._out.clear()
        self._frames.clear()
        self.call.room.hold(0)
        self._on_close(self)
