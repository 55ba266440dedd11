"""An HTTP/2 client that sends any frames, valid or not.

Frames are read and written with hyperframe and heads with hpack, not with the code that is tested.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from hpack import Decoder, Encoder
from hyperframe.frame import (
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from headgate.proxy.server import TunnelServer
from tests.e2e.gateway_setup import PATIENCE
from tests.e2e.tunnels import StubDecision, client_context, proxy_running

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
WIDEST = (1 << 31) - 1


async def bounded(test: Coroutine[Any, Any, None]) -> None:
    """Run a test for a limited time."""
    async with asyncio.timeout(6 * PATIENCE):
        await test


@dataclass
class Tunnel:
    """One stream, as the client sees it."""

    number: int
    status: int = 0
    fields: dict[str, str] = field(default_factory=dict)
    received: bytearray = field(default_factory=bytearray)
    frames: int = 0
    is_ended: bool = False
    code: int | None = None
    """That of a RST_STREAM."""
    window: int = 65_535


class Http2Client:
    """A connection; with `updates_windows`, each DATA frame is answered with updates of its windows."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        updates_windows: bool,
        settings: dict[int, int],
    ) -> None:
        self.writer = writer
        self.tunnels: dict[int, Tunnel] = {}
        self.goaways: list[GoAwayFrame] = []
        self.settings: dict[int, int] = {}
        self.pings: list[PingFrame] = []
        self.window = 65_535
        self.is_over = self._greeted = False
        self._reader = reader
        self._updates_windows = updates_windows
        self._first_window = settings.get(SettingsFrame.INITIAL_WINDOW_SIZE, 65_535)
        self._settings = settings
        self._encoder, self._decoder = Encoder(), Decoder()
        self._changed = asyncio.Event()
        self._next = 1
        self._receiving = asyncio.create_task(self._receive_frames())

    # Sending.

    async def greet(self) -> None:
        """Send the client's preface and wait for the server's."""
        self._greeted = True
        self.send(PREFACE)
        self.send_frames(SettingsFrame(0, settings=self._settings))
        if self._updates_windows:
            self.send_frames(WindowUpdateFrame(0, window_increment=WIDEST - 65_535))
        await self.until(lambda: self.settings)

    def send(self, raw: bytes) -> None:
        """Send bytes."""
        if not self.writer.is_closing():
            self.writer.write(raw)

    def send_frames(self, *frames: Frame) -> None:
        """Send frames."""
        self.send(b"".join(frame.serialize() for frame in frames))

    def block(self, fields: list[tuple[str, str]]) -> bytes:
        """Return a header block."""
        block: bytes = self._encoder.encode(fields)
        return block

    def head(self, number: int, fields: list[tuple[str, str]], *flags: str) -> HeadersFrame:
        """Return a HEADERS frame with a complete head."""
        return HeadersFrame(number, data=self.block(fields), flags=["END_HEADERS", *flags])

    def ask(self, authority: int | str, *more: tuple[str, str], ended: bool = False) -> Tunnel:
        """Request a tunnel; return it before the response."""
        name = authority if isinstance(authority, str) else f"a.example:{authority}"
        return self.request([(":method", "CONNECT"), (":authority", name), *more], ended=ended)

    def request(self, lines: list[tuple[str, str]], *, ended: bool = False) -> Tunnel:
        """Send a request of any kind."""
        tunnel = self.tunnels[self._next] = Tunnel(self._next)
        self._next += 2
        self.send_frames(self.head(tunnel.number, lines, *(["END_STREAM"] if ended else [])))
        return tunnel

    async def open(self, authority: int | str, *more: tuple[str, str]) -> Tunnel:
        """Request a tunnel, and wait until it is accepted."""
        tunnel = self.ask(authority, *more)
        assert await self.answered(tunnel) == 200, tunnel
        return tunnel

    async def send_data(self, tunnel: Tunnel, payload: bytes, *, end: bool = False) -> None:
        """Send payload as the windows allow, then the end if `end`."""
        rest = memoryview(payload)
        while rest:
            await self.until(lambda: min(tunnel.window, self.window) > 0 or tunnel.code is not None)
            assert tunnel.code is None, tunnel.code
            piece, rest = self._cut(rest, min(len(rest), tunnel.window, self.window, 16_384))
            tunnel.window -= len(piece)
            self.window -= len(piece)
            self.send_frames(DataFrame(tunnel.number, data=bytes(piece)))
            await self.writer.drain()
        if end:
            self.end(tunnel)

    @staticmethod
    def _cut(rest: memoryview, count: int) -> tuple[memoryview, memoryview]:
        return rest[:count], rest[count:]

    def end(self, tunnel: Tunnel) -> None:
        """End our direction of a stream."""
        self.send_frames(DataFrame(tunnel.number, flags=["END_STREAM"]))

    def reset(self, tunnel: Tunnel, code: int = 8) -> None:
        """Reset a stream."""
        self.send_frames(RstStreamFrame(tunnel.number, error_code=code))

    # Receiving.

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait for a condition, as long as something changes; `bounded` limits the whole test."""
        while not condition():
            assert not self.is_over, f"the connection is over: {self.goaways}"
            self._changed.clear()
            await asyncio.wait_for(self._changed.wait(), PATIENCE)

    async def answered(self, tunnel: Tunnel) -> int:
        """Wait for the response; return its status."""
        await self.until(lambda: tunnel.status or tunnel.code is not None)
        return tunnel.status

    async def receive(self, tunnel: Tunnel, count: int) -> bytes:
        """Wait for so many bytes of a tunnel, and remove them."""
        await self.until(lambda: len(tunnel.received) >= count)
        taken = bytes(tunnel.received[:count])
        del tunnel.received[:count]
        return taken

    async def ended(self, tunnel: Tunnel) -> bytes:
        """Wait for the end of a stream; return what was received before it."""
        await self.until(lambda: tunnel.is_ended)
        return bytes(tunnel.received)

    async def was_reset(self, tunnel: Tunnel) -> int:
        """Wait for the reset of a stream; return its code."""
        await self.until(lambda: tunnel.code is not None)
        assert tunnel.code is not None
        return tunnel.code

    async def final_goaway(self) -> GoAwayFrame:
        """Wait for the end of the connection; return its last GOAWAY."""
        async with asyncio.timeout(PATIENCE):
            while not self.is_over:
                self._changed.clear()
                await self._changed.wait()
        return self.goaways[-1]

    async def ping(self) -> None:
        """Send a PING and wait for its answer: all that was sent before is processed then."""
        count = len(self.pings)
        self.send_frames(PingFrame(0, opaque_data=b"12345678"))
        await self.until(lambda: len(self.pings) > count)

    async def _receive_frames(self) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError, ssl.SSLError):
            while True:
                header = await self._reader.readexactly(9)
                frame, length = Frame.parse_frame_header(memoryview(header))
                frame.parse_body(memoryview(await self._reader.readexactly(length)))
                self._handle(frame)
                self._changed.set()
        self.is_over = True
        self._changed.set()

    def _handle(self, frame: Frame) -> None:
        tunnel = self.tunnels.get(frame.stream_id)
        match frame:
            case DataFrame() | HeadersFrame() | RstStreamFrame() if tunnel is not None:
                self._handle_stream_frame(tunnel, frame)
            case WindowUpdateFrame():
                if tunnel is not None:
                    tunnel.window += frame.window_increment
                elif not frame.stream_id:
                    self.window += frame.window_increment
            case SettingsFrame() if "ACK" not in frame.flags:
                self.settings = dict(frame.settings)
                if self._greeted:
                    self.send_frames(SettingsFrame(0, flags=["ACK"]))
            case PingFrame() if "ACK" not in frame.flags:
                self.send_frames(PingFrame(0, opaque_data=frame.opaque_data, flags=["ACK"]))
            case PingFrame():
                self.pings.append(frame)
            case GoAwayFrame():
                self.goaways.append(frame)

    def _handle_stream_frame(self, tunnel: Tunnel, frame: DataFrame | HeadersFrame | RstStreamFrame) -> None:
        if isinstance(frame, RstStreamFrame):
            tunnel.code = frame.error_code
            return
        tunnel.is_ended = tunnel.is_ended or "END_STREAM" in frame.flags
        if isinstance(frame, HeadersFrame):
            assert "END_HEADERS" in frame.flags
            tunnel.fields = {str(name): str(value) for name, value in self._decoder.decode(frame.data)}
            tunnel.status = int(tunnel.fields.pop(":status"))
            return
        tunnel.received += frame.data
        tunnel.frames += 1
        if self._updates_windows and frame.data:
            for stream in (0, tunnel.number):
                self.send_frames(WindowUpdateFrame(stream, window_increment=len(frame.data)))

    async def close(self) -> None:
        """Close the connection."""
        self._receiving.cancel()
        self.writer.close()
        with contextlib.suppress(OSError, TimeoutError, asyncio.CancelledError):
            async with asyncio.timeout(1):
                await self.writer.wait_closed()


@asynccontextmanager
async def http2_at(
    address: tuple[str, int] | tuple[()],
    tls: ssl.SSLContext | None = None,
    *,
    greet: bool = True,
    updates_windows: bool = True,
    settings: dict[int, int] | None = None,
    **options: Any,
) -> AsyncIterator[Http2Client]:
    """Connect, and send the preface unless `greet` is false."""
    if tls is not None:
        tls.set_alpn_protocols(["h2"])
        options["server_hostname"] = "localhost"
    reader, writer = await asyncio.open_connection(*address, ssl=tls, limit=1 << 18, **options)
    client = Http2Client(reader, writer, updates_windows=updates_windows, settings=settings or {})
    try:
        if greet:
            await client.greet()
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def http2_running(
    listener: ssl.SSLContext,
    decision: StubDecision | None = None,
    *,
    client: dict[str, Any] | None = None,
    **settings: Any,
) -> AsyncIterator[tuple[TunnelServer, Http2Client]]:
    """Run a proxy, and connect a client to it."""
    async with (
        proxy_running(decision, tls=listener, **settings) as server,
        http2_at(server.addresses[0], client_context(), **(client or {})) as one,
    ):
        yield server, one
