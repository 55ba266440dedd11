"""A connection to an origin, over TLS or not, each of whose steps ends at the deadline whatever the other end does."""

import os
import selectors
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from time import monotonic
from typing import Final, TypeVar

from headgate.agent.advice.addresses import Address, addresses_of
from headgate.agent.advice.deadline import Deadline
from headgate.agent.advice.trust import PROTOCOL

__all__ = ["Connection", "connected"]

_STEP: Final = 1 << 16
"""Bytes that are received at a time."""

_HEAD_START: Final = 0.25
"""Seconds that an address has to itself before the next one is tried as well (RFC 8305, section 5)."""

_Result = TypeVar("_Result")


@contextmanager
def connected(host: str, port: int, *, tls: ssl.SSLContext | None, deadline: Deadline) -> Iterator["Connection"]:
    """Connect to a host, which proves who it is by `tls` where there is one, and close the connection in the end.

    Raises `OSError`, `TimeoutError` included.
    """
    with _race(addresses_of(host, port, deadline), deadline) as sock:
        if tls is None:
            yield Connection(sock, deadline)
        else:
            secured = _Secured(sock, deadline, tls, host.removesuffix("."))
            try:
                yield secured
            finally:
                secured.end()


class Connection:
    """A socket that is connected; all that it does raises `OSError`, `TimeoutError` included."""

    def __init__(self, sock: socket.socket, deadline: Deadline) -> None:
        self._socket = sock
        self._deadline = deadline

    def send(self, message: bytes) -> None:
        """Send all of a message."""
        self._socket.settimeout(self._deadline.left())
        self._socket.sendall(message)

    def receive(self) -> bytes:
        """Give what comes next; nothing where the other end is through."""
        self._socket.settimeout(self._deadline.left())
        return self._socket.recv(_STEP)


class _Secured(Connection):
    """The same over TLS.

    TLS is spoken in memory. A socket of the `ssl` module reads on, past any deadline, as long as the other end sends
    records with nothing in them for us; here it gets no more at a time than was received at a time.
    """

    def __init__(self, sock: socket.socket, deadline: Deadline, tls: ssl.SSLContext, name: str) -> None:
        super().__init__(sock, deadline)
        self._coming = ssl.MemoryBIO()
        self._going = ssl.MemoryBIO()
        try:
            # As bytes, for the same reason as where names are looked up.
            self._tls = tls.wrap_bio(self._coming, self._going, server_hostname=name.encode("ascii"))
        except ValueError as error:
            raise OSError(f"no certificate can be for {name}: {error}") from error
        self._do(self._tls.do_handshake)
        if self._tls.selected_alpn_protocol() not in {None, PROTOCOL}:
            raise OSError(f"{self._tls.selected_alpn_protocol()} was chosen, and only {PROTOCOL} is spoken")

    def send(self, message: bytes) -> None:
        self._do(lambda: self._tls.write(message))

    def receive(self) -> bytes:
        try:
            return self._do(lambda: self._tls.read(_STEP))
        except ssl.SSLEOFError:
            # Many a server does not say that it is through. How the body is framed, or how it reads, tells if it is.
            return b""

    def end(self) -> None:
        """Say that nothing more comes; nobody waits for the other end to say so too."""
        with suppress(OSError):
            with suppress(ssl.SSLWantReadError):
                self._tls.unwrap()
            self._flush()

    def _do(self, step: Callable[[], _Result]) -> _Result:
        """Take a step of TLS, as often as it wants more from the other end."""
        while True:
            try:
                result = step()
            except ssl.SSLWantReadError:
                self._flush()
                chunk = super().receive()
                if chunk:
                    self._coming.write(chunk)
                else:
                    self._coming.write_eof()
            except ssl.SSLError:
                # What is wrong is said to the other end too.
                with suppress(OSError):
                    self._flush()
                raise
            else:
                self._flush()
                return result

    def _flush(self) -> None:
        if self._going.pending:
            super().send(self._going.read())


def _race(addresses: Sequence[Address], deadline: Deadline) -> socket.socket:
    """Connect to the address that answers first, each with a head start on the next; raises the last one's error."""
    waiting = deque(addresses)
    error = OSError("it has no address")
    turn = monotonic()
    with ExitStack() as begun, selectors.DefaultSelector() as running:
        while waiting or running.get_map():
            left = deadline.left()
            if waiting and (not running.get_map() or monotonic() >= turn):
                turn = monotonic() + _HEAD_START
                try:
                    begun.enter_context(_begun(waiting.popleft(), running))
                except OSError as refused:
                    error = refused
                continue
            for key, _ in running.select(min(left, turn - monotonic()) if waiting else left):
                sock = key.fileobj
                assert isinstance(sock, socket.socket)
                running.unregister(sock)
                number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if number == 0:
                    # All that were begun are closed here; this one has lost its connection to another object.
                    return socket.socket(fileno=sock.detach())
                error = OSError(number, os.strerror(number))
    raise error


def _begun(address: Address, running: selectors.BaseSelector) -> socket.socket:
    """Begin to connect."""
    sock = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        sock.settimeout(0)
        with suppress(BlockingIOError):
            sock.connect(address.address)
        running.register(sock, selectors.EVENT_WRITE)
    except BaseException:
        sock.close()
        raise
    return sock
