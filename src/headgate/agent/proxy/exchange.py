"""The one request for an origin's advice, over a connection that was dialled to a checked address.

TLS is spoken in memory, so that what is counted is what goes over the wire: whoever makes a proxy ask must not make it
say more than was said to it (traffic-advice.txt, section 8.3). Whoever calls this bounds its time.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from headgate.advice.fetching import MOST_BYTES, NETWORK_ERROR, TIMEOUT, AdviceRequest, AdviceResponse, needs_body
from headgate.agent.advice.content import content
from headgate.agent.advice.deadline import Deadline
from headgate.agent.advice.fetching import message_of
from headgate.agent.advice.response import Broken, Reading, ResponseParser
from headgate.agent.advice.trust import PROTOCOL

__all__ = ["exchange"]

_STEP: Final = 1 << 14
_Result = TypeVar("_Result")


async def exchange(
    sock: socket.socket, request: AdviceRequest, *, tls: ssl.SSLContext, name: str, sent: Callable[[int], None]
) -> AdviceResponse:
    """Make a request, once, over a connected, non-blocking socket; give what came of it.

    `name` is what the certificate has to be for, a host without brackets or a dot at its end; `sent` is told of bytes
    as they are written to the socket. Whatever the origin does is a response, `NETWORK_ERROR` where there was no whole
    head; only `CancelledError` is raised.
    """
    came = NETWORK_ERROR
    try:
        message = message_of(request).text
        secured = _Secured(sock, tls, name, sent)
        await secured.shake_hands()
        # Who refuses to read may have said why.
        with suppress(ConnectionError):
            await secured.send(message)
        parser = ResponseParser()
        status, fields = await secured.read(parser.head())
        came = AdviceResponse(status, fields, None)
        if needs_body(status, fields):
            body = await secured.read(parser.body(most=MOST_BYTES))
            came = came._replace(body=content(body, fields, most=MOST_BYTES, deadline=Deadline(TIMEOUT)))
    except Broken as error:
        return came._replace(failure=str(error))
    except ssl.SSLCertVerificationError as error:
        return came._replace(failure=f"its certificate is not trusted: {error.verify_message}")
    except (OSError, ValueError) as error:
        return came._replace(failure=getattr(error, "strerror", None) or str(error) or type(error).__name__)
    return came


class _Secured:
    """TLS over a socket, in memory."""

    def __init__(self, sock: socket.socket, tls: ssl.SSLContext, name: str, sent: Callable[[int], None]) -> None:
        self._socket = sock
        self._sent = sent
        self._coming = ssl.MemoryBIO()
        self._going = ssl.MemoryBIO()
        self._loop = asyncio.get_running_loop()
        # Raises ValueError for a name that no certificate can be for.
        self._tls = tls.wrap_bio(self._coming, self._going, server_hostname=name)

    async def shake_hands(self) -> None:
        """Agree on TLS; raises `OSError`."""
        await self._do(self._tls.do_handshake)
        if self._tls.selected_alpn_protocol() not in {None, PROTOCOL}:
            raise OSError(f"{self._tls.selected_alpn_protocol()} was chosen, and only {PROTOCOL} is spoken")

    async def send(self, message: bytes) -> None:
        """Send a message; raises `OSError`."""
        await self._do(lambda: self._tls.write(message))

    async def read(self, reading: Reading[_Result]) -> _Result:
        """Read what a parser wants; raises `OSError`, and what the parser does."""
        try:
            next(reading)
            while True:
                reading.send(await self._receive())
        except StopIteration as end:
            result: _Result = end.value
            return result

    async def _receive(self) -> bytes:
        try:
            return await self._do(lambda: self._tls.read(_STEP))
        except ssl.SSLEOFError:
            # Many a server does not say that it is through. How the body is framed, or how it reads, tells if it is.
            return b""

    async def _do(self, step: Callable[[], _Result]) -> _Result:
        """Take a step of TLS, as often as it wants more from the other end."""
        while True:
            try:
                result = step()
            except ssl.SSLWantReadError:
                await self._flush()
                chunk = await self._loop.sock_recv(self._socket, _STEP)
                if chunk:
                    self._coming.write(chunk)
                else:
                    self._coming.write_eof()
            except ssl.SSLError:
                with suppress(OSError):
                    await self._flush()  # what is wrong is said to the other end too
                raise
            else:
                await self._flush()
                return result

    async def _flush(self) -> None:
        if self._going.pending:
            out = self._going.read()
            self._sent(len(out))
            await self._loop.sock_sendall(self._socket, out)
