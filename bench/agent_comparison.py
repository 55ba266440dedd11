"""Polite clients side by side, each against an origin of its own with a limit and an outage.

The figures of the first case were chosen before the first comparison, and headgate was changed after it. The other
cases are drawn by a generator with a seed, and were committed before any client had run on them: the seeds 2 and 3
before headgate's ramp after a failure, which was then changed once, and the seeds 4 and 5 after that.

All clients run at the same time, each as its documentation shows it. Those that are told the limit are compared with
each other: headgate with a rate, and aiolimiter, within stamina's retries because it has none.

headgate never holds requests to this machine by default; here it does, by `hold_localhost`. It asks for no advice.
"""

import asyncio
import random
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import repeat
from statistics import median
from typing import Any, Final, NamedTuple

import httpx2

from bench.measure import Row, verify
from headgate.agent import Courtesy
from headgate.agent.httpx import AsyncClient
from headgate.throttle import Throttle

RECOVERY: Final = 2.0
"""Seconds after the outage in which the load on the origin is counted."""
KEEPS: Final = 0.05
"""A client keeps the limit if at most this part of its requests was rejected by 429."""


class Case(NamedTuple):
    """What a client has to do, and how its origin behaves."""

    name: str
    pages: int
    workers: int
    rate: int
    """Requests a second that the origin answers; it rejects others by 429 with `Retry-After: 1`."""
    burst: int
    outage: tuple[float, float]
    """The seconds between which it answers 503."""
    retry_after: int
    """The Retry-After of a 503; 0 for none."""
    latencies: tuple[float, float]
    """The shortest and the longest seconds until an answer; each page has its own."""


def drawn(seed: int) -> Case:
    """Return the case of a seed."""
    draw = random.Random(seed)
    rate, start = draw.randint(4, 20), draw.uniform(0.5, 2.5)
    return Case(
        f"seed {seed}",
        pages=rate * draw.randint(3, 6),
        workers=draw.randint(4, 25),
        rate=rate,
        burst=draw.randint(2, 20),
        outage=(start, start + draw.uniform(1, 5)),
        retry_after=draw.choice([0, 0, 2]),
        latencies=(0.005, draw.uniform(0.05, 0.5)),
    )


FIRST: Final = Case("first case", 40, 10, 10, 10, (1.0, 3.0), 0, (0.02, 0.02))
CASES: Final = (FIRST, *map(drawn, (2, 3, 4, 5)))


class Origin(ThreadingHTTPServer):
    """A server with a limit and an outage; it records each request."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, case: Case) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.case = case
        self.seen: list[tuple[float, int]] = []
        """The seconds since the first request, and the status, of each."""
        self.pages: set[str] = set()
        """Pages that were answered."""
        self.url = f"http://127.0.0.1:{self.server_port}"
        self._lock = threading.Lock()
        self._began = self._level = 0.0

    def answer(self, path: str) -> int:
        """Return the status of a request that is received now."""
        with self._lock:
            now = time.monotonic()
            self._began = self._began or now
            age = now - self._began
            last = self.seen[-1][0] if self.seen else 0.0
            case = self.case
            self._level = max(0.0, self._level - (age - last) * case.rate)
            is_over = self._level + 1 > case.burst
            status = 503 if case.outage[0] <= age < case.outage[1] else 429 if is_over else 200
            self._level += status == 200
            self.seen.append((age, status))
            if status == 200:
                self.pages.add(path)
            return status


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Origin

    def do_GET(self) -> None:
        case, status = self.server.case, self.server.answer(self.path)
        time.sleep(random.Random(self.path).uniform(*case.latencies))
        body = self.path.encode()
        self.send_response(status)
        seconds = {429: 1, 503: case.retry_after}.get(status)
        if seconds:
            self.send_header("Retry-After", str(seconds))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class Outcome(NamedTuple):
    """What one client did."""

    sent: int
    rejected: int
    over_limit: int
    useful: int
    finish: float
    recovery: int

    def __str__(self) -> str:
        return (
            f"{self.sent:.0f} sent, {self.rejected:.0f} rejected, {self.useful:.0f} useful, "
            f"{self.finish:.1f} s, {self.recovery:.0f} in recovery"
        )


Get = Callable[[str], Awaitable[Any]]


async def _crawl(get: Get, url: str, case: Case) -> None:
    """Request all pages with all workers; a worker goes on when a client gives a page up."""
    pages = iter(range(case.pages))

    async def work() -> None:
        for page in pages:
            with suppress(Exception):
                await get(f"{url}/{page}")

    await asyncio.gather(*(work() for _ in range(case.workers)))


async def headgate(url: str, case: Case, *, limited: bool = False) -> None:
    """Wait as long as it takes; `limited` by a rate."""
    rate = f"{case.rate}/s burst {case.burst}" if limited else None
    courtesy = Courtesy(throttle=Throttle(hold_localhost=True), wait=True, rate=rate)
    async with AsyncClient(courtesy) as client:
        await _crawl(client.get, url, case)


async def tenacity(url: str, case: Case) -> None:
    """Retry with random exponential pauses, five attempts."""
    from tenacity import retry, stop_after_attempt, wait_random_exponential

    async with httpx2.AsyncClient() as client:

        @retry(stop=stop_after_attempt(5), wait=wait_random_exponential(multiplier=1, max=60))
        async def get(page: str) -> None:
            (await client.get(page)).raise_for_status()

        await _crawl(get, url, case)


async def stamina(url: str, case: Case, *, limited: bool = False) -> None:
    """Retry with stamina's defaults; `limited` by aiolimiter."""
    import stamina as library
    from aiolimiter import AsyncLimiter

    library.instrumentation.set_on_retry_hooks([])  # which log
    limiter = AsyncLimiter(case.burst, case.burst / case.rate)
    async with httpx2.AsyncClient() as client:

        @library.retry(on=httpx2.HTTPError)
        async def get(page: str) -> None:
            if limited:
                await limiter.acquire()
            (await client.get(page)).raise_for_status()

        await _crawl(get, url, case)


async def urllib3_retry(url: str, case: Case) -> None:
    """Retry with `urllib3.Retry`, which obeys Retry-After, in threads."""
    import urllib3

    retries = urllib3.Retry(5, backoff_factor=0.5, status_forcelist=[429, 503])
    with (
        urllib3.PoolManager(maxsize=case.workers, retries=retries) as pool,
        ThreadPoolExecutor(case.workers) as threads,
    ):
        loop, get = asyncio.get_running_loop(), partial(pool.request, "GET")
        await _crawl(lambda page: loop.run_in_executor(threads, get, page), url, case)


async def scrapy(url: str, case: Case) -> None:
    """Crawl with Scrapy and AutoThrottle, in a process of its own."""
    import scrapy as _  # noqa: F401  # is it installed?

    command = [sys.executable, "-m", __spec__.name, url, str(CASES.index(case))]
    await asyncio.to_thread(subprocess.run, command, check=True)


def spider(url: str, case: Case) -> None:
    """Be that process."""
    import scrapy as library
    from scrapy.crawler import CrawlerProcess

    class Spider(library.Spider):
        name = "pages"
        start_urls = [f"{url}/{page}" for page in range(case.pages)]  # noqa: RUF012  # as Scrapy has it

        def parse(self, _response: Any) -> None:
            """Keep nothing."""

    workers = {"CONCURRENT_REQUESTS_PER_DOMAIN": case.workers}
    process = CrawlerProcess({"AUTOTHROTTLE_ENABLED": True, "LOG_LEVEL": "CRITICAL", **workers})
    process.crawl(Spider)
    process.start()


CLIENTS: Final[dict[str, Callable[[str, Case], Awaitable[None]]]] = {
    "headgate": headgate,
    "tenacity": tenacity,
    "stamina": stamina,
    "urllib3 Retry": urllib3_retry,
    "Scrapy AutoThrottle": scrapy,
    "headgate with rate": partial(headgate, limited=True),
    "aiolimiter": partial(stamina, limited=True),
}


def outcome(client: Callable[[str, Case], Awaitable[None]], case: Case) -> Outcome | None:
    """Run one client against an origin of its own; return None if it is not installed."""
    with Origin(case) as origin:
        threading.Thread(target=origin.serve_forever, daemon=True).start()
        try:
            asyncio.run(asyncio.wait_for(client(origin.url, case), 50))
        except ImportError:
            return None
        finally:
            origin.shutdown()
    ages, statuses = zip(*origin.seen, strict=True)
    verify("pages are answered by 200 only", right=statuses.count(200) >= len(origin.pages))
    end = case.outage[1]
    after = sum(end <= age < end + RECOVERY for age in ages)
    rejected = len(statuses) - statuses.count(200)
    return Outcome(len(statuses), rejected, statuses.count(429), len(origin.pages), max(ages), after)


def outcomes(case: Case, rounds: int) -> dict[str, Outcome]:
    """Return the median of each client that is installed."""
    found: dict[str, list[Outcome]] = {name: [] for name in CLIENTS}
    for _ in range(rounds):
        with ThreadPoolExecutor(len(CLIENTS)) as threads:
            for name, each in zip(CLIENTS, threads.map(outcome, CLIENTS.values(), repeat(case)), strict=False):
                found[name] += [] if each is None else [each]
    return {name: Outcome(*map(median, zip(*each, strict=True))) for name, each in found.items() if each}


def run(rounds: int) -> list[Row]:
    """Give a row for the rejected requests of each peer, and one for the time to finish of one that keeps the limit."""
    return [row for case in CASES for row in _compared(case, min(rounds, 1))]


def _compared(case: Case, rounds: int) -> list[Row]:
    medians, rows = outcomes(case, rounds), []
    for name, theirs in medians.items():
        if name in {"headgate", "headgate with rate"}:
            continue
        mine = medians["headgate with rate" if name == "aiolimiter" else "headgate"]
        rejected = mine.rejected / max(1, theirs.rejected)
        rows.append(Row(f"rejected requests, {case.name}", name, rejected, "≤", 1.0, f"{mine}; {theirs}"))
        if theirs.over_limit <= KEEPS * theirs.sent and theirs.useful == case.pages:
            rows.append(
                Row(f"time to finish, {case.name}", name, mine.finish / theirs.finish, "≤", 1.0, "it keeps the limit")
            )
    return rows


if __name__ == "__main__":
    spider(sys.argv[1], CASES[int(sys.argv[2])])
