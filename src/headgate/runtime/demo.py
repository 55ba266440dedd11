"""The demonstration: an origin of fixed capacity, a gate, people and polite agents, in one process over loopback.

Requests are wanted at the times of a Poisson process, whatever happens to earlier ones. The origin works on requests
whose clients have given up, as servers do. Agents use `headgate.agent.Courtesy`; they keep advice for a fifteenth of
the demonstration instead of ten minutes.
"""

import asyncio
import math
import random
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Literal, NamedTuple

import msgspec

from headgate.advice import PATH, AdviceRequest, AdviceResponse
from headgate.advice.fetching import NETWORK_ERROR
from headgate.agent import Courtesy, RetryLater
from headgate.agent.advice_client import in_task
from headgate.config import Address, Configuration, DomainSection, Gate
from headgate.config.advice_section import AdviceEntrySection, AdviceSection
from headgate.config.tree import ConcurrencySection, Limit
from headgate.errors import FetchError, ProtocolError
from headgate.http.fields import Pairs
from headgate.http.h1.response import parse_response_head
from headgate.http.h1.syntax import split_fields
from headgate.runtime.demo_origin import DemoOrigin
from headgate.runtime.gate_process import GateConfiguration, GateProcess
from headgate.runtime.lifecycle import cancel_tasks
from headgate.runtime.listen import Endpoint, reserve_addresses
from headgate.throttle import Throttle

CAPACITY: Final = 100.0
"""Requests per second that the origin serves: ten workers, each busy for a tenth of a second with a request."""
WORKERS: Final = 10
MAX_IN_FLIGHT: Final = 15
"""The limit of the gate: as many as the workers, and a few that are next."""
DEADLINE: Final = 1.0
"""Seconds after which a client gives up."""
CLIENTS: Final = 60
"""Clients of each kind."""
FRESH_PART: Final = 1 / 15
"""How long advice is fresh, as a part of the whole: 8 s of two minutes."""
FRAME: Final = 0.25
"""Seconds between two frames."""
MIN_SECONDS, MAX_SECONDS = 10.0, 3_600.0

Kind = Literal["people", "agents"]
NETS_AND_NAMES: Final[dict[Kind, tuple[str, str]]] = {
    "people": ("127.0.1", "Browser/1.0"),
    "agents": ("127.0.2", "PoliteBot/1.0"),
}
"""The first three numbers of the addresses of clients, and their User-Agent."""


class Phase(NamedTuple):
    """One phase of the demonstration."""

    name: str
    part: float
    """Its part of the whole time."""
    people: float
    """Requests per second that people want to send, as a multiple of the capacity."""
    agents: float
    title: str
    story: str
    has_gate: bool = True
    """Whether requests go through the gate, or to the origin itself."""
    has_origin: bool = True


PHASES: Final = (
    Phase("calm", 0.12, 0.2, 0.3, "Calm", "A small site on a quiet day. Traffic advice welcomes every agent."),
    Phase(
        "overload_without",
        0.15,
        0.4,
        9.6,
        "Overload, without headgate",
        "The site is in the news: ten times what it can serve, straight to the origin. It works on requests whose "
        "senders have given up, so its queue grows until every response is too late.",
        has_gate=False,
    ),
    Phase(
        "overload_with",
        0.4,
        0.4,
        9.6,
        "Overload, with headgate",
        "The same load, through the gate. At once, it limits the requests in flight and serves people first. Refused "
        "agents wait as long as they are asked to. Then traffic advice asks agents for what is left.",
    ),
    Phase(
        "outage",
        0.1,
        0.4,
        9.6,
        "Outage",
        "The origin is gone. The gate answers at once instead of letting people wait.",
        has_origin=False,
    ),
    Phase("recovery", 0.23, 0.2, 0.3, "Recovery", "The origin is back, the news is over. Agents are welcome again."),
)


class PhaseResult(msgspec.Struct, frozen=True):
    """The figures of one phase."""

    name: str
    offered: float
    """Requests per second that clients wanted to send."""
    capacity: float
    """Requests per second that the origin can serve."""
    goodput: float
    """Responses per second that arrived before the client gave up."""
    people_served: float
    """The part of the requests of people that was served."""
    people_p99_ms: float
    """The 99th percentile of how long people waited: for a response, or until the deadline if they got none."""
    fraction: float | None
    """The published fraction of automated traffic at the end of the phase; None without a gate."""


class Frame(NamedTuple):
    """What happened since the last frame of a phase. Rates are per second."""

    elapsed: float
    offered: float
    sent: float
    served: float
    people_served: float
    fraction: float | None


View = Callable[[Phase | Frame | PhaseResult], None]
"""Shows each phase as it begins, its frames, and its figures."""


class Tally:
    """What became of the requests of one kind of clients."""

    def __init__(self) -> None:
        self.offered = self.sent = 0
        self.waits: list[float] = []
        """Seconds of each request that has ended; the deadline without an answer in time."""
        self.served = 0

    def ended(self, wait: float, *, served: bool) -> None:
        """Count the end of a request."""
        self.served += served
        self.waits.append(wait if served else DEADLINE)


def phase_result(phase: Phase, seconds: float, tallies: dict[Kind, Tally], fraction: float | None) -> PhaseResult:
    """Return the figures of a phase."""
    people = tallies["people"]
    waits = sorted(people.waits) or [0.0]
    return PhaseResult(
        phase.name,
        offered=round(sum(tally.offered for tally in tallies.values()) / seconds, 1),
        capacity=CAPACITY,
        goodput=round(sum(tally.served for tally in tallies.values()) / seconds, 1),
        people_served=round(people.served / len(people.waits) if people.waits else 1.0, 4),
        people_p99_ms=round(1000 * waits[math.ceil(0.99 * len(waits)) - 1]),
        fraction=fraction,
    )


class Client:
    """A person: sends requests over kept connections, whatever the answers are."""

    def __init__(self, kind: Kind, number: int, target: Address) -> None:
        self.target = target
        net, name = NETS_AND_NAMES[kind]
        # Each has an address of its own where all of 127/8 is this machine's.
        self._source = f"{net}.{number + 1}" if sys.platform == "linux" else "127.0.0.1"
        self._head = f"Host: {target}\r\nUser-Agent: {name}\r\n"
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def visit(self, tally: Tally) -> bool:
        """Send a request; return whether it is answered with success."""
        tally.sent += 1
        return (await self.get("/news"))[0] == 200

    async def get(self, path: str, fields: str = "") -> tuple[int, Pairs, bytes]:
        """Send a request; raises `FetchError` or `OSError` without a response. If cancelled, the connection closes."""
        if self._idle:
            reader, writer = self._idle.pop()
        else:
            reader, writer = await asyncio.open_connection(*self.target, local_addr=(self._source, 0))
        try:
            writer.write(f"GET {path} HTTP/1.1\r\n{self._head}{fields}\r\n".encode())
            parsed = parse_response_head(await reader.readuntil(b"\r\n\r\n"))
            body = await reader.readexactly(max(0, parsed.length))
        except (ProtocolError, asyncio.IncompleteReadError) as error:
            writer.transport.abort()
            raise FetchError(f"no response: {error}") from None
        except BaseException:
            writer.transport.abort()
            raise
        if parsed.keep_alive:
            self._idle.append((reader, writer))
        else:
            writer.close()
        return parsed.status, [(name.decode(), value.decode()) for name, value in split_fields(parsed.lines)], body

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            _, writer = self._idle.pop()
            writer.transport.abort()


class Agent(Client):
    """A polite agent: it fetches traffic advice, and obeys that and `Retry-After`."""

    def __init__(self, kind: Kind, number: int, target: Address, *, min_freshness: float) -> None:
        super().__init__(kind, number, target)
        self._courtesy = Courtesy("PoliteBot", throttle=Throttle(hold_localhost=True), min_freshness=min_freshness)
        self._start_fetch = in_task(self._fetch)

    async def visit(self, tally: Tally) -> bool:
        """Send a request, unless it is held; return whether it is answered with success."""
        attempt = self._courtesy.attempt("GET", f"http://{self.target}/news", start_fetch=self._start_fetch)
        while (wait := attempt.wait()) is not None:
            await wait.settle()
        tally.sent += 1
        try:
            status, fields, _ = await self.get("/news")
        except BaseException:
            attempt.lost()
            raise
        attempt.received(status, fields)
        return status == 200

    async def _fetch(self, request: AdviceRequest) -> AdviceResponse:
        fields = "".join(f"{name}: {value}\r\n" for name, value in request.fields)
        try:
            async with asyncio.timeout(5.0):
                return AdviceResponse(*await self.get(PATH, fields))
        except (FetchError, OSError) as error:  # of which TimeoutError is one
            return NETWORK_ERROR._replace(failure=str(error))

    def close(self) -> None:
        """Close the idle connections, and stop fetching advice."""
        self._courtesy.close()
        super().close()


class Site:
    """The origin, the gate before it, and what sends requests to one of them."""

    def __init__(self, address: Address, gate: GateProcess, seconds: float) -> None:
        self._address = address
        self._gate = gate
        self._max_age = seconds * FRESH_PART
        self._draw = random.Random(0).random
        self._origin: DemoOrigin | None = None
        self._clients: dict[Kind, list[Client]] = {}
        self._visits: set[asyncio.Task[None]] = set()

    async def prepare(self, phase: Phase, origin: Address) -> None:
        """Start the origin anew, without the queue of the phase before, or stop it; direct the clients."""
        await self._stop()
        if phase.has_origin:
            self._origin = DemoOrigin(workers=WORKERS, service_time=WORKERS / CAPACITY)
            await self._origin.start(origin)
        target = self._address if phase.has_gate else origin
        if not self._clients or self._clients["people"][0].target != target:
            self._leave()
            self._clients = {
                "people": [Client("people", number, target) for number in range(CLIENTS)],
                "agents": [Agent("agents", number, target, min_freshness=self._max_age) for number in range(CLIENTS)],
            }

    async def send(self, kind: Kind, rate: float, tally: Tally) -> None:
        """Begin visits of one kind at random times, until cancelled."""
        clock = asyncio.get_running_loop().time
        due = clock()
        while True:
            due = max(due - math.log(1.0 - self._draw()) / rate, clock() - FRAME)
            await asyncio.sleep(max(0.0, due - clock()))
            tally.offered += 1
            client = self._clients[kind][int(CLIENTS * self._draw())]
            visit = asyncio.create_task(self._visit(client, tally))
            self._visits.add(visit)
            visit.add_done_callback(self._visits.discard)

    async def _visit(self, client: Client, tally: Tally) -> None:
        began, served = time.monotonic(), False
        with suppress(RetryLater, FetchError, OSError):  # of which TimeoutError is one
            async with asyncio.timeout(DEADLINE):
                served = await client.visit(tally)
        tally.ended(time.monotonic() - began, served=served)

    async def fraction(self) -> float:
        """Return the fraction that the gate publishes."""
        (advice,) = (await self._gate.state(whole=False)).advice
        return round(advice.published, 4)

    async def close(self) -> None:
        """Give up all requests, close all connections, and stop the origin."""
        await self._stop()
        self._leave()

    async def _stop(self) -> None:
        await cancel_tasks(self._visits)
        if self._origin is not None:
            await self._origin.close()
            self._origin = None

    def _leave(self) -> None:
        for clients in self._clients.values():
            for client in clients:
                client.close()


def gate_configuration(seconds: float, origin: Address) -> Configuration:
    """Return the configuration of the gate, as a user could write it."""
    return Configuration(
        gate=Gate(origin=f"http://{origin}", drain=0),
        limit=Limit(concurrency=ConcurrencySection(max=MAX_IN_FLIGHT)),
        domain=(
            DomainSection(name="agents", header="User-Agent", value="PoliteBot/1.0", priority="verified"),
            DomainSection(name="people"),
        ),
        advice=AdviceSection(
            mode="adaptive",
            capacity=f"{CAPACITY:g}/s",
            max_age=max(1, round(seconds * FRESH_PART)),
            entry=(AdviceEntrySection(user_agent="*", fraction="auto", domains=("agents",)),),
        ),
    )


async def show(seconds: float, view: View) -> list[PhaseResult]:
    """Run the gate and all phases; return their figures."""
    results, anywhere = [], Address("127.0.0.1", 0)
    with reserve_addresses("", anywhere) as [origin], reserve_addresses("", anywhere) as [address]:
        gate = GateProcess(GateConfiguration(gate_configuration(seconds, origin), (Endpoint(0, address),)))
        await gate.start()
        site = Site(address, gate, seconds)
        try:
            for phase in PHASES:
                await site.prepare(phase, origin)
                view(phase)
                results.append(await run_phase(site, phase, seconds * phase.part, view))
                view(results[-1])
        finally:
            await site.close()
            await gate.close()
    return results


async def run_phase(site: Site, phase: Phase, seconds: float, view: View) -> PhaseResult:
    """Run one phase; return its figures."""
    tallies: dict[Kind, Tally] = {"people": Tally(), "agents": Tally()}
    rates: dict[Kind, float] = {"people": phase.people * CAPACITY, "agents": phase.agents * CAPACITY}
    sending = [asyncio.create_task(site.send(kind, rate, tallies[kind])) for kind, rate in rates.items()]
    clock = asyncio.get_running_loop().time
    fraction, began, before = None, clock(), counts(tallies)
    try:
        while (elapsed := clock() - began) < seconds:
            await asyncio.sleep(min(FRAME, seconds - elapsed))
            fraction = await site.fraction() if phase.has_gate else None
            after = counts(tallies)
            view(frame((elapsed, clock() - began), (before, after), fraction))
            before = after
    finally:
        for task in sending:
            task.cancel()
    return phase_result(phase, clock() - began, tallies, fraction)


Counts = tuple[int, int, int, int, int]
"""Requests that were wanted, sent and served; those of people that were served, and that have ended."""


def counts(tallies: dict[Kind, Tally]) -> Counts:
    """Return the counts so far."""
    every, people = tallies.values(), tallies["people"]
    wanted, sent = sum(one.offered for one in every), sum(one.sent for one in every)
    return wanted, sent, sum(one.served for one in every), people.served, len(people.waits)


def frame(times: tuple[float, float], states: tuple[Counts, Counts], fraction: float | None) -> Frame:
    """Return what happened between two times and counts."""
    offered, sent, served, of_people, ended = (after - before for before, after in zip(*states, strict=True))
    since = times[1] - times[0] or math.inf  # a delayed loop may have two frames at one time
    people = of_people / ended if ended else 1.0
    return Frame(times[1], offered / since, sent / since, served / since, people, fraction)
