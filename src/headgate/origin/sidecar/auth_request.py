"""The data plane of nginx without Lua: before each request, its module auth_request asks the sidecar.

nginx sends a head without a body, on a connection that both keep open. `GET /check/DOMAIN?identify=METHOD` asks about a
request of the client `X-Headgate-Address`. The answers are 204 for an accepted request; 403 for a rejected one, with
the fields of the response, and with its status and body in `X-Headgate-Status` and `X-Headgate-Body`; and for a delayed
one a redirection, upon which nginx asks with `GET /headgate-delay?NUMBER` and is answered with 204 at the release. So
the timeout of a check is short although delayed requests wait for longer. All other requests are answered with
503; nginx then accepts the client's request, as it does without an answer.
"""

import re
from functools import lru_cache
from itertools import count
from typing import Any, Final
from urllib.parse import unquote

from headgate.errors import ConfigurationError, fail_if
from headgate.origin.delay import Delay
from headgate.origin.identify import ByAgent, Header, Identify, parse_identify
from headgate.origin.request_info import RequestInfo
from headgate.origin.response import Response
from headgate.origin.sidecar.data_plane import DataPlane, Details, PlaneConnection
from headgate.release import Status

MAX_CONNECTIONS: Final = 4_096
"""Connections beyond those of delayed requests; each worker of nginx keeps up to 128 open."""
MAX_HEAD_SIZE: Final = 65_536
"""Bytes of a head that are read; of a longer one, only the address of the client is used."""
MAX_DELAY: Final = 40.0
"""Seconds; the timeout in the configuration of nginx is a second longer."""

_MAX_CACHED_TARGETS: Final = 256
_MAX_REJECTION_SIZE: Final = 3_584
"""Bytes of the fields of a rejection; nginx accepts heads of 8 KiB."""

_END: Final = b"\r\n\r\n"
_ACCEPTED: Final = b"HTTP/1.1 204 No Content\r\n\r\n"
_FAILED: Final = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
_DELAYED: Final = b"HTTP/1.1 200 OK\r\nX-Accel-Redirect: /headgate-delay?%d\r\nContent-Length: 0\r\n\r\n"

_CHECK: Final = re.compile(rb"GET /check/([^ /?]{1,1024})\?identify=([^ ?]{1,1024}) ")
_DELAY: Final = re.compile(rb"GET /headgate-delay\?([0-9]{1,15}) ")
_FIELDS_SENT: Final = frozenset({b"retry-after", b"ratelimit", b"ratelimit-policy"})


@lru_cache(_MAX_CACHED_TARGETS)
def _lines_of(name: bytes) -> re.Pattern[bytes]:
    return re.compile(rb"\n(?i:" + re.escape(name) + rb"):[\t ]*+([^\r\n]*+)")


# The first line is that of nginx, which leaves out a line of that name which a client has sent.
_ADDRESS: Final = _lines_of(b"x-headgate-address")
_ACCEPT: Final = _lines_of(b"accept")
_FIELD: Final = re.compile(rb"\n([^:\r\n]++):[\t ]*+([^\r\n]*+)")
_SIGNED_PARTS: Final = [_lines_of(b"x-headgate-" + name) for name in (b"method", b"host", b"target")]


class AuthRequest(DataPlane):
    """Answers nginx at a unix socket. Raises `ConfigurationError` for a `max_delay` for which nginx cannot wait."""

    key = "auth_request"

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        fail_if(
            self.settings.max_delay > MAX_DELAY,
            f"sidecar.max_delay: nginx without Lua delays requests by at most {MAX_DELAY:g} s, "
            f"got {self.settings.max_delay:g}",
        )
        self.max_connections = MAX_CONNECTIONS + self.settings.max_delayed
        self.delays: dict[int, Delay] = {}
        """The delayed requests by number, until nginx asks about them again or they are released."""
        self._numbers = count(1)

    async def start(self) -> None:
        """Listen at the socket."""
        await self.listen(lambda: _Connection(self))
        self.log_identify("nginx")

    def details(self) -> Details:
        """Return the numbers of open connections and of delayed requests."""
        waiting = sum(isinstance(one, _Connection) and one.delay is not None for one in self.connections)
        return super().details() | {"delayed": len(self.delays) + waiting}

    async def close(self) -> None:
        """Accept the delayed requests, and close the socket and all connections."""
        while self.delays:
            self.delays.popitem()[1].cancel()
        await super().close()

    def check(self, head: bytes, *, is_whole: bool) -> bytes:
        """Return the answer to a head that asks about a request."""
        target, address = _CHECK.match(head), _ADDRESS.search(head)
        check = _parse_check(*target.groups(), self.settings.ipv6_prefix) if target is not None else None
        if check is None or address is None:
            self.totals.failed["malformed"] += 1
            return _FAILED
        domain, identify = check
        now = self.clock()
        if domain not in self.domains:
            self.report_unknown(domain, now=now)
            return _FAILED
        fields = head if is_whole else b""
        info = _info(identify, fields, address[1])
        if isinstance(identify, ByAgent) and self.agents is not None:
            info.agent = self.agents.agent_of(info, identify.fallback, now=now)
        accounting = self.gatekeeper.admit(domain, identify(info), now=now)
        if accounting.status is Status.REJECTED:
            accept = _ACCEPT.search(fields)
            return _rejection(self.rejections(accounting, now=now, accept=accept[1] if accept is not None else None))
        if accounting.status is Status.ACCEPTED:
            return _ACCEPTED
        number = next(self._numbers)
        self.delays[number] = Delay(accounting, self.gatekeeper, lambda: self.delays.pop(number))
        return _DELAYED % number


class _Connection(PlaneConnection[AuthRequest]):
    """A connection of nginx, which sends one head after another and waits for the answer to each."""

    delay: Delay | None = None
    """The delayed request that is accepted here at its release."""
    _received = b""
    _is_whole = True

    def data_received(self, data: bytes) -> None:
        """Answer a head once it is complete."""
        head = self._received + data
        end = head.find(_END)
        if self.delay is not None or 0 <= end < len(head) - len(_END):  # nginx sends nothing before the answer
            self.close()
            return
        if len(head) > MAX_HEAD_SIZE:
            # The space keeps these bytes and the last ones, where the end may begin, from being taken for an end.
            self._is_whole, head = False, head[:MAX_HEAD_SIZE] + b" " + head[-3:]
        self._received = head
        if end < 0:
            return
        self.plane.totals.requests += 1
        if (delayed := _DELAY.match(head)) is not None:
            self._wait(int(delayed[1]))
        else:
            self._transport.write(self.plane.check(head, is_whole=self._is_whole))
        self._received, self._is_whole = b"", True

    def _wait(self, number: int) -> None:
        """Accept a delayed request at its release; at once if that was before."""
        self.delay = self.plane.delays.pop(number, None)
        if self.delay is None:
            self._accept()
        else:
            self.delay.release = self._accept

    def _accept(self) -> None:
        self.delay = None
        self._transport.write(_ACCEPTED)

    def close(self) -> None:
        """Accept the delayed request, and close the connection at once."""
        if self.delay is not None:
            self.delay.cancel()
            self._accept()
        super().close()

    # Its peer asks without reading the answers.
    pause_writing = close

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        if self.delay is not None:  # its client has left
            self.delay.cancel()


@lru_cache(_MAX_CACHED_TARGETS)
def _parse_check(name: bytes, method: bytes, ipv6_prefix: int) -> tuple[str, Identify] | None:
    """Parse the parts of a target; return None for an unknown method."""
    try:
        identify = parse_identify(unquote(method), ipv6_prefix=ipv6_prefix, agents=True)
    except ConfigurationError:
        return None
    return unquote(name, errors="surrogateescape"), identify


def _info(identify: Identify, head: bytes, address: bytes) -> RequestInfo:
    """Return what identifies a request, whose head may have bytes that the grammar of HTTP forbids."""
    fields: list[tuple[bytes, bytes]] = []
    if isinstance(identify, ByAgent):
        method, host, target = (found[1] if (found := part.search(head)) else b"" for part in _SIGNED_PARTS)
        path, _, query = target.partition(b"?")
        fields = [(name.lower(), value.rstrip(b"\t ")) for name, value in _FIELD.findall(head)]
        return RequestInfo(method, path, host, fields, address.decode("latin-1"), query)
    if isinstance(identify, Header):
        fields = [(identify.name, value.rstrip(b"\t ")) for value in _lines_of(identify.name).findall(head)]
    return RequestInfo(b"GET", b"", b"", fields, address.decode("latin-1"))


def _rejection(response: Response) -> bytes:
    """Write the answer for a rejected request; without the policies if there are so many that nginx refuses them."""
    fields = {name: value for name, value in response.fields if name in _FIELDS_SENT}
    body = response.body.rstrip(b"\n")
    if sum(map(len, fields.values())) + len(body) > _MAX_REJECTION_SIZE:
        fields.pop(b"ratelimit-policy", None)
    lines = b"".join(b"%b: %b\r\n" % field for field in fields.items())
    head = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nX-Headgate-Status: %d\r\nX-Headgate-Body: %b\r\n%b\r\n"
    return head % (response.status, body, lines)
