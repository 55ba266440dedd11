"""A real browser prefetches through `headgate proxy`, and a refusal affects no other prefetch.

What the browser makes of answers that this proxy gives seldom, or never, is asked of it by one that does as it is told.
"""

import asyncio
import signal
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from tests.chromium import Browser, Outcome, chromium
from tests.e2e.prefetching import (
    ADVICE,
    Hold,
    Origin,
    ScriptedProxy,
    origin_running,
    prefetch_proxy,
    scripted_proxy,
)
from tests.e2e.programs import Program
from tests.e2e.proxy_setup import Client

pytestmark = pytest.mark.needs("chromium")

READY = Outcome("Ready", "PrefetchSuccessfulButNotUsed")
USED = Outcome("Success", "PrefetchResponseUsed")
FAILED = Outcome("Failure", "PrefetchFailedNetError")
AVOIDED = Outcome("Failure", "PrefetchProxyNotAvailable")

REFERRER, FIRST, SECOND = "news.example.com", "www.example.org", "www.example.net"
RECORD = 22
"""Bytes that a record of TLS 1.3 has beside its content."""


async def prefetch(browser: Browser, origin: Origin, *hosts: str) -> list[Outcome]:
    """What becomes of a prefetch from each of the hosts, asked for by a page of its own, one after another."""
    outcomes = []
    for host in hosts:
        page = await browser.open(origin.refer(REFERRER, origin.url(host)))
        outcomes.append(await page.prefetched(origin.url(host)))
    return outcomes


# By way of `headgate proxy`.

Check = Callable[[Browser, Origin, Program], Awaitable[None]]


def browse(check: Check, folder: Path, *flags: object) -> None:
    """Run a check with all three."""

    async def run() -> None:
        async with origin_running() as origin:
            with prefetch_proxy(folder, origin, *flags) as proxy:
                async with chromium(proxy.ready["address"]) as browser:
                    await check(browser, origin, proxy)

    asyncio.run(run())


def asked(proxy: Program) -> dict[str, tuple[int, dict[str, int]]]:
    """How many CONNECTs were accepted for each host, and how many refused, by the reason."""
    origins = proxy.state()["origins"]
    return {one["origin"].split("/")[2].partition(":")[0]: (one["accepted"], one["refused"]) for one in origins}


def test_a_prefetch_fetches_advice_and_is_used_without_a_second_request(tmp_path: Path) -> None:
    async def check(browser: Browser, origin: Origin, proxy: Program) -> None:
        target = origin.url(FIRST, "/story")
        page = await browser.open(origin.refer(REFERRER, target))
        assert await page.prefetched(target) == READY
        assert await page.follow(target) == USED
        assert await page.run("document.body.innerText") == "/story"
        assert origin.paths(FIRST) == [ADVICE, "/story"]
        advice, story = origin.asked[-2:]
        assert advice.fields["user-agent"] == "headgate"
        assert story.fields["sec-purpose"] == "prefetch;anonymous-client-ip"
        assert asked(proxy) == {FIRST: (1, {})}
        # Only the length of the head shows the protocol here: HTTP/2 compresses it.
        to = f"{FIRST}:{origin.port}"
        plain = len(f"CONNECT {to} HTTP/1.1\r\nHost: {to}\r\nUser-Agent: {story.fields['user-agent']}\r\n\r\n")
        assert connect_bytes(proxy) - RECORD < plain

    browse(check, tmp_path)


def connect_bytes(proxy: Program) -> float:
    lines = proxy.admin("/metrics").splitlines()
    (line,) = [line for line in lines if line.startswith('headgate_proxy_request_bytes_total{of="connect"} ')]
    return float(line.split()[1])


def test_origins_that_advise_against_it_get_no_prefetch(tmp_path: Path) -> None:
    async def check(browser: Browser, origin: Origin, proxy: Program) -> None:
        origin.advise("no.example.org", {"user_agent": "prefetch-proxy", "disallow": True})
        origin.advise("none.example.org", {"user_agent": "*", "fraction": 0})
        origin.advise("busy.example.org", status=503, retry_after="600")
        unwanted = ["no.example.org", "none.example.org", "busy.example.org"]
        assert await prefetch(browser, origin, *unwanted, FIRST) == [FAILED, FAILED, FAILED, READY]
        # Each was asked for its advice, by the proxy alone; no other handshake has begun.
        for host in unwanted:
            assert origin.paths(host) == [ADVICE]
            assert origin.names.count(host) == 1
        assert origin.paths(FIRST) == [ADVICE, "/"]
        # What is known is not asked for again; nor is what could not be said.
        assert await prefetch(browser, origin, *unwanted) == [FAILED, FAILED, FAILED]
        assert [origin.paths(host) for host in unwanted] == [[ADVICE]] * 3
        assert asked(proxy) == {
            "no.example.org": (0, {"advice_disallowed": 2}),
            "none.example.org": (0, {"advice_fraction": 2}),
            "busy.example.org": (0, {"advice_unreachable": 2}),
            FIRST: (1, {}),
        }

    browse(check, tmp_path)


def test_unreachable_and_forbidden_origins_affect_no_other_origin(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nowhere = f"down.example.org=127.0.0.1:{closed.getsockname()[1]}"

        async def check(browser: Browser, origin: Origin, proxy: Program) -> None:
            refused = ["down.example.org", "denied.example.org", "inner.example.org"]
            assert await prefetch(browser, origin, *refused, FIRST) == [FAILED, FAILED, FAILED, READY]
            assert asked(proxy) == {
                "down.example.org": (0, {"dial_refused": 1}),
                "denied.example.org": (0, {"host": 1}),
                "inner.example.org": (0, {"address": 1}),
                FIRST: (1, {}),
            }

        flags = ["--resolve", nowhere, "--deny-host", "denied.example.org", "--resolve", "inner.example.org=10.1.2.3"]
        browse(check, tmp_path, *flags)


@pytest.mark.deep
def test_the_browser_avoids_a_full_proxy_for_its_retry_after(tmp_path: Path) -> None:
    async def check(browser: Browser, origin: Origin, proxy: Program) -> None:
        with another_client(proxy) as other:
            answer = await asyncio.to_thread(other.ask, f"held.example.org:{origin.port}")
            assert answer.status == 200
            began = time.monotonic()
            assert await prefetch(browser, origin, FIRST) == [FAILED]
        proxy.until(lambda: not proxy.state()["tunnels"], "end of the tunnel")
        # There is a free slot again, but the browser does not know.
        async with asyncio.timeout(30):
            while (outcomes := await prefetch(browser, origin, SECOND)) == [AVOIDED]:
                assert asked(proxy)[FIRST] == (0, {"tunnels": 1})
                assert SECOND not in asked(proxy)
                assert origin.paths(SECOND) == []
        assert outcomes == [READY]
        assert time.monotonic() - began >= 5  # what the refusal's Retry-After says

    browse(check, tmp_path, "--max-tunnels", 1)


@contextmanager
def another_client(proxy: Program) -> Iterator[Client]:
    """Connect to the proxy, without a look at its certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with Client(proxy.port, tls=context) as client:
        yield client


def test_a_prefetch_in_progress_survives_a_drain(tmp_path: Path) -> None:
    async def check(browser: Browser, origin: Origin, proxy: Program) -> None:
        target = origin.url(FIRST, "/story")
        origin.hold = Hold()
        page = await browser.open(origin.refer(REFERRER, target))
        async with asyncio.timeout(15):
            await origin.hold.reached.wait()
        assert origin.paths(FIRST) == [ADVICE, "/story"]
        proxy.process.send_signal(signal.SIGTERM)
        proxy.until(lambda: proxy.state()["draining"], "draining")
        origin.hold.over.set()
        assert await page.prefetched(target) == READY
        assert proxy.process.wait(15) == 0
        assert "cut" not in proxy.said()
        assert await page.follow(target) == USED
        assert origin.paths(FIRST) == [ADVICE, "/story"]

    browse(check, tmp_path)


# Through a scripted proxy.


@asynccontextmanager
async def browsing() -> AsyncIterator[tuple[Browser, Origin, ScriptedProxy]]:
    async with origin_running() as origin, scripted_proxy(origin) as proxy, chromium(proxy.url) as browser:
        yield browser, origin, proxy


def browse_as_told(check: Callable[[Browser, Origin, ScriptedProxy], Awaitable[None]]) -> None:
    """Run a check with all three."""

    async def run() -> None:
        async with browsing() as running:
            await check(*running)

    asyncio.run(run())


def test_a_refusal_with_retry_after_0_or_a_broken_tunnel_affects_no_other_origin() -> None:
    async def check(browser: Browser, origin: Origin, proxy: ScriptedProxy) -> None:
        refused = {f"refused{status}.example.org": status for status in (407, 429, 504)}
        for host, status in refused.items():
            proxy.refuse(host, status, retry_after="0")
        proxy.answers[FIRST] = None
        hosts = [*refused, FIRST, SECOND]
        assert await prefetch(browser, origin, *hosts) == [FAILED] * 4 + [READY]
        assert [host for host in proxy.hosts() if host != FIRST] == [*refused, SECOND]

    browse_as_told(check)


@pytest.mark.parametrize(
    ("status", "retry_after"),
    [(403, None), (407, None), (502, None), (403, "Wed, 21 Oct 2015 07:28:00 GMT"), (429, "60")],
)
def test_other_or_missing_retry_after_makes_the_browser_avoid_the_proxy(status: int, retry_after: str | None) -> None:
    async def check(browser: Browser, origin: Origin, proxy: ScriptedProxy) -> None:
        proxy.refuse(FIRST, status, retry_after=retry_after)
        assert await prefetch(browser, origin, FIRST, SECOND) == [FAILED, AVOIDED]
        assert proxy.hosts() == [FIRST]
        assert origin.paths(SECOND) == []

    browse_as_told(check)


# What the tests above stand on.
