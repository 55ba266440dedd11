"""From a request head to a decision or a refusal.

`parse_request` checks the field lines (RFC 9113, section 8.3), `RequestDispatcher` acts on the request. A head that is
malformed in HTTP/1.1 is malformed here too.
"""

import asyncio
import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Final, NamedTuple, Protocol

from headgate.errors import HeadgateError
from headgate.http.fields import LOWER_CASE_TOKEN
from headgate.proxy.connect import AcceptedConnect, ConnectRequest, RefusedConnect
from headgate.proxy.http2.buffers import DataBuffer
from headgate.proxy.http2.engine import MAX_REQUEST_HEAD_SIZE, Http2Engine
from headgate.proxy.http2.events import RequestReceived
from headgate.proxy.http2.frames import ErrorCode
from headgate.proxy.http2.stream import StreamSink, TunnelStream
from headgate.proxy.services import Services
from headgate.proxy.sockets import reset

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
    path: str
    """With its query; empty for CONNECT."""
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
    method, authority, path = (pseudo.get(name, b"").decode() for name in (b":method", b":authority", b":path"))
    _check_pseudo(method, pseudo.keys())
    _check_framing(method, fields)
    return Request(method, authority, path, fields)


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


class DispatchSink(StreamSink, Protocol):
    """What dispatching needs of the connection."""

    def add_stream(self, stream: TunnelStream) -> None:
        """Add a stream."""

    def stream_opened(self, stream: TunnelStream) -> None:
        """Take the deadline of a stream whose tunnel was opened into account."""

    def close(self, code: ErrorCode, detail: str) -> None:
        """Close the connection gracefully."""


class RequestDispatcher:
    """Dispatches the requests of one connection. `surplus` marks a connection whose requests are refused.

    `overhead` is what one TLS record adds to its content.
    """

    __slots__ = ("_data", "_engine", "_overhead", "_peer", "_services", "_sink", "_surplus")

    def __init__(
        self,
        sink: DispatchSink,
        engine: Http2Engine,
        services: Services,
        *,
        data: DataBuffer,
        peer: tuple[str, int],
        overhead: int,
        surplus: bool,
    ) -> None:
        self._sink = sink
        self._engine = engine
        self._services = services
        self._data = data
        self._peer = peer
        self._overhead = overhead
        self._surplus = surplus

    def dispatch(self, event: RequestReceived) -> None:
        """Have a CONNECT decided on; refuse any other request. Raises `Http2Error` after too many mistakes."""
        stream_id, services = event.stream_id, self._services
        try:
            request = parse_request(event.fields)
        except MalformedRequest:
            self._refuse_early(stream_id, services.refuse_early("malformed", self._peer))
            return
        if request.method != "CONNECT":
            self._refuse_early(stream_id, services.refuse_early("method", self._peer))
        elif self._surplus:
            self._refuse_early(stream_id, services.refuse_early("connections", self._peer))
            self._sink.close(ErrorCode.NO_ERROR, "too many connections")
        else:
            self._start_decision(event, request)

    def _start_decision(self, event: RequestReceived, request: Request) -> None:
        connect = ConnectRequest(
            authority=request.authority,
            fields=request.fields,
            peer=self._peer,
            protocol="h2",
            head_bytes=event.head_size + self._overhead,
            draining=self._services.draining,
        )
        stream = TunnelStream(self._sink, event.stream_id, state=self._services.loop_state, data=self._data)
        stream.client_ended = event.is_last
        self._sink.add_stream(stream)
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
            stream.close("client_gone", ErrorCode.INTERNAL_ERROR)
        else:
            self._engine.respond(stream.stream_id, outcome.status, outcome.fields, is_last=True)
            stream.close("client_gone", ErrorCode.NO_ERROR)  # 8.1: no more of the request is needed
        self._sink.finish_turn()

    def _accept(self, stream: TunnelStream, accepted: AcceptedConnect) -> None:
        """Open the tunnel, if the stream is still there."""
        if stream.closed:
            reset(accepted.socket)
            accepted.on_closed(0, 0, "client_gone")
            return
        self._engine.respond(stream.stream_id, 200, (), is_last=False)
        stream.open(accepted)
        self._sink.stream_opened(stream)

    def _refuse_early(self, stream_id: int, refused: RefusedConnect) -> None:
        """Answer a request without a decision. Raises `Http2Error` after too many of them."""
        self._engine.respond(stream_id, refused.status, refused.fields, is_last=True)
        self._engine.close_stream(stream_id, ErrorCode.NO_ERROR)  # 8.1: no more of the request is needed
        self._engine.count_mistake()
