"""One connection to one broker: requests go out as they come, and answers come back in the same order.

A request is sent by the thread that asks; with TLS, and when the socket is full, by the loop's thread, which
receives all answers. The records of a request are not copied.

Nothing that comes from the other side is trusted: a frame that is too large, an answer to another request and
an answer that cannot be read all close the connection. Each waiting request is then told so.

Lock: ``_lock`` guards the state, what waits, and what goes out. Nothing is called with it held.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

from logstore.broker.codes import ErrorCode
from logstore.errors import CorruptionError, LogstoreError, UnsupportedVersionError, UsageError
from logstore.model import Bytes
from logstore.wire.addresses import Address
from logstore.wire.frames import FrameReader, encode_frame
from logstore.wire.headers import decode_response, encode_request
from logstore.wire.remote.connections.dialing import Dialing, Tls
from logstore.wire.remote.connections.greeting import Greeting
from logstore.wire.remote.connections.loop import READ, WRITE, Loop, Timer
from logstore.wire.remote.connections.peer import Peer
from logstore.wire.remote.connections.questions import Question, Reply
from logstore.wire.remote.connections.settings import RemoteConfig, RenewedSasl, Sasl, current_sasl

_RECEIVED_BYTES: Final = 64 * 1024
_MOST_PARTS: Final = 64
"""Pieces in one system call; Linux takes 1,024."""
_LAST_CORRELATION_ID: Final = 2**31 - 1
_SHARE_OF_LIFETIME: Final = 0.85
"""As Kafka's clients do: authenticate again well before the broker asks for it."""

_SOON_SECONDS: Final = 1.0
"""Within so long a broker hangs up that wants to know first who asks."""

OnClosed = Callable[["Connection", ErrorCode, str], object]


class State(Enum):
    """How far a connection is."""

    GREETING = "greeting"
    """It is being made; requests wait."""
    OPEN = "open"
    RETIRING = "retiring"
    """It takes no new requests, and closes with the last answer."""
    BROKEN = "broken"
    """It takes no new requests, and the loop's thread is about to close it."""
    CLOSED = "closed"


class _Sent(NamedTuple):
    """A request that waits for its answer."""

    question: Question
    version: int
    correlation_id: int
    deadline: float


class Connection:
    """Made by :class:`~logstore.wire.remote.connections.nodes.Node`."""

    def __init__(
        self,
        loop: Loop,
        address: Address,
        config: RemoteConfig,
        *,
        client_id: str,
        tls: Tls | None = None,
        sasl: Sasl | RenewedSasl | None = None,
        on_open: Callable[[Connection], object],
        on_closed: OnClosed,
    ) -> None:
        """``on_closed`` is called once, in the loop's thread, with why it is closed."""
        self.address = address
        self.peer = Peer({})
        self._loop = loop
        self._config = config
        self._on_open, self._on_closed = on_open, on_closed
        self._sends_in_loop = self._has_tls = tls is not None
        self._has_sasl = sasl is not None
        self._lock = threading.Lock()
        self._state = State.GREETING
        self._waiting: deque[Question] = deque()
        self._in_flight: deque[_Sent] = deque()
        self._outgoing: deque[memoryview] = deque()
        self._correlation_id = 0
        self._sweep: Timer | None = None
        self._sweep_due = 0.0
        self._greeting = Greeting(client_id, current_sasl(sasl))
        self._reader = FrameReader(max_bytes=config.max_response_bytes, setting="max_response_bytes")
        self._sock: socket.socket | None = None
        self._was_heard = False
        """Whether something has come, of the greeting or, once that is over, of an answer."""
        self._opened_at = 0.0
        self._dialing = Dialing(loop, address, tls, self._dialed, self._fail_to_dial)
        limits = ("socket_connection_setup_timeout_ms", "request_timeout_ms")
        self._setup_ms, self._setup_limit = min((getattr(config, each), each) for each in limits)
        self._setup: Timer | None = None  # for Ctrl-C in the next line
        self._setup = loop.call_later(self._setup_ms, self._setup_is_late)
        loop.call_soon(self._dialing.begin)

    @property
    def load(self) -> int:
        """How many requests wait for it."""
        return len(self._waiting) + len(self._in_flight)

    @property
    def is_usable(self) -> bool:
        """Whether it takes requests."""
        return self._state in (State.GREETING, State.OPEN)

    # Asking

    def ask(self, question: Question) -> None:
        """Send a request, and call its ``done`` once."""
        failure: Reply | None = None
        with self._lock:
            if self._state is State.GREETING:
                self._waiting.append(question)
                return
            if self._state is State.OPEN:
                try:
                    failure = self._send_locked(question)
                except BaseException:
                    self._give_up_locked(question)
                    raise
            else:
                failure = Reply(
                    error=ErrorCode.BROKER_NOT_AVAILABLE, message=f"{self.address}: the connection is closed"
                )
        if failure is not None:
            question.done(failure)

    def _send_locked(self, question: Question) -> Reply | None:
        """What the caller is to be told at once."""
        correlation_id = self._correlation_id
        try:
            version = question.version_for(self.peer)
            frame = encode_frame(
                encode_request(
                    question.build(version),
                    question.key,
                    version,
                    correlation_id=correlation_id,
                    client_id=question.client_id,
                )
            )
        except UnsupportedVersionError as error:
            return Reply(error=ErrorCode.UNSUPPORTED_VERSION, message=f"{self.address}: {error}")
        except UsageError as error:
            return Reply(error=ErrorCode.INVALID_REQUEST, message=str(error))
        self._correlation_id = 0 if correlation_id == _LAST_CORRELATION_ID else correlation_id + 1
        if question.is_answered:
            deadline = time.monotonic() + question.timeout_ms / 1000
            self._in_flight.append(_Sent(question, version, correlation_id, deadline))
            self._plan_sweep_locked(deadline)
        self._put_out_locked(frame)
        return None if question.is_answered else Reply(version=version)

    def _put_out_locked(self, frame: list[Bytes]) -> None:
        was_empty = not self._outgoing
        self._outgoing.extend(map(memoryview, frame))
        if not was_empty:
            return  # the loop's thread sends them
        if self._sends_in_loop and not self._loop.is_here:
            self._loop.call_soon(self._flush)
        elif not self._push_locked():
            self._loop.call_soon(self._watch)

    def _push_locked(self) -> bool:
        """Send what the socket takes. Whether that is all. Errors are left to the loop's thread, which meets
        them when it receives."""
        sock, outgoing = self._sock, self._outgoing
        if sock is None:
            return True
        try:
            while outgoing:
                if isinstance(sock, ssl.SSLSocket):
                    count = sock.send(outgoing[0])
                else:
                    count = sock.sendmsg([outgoing[at] for at in range(min(len(outgoing), _MOST_PARTS))])
                while outgoing and count >= len(outgoing[0]):
                    count -= len(outgoing.popleft())
                if count:
                    outgoing[0] = outgoing[0][count:]
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        except OSError:
            outgoing.clear()
        return True

    def _give_up_locked(self, question: Question) -> None:
        """Ctrl-C has struck while a request was sent, and nobody knows how much of it is on its way: what is
        sent behind it could not be told from it. Who asked may wait for it all the same, so it fails, too."""
        self._state = State.BROKEN
        self._outgoing.clear()
        if question.is_answered and all(sent.question is not question for sent in self._in_flight):
            self._in_flight.append(_Sent(question, 0, self._correlation_id, time.monotonic()))
        self._loop.call_soon(
            lambda: self._close(
                ErrorCode.BROKER_NOT_AVAILABLE, f"{self.address}: a request was interrupted while it was sent"
            )
        )

    # Times

    def _plan_sweep_locked(self, deadline: float) -> None:
        if self._sweep is None or deadline < self._sweep_due:
            if self._sweep is not None:
                self._sweep.cancel()
            self._sweep_due = deadline
            self._sweep = self._loop.call_later(
                max(deadline - time.monotonic(), 0) * 1000, self._look_for_late
            )

    def _look_for_late(self) -> None:
        now = time.monotonic()
        with self._lock:
            self._sweep = None
            late = [each for each in self._in_flight if each.deadline <= now]
            if not late and self._in_flight:
                self._plan_sweep_locked(min(each.deadline for each in self._in_flight))
        if late:
            limit = late[0].question.timeout_ms
            self._close(
                ErrorCode.NETWORK_EXCEPTION,
                f"{self.address}: no answer came within {limit} ms; the connection is closed",
                late=late,
            )

    def _setup_is_late(self) -> None:
        if self._state is State.GREETING:
            self._close(
                ErrorCode.BROKER_NOT_AVAILABLE,
                f"{self.address}: no connection could be made within {self._setup_limit} ({self._setup_ms})",
            )

    # The socket, in the loop's thread

    def _dialed(self, sock: socket.socket) -> None:
        if self._state is State.CLOSED:
            sock.close()
            return
        self._sock = sock
        with self._lock:
            self._put_out_locked(self._greeting.begin())
        self._watch()

    def _fail_to_dial(self, message: str) -> None:
        self._close(ErrorCode.BROKER_NOT_AVAILABLE, f"{self.address}: {message}")

    def _watch(self) -> None:
        sock = self._sock
        if sock is not None and self._state is not State.CLOSED:
            self._loop.watch(sock, READ | WRITE if self._outgoing else READ, self._on_ready)

    def _flush(self) -> None:
        with self._lock:
            self._push_locked()
        self._watch()

    def _on_ready(self, events: int) -> None:
        if events & WRITE:
            self._flush()
        if self._state is not State.CLOSED:
            self._receive()

    def _receive(self) -> None:
        while self._state is not State.CLOSED:
            try:
                is_more_there = self._receive_once()
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            except OSError as error:
                self._hang_up(error.strerror or str(error))
                return
            except UsageError as error:  # of the greeting
                self._close(ErrorCode.SASL_AUTHENTICATION_FAILED, f"{self.address}: {error}")
                return
            except LogstoreError as error:
                self._hang_up(str(error))
                return
            if not is_more_there:
                return

    def _receive_once(self) -> bool:
        """Receive, and take what is whole. Returns whether there may be more to receive."""
        sock = self._sock
        assert sock is not None
        room = self._reader.room()
        if room is not None:  # of an answer that has begun, to where it belongs
            wanted_bytes = len(room)
            size_bytes = sock.recv_into(room)
            room.release()
            frames = self._reader.fill(size_bytes) if size_bytes else []
        else:
            data = sock.recv(_RECEIVED_BYTES)
            wanted_bytes, size_bytes = _RECEIVED_BYTES, len(data)
            frames = self._reader.feed(data)
        if not size_bytes:
            self._hang_up("the broker has closed the connection")
        for frame in frames:
            if self._state is State.CLOSED:
                break
            self._take_frame(frame.toreadonly())
        if self._reader.fault is not None and self._state is not State.CLOSED:
            raise self._reader.fault
        return size_bytes == wanted_bytes or isinstance(sock, ssl.SSLSocket)

    def _hang_up(self, why: str) -> None:
        """The other side has closed the connection, or does not speak as a broker."""
        if not self._was_heard:
            why += self._guess()
        self._close(ErrorCode.NETWORK_EXCEPTION, f"{self.address}: {why}")

    def _guess(self) -> str:
        """Brokers do not say what they miss: they hang up."""
        if self._state is State.GREETING:
            return "" if self._has_tls else "; it may want TLS"
        is_new = time.monotonic() - self._opened_at < _SOON_SECONDS
        return "; it may want a login (SASL)" if is_new and not self._has_sasl else ""

    def _take_frame(self, frame: memoryview) -> None:
        self._was_heard = True
        if self._state is State.GREETING:
            answer = self._greeting.take(frame)
            if self._greeting.is_over:
                self._open()
            else:
                with self._lock:
                    self._put_out_locked(answer)
                self._watch()
            return
        with self._lock:
            if not self._in_flight:
                raise CorruptionError("a response comes that no request waits for")
            sent = self._in_flight[0]
        question = sent.question
        response = decode_response(frame, question.key, sent.version, correlation_id=sent.correlation_id)
        with self._lock:
            self._in_flight.popleft()
            is_over = self._state is State.RETIRING and not self._in_flight
        question.done(Reply(response, sent.version))
        if is_over:
            self._close(ErrorCode.BROKER_NOT_AVAILABLE, f"{self.address}: it is time to say again who we are")

    def _open(self) -> None:
        """The greeting is over: what has waited goes out."""
        if self._setup is not None:
            self._setup.cancel()
        self._was_heard, self._opened_at = False, time.monotonic()
        self.peer = self._greeting.peer
        if self._greeting.lifetime_ms > 0:
            self._loop.call_later(self._greeting.lifetime_ms * _SHARE_OF_LIFETIME, self._retire)
        self._on_open(self)
        failed: list[tuple[Question, Reply]] = []
        with self._lock:
            if self._state is State.CLOSED:
                return
            self._state = State.OPEN
            while self._waiting:
                question = self._waiting.popleft()
                failure = self._send_locked(question)
                if failure is not None:
                    failed.append((question, failure))
        self._watch()
        for question, failure in failed:
            question.done(failure)

    def _retire(self) -> None:
        with self._lock:
            if self._state is not State.OPEN:
                return
            self._state = State.RETIRING
            is_idle = not self._in_flight
        if is_idle:
            self._close(ErrorCode.BROKER_NOT_AVAILABLE, f"{self.address}: it is time to say again who we are")

    # The end

    def close(self) -> None:
        """Close it. Each waiting request is told so."""
        self._loop.call_soon(self.end)

    def end(self) -> None:
        """The same at once, in the loop's thread."""
        self._close(ErrorCode.BROKER_NOT_AVAILABLE, f"{self.address}: the client is closed")

    def _close(self, code: ErrorCode, message: str, *, late: list[_Sent] | None = None) -> None:
        with self._lock:
            if self._state is State.CLOSED:
                return
            self._state = State.CLOSED
            waiting, self._waiting = self._waiting, deque()
            in_flight, self._in_flight = self._in_flight, deque()
            self._outgoing.clear()
            sock, self._sock = self._sock, None
        if self._setup is not None:
            self._setup.cancel()
        if self._sweep is not None:
            self._sweep.cancel()
        self._dialing.cancel()
        if sock is not None:
            self._loop.forget(sock)
            sock.close()
        self._on_closed(self, code, message)
        unsent = ErrorCode.BROKER_NOT_AVAILABLE if code is ErrorCode.NETWORK_EXCEPTION else code
        for question in waiting:
            question.fail(unsent, message)
        lost = ErrorCode.NETWORK_EXCEPTION
        for sent in in_flight:
            sent.question.fail(ErrorCode.REQUEST_TIMED_OUT if late and sent in late else lost, message)
