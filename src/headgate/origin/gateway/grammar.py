"""The strict grammar of a request's head: bytes in, a `Request` out, or `Refusal`.

This file knows nothing of sockets, origins or limits. It accepts less than RFC 9112 lets a recipient accept: whatever
two recipients could read in two ways is refused, so that what the origin sees has one meaning only. One regular
expression holds the whole grammar and runs in C; the questions it cannot answer (which framing, which host) are asked
once per head, of the few fields that matter.
"""

import re
from collections.abc import Mapping

from headgate.config.tree import Bounds
from headgate.origin.gateway.refusal import Refusal

__all__ = [
    "FIELD_LINES",
    "Request",
    "check_beginning",
    "check_length",
    "cut_head",
    "field_lines",
    "is_host_and_port",
    "lines_named",
    "options",
    "parse_request",
]

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
# 9110 5.5: field-vchar, SP, HTAB and obs-text; neither NUL nor any other control byte, and so no obs-fold.
_TEXT = rb"[\t\x20-\x7e\x80-\xff]*+"
FIELD_LINES = rb"(?:" + _TOKEN + rb":" + _TEXT + rb"\r\n)*+"
"""The pattern of field lines, each with its CRLF."""

# 9112 3: one space, no other whitespace. "#" begins a fragment, which no target has.
_REQUEST_LINE = rb"(" + _TOKEN + rb") ([!\"$-~]++) HTTP/1\.([01])\r\n"
_HEAD = re.compile(_REQUEST_LINE + rb"(" + FIELD_LINES + rb")\r\n")
_FIRST_LINE = re.compile(_REQUEST_LINE)
_OTHER_VERSION = re.compile(_TOKEN + rb" [!-~]++ HTTP/[0-9]\.[0-9]\r\n")
_IS_TOKEN = re.compile(_TOKEN)
_STRAY = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_ABSOLUTE = re.compile(rb"https?://([^/?]*+)([^?]*+)(.*+)", re.IGNORECASE)
# 9110 7.2: uri-host [ ":" port ]. A comma would be a list of hosts, "@" user information.
_HOST = re.compile(rb"(?:[A-Za-z0-9\-._~%!$&'()*+;=]++|\[[0-9A-Fa-f:.]++\])(?::[0-9]{0,5})?")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_LONGEST_METHOD = 32
_USUAL = frozenset({b"keep-alive", b"close", b"upgrade"})
"""What nearly every Connection says, and nothing else beside."""

_FRAMING = frozenset({b"content-length", b"transfer-encoding", b"host"})


def lines_named(*names: str) -> re.Pattern[bytes]:
    """Compile the pattern that finds, in a block preceded by LF, the lines with these names: (name, value).

    It finds them in any case, and with "_" for "-"; "*" stands for any rest. A name's first letter is a set of its
    own, which lets the search skip a line after one comparison instead of trying every name.
    """
    patterns = []
    for name in names:
        first, rest = name[0], name[1:].replace("-", "[-_]").replace("*", "[^:]*+")
        patterns.append(f"[{first}{first.upper()}](?i:{rest})")
    return re.compile(rb"\n(" + "|".join(patterns).encode() + rb"):[\t ]*+([^\r]*+)")


_NOTEWORTHY = lines_named(
    "host", "content-length", "transfer-encoding", "connection", "expect", "upgrade", "te", "keep-alive", "trailer",
    "proxy", "proxy-connection", "forwarded", "via", "x-forwarded-*", "x-real-ip",
)  # fmt: skip
"""The fields that mean something here; heads without any but Host are passed on as they are."""


class Request:
    """One request's head, and what it means for the connection."""

    __slots__ = (
        "_fields", "block", "chunked", "connection", "expects", "host", "keep_alive", "length", "method", "minor",
        "path", "simple", "target", "trailers", "upgrade",
    )  # fmt: skip

    def __init__(self, method: bytes, target: bytes, minor: int, block: bytes) -> None:
        self.method = method
        self.target = target
        """Origin-form or `*`: what an absolute-form asked for, without its scheme and authority."""
        self.minor = minor
        """HTTP/1.`minor`: 0 or 1."""
        self.block = block
        """The field lines as they came, each with its CRLF."""
        self.simple = False
        """Whether Host is the only field that means anything here."""
        self.path = target
        """The target without its query."""
        self.host = b""
        """The value of Host; empty when an HTTP/1.0 request has none."""
        self.length = -1
        """What Content-Length says; -1 when it is absent."""
        self.chunked = False
        """Whether the body is chunked."""
        self.connection: frozenset[bytes] = frozenset()
        """The members of Connection, in lower case."""
        self.keep_alive = minor == 1
        """Whether the agent may send another request."""
        self.expects = False
        """Whether the agent waits for 100 before it sends the body."""
        self.upgrade = False
        """Whether the agent asks to speak WebSocket, in a request that can."""
        self.trailers = False
        """Whether the agent understands trailers in the response."""
        self._fields: list[tuple[bytes, bytes]] | None = None

    @property
    def fields(self) -> list[tuple[bytes, bytes]]:
        """Every field in order: (name in lower case, value); split when first asked for."""
        if self._fields is None:
            self._fields = field_lines(self.block)
        return self._fields

    @property
    def has_body(self) -> bool:
        """Whether bytes of a body follow the head."""
        return self.chunked or self.length > 0


def field_lines(block: bytes) -> list[tuple[bytes, bytes]]:
    """Split lines that fit `FIELD_LINES`: (name in lower case, value without the whitespace about it)."""
    lines = [line.partition(b":") for line in block.split(b"\r\n")]
    del lines[-1]  # what is after the last CRLF: nothing
    return [(name.lower(), value.strip(b"\t ")) for name, _, value in lines]


def options(values: list[bytes]) -> frozenset[bytes]:
    """List the members of Connection, in lower case; raises `Refusal` when one is no token (9110 7.6.1)."""
    if len(values) == 1 and values[0].lower() in _USUAL:
        return frozenset([values[0].lower()])
    members = frozenset(member.strip(b"\t ").lower() for value in values for member in value.split(b",")) - {b""}
    if not all(_IS_TOKEN.fullmatch(member) for member in members):
        raise Refusal(400, "a member of Connection is not a token")
    return members


def is_host_and_port(value: bytes) -> bool:
    """Say whether `value` is what Host may hold: one host, and perhaps a port."""
    return _HOST.fullmatch(value) is not None


def check_length(value: bytes) -> int:
    """Read a Content-Length: digits only, at most 18, one value (9110 8.6); raises `Refusal`."""
    if not _LENGTH.fullmatch(value):
        raise Refusal(400, "Content-Length is not one plain number")
    return int(value)


def cut_head(buffer: bytearray, scanned: int, bounds: Bounds) -> bytes | None:
    """Take a whole head out of the buffer; None when it is not complete yet, and `Refusal` when it never will be."""
    while buffer.startswith(b"\r\n"):
        del buffer[:2]  # 9112 2.2: an empty line before a request is ignored
    end = buffer.find(b"\r\n\r\n", max(0, scanned - 3)) + 4
    if end >= 4:
        head = bytes(buffer[:end])
        del buffer[:end]
        return head
    check_beginning(buffer, scanned, bounds)
    return None


def check_beginning(buffer: bytearray, scanned: int, bounds: Bounds) -> None:
    """Refuse a head that is not complete yet and can never become right; bytes before `scanned` are known to be fine.

    Without it a head with bare line feeds would never end, and HTTP/0.9 would wait for its timeout.
    """
    if _STRAY.search(buffer, max(0, scanned - 1)):
        raise Refusal(400, "a control byte, or a CR or LF alone")
    line_end = buffer.find(b"\r\n")
    if line_end < 0:
        if len(buffer) > bounds.target_bytes + 2 * _LONGEST_METHOD:
            raise Refusal(414, f"the target is longer than {bounds.target_bytes} bytes")
        return
    first_line = _FIRST_LINE.match(buffer)
    if first_line is None:
        raise _why_not(bytes(buffer), bounds)
    _check_sizes(len(first_line[1]), len(first_line[2]), len(buffer), bounds)


def parse_request(head: bytes, bounds: Bounds) -> Request:
    """Read a whole head, its empty line included; raises `Refusal` with the status to answer."""
    match = _HEAD.fullmatch(head)
    if match is None:
        raise _why_not(head, bounds)
    method, target, minor, block = match.groups()
    _check_sizes(len(method), len(target), len(head), bounds)
    request = Request(method, target, int(minor), block)
    noteworthy = _NOTEWORTHY.findall(head, match.end(2))
    if len(noteworthy) == 1 and noteworthy[0][0] in {b"Host", b"host"}:
        request.simple = True
        _read_host(request, noteworthy[0][1].rstrip(b"\t "))
    else:
        _read_special(request, _special(noteworthy))
    _read_target(request)
    if method == b"CONNECT" or method == b"TRACE":
        # A gateway opens no tunnels; a trace would show the agent what was added for the origin's eyes.
        raise Refusal(405, f"{method.decode()} is not served here")
    if bounds.body_bytes and request.length > bounds.body_bytes:
        raise Refusal(413, f"the body is longer than {bounds.body_bytes} bytes")
    return request


def _why_not(head: bytes, bounds: Bounds) -> Refusal:
    """Find the words for a head outside the grammar; that it is too long comes first."""
    if head.find(b"\r\n") > bounds.target_bytes + 2 * _LONGEST_METHOD:
        return Refusal(414, f"the target is longer than {bounds.target_bytes} bytes")
    if len(head) > bounds.head_bytes:
        return Refusal(431, f"the head is longer than {bounds.head_bytes} bytes")
    if _FIRST_LINE.match(head):
        return Refusal(400, "a field line is malformed")
    version = _OTHER_VERSION.match(head)
    if version and version[0][-5:-2] not in (b"1.0", b"1.1"):
        return Refusal(505, "the version is neither HTTP/1.1 nor HTTP/1.0")
    return Refusal(400, "the request line is malformed")


def _check_sizes(method: int, target: int, head: int, bounds: Bounds) -> None:
    if target > bounds.target_bytes:
        raise Refusal(414, f"the target is longer than {bounds.target_bytes} bytes")
    if head > bounds.head_bytes:
        raise Refusal(431, f"the head is longer than {bounds.head_bytes} bytes")
    if method > _LONGEST_METHOD:
        raise Refusal(400, f"the method is longer than {_LONGEST_METHOD} bytes")


def _special(noteworthy: list[tuple[bytes, bytes]]) -> dict[bytes, list[bytes]]:
    """Collect the values by name, in lower case."""
    special: dict[bytes, list[bytes]] = {}
    for raw, value in noteworthy:
        name = raw.lower()
        if name.replace(b"_", b"-") in _FRAMING and b"_" in name:
            # CGI, WSGI and their kin read Content_Length as Content-Length.
            raise Refusal(400, "an underscore makes a field look like one of framing")
        special.setdefault(name, []).append(value.rstrip(b"\t "))
    return special


def _read_special(request: Request, special: Mapping[bytes, list[bytes]]) -> None:
    hosts = special.get(b"host", [])
    if len(hosts) > 1 or (not hosts and request.minor):
        raise Refusal(400, "Host is missing or repeated")  # 9112 3.2
    if hosts:
        _read_host(request, hosts[0])
    _read_framing(request, special)
    _read_connection(request, special)


def _read_host(request: Request, host: bytes) -> None:
    if not is_host_and_port(host):
        raise Refusal(400, "Host is not one host and port")
    request.host = host


def _read_framing(request: Request, special: Mapping[bytes, list[bytes]]) -> None:
    lengths, encodings = special.get(b"content-length"), special.get(b"transfer-encoding")
    if encodings is not None:
        # 9112 6.1 and 6.3: each of these is how requests are smuggled.
        if lengths is not None:
            raise Refusal(400, "both Content-Length and Transfer-Encoding")
        if not request.minor:
            raise Refusal(400, "Transfer-Encoding in an HTTP/1.0 request")
        if len(encodings) > 1 or encodings[0].lower() != b"chunked":
            raise Refusal(400, "Transfer-Encoding is not chunked alone")
        request.chunked = True
    elif lengths is not None:
        if len(lengths) > 1:
            raise Refusal(400, "Content-Length is repeated")
        request.length = check_length(lengths[0])


def _read_connection(request: Request, special: Mapping[bytes, list[bytes]]) -> None:
    request.connection = members = options(special.get(b"connection", []))
    request.keep_alive = b"close" not in members and (request.minor == 1 or b"keep-alive" in members)
    if not request.minor:
        return  # 9110 10.1.1 and 7.8: Expect and Upgrade in an HTTP/1.0 request are ignored
    expectations = special.get(b"expect")
    if expectations is not None:
        if [value.lower() for value in expectations] != [b"100-continue"]:
            raise Refusal(417, "the only expectation met is 100-continue")
        request.expects = request.has_body
    if b"upgrade" in members and request.method == b"GET" and not request.has_body:
        protocols = b",".join(special.get(b"upgrade", [])).lower().split(b",")
        request.upgrade = b"websocket" in (protocol.strip(b"\t ") for protocol in protocols)
    request.trailers = b"trailers" in b",".join(special.get(b"te", [])).lower()


def _read_target(request: Request) -> None:
    """Sort out the four forms of a target (9112 3.2)."""
    target = request.target
    if not target.startswith(b"/") and request.method != b"CONNECT":
        absolute = _ABSOLUTE.fullmatch(target)
        if absolute:
            authority, path, query = absolute.groups()
            if authority.lower() != request.host.lower() or not authority:
                raise Refusal(400, "the target names another host than Host")
            request.target = target = (path or b"/") + query
            if not path and not query and request.method == b"OPTIONS":
                request.target = target = b"*"  # 9112 3.2.4
        elif target != b"*" or request.method != b"OPTIONS":
            raise Refusal(400, "the target is neither a path nor a URL")
    request.path = target.partition(b"?")[0]
