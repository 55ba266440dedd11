"""Client connections that speak HTTP/2, with a tunnel in each stream.

The library h2 has the protocol, without I/O; `limits` guards it. `parse_request` checks the field lines of a
request (RFC 9113, section 8.3): a head that is malformed in HTTP/1.1 is malformed here too.

In one turn a connection reads what there is, up to a limit; handles the events of h2; writes what arrived for each
tunnel; lets the client send more; sends what is to be sent.

A tunnel is a CONNECT request that is decided on, then a relay to its target. What the client sends is written to the
target at the end of the turn in which it arrived, in one call; what the system does not take is buffered, and until it
is written the client's window stays as it is. The target is read while the client's windows are open and nothing waits
to be sent to the client. The end of one direction is passed on after its last byte, and the other direction goes on; a
lost connection becomes a reset (8.5).

The shutdown is announced with a GOAWAY of the largest stream identifier (6.8) and a PING. Requests that the client sent
before it read that are refused by the decision; the answer to the PING says that all of them have arrived.
"""

import asyncio
import contextlib
import enum
import math
import re
import socket
import ssl
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any, Final, Literal, NamedTuple

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    DataReceived,
    Event,
    PingAckReceived,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings
from hyperframe.frame import GoAwayFrame

from headgate.errors import HeadgateError
from headgate.http.fields import LOWER_CASE_TOKEN
from headgate.proxy.connect import DEFAULT_IDLE, AcceptedConnect, CloseReason, ConnectRequest, RefusedConnect, Services
from headgate.proxy.limits import (
    FRAME_HEADER,
    INITIAL_WINDOW,
    MAX_CONNECTION_WINDOW,
    MAX_STREAM_WINDOW,
    FrameGuard,
    Http2Error,
    ReceiveWindow,
)
from headgate.proxy.poller import COPY_SIZE, MAX_BUFFERED, READ, TLS_RECORD_SIZE, WRITE, LoopState
from headgate.proxy.sockets import WOULD_BLOCK, limit_unsent, record_overhead, reset, shutdown_write

MAX_STREAMS: Final = 256
"""Concurrent streams of one connection."""
MAX_REQUEST_HEAD_SIZE: Final = 1 << 14
"""Announced as SETTINGS_MAX_HEADER_LIST_SIZE. A larger head ends the connection."""
PAYLOAD_SIZE: Final = (1 << 14) - 9
"""Payload of the DATA frames sent: each fits in one TLS record, and every client accepts this size."""
READ_SIZE: Final = COPY_SIZE - TLS_RECORD_SIZE
"""Bytes read from one connection, or sent to it, before others have their turn; a record may follow."""
_MAX_READS: Final = 64
"""Reads from one connection before others have their turn: each returns one TLS record, however little is in it."""
_SEND_SIZE: Final = 1 << 16
"""Bytes given to the system at once: of these, TLS reports only whether all were sent."""
_MAX_WINDOW_GROWTH: Final = 1 << 25
"""Bytes by which the receive windows of all connections together may exceed their initial size."""
_MAX_UNSENT: Final = READ_SIZE + (1 << 16)
"""Bytes of frames kept for a client that does not read: the DATA of one turn, and control frames."""
_HELD_ASIDE: Final = 1 << 20
"""Bytes that tunnels may hold back without reducing the window of the whole connection."""
_ROUND_TRIP: Final = 1.0
"""Seconds until everything has arrived that a client sent before it read of the shutdown."""
_PROBE: Final = b"headgate"
_MAX_STREAM_ID: Final = (1 << 31) - 1
_MAX_TABLE_SIZE: Final = 4096
"""Bytes of a header table, which is also the size before any SETTINGS (6.5.2)."""
_WINDOW_UPDATES_PER_FRAME: Final = 4
"""WINDOW_UPDATE frames that a client may answer one frame of DATA with."""
_RESET_CODES: Final = {"target_gone": ErrorCodes.CONNECT_ERROR}
"""From the end of a tunnel to the error code that the client receives; CANCEL for the others."""
_SETTINGS: Final = {
    SettingCodes.MAX_CONCURRENT_STREAMS: MAX_STREAMS,
    SettingCodes.MAX_HEADER_LIST_SIZE: MAX_REQUEST_HEAD_SIZE,
}
_KNOWN_SETTINGS: Final = frozenset(SettingCodes)
# Requests are checked by `parse_request`: h2 would end the connection, not the stream.
_CONFIGURATION: Final = H2Configuration(
    client_side=False,
    validate_inbound_headers=False,
    normalize_inbound_headers=False,
    validate_outbound_headers=False,
    normalize_outbound_headers=False,
)

_name = re.compile(LOWER_CASE_TOKEN.encode()).fullmatch  # 8.2.1: no upper case
# 9110 5.5, and 8.2.1: no whitespace at either end.
_value = re.compile(rb"(?:[!-~\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*+(?<![\t ]))?)?").fullmatch
_visible = re.compile(rb"[!-~]++").fullmatch
_CONNECTION_FIELDS: Final = frozenset(  # 8.2.2
    {b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"}
)
_CONNECT_PSEUDO_FIELDS: Final = frozenset({b":method", b":authority"})  # 8.5: and no :scheme, no :path
_PSEUDO_FIELDS: Final = frozenset({b":method", b":scheme", b":path"})
_LINE_OVERHEAD: Final = len(b": \r\n")


class MalformedRequest(HeadgateError):
    """A malformed request head. Never leaves the proxy."""


class Request(NamedTuple):
    """A request head."""

    method: str
    authority: str
    """As received, visible ASCII; may be empty unless the method is CONNECT."""
    fields: list[tuple[str, str]]
    """Without pseudo-header fields, values as latin-1, in order."""


def parse_request(lines: Sequence[tuple[bytes, bytes]]) -> Request:
    """Parse the field lines of a request; raises `MalformedRequest`."""
    pseudo: dict[bytes, bytes] = {}
    fields: list[tuple[str, str]] = []
    if sum(len(name) + len(value) + _LINE_OVERHEAD for name, value in lines) > MAX_REQUEST_HEAD_SIZE:
        raise MalformedRequest(f"the head is larger than {MAX_REQUEST_HEAD_SIZE} bytes")
    for name, value in lines:
        if name.startswith(b":"):
            if fields or name in pseudo or not _visible(value):
                raise MalformedRequest("a pseudo-header field is repeated, out of place, or not visible ASCII")
            pseudo[name] = value
        elif _name(name) is None or _value(value) is None:
            raise MalformedRequest("invalid field name or value")
        elif name in _CONNECTION_FIELDS or (name == b"te" and value != b"trailers"):
            raise MalformedRequest(f"{name.decode()} is not allowed in HTTP/2")
        else:
            fields.append((name.decode(), value.decode("latin-1")))
    method, authority = (pseudo.get(name, b"").decode() for name in (b":method", b":authority"))
    _check_pseudo(method, pseudo.keys())
    _check_framing(method, fields)
    return Request(method, authority, fields)


def _check_pseudo(method: str, names: AbstractSet[bytes]) -> None:
    if not (
        names == _CONNECT_PSEUDO_FIELDS
        if method == "CONNECT"
        else _PSEUDO_FIELDS <= names <= _PSEUDO_FIELDS | _CONNECT_PSEUDO_FIELDS
    ):
        raise MalformedRequest("a pseudo-header field is missing or unexpected")


def _check_framing(method: str, fields: Sequence[tuple[str, str]]) -> None:
    lengths = [value for name, value in fields if name == "content-length"]
    if len(lengths) > 1 or any(not value.isascii() or not value.isdecimal() for value in lengths):
        raise MalformedRequest("Content-Length is not one number")
    if sum(name == "host" for name, _ in fields) > 1:
        raise MalformedRequest("Host is repeated")
    if method == "CONNECT" and any(value.strip("0") for value in lengths):
        raise MalformedRequest("CONNECT with a body")


class Http2State(enum.Enum):
    """States of a connection."""

    OPEN = enum.auto()
    DRAINING = enum.auto()
    """The shutdown is announced: tunnels go on, new requests are refused."""
    CLOSING = enum.auto()
    """The final GOAWAY is being sent."""
    LINGERING = enum.auto()
    """Input is discarded, so that the GOAWAY is not lost to a reset."""
    CLOSED = enum.auto()


class TunnelStream:
    """A tunnel in a stream; `decision` is set while its request is decided on."""

    __slots__ = (
        "_connection", "_descriptor", "_events", "_idle", "_on_closed", "_read_size", "_registered", "_socket",
        "_state", "_target_ended", "_unsent", "client_ended", "closed", "deadline", "decision", "received",
        "sent", "stream_id", "window",
    )  # fmt: skip

    def __init__(self, connection: "Http2Connection", stream_id: int, *, state: LoopState) -> None:
        self._connection = connection
        self._state = state
        self.stream_id = stream_id
        self.decision: asyncio.Future[Any] | None = None
        """The decision, while it is pending."""
        self.client_ended = False
        """Whether the client has ended its direction."""
        self.closed = False
        self.deadline = math.inf
        """When it is idle for too long, on the coarse clock; a decision has timeouts of its own."""
        self.received = self.sent = 0
        self.window = ReceiveWindow(MAX_STREAM_WINDOW)
        self._unsent = bytearray()  # received and not written to the target yet
        self._socket: socket.socket | None = None
        self._idle = DEFAULT_IDLE
        self._target_ended = self._registered = False
        self._read_size = PAYLOAD_SIZE
        self._events = 0

    @property
    def forwarded(self) -> int:
        """Bytes from the client that were written to the target."""
        return self.sent - len(self._unsent)

    @property
    def was_used(self) -> bool:
        """Whether the tunnel was opened, and bytes were received or sent."""
        return self._socket is not None and bool(self.received or self.sent)

    def open(self, accepted: AcceptedConnect) -> None:
        """Start to relay."""
        self._socket, self._on_closed, self._idle = accepted.socket, accepted.on_closed, accepted.idle
        self._descriptor = accepted.socket.fileno()
        self._extend_deadline()
        self._wait_for(READ)
        self.deliver()

    def ready(self, events: int) -> None:
        """Write to and read from the target what can be; see `Pollable`."""
        if events & WRITE:
            self.deliver()
        if events & READ and not self.closed:
            if self._events & READ:
                self._read_target()
            elif self._registered:
                self._handle_unrequested()
        self._connection.finish_turn()

    def add(self, data: bytes) -> None:
        """Add DATA, which `deliver` writes."""
        self.sent += len(data)
        self._unsent += data
        self._count_held(len(data))

    def deliver(self) -> None:
        """Write what was received to the target, and the end; let the client send more."""
        if self._socket is None:
            return
        if self._unsent:
            try:
                written = self._socket.send(self._unsent)
            except BlockingIOError:
                written = 0
            except OSError:
                self.close("target_gone")
                return
            del self._unsent[:written]
            self._count_held(-written)
            self._extend_deadline()
        self._wait_for(self._events | WRITE if self._unsent else self._events & ~WRITE)
        if self.client_ended:
            self._end_target()
        else:
            # A larger window only while everything is forwarded at once.
            flows = not self._unsent and self._state.buffered < MAX_BUFFERED // 4
            self._connection.increase_window(self, len(self._unsent), growth=MAX_STREAM_WINDOW if flows else 0)

    def resume(self) -> None:
        """Read the target when it has sent something."""
        if self._socket is not None and not self._target_ended:
            self._wait_for(self._events | READ)

    def send_more(self) -> None:
        """Read the target now."""
        self.resume()
        if self._events & READ:
            self._read_target()

    def close(self, reason: CloseReason, code: ErrorCodes | None = None) -> None:
        """Close the target and the stream, and report it, once. `code` replaces the code that belongs to `reason`."""
        if self.closed:
            return
        self.closed = True
        if self.decision is not None:
            self.decision.cancel()
        forwarded = self.forwarded
        self._count_held(-len(self._unsent))
        self._unsent = bytearray()
        if self._socket is not None:
            self._state.poller.unregister(self._descriptor)
            (reset if reason in {"client_gone", "target_gone"} else socket.socket.close)(self._socket)
            self._socket = None
            self._on_closed(self.received, forwarded, reason)
        if code is None:
            code = _RESET_CODES.get(reason, ErrorCodes.CANCEL)
        self._connection.stream_closed(self, code)

    # From the target to the client.

    def _read_target(self) -> None:
        """Read what there is, once, and send it on."""
        size = min(self._connection.capacity(self), self._read_size)
        if self._socket is None:
            return  # the client's connection was found to be lost
        if size <= 0:
            self._wait_for(self._events & ~READ)
            return
        slots = self._state.slots[: size // PAYLOAD_SIZE] or [self._state.slots[0][:size]]
        try:
            count = self._socket.recv_into(slots[0]) if len(slots) == 1 else self._socket.recvmsg_into(slots)[0]
        except BlockingIOError:
            return
        except OSError:
            self.close("target_gone")
            return
        if not count:
            self._handle_target_end()
            return
        self._read_size = READ_SIZE if count >= min(size, PAYLOAD_SIZE) else PAYLOAD_SIZE
        self.received += count
        self._extend_deadline()
        self._connection.send_data(self.stream_id, count)

    def _handle_target_end(self) -> None:
        self._target_ended = True
        self._wait_for(self._events & ~READ)
        self._connection.end_stream(self.stream_id)
        if self.client_ended and not self._unsent:
            self.close("ended")

    def _handle_unrequested(self) -> None:
        """Handle EPOLLERR and EPOLLHUP, which are reported even if no events were requested."""
        if self._socket is not None and self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.close("target_gone")
        else:
            self._state.poller.unregister(self._descriptor)  # it would be reported again and again
            self._events = 0
            self._registered = False

    # From the client to the target.

    def _end_target(self) -> None:
        """Pass the client's end on, if nothing is buffered before it."""
        if self._socket is None or self._unsent:
            return
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        if self._target_ended:
            self.close("ended")

    def _count_held(self, change: int) -> None:
        self._state.buffered += change
        self._connection.held += change

    # Both directions.

    def _extend_deadline(self) -> None:
        self.deadline = self._state.now + self._idle

    def _wait_for(self, events: int) -> None:
        if events == self._events:
            return
        if self._registered:
            self._state.poller.modify(self._descriptor, events)
        else:
            self._state.poller.register(self._descriptor, events, self)
            self._registered = True
        self._events = events


class Http2Connection:
    """One connection. `surplus` marks one above the limit of connections, whose requests are refused."""

    __slots__ = (
        "_blocked", "_events", "_guard", "_h2", "_idle_until", "_incomplete", "_incomplete_until",
        "_loop_state", "_may_have_unsent", "_peer", "_probe_answered", "_read_needs_write", "_read_size",
        "_services", "_socket", "_streams", "_surplus", "_touched", "_unsent", "_window", "deadline", "held", "state",
    )  # fmt: skip

    def __init__(self, services: Services, sock: socket.socket, peer: tuple[str, int], *, surplus: bool) -> None:
        self._services = services
        self._loop_state = services.loop_state
        self._socket = sock
        self._peer = peer
        self._surplus = surplus
        self._h2 = H2Connection(_CONFIGURATION)
        self._h2.MAX_CLOSED_STREAMS = MAX_STREAMS
        self._h2.local_settings = Settings(client=False, initial_values=_SETTINGS)
        self._h2.decoder.max_header_list_size = MAX_REQUEST_HEAD_SIZE
        self._h2.initiate_connection()
        self._guard = FrameGuard(self._is_closed_stream)
        self._window = ReceiveWindow(MAX_CONNECTION_WINDOW)
        self._unsent = b""  # frames that the system did not take; TLS requires that they are repeated
        self.state = Http2State.OPEN
        self._streams: dict[int, TunnelStream] = {}
        self._touched: set[TunnelStream] = set()  # DATA arrived for them in this turn
        self._blocked: dict[TunnelStream, None] = {}  # they have more to send than there is room for, in order
        self.held = 0
        """Bytes from the client that are buffered, in all tunnels together."""
        self._read_size = TLS_RECORD_SIZE
        self._events = READ
        self._probe_answered = False  # all requests from before the shutdown was read have arrived
        self._may_have_unsent = False  # a tunnel has closed whose last bytes may not have arrived
        self._read_needs_write = False  # TLS cannot read before it has written
        self._incomplete = 0  # see FrameGuard.incomplete
        self._incomplete_until = math.inf
        self._idle_until = self.deadline = self._loop_state.now + services.timeouts.idle
        self._wait_for(READ | WRITE)  # the first turn sends the settings
        limit_unsent(sock)
        if services.draining:
            self._announce_shutdown()  # it started during the handshake

    # What the poller and the server call.

    @property
    def tunnels(self) -> int:
        """The number of tunnels, including undecided requests.

        During the shutdown, a connection whose tunnels have closed counts until the client has received everything.
        """
        return len(self._streams) or int(self._services.draining and self._may_have_unsent)

    @property
    def bytes_passed(self) -> tuple[int, int]:
        """Bytes that open tunnels have received and sent so far."""
        tunnels = self._streams.values()
        return sum(tunnel.received for tunnel in tunnels), sum(tunnel.forwarded for tunnel in tunnels)

    def ready(self, events: int) -> None:
        """Run a turn; see `Pollable`."""
        if not self._is_active:
            self._discard_input(events)
            return
        try:
            if events & WRITE:
                self._read_needs_write = False
                self._flush()
            if events & READ and self._is_active:
                self._read()
        except Http2Error as error:
            self.close(error.code, error.detail)
        except ProtocolError as error:
            self._h2.clear_outbound_data_buffer()  # its own GOAWAY, without a reason
            self.close(error.error_code, str(error))
        self.finish_turn()

    def expire(self) -> None:
        """Close what has had its time, and compute the next deadline."""
        now = self._loop_state.now
        if not self._is_active:
            self._lost()
            return
        for stream in [one for one in self._streams.values() if one.deadline <= now]:
            stream.close("idle")
        if self._incomplete_until <= now:
            self.close(ErrorCodes.ENHANCE_YOUR_CALM, "a frame or head was not completed in time")
        elif not self._streams and self._idle_until <= now:
            self.close(ErrorCodes.NO_ERROR, "idle")
        else:
            self.finish_turn()
        if self._is_active:
            self._schedule()

    def drain(self) -> None:
        """Announce the shutdown; requests that still arrive are refused by the decision."""
        if self.state is Http2State.OPEN:
            self._announce_shutdown()
            self.finish_turn()

    def close(self, code: ErrorCodes, detail: str) -> None:
        """Close gracefully: tell the client, and discard for a while what it still sends."""
        if not self._is_active:
            return
        if self.state is Http2State.OPEN:
            self._may_have_unsent = False  # a shutdown that starts later does not wait for this connection
        self.state = Http2State.CLOSING
        for stream in list(self._streams.values()):
            stream.close("client_gone")
        self._h2.close_connection(code, detail.encode())
        self._queue(self._h2.data_to_send())
        self.deadline = self._loop_state.now + self._services.timeouts.linger
        self._discard_input(0)

    def abort(self) -> None:
        """Close at once, with all tunnels inside."""
        if self._is_active:
            for stream in list(self._streams.values()):
                stream.close("drained")
            self.close(ErrorCodes.NO_ERROR, "the proxy has shut down")
        self._lost()

    # What streams call.

    def capacity(self, stream: TunnelStream) -> int:
        """Return how many bytes a stream may send now; if several wait, each has a share in turn."""
        if not self._is_active:
            return 0
        if not self._send_output() or self._h2.outbound_flow_control_window <= 0:
            self._blocked[stream] = None
            return 0
        is_tight = self._loop_state.buffered >= MAX_BUFFERED
        share = PAYLOAD_SIZE if is_tight else max(READ_SIZE // (1 + len(self._blocked)), PAYLOAD_SIZE)
        try:
            return min(self._h2.local_flow_control_window(stream.stream_id), share)
        except ProtocolError:
            return 0  # the client has reset it in this turn

    def send_data(self, stream_id: int, count: int) -> None:
        """Send the `count` bytes in the slots of the buffer as DATA; there was capacity, so nothing waits before it.

        The frames are written in place: `H2Connection.send_data` costs 0.7 s per GB and copies each byte four times.
        """
        frames, position, left = self._loop_state.buffer, 0, count
        while left:
            size = min(left, PAYLOAD_SIZE)
            FRAME_HEADER.pack_into(frames, position, size >> 8, size & 0xFF, 0, 0, stream_id)
            position += FRAME_HEADER.size + size
            left -= size
            self._guard.abuse.add("WINDOW_UPDATE", -_WINDOW_UPDATES_PER_FRAME, now=self._loop_state.now)
        self._h2.outbound_flow_control_window -= count
        self._h2.streams[stream_id].outbound_flow_control_window -= count
        self._send(frames[:position])

    def end_stream(self, stream_id: int) -> None:
        """End our direction of a stream, unless the client has reset it."""
        with contextlib.suppress(ProtocolError):
            self._h2.end_stream(stream_id)

    def increase_window(self, stream: TunnelStream, held: int, *, growth: int) -> None:
        """Let the client send more on a stream, of whose bytes `held` are not forwarded yet."""
        if not stream.client_ended:
            increment = stream.window.update(held, growth=growth)
            if increment:
                with contextlib.suppress(ProtocolError):
                    self._h2.increment_flow_control_window(increment, stream.stream_id)

    def stream_closed(self, stream: TunnelStream, code: ErrorCodes) -> None:
        """Forget a stream that is closed."""
        del self._streams[stream.stream_id]
        self._blocked.pop(stream, None)
        self._may_have_unsent = True
        self._reset_stream(stream.stream_id, code)
        if not self._streams:
            is_draining = self.state is Http2State.DRAINING
            self._idle_until = self._loop_state.now + (_ROUND_TRIP if is_draining else self._services.timeouts.idle)
            self._schedule()
        self._services.tunnel_closed()

    def finish_turn(self) -> None:
        """Send what this turn has produced, and close if nothing is left to do."""
        if not self._is_active:
            return
        self._increase_connection_window()
        self._resume_blocked()
        if not self._send_output():
            if len(self._unsent) > _MAX_UNSENT:
                self.close(ErrorCodes.ENHANCE_YOUR_CALM, "responses are not read")
        elif not self._streams and (self._guard.client_leaves or self._probe_answered):
            self.close(ErrorCodes.NO_ERROR, "nothing is left to do")

    # Reading.

    def _read(self) -> None:
        """Read, handle events, and write what arrived for tunnels. Raises `Http2Error` and `ProtocolError`."""
        buffer, count, ended = self._loop_state.buffer, 0, False
        try:
            for _ in range(_MAX_READS):
                got = self._socket.recv_into(buffer[count : self._read_size + TLS_RECORD_SIZE])
                count += got
                ended = not got
                if ended or count >= self._read_size:
                    break
        except ssl.SSLWantWriteError:
            if self._read_needs_write:
                self._lost()  # an error, or an end, that is reported in no other way
                return
            # The client renews its keys and reads no answer to that: its input would be reported again and again.
            self._read_needs_write = True
            self._wait_for(WRITE)
        except WOULD_BLOCK:
            pass
        except OSError:
            self._lost()
            return
        if count:
            payload = self._handle(buffer[:count])
            # Many small frames take long to handle: a client that sends those has shorter turns.
            self._read_size = min(READ_SIZE, 2 * self._read_size) if payload * 2 > count else TLS_RECORD_SIZE
            self._watch_incomplete_input()
        if ended and self._is_active:
            self._lost()

    def _handle(self, data: memoryview) -> int:
        """Handle received bytes; returns how many of them were payload of DATA."""
        events: list[Event] = []
        for piece in self._guard.filter(data, now=self._loop_state.now):
            events += self._h2.receive_data(piece)
        payload = 0
        for event in events:
            if isinstance(event, DataReceived):
                payload += len(event.data)
                self._data_received(event)
            else:
                self._other_received(event)
            if not self._is_active:
                break
        self._guard.head_sizes.clear()
        while self._touched:
            self._touched.pop().deliver()
        return payload

    def _data_received(self, event: DataReceived) -> None:
        self._window.receive(event.flow_controlled_length)
        if not event.data and event.stream_ended is None:
            self._guard.count("empty DATA")
        stream = self._streams.get(event.stream_id)
        if stream is not None:
            stream.window.receive(event.flow_controlled_length)
            stream.add(event.data)
            self._touched.add(stream)

    def _other_received(self, event: Event) -> None:
        match event:
            case RequestReceived():
                self._dispatch(event)
            case TrailersReceived(stream_id=int(stream_id)):  # 8.5: only DATA, RST_STREAM and WINDOW_UPDATE on a tunnel
                self._reset_stream(stream_id, ErrorCodes.PROTOCOL_ERROR)
                self._stream_failed(stream_id, "failed requests")
            case StreamEnded(stream_id=int(stream_id)) if stream_id in self._streams:
                self._streams[stream_id].client_ended = True
                self._touched.add(self._streams[stream_id])
            case StreamReset(stream_id=int(stream_id), remote_reset=is_remote):
                self._stream_failed(stream_id, "resets" if is_remote else "failed requests")
            case WindowUpdated(stream_id=int(stream_id)) if stream_id in self._streams:
                self._streams[stream_id].resume()
            case RemoteSettingsChanged():
                self._settings_changed(event)
            case PingAckReceived(ping_data=data):
                self._probe_answered |= self.state is Http2State.DRAINING and data == _PROBE

    def _stream_failed(self, stream_id: int, kind: Literal["resets", "failed requests"]) -> None:
        """Close a stream that the client has reset, or that was reset for an error of the client's."""
        stream = self._streams.get(stream_id)
        if kind == "failed requests" or stream is None or not stream.was_used:
            self._guard.count(kind)
        if stream is not None:
            stream.close("client_gone")

    def _settings_changed(self, event: RemoteSettingsChanged) -> None:
        for setting in event.changed_settings:
            if setting not in _KNOWN_SETTINGS:
                del self._h2.remote_settings[setting]  # h2 would keep tens of thousands
        self._h2.encoder.header_table_size = min(self._h2.encoder.header_table_size, _MAX_TABLE_SIZE)
        if SettingCodes.INITIAL_WINDOW_SIZE in event.changed_settings:
            for stream in list(self._streams.values()):
                stream.resume()

    def _is_closed_stream(self, stream_id: int) -> bool:
        return stream_id <= self._h2.highest_inbound_stream_id and stream_id not in self._streams

    # Requests.

    def _dispatch(self, event: RequestReceived) -> None:
        """Have a CONNECT decided on; refuse any other request."""
        assert event.stream_id is not None
        assert event.headers is not None
        try:
            request = parse_request([(bytes(name), bytes(value)) for name, value in event.headers])
        except MalformedRequest:
            self._refuse(event.stream_id, self._services.refuse_early("malformed", self._peer))
            return
        if request.method != "CONNECT":
            self._refuse(event.stream_id, self._services.refuse_early("method", self._peer))
        elif self._surplus:
            self._refuse(event.stream_id, self._services.refuse_early("connections", self._peer))
            self.close(ErrorCodes.NO_ERROR, "too many connections")
        else:
            self._start_decision(event.stream_id, request)

    def _start_decision(self, stream_id: int, request: Request) -> None:
        connect = ConnectRequest(
            authority=request.authority,
            fields=request.fields,
            peer=self._peer,
            protocol="h2",
            head_bytes=self._guard.head_sizes.get(stream_id, 0) + record_overhead(self._socket),
            draining=self._services.draining,
        )
        stream = self._streams[stream_id] = TunnelStream(self, stream_id, state=self._loop_state)
        stream.decision = asyncio.ensure_future(self._services.decide(connect))
        stream.decision.add_done_callback(partial(self._decided, stream))

    def _decided(self, stream: TunnelStream, decision: "asyncio.Future[AcceptedConnect | RefusedConnect]") -> None:
        stream.decision = None
        outcome: AcceptedConnect | RefusedConnect | None = None
        if not decision.cancelled():
            try:
                outcome = decision.result()
            except Exception as error:
                context = {"message": "a decision failed", "exception": error}
                asyncio.get_running_loop().call_exception_handler(context)
        if isinstance(outcome, AcceptedConnect):
            self._accept(stream, outcome)
        elif stream.closed:
            return
        elif outcome is None:
            stream.close("client_gone", ErrorCodes.INTERNAL_ERROR)
        else:
            self._refuse(stream.stream_id, outcome)
            stream.close("client_gone", ErrorCodes.NO_ERROR)
        self.finish_turn()

    def _accept(self, stream: TunnelStream, accepted: AcceptedConnect) -> None:
        """Open the tunnel, if the stream is still there."""
        if stream.closed:
            reset(accepted.socket)
            accepted.on_closed(0, 0, "client_gone")
            return
        self._h2.send_headers(stream.stream_id, [(b":status", b"200")])
        stream.open(accepted)
        self.deadline = min(self.deadline, stream.deadline)

    def _refuse(self, stream_id: int, refused: RefusedConnect) -> None:
        """Answer a request that is refused; close the connection after too many of them."""
        fields = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in refused.fields]
        with contextlib.suppress(ProtocolError):  # the client has reset it in this turn
            self._h2.send_headers(stream_id, [(b":status", b"%d" % refused.status), *fields], end_stream=True)
        self._reset_stream(stream_id, ErrorCodes.NO_ERROR)  # 8.1: no more of the request is needed
        if self._guard.abuse.add("failed requests", now=self._loop_state.now):
            self.close(ErrorCodes.ENHANCE_YOUR_CALM, "too many failed requests")

    def _reset_stream(self, stream_id: int, code: ErrorCodes) -> None:
        """Reset a stream, unless both directions have ended or it was reset."""
        stream = self._h2.streams.get(stream_id)
        if self._is_active and stream is not None and not stream.closed:
            self._h2.reset_stream(stream_id, code)

    # Sending.

    def _increase_connection_window(self) -> None:
        """Let the client send more, by what was forwarded, or is buffered where that slows no other tunnel."""
        state, before = self._loop_state, self._window.limit
        is_tight = state.buffered > MAX_BUFFERED // 2
        held = max(0, self.held - (0 if is_tight else _HELD_ASIDE))
        growth = 0 if is_tight or self.held else min(MAX_CONNECTION_WINDOW, _MAX_WINDOW_GROWTH - state.window_growth)
        increment = self._window.update(held, growth=growth)
        state.window_growth += self._window.limit - before
        if increment:
            self._h2.increment_flow_control_window(increment)

    def _resume_blocked(self) -> None:
        """Resume streams that had no room, the first one first, as long as there is room."""
        while self._blocked and self._h2.outbound_flow_control_window > 0 and self._send_output():
            stream = next(iter(self._blocked))
            del self._blocked[stream]
            stream.send_more()

    def _send_output(self) -> bool:
        """Send what h2 has to send, unless the system takes no more; returns whether it takes more."""
        self._queue(self._h2.data_to_send())
        return not self._unsent or (not self._events & WRITE and self._flush())

    def _queue(self, frames: bytes) -> None:
        """Have frames sent after what is kept."""
        if frames:
            self._loop_state.buffered += len(frames)
            self._unsent += frames

    def _flush(self) -> bool:
        """Send what is buffered; returns whether all is sent."""
        unsent, self._unsent = self._unsent, b""
        self._loop_state.buffered -= len(unsent)
        self._send(memoryview(unsent))
        return not self._unsent and self.state is not Http2State.CLOSED

    def _send(self, frames: memoryview) -> None:
        """Send frames, and keep what the system does not take; only while nothing is kept."""
        position = 0
        try:
            while position < len(frames):
                piece = frames[position : position + _SEND_SIZE]
                sent = self._socket.send(piece)
                position += sent
                if sent < len(piece):
                    break
        except WOULD_BLOCK:
            pass
        except OSError:
            self._lost()
            return
        self._unsent = bytes(frames[position:])
        self._loop_state.buffered += len(self._unsent)
        self._wait_for(READ | WRITE if self._unsent else READ)

    # The life of the connection.

    @property
    def _is_active(self) -> bool:
        return self.state is Http2State.OPEN or self.state is Http2State.DRAINING

    def _announce_shutdown(self) -> None:
        """Tell the client to open no more streams; h2 would take a GOAWAY of its own for the end."""
        self.state = Http2State.DRAINING
        self._may_have_unsent = bool(self._unsent)
        goaway = GoAwayFrame(0, last_stream_id=_MAX_STREAM_ID, additional_data=b"the proxy shuts down")
        self._queue(self._h2.data_to_send() + goaway.serialize())
        self._h2.ping(_PROBE)
        self._idle_until = self._loop_state.now + _ROUND_TRIP
        self._schedule()

    def _watch_incomplete_input(self) -> None:
        """Limit the time for a frame or head, from its first byte."""
        before, self._incomplete = self._incomplete, self._guard.incomplete
        if not self._incomplete:
            self._incomplete_until = math.inf
        elif self._incomplete != before:
            self._incomplete_until = self._loop_state.now + self._services.timeouts.head
            self.deadline = min(self.deadline, self._incomplete_until)

    def _schedule(self) -> None:
        """Compute the next deadline."""
        own = self._incomplete_until if self._streams else min(self._incomplete_until, self._idle_until)
        self.deadline = min([own, *[stream.deadline for stream in self._streams.values()]])

    def _discard_input(self, events: int) -> None:
        """Send what is left to send, and discard what arrives."""
        if events & READ:
            try:
                if not socket.socket.recv_into(self._socket, self._loop_state.buffer):  # below TLS: not decrypted
                    self._lost()
                    return
            except WOULD_BLOCK:
                pass
            except OSError:
                self._lost()
                return
        if self.state is Http2State.CLOSING and self._flush():
            self.state = Http2State.LINGERING
            shutdown_write(self._socket)

    def _lost(self) -> None:
        """Close at once: the client has left."""
        if self.state is Http2State.CLOSED:
            return
        self.state = Http2State.CLOSED
        for stream in list(self._streams.values()):
            stream.close("client_gone")
        self._may_have_unsent = False
        self._touched.clear()
        self._loop_state.window_growth -= self._window.limit - INITIAL_WINDOW
        self._loop_state.buffered -= len(self._unsent)
        self._unsent = b""
        self._loop_state.poller.unregister(self._socket.fileno())
        self._socket.close()
        self._services.connection_closed(self)

    def _wait_for(self, events: int) -> None:
        if self._read_needs_write:
            events = WRITE
        if events != self._events:
            self._events = events
            self._loop_state.poller.modify(self._socket.fileno(), events)
