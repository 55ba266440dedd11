"""A real browser prefetches through `headgate proxy`, and a refusal affects no other prefetch."""

import asyncio
import signal
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.chromium import Browser, Outcome, chromium
from tests.e2e.proxy_setup import ADVICE, Origin, Proxy, proxy

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


Check = Callable[[Browser, Origin, Proxy], Awaitable[None]]


def browse(check: Check, folder: Path, *flags: object) -> None:
    """Run a check with all three."""

    async def run() -> None:
        with proxy(folder, *flags) as running:
            async with chromium(running.program.ready["address"]) as browser:
                await check(browser, running.origin, running)

    asyncio.run(run())


def asked(running: Proxy) -> dict[str, tuple[int, dict[str, int]]]:
    """How many CONNECTs were accepted for each host, and how many refused, by the reason."""
    origins = running.program.state()["origins"]
    return {one["origin"].split("/")[2].partition(":")[0]: (one["accepted"], one["refused"]) for one in origins}


def test_a_prefetch_fetches_advice_and_is_used_without_a_second_request(tmp_path: Path) -> None:
    async def check(browser: Browser, origin: Origin, running: Proxy) -> None:
        target = origin.url(FIRST, "/story")
        page = await browser.open(origin.refer(REFERRER, target))
        assert await page.prefetched(target) == READY
        assert await page.follow(target) == USED
        assert await page.run("document.body.innerText") == "/story"
        assert origin.paths(FIRST) == [ADVICE, "/story"]
        advice, story = origin.asked[-2:]
        assert "\r\nUser-Agent: headgate\r\n" in advice
        assert "\r\nsec-purpose: prefetch;anonymous-client-ip\r\n" in story.lower()
        assert asked(running) == {FIRST: (1, {})}
        # Only the length of the head shows the protocol here: HTTP/2 compresses it.
        to = f"{FIRST}:{origin.port}"
        agent = next(line for line in story.split("\r\n") if line.startswith("User-Agent: "))
        plain = len(f"CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n{agent}\r\n\r\n")
        assert running.metrics()['headgate_proxy_request_bytes_total{of="connect"}'] - RECORD < plain

    browse(check, tmp_path)


def test_refused_origins_get_no_prefetch_and_affect_no_other(tmp_path: Path) -> None:
    async def check(browser: Browser, origin: Origin, running: Proxy) -> None:
        origin.advise("no.example.org", {"user_agent": "prefetch-proxy", "disallow": True})
        origin.advise("none.example.org", {"user_agent": "*", "fraction": 0})
        origin.advise("busy.example.org", status=503, retry_after="600")
        unwanted = ["no.example.org", "none.example.org", "busy.example.org"]
        refused = ["down.example.org", "denied.example.org", "inner.example.org"]
        assert await prefetch(browser, origin, *unwanted, *refused, FIRST) == [*[FAILED] * 6, READY]
        # Each was asked for its advice, by the proxy alone; no other handshake has begun.
        for host in unwanted:
            assert origin.paths(host) == [ADVICE]
            assert origin.names.count(host) == 1
        assert origin.paths(FIRST) == [ADVICE, "/"]
        # What is known is not asked for again; nor is what could not be said.
        assert await prefetch(browser, origin, *unwanted) == [FAILED, FAILED, FAILED]
        assert [origin.paths(host) for host in unwanted] == [[ADVICE]] * 3
        assert asked(running) == {
            "no.example.org": (0, {"advice_disallowed": 2}),
            "none.example.org": (0, {"advice_fraction": 2}),
            "busy.example.org": (0, {"advice_unreachable": 2}),
            "down.example.org": (0, {"dial_refused": 1}),
            "denied.example.org": (0, {"host": 1}),
            "inner.example.org": (0, {"address": 1}),
            FIRST: (1, {}),
        }

    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nowhere = f"down.example.org=127.0.0.1:{closed.getsockname()[1]}"
        flags = ["--resolve", nowhere, "--deny-host", "denied.example.org", "--resolve", "inner.example.org=10.1.2.3"]
        browse(check, tmp_path, *flags)


@pytest.mark.deep
def test_the_browser_avoids_a_full_proxy_for_its_retry_after(tmp_path: Path) -> None:
    async def check(browser: Browser, origin: Origin, running: Proxy) -> None:
        with running.client() as other:
            answer = await asyncio.to_thread(other.ask, f"held.example.org:{origin.port}")
            assert answer.status == 200
            began = time.monotonic()
            assert await prefetch(browser, origin, FIRST) == [FAILED]
        running.wait_for(tunnels=0)
        # There is a free slot again, but the browser does not know.
        async with asyncio.timeout(30):
            while (outcomes := await prefetch(browser, origin, SECOND)) == [AVOIDED]:
                assert asked(running)[FIRST] == (0, {"tunnels": 1})
                assert SECOND not in asked(running)
                assert origin.paths(SECOND) == []
        assert outcomes == [READY]
        assert time.monotonic() - began >= 5  # what the refusal's Retry-After says

    browse(check, tmp_path, "--max-tunnels", 1)


def test_a_prefetch_in_progress_survives_a_drain(tmp_path: Path) -> None:
    async def check(browser: Browser, origin: Origin, running: Proxy) -> None:
        target = origin.url(FIRST, "/story")
        origin.hold, origin.held = threading.Event(), "/story"
        page = await browser.open(origin.refer(REFERRER, target))
        program = running.program
        program.until(lambda: origin.paths(FIRST) == [ADVICE, "/story"], "request")
        program.process.send_signal(signal.SIGTERM)
        program.until(lambda: program.state()["draining"], "draining")
        origin.hold.set()
        assert await page.prefetched(target) == READY
        assert program.process.wait(15) == 0
        assert "cut" not in program.said()
        assert await page.follow(target) == USED
        assert origin.paths(FIRST) == [ADVICE, "/story"]

    browse(check, tmp_path)
