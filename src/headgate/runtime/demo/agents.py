"""The clients of the demonstration: people and crawlers, polite agents, and clients of prefetch proxies.

Each has `visit`, which sends the requests of one visit and reports each that is sent, and each that is answered in
time; the caller counts all others as lost.
"""

import asyncio
import ssl
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol

from headgate.advice import PATH, AdviceRequest, AdviceResponse
from headgate.advice.fetching import ADVICE_TIMEOUT, NETWORK_ERROR
from headgate.agent import Courtesy, NoContact
from headgate.agent.advice_client import in_task
from headgate.errors import FetchError
from headgate.runtime.demo.connections import Client, Response, Target, open_tunnel, request_head
from headgate.runtime.demo.measure import Visit
from headgate.runtime.demo.plan import KINDS, Kind
from headgate.throttle import Throttle

PAGES_PER_TUNNEL: Final = 5
"""Requests of one prefetch: a page and what it needs, through one tunnel."""

USER_AGENTS: Final[dict[Kind, str]] = {
    "people": "Browser/1.0",
    "agents": "PoliteBot/1.0",
    "prefetch": "Browser/1.0",
    "crawlers": "GreedyBot/1.0",
}
POLITE_BRAND: Final = "PoliteBot"
CRAWLER_BRAND: Final = "GreedyBot"
PREFETCH_FIELD: Final = ("Sec-Purpose", "prefetch;anonymous-client-ip")


class Place:
    """What the clients of one process share."""

    def __init__(self, target: Target, proxies: tuple[int, ...], tls: ssl.SSLContext, *, deadline: float) -> None:
        self.target = target
        self.proxies = proxies
        """The ports of the prefetch proxies."""
        self.tls = tls
        self.deadline = deadline
        """Seconds after which a client gives up."""


class Agent(Protocol):
    """A client of any kind."""

    def visit(self, visit: Visit, draw: Callable[[], float]) -> Coroutine[Any, Any, None]:
        """Send the requests of one visit, and count what is sent and served."""

    async def connect(self) -> None:
        """Open a connection for the first request. Raises `OSError`."""

    def close(self) -> None:
        """Close its connections."""


def requests_per_visit(kind: Kind) -> int:
    """Return how many requests a visit consists of."""
    return PAGES_PER_TUNNEL if kind == "prefetch" else 1


def source_address(kind: Kind, number: int) -> str:
    """Return the address of a client; each has its own where all addresses of 127/8 are this machine's."""
    return f"127.0.{KINDS.index(kind) + 1}.{number % 250 + 1}" if sys.platform == "linux" else "127.0.0.1"


def _fields(kind: Kind) -> str:
    lines = f"User-Agent: {USER_AGENTS[kind]}\r\n"
    return f"{lines}{': '.join(PREFETCH_FIELD)}\r\n" if kind == "prefetch" else lines


def new_agent(kind: Kind, number: int, place: Place, *, min_freshness: float) -> Agent:
    """Make a client."""
    if kind == "prefetch":
        return PrefetchClient(place, number)
    if kind == "agents":
        return PoliteAgent(place, number, min_freshness=min_freshness)
    return Visitor(place, kind, number)


class Visitor:
    """A person or a crawler: sends requests whatever the answers are."""

    def __init__(self, place: Place, kind: Kind, number: int) -> None:
        self._place = place
        self._client = Client(place.target, place.tls, source_address(kind, number), _fields(kind))

    async def visit(self, visit: Visit, draw: Callable[[], float]) -> None:
        """Send one request."""
        visit.sent()
        await _timed(visit, lambda: self._client.get(_path(draw)), self._place.deadline)

    async def connect(self) -> None:
        """Open a connection for the first request. Raises `OSError`."""
        await self._client.connect()

    def close(self) -> None:
        """Close its connections."""
        self._client.close()


class PoliteAgent:
    """An agent built on `Courtesy`: it fetches traffic advice, and obeys that and `Retry-After`."""

    def __init__(self, place: Place, number: int, *, min_freshness: float) -> None:
        self._place = place
        self._client = Client(place.target, place.tls, source_address("agents", number), _fields("agents"))
        self._courtesy = Courtesy(POLITE_BRAND, throttle=Throttle(hold_localhost=True), min_freshness=min_freshness)
        self._start_fetch = in_task(self._fetch)

    async def visit(self, visit: Visit, draw: Callable[[], float]) -> None:
        """Send one request, unless it is held."""
        with suppress(NoContact):
            await _timed(visit, lambda: self._get(_path(draw), visit), self._place.deadline)

    async def connect(self) -> None:
        """Open a connection for the first request. Raises `OSError`."""
        await self._client.connect()

    def close(self) -> None:
        """Close its connections."""
        self._courtesy.close()
        self._client.close()

    async def _get(self, path: str, visit: Visit) -> Response:
        """Send a request when it may be sent. Raises `NoContact` if it is held."""
        attempt = self._courtesy.attempt("GET", f"{self._place.target.url}{path}", start_fetch=self._start_fetch)
        while (wait := attempt.wait()) is not None:
            await wait.settle()
        visit.sent()
        try:
            response = await self._client.get(path)
        except BaseException:
            attempt.lost()
            raise
        attempt.received(response.status, response.fields)
        return response

    async def _fetch(self, request: AdviceRequest) -> AdviceResponse:
        lines = "".join(f"{name}: {value}\r\n" for name, value in request.fields)
        try:
            async with asyncio.timeout(ADVICE_TIMEOUT):
                return AdviceResponse(*await self._client.get(PATH, lines))
        except (FetchError, OSError) as error:  # of which TimeoutError is one
            return NETWORK_ERROR._replace(failure=str(error))


class PrefetchClient:
    """The clients of one prefetch proxy: each visit is that of another one, through a tunnel of its own."""

    def __init__(self, place: Place, number: int) -> None:
        self._place = place
        self._proxy = place.proxies[number % len(place.proxies)]

    async def visit(self, visit: Visit, draw: Callable[[], float]) -> None:
        """Fetch several pages through a tunnel, unless the proxy refuses it."""
        place = self._place
        try:
            async with asyncio.timeout(place.deadline):
                tunnel = await open_tunnel(self._proxy, place.target, place.tls, _any_address(draw))
        except (FetchError, OSError):
            return
        if tunnel is None:
            return
        try:
            for _ in range(PAGES_PER_TUNNEL):
                head = request_head(place.target, _path(draw), _fields("prefetch"))
                visit.sent()
                if not await _timed(visit, partial(tunnel.exchange, head), place.deadline):
                    return
        finally:
            tunnel.close()

    async def connect(self) -> None:
        """Do nothing: each visit has a tunnel of its own."""

    def close(self) -> None:
        """Do nothing: it keeps no connection between two visits."""


def _any_address(draw: Callable[[], float]) -> str:
    """Return the address of a client of a proxy, one of many: the proxy draws once for each of them."""
    if sys.platform != "linux":
        return "127.0.0.1"
    return f"127.{10 + int(200 * draw())}.{int(250 * draw())}.{1 + int(250 * draw())}"


def _path(draw: Callable[[], float]) -> str:
    return f"/news/{int(20 * draw())}"


async def _timed(visit: Visit, get: Callable[[], Awaitable[Response]], deadline: float) -> bool:
    """Send one request, and count it if it is answered with success; return whether it is answered in time."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(deadline):
            response = await get()
    except (FetchError, OSError):  # of which TimeoutError is one
        return False
    if 200 <= response.status < 300:
        visit.served(time.monotonic() - began)
    return True
