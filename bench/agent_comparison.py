"""Polite clients side by side, each against an origin of its own with a limit and an outage.

Ten workers request forty pages. The origin answers ten requests a second, in bursts of ten, and rejects others by 429
with `Retry-After: 1`. From the first second to the third it answers 503. These figures were chosen before the first
comparison. All clients run at the same time, each as its documentation shows it. Those that are told the rate are
compared with each other: headgate with a rate, and aiolimiter, within stamina's retries because it has none.

headgate never holds requests to this machine by default; here it does, by `hold_localhost`. It asks for no advice.
"""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from statistics import median
from typing import Any, Final, NamedTuple

import httpx2

from bench.measure import Row, verify
from headgate.agent import Courtesy
from headgate.agent.httpx import AsyncClient
from headgate.throttle import Throttle

PAGES: Final = 40
WORKERS: Final = 10
RATE: Final = 10
OUTAGE: Final = (1.0, 3.0)
RECOVERY: Final = 2.0
"""Seconds after the outage in which the load on the origin is counted."""
LATENCY: Final = 0.02
KEEPS: Final = 0.05
"""A client keeps the limit if at most this part of its requests was rejected by 429."""


class Origin(ThreadingHTTPServer):
    """A server with a limit and an outage; it records each request."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
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
            self._level = max(0.0, self._level - (age - last) * RATE)
            status = 503 if OUTAGE[0] <= age < OUTAGE[1] else 429 if self._level + 1 > RATE else 200
            self._level += status == 200
            self.seen.append((age, status))
            if status == 200:
                self.pages.add(path)
            return status


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Origin

    def do_GET(self) -> None:
        time.sleep(LATENCY)
        status = self.server.answer(self.path)
        body = self.path.encode()
        self.send_response(status)
        if status == 429:
            self.send_header("Retry-After", "1")
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


async def _crawl(get: Get, url: str) -> None:
    """Request all pages with ten workers; a worker goes on when a client gives a page up."""
    pages = iter(range(PAGES))

    async def work() -> None:
        for page in pages:
            with suppress(Exception):
                await get(f"{url}/{page}")

    await asyncio.gather(*(work() for _ in range(WORKERS)))


async def headgate(url: str, rate: str | None = None) -> None:
    """Wait as long as it takes."""
    courtesy = Courtesy(throttle=Throttle(hold_localhost=True), wait=True, rate=rate)
    async with AsyncClient(courtesy) as client:
        await _crawl(client.get, url)


async def tenacity(url: str) -> None:
    """Retry with random exponential pauses, five attempts."""
    from tenacity import retry, stop_after_attempt, wait_random_exponential

    async with httpx2.AsyncClient() as client:

        @retry(stop=stop_after_attempt(5), wait=wait_random_exponential(multiplier=1, max=60))
        async def get(page: str) -> None:
            (await client.get(page)).raise_for_status()

        await _crawl(get, url)


async def stamina(url: str, *, limited: bool = False) -> None:
    """Retry with stamina's defaults; `limited` by aiolimiter."""
    import stamina as library
    from aiolimiter import AsyncLimiter

    library.instrumentation.set_on_retry_hooks([])  # which log
    limiter = AsyncLimiter(RATE, 1)
    async with httpx2.AsyncClient() as client:

        @library.retry(on=httpx2.HTTPError)
        async def get(page: str) -> None:
            if limited:
                await limiter.acquire()
            (await client.get(page)).raise_for_status()

        await _crawl(get, url)


async def urllib3_retry(url: str) -> None:
    """Retry with `urllib3.Retry`, which obeys Retry-After, in threads."""
    import urllib3

    retries = urllib3.Retry(5, backoff_factor=0.5, status_forcelist=[429, 503])
    with urllib3.PoolManager(maxsize=WORKERS, retries=retries) as pool, ThreadPoolExecutor(WORKERS) as threads:
        loop, get = asyncio.get_running_loop(), partial(pool.request, "GET")
        await _crawl(lambda page: loop.run_in_executor(threads, get, page), url)


async def scrapy(url: str) -> None:
    """Crawl with Scrapy and AutoThrottle, in a process of its own."""
    import scrapy as _  # noqa: F401  # is it installed?

    await asyncio.to_thread(subprocess.run, [sys.executable, "-m", __spec__.name, url], check=True)


def spider(url: str) -> None:
    """Be that process."""
    import scrapy as library
    from scrapy.crawler import CrawlerProcess

    class Spider(library.Spider):
        name = "pages"
        start_urls = [f"{url}/{page}" for page in range(PAGES)]  # noqa: RUF012  # as Scrapy has it

        def parse(self, _response: Any) -> None:
            """Keep nothing."""

    workers = {"CONCURRENT_REQUESTS_PER_DOMAIN": WORKERS}
    process = CrawlerProcess({"AUTOTHROTTLE_ENABLED": True, "LOG_LEVEL": "CRITICAL", **workers})
    process.crawl(Spider)
    process.start()


CLIENTS: Final[dict[str, Callable[[str], Awaitable[None]]]] = {
    "headgate": headgate,
    "tenacity": tenacity,
    "stamina": stamina,
    "urllib3 Retry": urllib3_retry,
    "Scrapy AutoThrottle": scrapy,
    "headgate with rate": partial(headgate, rate=f"{RATE}/s burst {RATE}"),
    "aiolimiter": partial(stamina, limited=True),
}


def outcome(client: Callable[[str], Awaitable[None]]) -> Outcome | None:
    """Run one client against an origin of its own; return None if it is not installed."""
    with Origin() as origin:
        threading.Thread(target=origin.serve_forever, daemon=True).start()
        try:
            asyncio.run(asyncio.wait_for(client(origin.url), 50))
        except ImportError:
            return None
        finally:
            origin.shutdown()
    ages, statuses = zip(*origin.seen, strict=True)
    verify("pages are answered by 200 only", right=statuses.count(200) >= len(origin.pages))
    after = sum(OUTAGE[1] <= age < OUTAGE[1] + RECOVERY for age in ages)
    rejected = len(statuses) - statuses.count(200)
    return Outcome(len(statuses), rejected, statuses.count(429), len(origin.pages), max(ages), after)


def run(rounds: int) -> list[Row]:
    """Give a row for the rejected requests of each peer, and one for the time to finish of one that keeps the limit."""
    found: dict[str, list[Outcome]] = {name: [] for name in CLIENTS}
    for _ in range(min(rounds, 2)):
        with ThreadPoolExecutor(len(CLIENTS)) as threads:
            for name, each in zip(CLIENTS, threads.map(outcome, CLIENTS.values()), strict=True):
                found[name] += [] if each is None else [each]
    medians = {name: Outcome(*map(median, zip(*each, strict=True))) for name, each in found.items() if each}
    rows = []
    for name, theirs in medians.items():
        if name in {"headgate", "headgate with rate"}:
            continue
        mine = medians["headgate with rate" if name == "aiolimiter" else "headgate"]
        rejected = mine.rejected / max(1, theirs.rejected)
        rows.append(Row("rejected requests", name, rejected, "≤", 1.0, f"{mine}; {theirs}"))
        if theirs.over_limit <= KEEPS * theirs.sent and theirs.useful == PAGES:
            rows.append(Row("time to finish", name, mine.finish / theirs.finish, "≤", 1.0, "it keeps the limit"))
    return rows


if __name__ == "__main__":
    spider(sys.argv[1])
