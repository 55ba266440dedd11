"""Request heads: bytes in, a `RequestHead` or a `ProtocolError` out.

One regular expression is the general grammar; what it cannot decide (the framing, the host) is decided once per head,
from the few fields that matter. A second expression accepts the usual head of a browser in one pass. The general
grammar reads all others, and alone refuses; a test checks that both read an accepted head alike.
"""

import re
from functools import lru_cache

import msgspec

from headgate.errors import ProtocolError
from headgate.http.h1.syntax import (
    FIELD_LINES,
    FIELD_VALUE,
    HOST,
    TOKEN,
    find_stray_byte,
    is_host_and_port,
    named_lines,
    names_pattern,
    parse_connection,
    parse_framing,
    split_fields,
)

NOTEWORTHY_FIELDS = (
    "host", "content-length", "transfer-encoding",  # framing and routing
    "connection", "expect", "keep-alive", "proxy-connection", "te", "trailer", "upgrade",  # hop by hop
    "forwarded", "via", "x-forwarded-*", "x-real-ip", "x-request-id",  # about earlier hops
    "proxy",  # "httpoxy": CGI makes it the variable HTTP_PROXY
)  # fmt: skip
"""The fields that a recipient, or a proxy that forwards the request, must not treat as opaque.

Spellings with "_" for "-" count too: CGI and WSGI read Content_Length as Content-Length. A head without such fields,
except Host and `Connection: keep-alive`, may be forwarded unchanged.
"""

MAX_METHOD_SIZE = 32

# 9112 3: one space, no other whitespace. "#" begins a fragment, which a target cannot have.
_TARGET = rb"[!\"$-~]++"
_REQUEST_LINE = rb"(" + TOKEN + rb") (" + _TARGET + rb") HTTP/1\.([01])\r\n"
_HEAD = re.compile(_REQUEST_LINE + FIELD_LINES + rb"\r\n")
_FIRST_LINE = re.compile(_REQUEST_LINE)
_OTHER_VERSION = re.compile(TOKEN + rb" [!-~]++ HTTP/[0-9]\.[0-9]\r\n")
_ABSOLUTE = re.compile(rb"https?://([^/?]*+)([^?]*+)(.*+)", re.IGNORECASE)
_NOTEWORTHY = named_lines(*NOTEWORTHY_FIELDS)
_FRAMING = frozenset({b"content-length", b"transfer-encoding", b"host"})
_KEEP_ALIVE = frozenset({b"keep-alive"})

# Most lines begin with a letter that no noteworthy name begins with, and are not compared any further.
_LETTERS = "".join(sorted({name[0] + name[0].upper() for name in NOTEWORTHY_FIELDS})).encode()
_OTHER_LINES = (
    rb"(?:(?:(?![" + _LETTERS + rb"])|(?!(?:" + names_pattern(NOTEWORTHY_FIELDS) + rb"):))"
    + TOKEN + rb":" + FIELD_VALUE + rb"\r\n)*+"
)  # fmt: skip
_USUAL_HEAD = re.compile(
    rb"((GET|HEAD|POST|OPTIONS|PUT|DELETE|PATCH) (/[!\"$-~]*+) HTTP/1\.1\r\n"
    + _OTHER_LINES + rb"[Hh]ost:[\t ]*+(" + HOST + rb")[\t ]*+\r\n" + _OTHER_LINES + rb")"
    + rb"(?:[Cc]onnection: keep-alive\r\n(" + _OTHER_LINES + rb"))?+\r\n"
)  # fmt: skip


class RequestLimits(msgspec.Struct, frozen=True):
    """The maximum sizes of a request, in bytes but for `fields`."""

    target: int = 8192
    """The target; above it the status is 414."""
    head: int = 32768
    """The head; 431."""
    body: int = 0
    """The body by its Content-Length; 413. 0 for no limit."""
    fields: int = 128
    """The number of field lines; 431."""


class RequestHead(msgspec.Struct, gc=False):
    """One request head, and its meaning for the connection."""

    raw: bytes
    """The unchanged head, including its empty line."""
    method: bytes
    target: bytes
    """Origin-form, `*`, or the authority of a CONNECT; of an absolute-form the part after scheme and authority."""
    host: bytes = b""
    """The value of Host; empty if it is absent, which HTTP/1.0 and CONNECT permit."""
    minor: int = 1
    """HTTP/1.`minor`: 0 or 1."""
    length: int = -1
    """The value of Content-Length; -1 if it is absent."""
    chunked: bool = False
    """Whether the body is chunked."""
    connection: frozenset[bytes] = frozenset()
    """The members of Connection, in lower case."""
    keep_alive: bool = True
    """Whether the client may send another request on this connection."""
    expects_continue: bool = False
    """Whether the client waits for 100 before it sends the body."""
    websocket: bool = False
    """Whether this is a valid request to switch to WebSocket: GET, without a body."""
    accepts_trailers: bool = False
    """Whether the client understands trailers in the response."""
    forwardable: bytes = b""
    """The request line and field lines of a usual head without Connection, which may be forwarded unchanged."""
    _fields: list[tuple[bytes, bytes]] | None = None

    @property
    def path(self) -> bytes:
        """The target without its query."""
        return self.target.partition(b"?")[0]

    @property
    def lines(self) -> bytes:
        """The unchanged field lines, each with its CRLF."""
        return self.raw[self.raw.find(b"\r\n") + 2 : -2]

    @property
    def fields(self) -> list[tuple[bytes, bytes]]:
        """All fields in order: (name in lower case, value); split on first use."""
        if self._fields is None:
            self._fields = split_fields(self.lines)
        return self._fields

    def values(self, name: bytes) -> list[bytes]:
        """Return the value of each line of the field `name`, which is in lower case, without splitting all lines."""
        return [value.rstrip(b"\t ") for value in _value_pattern(name).findall(self.raw)]

    @property
    def has_body(self) -> bool:
        """Whether bytes of a body follow the head."""
        return self.chunked or self.length > 0


class RequestBuffer:
    """Received bytes that are not parsed yet; finds the next request head in them."""

    __slots__ = ("_data", "_scanned")

    def __init__(self) -> None:
        self._data = bytearray()
        self._scanned = 0  # bytes of an incomplete head that are already checked

    def __len__(self) -> int:
        return len(self._data)

    def append(self, data: bytes) -> None:
        """Add received bytes."""
        self._data += data

    def take(self) -> bytes:
        """Remove and return all bytes, which belong to a body or a tunnel."""
        data = bytes(self._data)
        self._data.clear()
        self._scanned = 0
        return data

    def next_head(self, limits: RequestLimits) -> bytes | None:
        """Remove and return the next head, including its empty line; None while it is incomplete.

        Raises `ProtocolError` for a beginning that can never become a request head. Otherwise a head with bare line
        feeds would never end, and HTTP/0.9 would wait for the timeout.
        """
        data = self._data
        while data.startswith(b"\r\n"):
            del data[:2]  # 9112 2.2: an empty line before a request is ignored
        end = data.find(b"\r\n\r\n", max(0, self._scanned - 3)) + 4
        if end >= 4:
            self._scanned = 0
            head = bytes(data[:end])
            del data[:end]
            return head
        self._check_start(limits)
        self._scanned = len(data)
        return None

    def _check_start(self, limits: RequestLimits) -> None:
        data = self._data
        if find_stray_byte(data, self._scanned - 1):
            raise ProtocolError(400, "a control byte, or a CR or LF alone")
        if data.find(b"\r\n") < 0:
            if len(data) > limits.target + 2 * MAX_METHOD_SIZE:
                raise ProtocolError(414, f"the target is longer than {limits.target} bytes")
            return
        first_line = _FIRST_LINE.match(data)
        if first_line is None:
            raise _mismatch(bytes(data), limits)
        _check_sizes(len(first_line[1]), len(first_line[2]), len(data), limits)


def parse_request_head(raw: bytes, limits: RequestLimits) -> RequestHead:
    """Parse a complete head, including its empty line; raises `ProtocolError` with the status of the response."""
    return parse_usual_request_head(raw, limits) or parse_general_request_head(raw, limits)


def parse_usual_request_head(raw: bytes, limits: RequestLimits) -> RequestHead | None:
    """Parse a complete head if it is usual; None for any other bytes.

    A usual head is HTTP/1.1 with a path for its target, one Host, perhaps one `Connection: keep-alive` after it, and no
    other field of `NOTEWORTHY_FIELDS`; so it has no body.
    """
    match = _USUAL_HEAD.fullmatch(raw)
    if match is None:
        return None
    before, method, target, host, after = match.groups()
    # Each LF ends a line here, and one byte is found faster than two.
    if len(target) > limits.target or len(raw) > limits.head or raw.count(b"\n") > limits.fields + 2:
        return None
    if after is None:
        return RequestHead(raw, method, target, host, forwardable=before)
    return RequestHead(raw, method, target, host, connection=_KEEP_ALIVE, forwardable=before + after)


def parse_general_request_head(raw: bytes, limits: RequestLimits) -> RequestHead:
    """Parse a complete head, as `parse_request_head` does, with the general grammar only."""
    match = _HEAD.fullmatch(raw)
    if match is None:
        raise _mismatch(raw, limits)
    method, target, minor = match.groups()
    _check_sizes(len(method), len(target), len(raw), limits)
    if raw.count(b"\r\n") > limits.fields + 2:
        raise ProtocolError(431, f"the head has more than {limits.fields} fields")
    request = RequestHead(raw, method, target, minor=int(minor), keep_alive=minor == b"1")
    values = _noteworthy_values(_NOTEWORTHY.findall(raw, match.end(2)))
    _read_host(request, values)
    request.length, request.chunked = parse_framing(values, request.minor)
    if method == b"CONNECT" and request.has_body:
        # 9110 9.3.6: one recipient would read a tunnel, another one a body.
        raise ProtocolError(400, "CONNECT with a body")
    _read_connection(request, values)
    _read_target(request)
    if limits.body and request.length > limits.body:
        raise ProtocolError(413, f"the body is longer than {limits.body} bytes")
    return request


def _mismatch(head: bytes, limits: RequestLimits) -> ProtocolError:
    """Return why a head does not fit the grammar; excess length comes first."""
    if head.find(b"\r\n") > limits.target + 2 * MAX_METHOD_SIZE:
        return ProtocolError(414, f"the target is longer than {limits.target} bytes")
    if len(head) > limits.head:
        return ProtocolError(431, f"the head is longer than {limits.head} bytes")
    if _FIRST_LINE.match(head):
        return ProtocolError(400, "a field line is malformed")
    version = _OTHER_VERSION.match(head)
    if version and version[0][-5:-2] not in (b"1.0", b"1.1"):
        return ProtocolError(505, "the version is neither HTTP/1.1 nor HTTP/1.0")
    return ProtocolError(400, "the request line is malformed")


def _check_sizes(method: int, target: int, head: int, limits: RequestLimits) -> None:
    if target > limits.target:
        raise ProtocolError(414, f"the target is longer than {limits.target} bytes")
    if head > limits.head:
        raise ProtocolError(431, f"the head is longer than {limits.head} bytes")
    if method > MAX_METHOD_SIZE:
        raise ProtocolError(400, f"the method is longer than {MAX_METHOD_SIZE} bytes")


def _noteworthy_values(lines: list[tuple[bytes, bytes]]) -> dict[bytes, list[bytes]]:
    """Collect values by name, in lower case."""
    values: dict[bytes, list[bytes]] = {}
    for raw_name, value in lines:
        name = raw_name.lower()
        if b"_" in name and name.replace(b"_", b"-") in _FRAMING:
            raise ProtocolError(400, "a field name with an underscore imitates a field of framing")
        values.setdefault(name, []).append(value.rstrip(b"\t "))
    return values


def _read_host(request: RequestHead, values: dict[bytes, list[bytes]]) -> None:
    hosts = values.get(b"host", [])
    # 9112 3.2. CONNECT may lack it, because its target is the host. It is also checked beside a URL that replaces it.
    if len(hosts) > 1 or (not hosts and request.minor and request.method != b"CONNECT"):
        raise ProtocolError(400, "Host is missing or repeated")
    if hosts:
        request.host = hosts[0]
        if not is_host_and_port(request.host):
            raise ProtocolError(400, "Host is not one host and port")


def _read_connection(request: RequestHead, values: dict[bytes, list[bytes]]) -> None:
    request.connection = members = parse_connection(values.get(b"connection", []))
    request.keep_alive = b"close" not in members and (request.minor == 1 or b"keep-alive" in members)
    if not request.minor:
        return  # 9110 10.1.1 and 7.8: Expect and Upgrade in an HTTP/1.0 request are ignored
    expectations = values.get(b"expect")
    if expectations is not None:
        if [value.lower() for value in expectations] != [b"100-continue"]:
            raise ProtocolError(417, "the only supported expectation is 100-continue")
        request.expects_continue = request.has_body
    if b"upgrade" in members and request.method == b"GET" and not request.has_body:
        protocols = b",".join(values.get(b"upgrade", [])).lower().split(b",")
        request.websocket = b"websocket" in (protocol.strip(b"\t ") for protocol in protocols)
    request.accepts_trailers = b"trailers" in b",".join(values.get(b"te", [])).lower()


def _read_target(request: RequestHead) -> None:
    """Distinguish the four forms of a target (9112 3.2)."""
    target = request.target
    if target.startswith(b"/") or request.method == b"CONNECT":
        return
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute:
        request.host, path, query = absolute.groups()  # 9112 3.2.2: Host is ignored
        if not is_host_and_port(request.host):
            raise ProtocolError(400, "the target does not name one host and port")
        request.target = (path or b"/") + query
        if not path and not query and request.method == b"OPTIONS":
            request.target = b"*"  # 9112 3.2.4
    elif target != b"*" or request.method != b"OPTIONS":
        raise ProtocolError(400, "the target is neither a path nor a URL")


@lru_cache(maxsize=64)
def _value_pattern(name: bytes) -> re.Pattern[bytes]:
    """Compile the pattern that finds the values of one field; names come from code and configuration."""
    first, rest = re.escape(name[:1]), re.escape(name[1:])
    return re.compile(rb"\n[" + first + first.upper() + rb"](?i:" + rest + rb"):[\t ]*+([^\r]*+)")
