"""Responses that the gateway makes itself: problems, the traffic advice, and content from files."""

import asyncio
import hashlib
import os
import time
from collections.abc import Callable
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from http.client import responses as phrases
from typing import Final, Protocol

from headgate.advice import MEDIA_TYPE, PATH
from headgate.errors import ProtocolError
from headgate.http.conditional import Validators, apply_preconditions
from headgate.http.h1 import RequestHead
from headgate.origin.gateway.buffer import SpooledBuffer
from headgate.origin.gateway.forwarding import request_id_line
from headgate.origin.gateway.record import RequestRecord
from headgate.origin.pages import REQUEST_ID, Pages
from headgate.origin.response import BodySource, FileSlice, Response, problem

Respond = Callable[[RequestHead], Response | None]
"""Answers a request without the origin; returns None for one that it does not answer."""

ALLOW = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
"""The methods that are forwarded; an origin may accept any of them."""


def gateway_problem(
    status: int, reason: str, accept: bytes | None = None, *, page: str = Pages().error, allow: bytes = ALLOW
) -> Response:
    """Make an error of the gateway's own, by default a problem document (RFC 9457); `reason` is a clause."""
    detail = f"{reason[:1].upper()}{reason[1:]}."
    response = problem(status, HTTPStatus(status).phrase, detail, accept, default="problem", page=page)
    if status == 405:
        response.fields.append((b"allow", allow))  # 9110 15.5.6
    if status == 503:  # a limit is reached, which lasts as long as a request
        response.fields.append((b"retry-after", b"1"))
    return response


def serialize(
    response: Response, request_id: bytes, *, keep: bool, minor: int = 1, without_body: bool = False
) -> tuple[bytes, int]:
    """Write a response as the bytes of an HTTP/1.1 message, for a client of HTTP/1.`minor`.

    Returns the message, and how many bytes of it are content.
    """
    # Most clients of one second get the same bytes, but for the id.
    key = int(time.time()), keep, minor, without_body, len(request_id)
    rendered = response.rendered
    if rendered is None or rendered[0] != key:
        rendered = response.rendered = (key, *_render(response, key))
    return request_id.join(rendered[1]), rendered[2]


def _render(response: Response, key: tuple[int, bool, int, bool, int]) -> tuple[list[bytes], int]:
    """Return the bytes before, between and after the ids of the request, and the size of the content that is sent."""
    second, keep, minor, without_body, id_size = key
    content = response.body.split(REQUEST_ID) if response.names_request else [response.body]
    size = sum(map(len, content)) + (len(content) - 1) * id_size
    connection = b"Connection: close\r\n"
    if keep:
        connection = b"" if minor else b"Connection: keep-alive\r\n"
    head = [_status_line(response.status), date_line(second), connection]
    for name, value in response.fields:
        is_size = response.names_request and name == b"content-length"
        head.append(b"%b: %b\r\n" % (name, b"%d" % size if is_size else value))
    before, after = request_id_line(REQUEST_ID).split(REQUEST_ID)
    if without_body:
        return [b"".join(head) + before, after + b"\r\n"], 0
    return [b"".join(head) + before, b"%b\r\n%b" % (after, content[0]), *content[1:]], size


def _status_line(status: int) -> bytes:
    return b"HTTP/1.1 %d %b\r\n" % (status, phrases.get(status, "").encode())


@lru_cache(maxsize=1)
def date_line(second: int) -> bytes:
    """Return the field line `Date`, which is formatted once per second."""
    return b"Date: %b\r\n" % formatdate(second, usegmt=True).encode()


PIECE_SIZE = 131_072
"""Bytes read at once: more than a transport buffers before it pauses the writer."""
MAX_PER_TURN = 1 << 20
"""Bytes sent per turn of the event loop."""


class Downstream(Protocol):
    """The client's connection, as an exchange or a file response uses it; the request under way is theirs."""

    def renew_deadline(self) -> None:
        """Set a new deadline, after progress."""

    def write(self, data: bytes) -> None:
        """Send bytes of a response."""

    def complete(self, message: bytes = b"", *, keep: bool = True, unread: bool = False) -> None:
        """Send the end of a response; then read the next request, or close.

        The connection ends unless `keep`; `unread` means that the request's body has not been read to its end.
        """

    def fail(self, error: ProtocolError, reason: str, *, unread: bool) -> None:
        """Answer with an error of the gateway; no byte of a response has been sent."""

    def abort(self, reason: str, *, reset: bool = False) -> None:
        """Close at once; with a `reset` for a client that would take the close for the end of the body."""

    def set_upstream_slow(self, *, slow: bool) -> None:
        """Stop reading the request's body, or read it again: the origin is slow, or is not any more."""

    def response_buffer(self) -> SpooledBuffer | None:
        """Return a buffer for a response that the client reads slowly; None if responses are not buffered."""

    def become_tunnel(self, origin: asyncio.Transport, greeting: bytes) -> None:
        """Join both connections to a tunnel; `greeting` is sent to the client first."""


class FileResponse:
    """Takes the place of an `Exchange` in a client's connection, with content from a file instead of the origin.

    It calls `os.sendfile` whenever the transport's buffer is empty, instead of `loop.sendfile`: uvloop has none, and
    that of asyncio does not report a slow client. Bytes that the socket does not take at once are read and given to
    the transport, which reports when they are sent.
    The connection is aborted if the file changes, and closed after the content unless `keep`.
    `unread` means that the request has a body that is not read.
    """

    __slots__ = (
        "_client", "_descriptor", "_keep", "_paused", "_record", "_scheduled", "_source", "_transport", "_unread",
    )  # fmt: skip

    begun = True
    takes_body = False
    waits_for_client = False

    def __init__(
        self,
        client: Downstream,
        transport: asyncio.Transport,
        record: RequestRecord,
        source: BodySource,
        *,
        keep: bool,
        unread: bool,
    ) -> None:
        self._client = client
        self._record = record
        self._transport = transport
        self._source = source
        self._keep = keep
        self._unread = unread
        self._paused = self._scheduled = False
        sock = transport.get_extra_info("socket")
        is_plain = sock is not None and transport.get_extra_info("ssl_object") is None
        can_copy = is_plain and hasattr(os, "sendfile") and isinstance(source, FileSlice)
        self._descriptor: Callable[[], int] | None = sock.fileno if can_copy else None

    # What the connection calls.

    def start(self) -> None:
        """Start sending; the head has been given to the transport."""
        if self._descriptor is not None:
            # Paused while anything is buffered: `sendfile` needs an empty buffer. TLS transports count their buffer
            # differently and keep their limits.
            self._transport.set_write_buffer_limits(high=0)
        self._schedule()

    def feed(self, data: bytes) -> bytes:
        """Return `data` unchanged: the body of the request is not read."""
        return data

    def pause_response(self) -> None:
        """Pause: the client reads slowly."""
        self._paused = True

    def resume_response(self) -> None:
        """Continue in the next turn: asyncio does not allow closing a transport from its `resume_writing`."""
        self._paused = False
        self._schedule()

    def drain(self) -> None:
        """Do nothing: the connection checks for a drain at the end of the response."""

    def abandon(self) -> None:
        """Stop sending: the client has left."""
        self._paused = True

    def time_out(self, **_: bool) -> None:
        """Close: no progress."""
        self._client.abort("timeout")

    # The turns.

    def _schedule(self) -> None:
        if not self._scheduled and not self._paused:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        """Send as much as the system takes now; then schedule the next turn, unless the client reads slowly."""
        self._scheduled = False
        if self._paused or self._transport.is_closing():
            return
        self._client.renew_deadline()
        if self._record.bytes >= self._source.length:
            self._transport.set_write_buffer_limits()
            self._client.complete(keep=self._keep, unread=self._unread)
            return
        try:
            self._record.bytes += self._sendfile() or self._read_and_write()
        except OSError:
            self._client.abort("truncated")
            return
        self._schedule()

    def _sendfile(self) -> int:
        """Call `sendfile`; returns the bytes sent, 0 if the socket is full or the call is not supported."""
        # The last piece is always read, which detects a file that has changed.
        source = self._source
        left = min(source.length - self._record.bytes - PIECE_SIZE, MAX_PER_TURN)
        if self._descriptor is None or left <= 0 or self._transport.get_write_buffer_size():
            return 0
        assert isinstance(source, FileSlice)
        if not source.file.is_unchanged():
            raise OSError("the file has changed")
        try:
            return os.sendfile(self._descriptor(), source.file.fileno(), source.offset + self._record.bytes, left)
        except BlockingIOError:
            return 0
        except OSError:
            # Not supported by the file system; or the client has left, which the transport detects.
            self._descriptor = None
            return 0

    def _read_and_write(self) -> int:
        length = min(self._source.length - self._record.bytes, PIECE_SIZE)
        self._transport.write(self._source.read(self._record.bytes, self._record.bytes + length))
        return length


ADVICE_PATH: Final = PATH.encode()
"""Where agents fetch traffic advice (traffic-advice.txt, section 10.1)."""
STATIC_MAX_AGE: Final = 1_800.0
"""Seconds for which agents may use a document that is not computed."""
_SAFE: Final = frozenset({b"GET", b"HEAD"})


class AdviceResource:
    """Answers requests for the document, which is fresh for `max_age`.

    `is_computed` keeps shared caches in front of the gate from storing it, so that no agent gets an older document than
    the one that is published.
    """

    def __init__(self, document: bytes, *, max_age: float = STATIC_MAX_AGE, is_computed: bool = False) -> None:
        self._is_computed = is_computed
        self.publish(document, max_age=max_age)

    def publish(self, document: bytes, *, max_age: float) -> None:
        """Replace the document."""
        etag = b'"%b"' % hashlib.sha256(document).hexdigest()[:32].encode()
        self._document = document
        self._validators = Validators(etag, None)
        self._fields = [
            (b"content-type", MEDIA_TYPE.encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"cache-control", b"max-age=%d" % max_age),
            (b"etag", etag),
        ]
        if self._is_computed:
            # RFC 9213: for shared caches of the operator. `private` would forbid a prefetch proxy to store it.
            self._fields.append((b"cdn-cache-control", b"no-store"))
        self._whole = Response(200, [*self._fields, (b"content-length", b"%d" % len(document))], document)

    @staticmethod
    def is_for(request: RequestHead) -> bool:
        """Return whether a request is for the document."""
        # One comparison is enough for nearly all requests.
        return request.target.startswith(ADVICE_PATH) and request.path == ADVICE_PATH and request.method in _SAFE

    def respond(self, request: RequestHead) -> Response:
        """Answer a request for the document."""
        tags = request.values(b"if-none-match")
        if not tags:
            return self._whole
        conditions = [(b"if-none-match", tag) for tag in tags]
        size = len(self._document)
        found = apply_preconditions(request.method, conditions, (200, self._fields), self._validators, size)
        return self._whole if found.status == 200 else Response(found.status, found.fields, b"")
