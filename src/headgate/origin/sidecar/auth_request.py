"""The data plane of nginx without Lua: before each request, its module auth_request asks the sidecar.

nginx sends a head without a body, on a connection that both keep open. `GET /check/DOMAIN` asks about a request of the
client `X-Headgate-Address`, and `?identify=METHOD` says how to identify it. The answers are 204 for an accepted
request; 403 for a rejected one, with the fields of the response, and with its status and body in `X-Headgate-Status`
and `X-Headgate-Body`; and for a delayed one a redirection, upon which nginx asks with `GET /headgate-delay?NUMBER` and
is answered with 204 at the release, or after some seconds with the same redirection. So short timeouts detect a sidecar
that has stopped, although delayed requests wait for longer. To anything else the answer is 503, for which nginx accepts
the request.

A rejection that nginx should remember is a redirection too, upon which it asks with `GET /headgate-store?NUMBER` and
stores the answer until the hold ends. It is used only while the sidecar does not answer.
"""

import asyncio
import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache
from itertools import count
from typing import Final, NamedTuple
from urllib.parse import unquote

import msgspec

from headgate.config.tree import Sidecar
from headgate.errors import ConfigurationError
from headgate.limit import Accounting, DelayUntil, Gatekeeper
from headgate.origin.admission import RequestAdapter, make_classifier
from headgate.origin.delay import Delay
from headgate.origin.identify import Header, parse_identify
from headgate.origin.request_info import RequestInfo
from headgate.origin.response import Rejections, Response
from headgate.origin.sidecar.auth_request_connections import Connection, ConnectionTable
from headgate.origin.sidecar.data_plane import Details
from headgate.origin.sidecar.unix_socket import UnixSocket
from headgate.release import Status

MAX_CONNECTIONS: Final = 4_096
"""Connections beyond those of delayed requests; each worker of nginx keeps up to 256 open."""

_MAX_TARGET_SIZE: Final = 2_048
_MAX_CACHED_TARGETS: Final = 256
_MAX_STORED: Final = 16_384
"""Answers whose storage in nginx is remembered, so that it does not write a file for each rejection."""
_MAX_REJECTED: Final = 1_024
"""Rejections that are kept, since nginx asks for them again, more than once if it cannot store them."""
_MAX_REJECTION_SIZE: Final = 3_584
"""Bytes of the fields of a rejection; nginx accepts heads of 8 KiB, of which a stored one has a half to itself."""
_DELAY_PART: Final = 5.0
"""Seconds until nginx, whose timeout is a second longer, is asked to wait again."""
_MAX_DELAY: Final = 40.0
"""Seconds; nginx follows at most ten redirections of one request."""
_LONGEST_HOLD: Final = 31 * 86_400.0
_SHORTEST_STORED: Final = 1.0
"""Seconds."""

_ACCEPTED: Final = b"HTTP/1.1 204 No Content\r\n\r\n"
_FAILED: Final = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
_DELAYED: Final = b"HTTP/1.1 200 OK\r\nX-Accel-Redirect: /headgate-delay?%d\r\nContent-Length: 0\r\n\r\n"

_TO_STORE: Final = b"HTTP/1.1 200 OK\r\nX-Accel-Redirect: /headgate-store?%d\r\nContent-Length: 0\r\n\r\n"

_CHECK: Final = re.compile(r"/check/([^/?]++)(?:\?identify=([^?]++))?+")
_DELAY: Final = re.compile(rb"/headgate-delay\?([0-9]{1,15})")
_STORE: Final = re.compile(rb"/headgate-store\?([0-9]{1,15})")
_FIELDS_SENT: Final = frozenset({b"retry-after", b"ratelimit", b"ratelimit-policy"})

_Request = tuple[str, bytes]
"""The address of a client, and the head that nginx sent."""


class _Check(NamedTuple):
    """What a target asks for."""

    classify: Callable[[_Request], tuple[str, bytes] | None]
    """Returns the domain and the identifier."""
    is_storable: bool
    """Whether the key of nginx's cache tells apart all identifiers."""


@dataclass(slots=True)
class _DelayedRequest:
    """A request that waits for its release."""

    delay: Delay
    connection: Connection | None = None
    """The connection on which nginx waits."""
    timer: asyncio.TimerHandle | None = None
    """Redirects nginx again."""


class Counters(msgspec.Struct):
    """Totals since the start."""

    requests: int = 0
    """Requests of nginx."""
    malformed: int = 0
    """Malformed requests of nginx."""
    disconnected: int = 0
    """Delayed requests whose client disconnected."""
    connections: int = 0
    """Connections of nginx."""
    dropped_connections: int = 0
    """Connections closed: too many, malformed or late."""


class AuthRequest:
    """Answers nginx at a unix socket; see `DataPlane`.

    Raises `ConfigurationError` for an invalid `identify`, and for a `max_delay` for which nginx cannot wait.
    """

    def __init__(
        self,
        *,
        gatekeeper: Gatekeeper,
        rejections: Rejections,
        settings: Sidecar,
        domains: Sequence[str],
        log: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        if settings.max_delay > _MAX_DELAY:
            raise ConfigurationError(
                f"sidecar.max_delay: nginx without Lua delays requests by at most {_MAX_DELAY:g} s, "
                f"got {settings.max_delay:g}"
            )
        self._gatekeeper = gatekeeper
        self._rejections = rejections
        self._settings = settings
        self._domains = frozenset(domains)
        self._log = log
        self._clock = clock
        self._socket: UnixSocket | None = None
        self._server: asyncio.Server | None = None
        self._table = ConnectionTable(MAX_CONNECTIONS + settings.max_delayed)
        self._checks = lru_cache(_MAX_CACHED_TARGETS)(self._parse_check)
        self._delays: dict[int, _DelayedRequest] = {}
        self._rejected: dict[int, bytes] = {}
        self._numbers = count(1)
        self._stored: dict[tuple[bytes, str, bytes], int] = {}
        self._requests = self._malformed = self._disconnected = 0
        self._has_warned = False
        parse_identify(settings.identify, ipv6_prefix=settings.ipv6_prefix)

    async def start(self) -> None:
        """Listen at the socket."""
        path, mode = self._settings.auth_request, self._settings.mode
        self._socket = UnixSocket(path, mode=mode, flag="--auth-request")
        self._server = await self._socket.serve(lambda: Connection(self._table, self._answer))

    def hold(self, control: DelayUntil, *, now: float) -> None:
        """Do nothing: nginx asks the gatekeeper, which has the hold."""

    def unready(self) -> str:
        """Return why nginx is not limited."""
        return "" if self._server is not None else "the unix socket is not open"

    def counters(self) -> dict[str, int]:
        """Return totals: requests, what was wrong with some, and connections."""
        return {
            "requests": self._requests,
            "malformed": self._malformed,
            "disconnected": self._disconnected,
            "connections": self._table.opened,
            "dropped_connections": self._table.dropped,
        }

    def details(self) -> Details:
        """Return the numbers of open connections and of delayed requests."""
        return {"connections": len(self._table), "delayed": len(self._delays)}

    async def close(self) -> None:
        """Answer the delayed requests, and close the socket and all connections."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for number in list(self._delays):
            self._delays[number].delay.cancel()
            self._release(number)
        self._table.close()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _answer(self, head: bytes, connection: Connection) -> bytes | None:
        """Return the answer to a head; None for a delayed request, which is answered later."""
        self._requests += 1
        # Without a space in these bytes the target is empty, not long: targets are cached.
        target = head[4 : max(4, head.find(b" ", 4, _MAX_TARGET_SIZE))]
        check = self._checks(target)
        if check is None:
            return self._answer_other(head, target, connection)
        # The first line is that of nginx, which leaves out a line of that name which a client has sent.
        match = _ADDRESS.search(head)
        if match is None or not head.startswith(b"GET "):
            self._malformed += 1
            return _FAILED
        address = match[1].decode("latin-1")
        request = address, head
        classified = check.classify(request)
        assert classified is not None  # neither the domain nor the method is a function
        domain, identifier = classified
        now = self._clock()
        accounting = self._gatekeeper.admit(domain, identifier, now=now)
        if accounting.status is Status.ACCEPTED:
            return _ACCEPTED
        if accounting.status is Status.DELAYED:
            return self._delay(accounting)
        response = self._rejections(accounting, now=now, accept=_accept(request))
        fields = self._store(target, address, accounting, now) if check.is_storable else b""
        rejection = _rejection(response, fields)
        return self._redirect_to_store(rejection) if fields else rejection

    def _parse_check(self, target: bytes) -> _Check | None:
        """Parse the target of a check; return None for another target, domain or method."""
        match = _CHECK.fullmatch(target.decode("latin-1"))
        if match is None:
            return None
        domain = unquote(match[1], errors="surrogateescape")
        if domain not in self._domains:
            self._warn(domain)
            return None
        method = self._settings.identify if match[2] is None else unquote(match[2])
        try:
            identify = parse_identify(method, ipv6_prefix=self._settings.ipv6_prefix)
        except ConfigurationError:
            return None
        return _Check(
            make_classifier(identify, domain, _ADAPTER), match[2] is not None or not isinstance(identify, Header)
        )

    def _warn(self, domain: str) -> None:
        """Report a domain that is missing; once, since any process may ask about any number of them."""
        if not self._has_warned:
            self._has_warned = True
            self._log(f"nginx asks about the domain {domain!r:.300}, which is not limited; add it with --domain")

    def _answer_other(self, head: bytes, target: bytes, connection: Connection) -> bytes | None:
        """Answer the second request about a delayed or a rejected one, or a request that is malformed."""
        match = _STORE.fullmatch(target)
        if match is not None:
            return self._rejected.get(int(match[1]), _FAILED)
        match = _DELAY.fullmatch(target)
        if match is None or not head.startswith(b"GET "):
            self._malformed += 1
            return _FAILED
        number = int(match[1])
        delayed = self._delays.get(number)
        if delayed is None:  # the release was before
            return _ACCEPTED
        if delayed.connection is not None:
            self._malformed += 1
            return _FAILED
        delayed.connection = connection
        connection.on_lost = lambda: self._cancel(number)
        delayed.timer = asyncio.get_running_loop().call_later(_DELAY_PART, self._redirect_again, number)
        return None

    def _delay(self, accounting: Accounting) -> bytes:
        """Start the delay of a request; return the redirection."""
        number = next(self._numbers)
        delay = Delay(accounting, self._gatekeeper, lambda: self._release(number))
        self._delays[number] = _DelayedRequest(delay)
        return _DELAYED % number

    def _release(self, number: int) -> None:
        """Accept a delayed request; if nginx has not asked about it again yet, it will find that out when it does."""
        connection = self._stop_waiting(self._delays.pop(number))
        if connection is not None:
            connection.send(_ACCEPTED)

    @staticmethod
    def _stop_waiting(delayed: _DelayedRequest) -> Connection | None:
        """Return the connection on which nginx waits; it is to be answered now."""
        if delayed.timer is not None:
            delayed.timer.cancel()
        connection, delayed.connection, delayed.timer = delayed.connection, None, None
        return connection

    def _redirect_again(self, number: int) -> None:
        """Have nginx ask again about a delayed request, before its timeout."""
        connection = self._stop_waiting(self._delays[number])
        assert connection is not None
        connection.send(_DELAYED % number)

    def _cancel(self, number: int) -> None:
        """Free the slot of a delayed request whose client has disconnected."""
        self._disconnected += 1
        delayed = self._delays.pop(number)
        self._stop_waiting(delayed)
        delayed.delay.cancel()

    def _redirect_to_store(self, rejection: bytes) -> bytes:
        """Keep a rejection, for which nginx will ask again; return the redirection."""
        number = next(self._numbers)
        if len(self._rejected) >= _MAX_REJECTED:
            del self._rejected[next(iter(self._rejected))]
        self._rejected[number] = rejection
        return _TO_STORE % number

    def _store(self, target: bytes, address: str, accounting: Accounting, now: float) -> bytes:
        """Return the fields by which nginx stores a rejection, empty if it has stored it for about as long.

        nginx counts whole seconds, and uses an answer during the last of them: it never ends before the hold. A hold of
        less than a second is not worth a file.
        """
        release = min(accounting.release, now + _LONGEST_HOLD)
        last = math.ceil(release) - 1
        key = target, address, accounting.identifier
        if release - now < _SHORTEST_STORED or last <= self._stored.get(key, 0):
            return b""
        if len(self._stored) >= _MAX_STORED:
            self._stored.clear()
        self._stored[key] = last
        date = formatdate(math.ceil(release), usegmt=True).encode()
        return b"X-Accel-Expires: @%d\r\nX-Headgate-Release: %b\r\nX-Headgate-Kept: Too many requests.\r\n" % (
            last,
            date,
        )


def _rejection(response: Response, storable: bytes) -> bytes:
    """Write the answer for a rejected request; without the policies if there are so many that nginx refuses them."""
    fields = {name: value for name, value in response.fields if name in _FIELDS_SENT}
    body = response.body.rstrip(b"\n")
    if sum(map(len, fields.values())) + len(body) > _MAX_REJECTION_SIZE:
        fields.pop(b"ratelimit-policy", None)
    lines = b"".join(b"%b: %b\r\n" % field for field in fields.items())
    return (
        b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nX-Headgate-Status: %d\r\nX-Headgate-Body: %b\r\n%b%b\r\n"
        % (response.status, body, lines, storable)
    )


def _field(name: bytes) -> Callable[[_Request], bytes | None]:
    """Return the function that reads a field whose name is in lower case; None when it is absent or repeated.

    nginx passes on values with bytes that the grammar of HTTP forbids: they must not make a head malformed, since
    nginx accepts a request about which the sidecar cannot answer.
    """
    find = _lines_of(name).findall

    def read(request: _Request) -> bytes | None:
        values: list[bytes] = find(request[1])
        return values[0].rstrip(b"\t ") if len(values) == 1 else None

    return read


def _lines_of(name: bytes) -> re.Pattern[bytes]:
    return re.compile(rb"\n(?i:" + re.escape(name) + rb"):[\t ]*+([^\r\n]*+)")


_ADDRESS: Final = _lines_of(b"x-headgate-address")
_accept: Final = _field(b"accept")

_ADAPTER: Final = RequestAdapter[_Request](
    peer=lambda request: request[0],
    field=_field,
    info=lambda request: RequestInfo(b"GET", b"", b"", [], request[0]),
)
"""No address is a trusted proxy (nginx has followed its own), so nothing reads the fields by `info`."""
