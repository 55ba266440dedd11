"""A real browser prefetches by way of a proxy, and takes each refusal as its `Retry-After` says.

The proxy here does as it is told, so what is proven is the browser: that it asks the proxy, uses what it was given, and
when it avoids the proxy for every origin.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests import servers
from tests.chromium import Browser, Outcome, chromium, remaining
from tests.e2e.prefetching import Answer, Origin, ScriptedProxy, listening, origin_running, scripted_proxy

pytestmark = pytest.mark.needs("chromium")

READY = Outcome("Ready", "PrefetchSuccessfulButNotUsed")
USED = Outcome("Success", "PrefetchResponseUsed")
FAILED = Outcome("Failure", "PrefetchFailedNetError")
AVOIDED = Outcome("Failure", "PrefetchProxyNotAvailable")

REFERRER, FIRST, SECOND = "news.example.com", "www.example.org", "www.example.net"


@asynccontextmanager
async def browsing() -> AsyncIterator[tuple[Browser, Origin, ScriptedProxy]]:
    async with origin_running() as origin, scripted_proxy(origin) as proxy, chromium(proxy.url) as browser:
        yield browser, origin, proxy


def browse(check: Callable[[Browser, Origin, ScriptedProxy], Awaitable[None]]) -> None:
    """Run a check with all three."""

    async def run() -> None:
        async with browsing() as running:
            await check(*running)

    asyncio.run(run())


async def prefetch(browser: Browser, origin: Origin, *hosts: str) -> list[Outcome]:
    """What becomes of a prefetch from each of the hosts, asked for by a page of its own, one after another."""
    outcomes = []
    for host in hosts:
        page = await browser.open(origin.refer(REFERRER, origin.url(host)))
        outcomes.append(await page.prefetched(origin.url(host)))
    return outcomes


def test_a_prefetch_goes_through_the_proxy_and_is_used_with_no_second_request() -> None:
    async def check(browser: Browser, origin: Origin, proxy: ScriptedProxy) -> None:
        target = origin.url(FIRST, "/story")
        page = await browser.open(origin.refer(REFERRER, target))
        assert await page.prefetched(target) == READY
        assert origin.names.count(FIRST) == 1
        assert await page.follow(target) == USED
        assert await page.run("document.body.innerText") == "/story"
        assert [asked.target for asked in proxy.asked] == [f"{FIRST}:{origin.port}"]
        assert origin.paths(FIRST) == ["/story"]
        assert origin.asked[-1].fields["sec-purpose"] == "prefetch;anonymous-client-ip"

    browse(check)


def test_what_was_not_prefetched_is_asked_for_when_it_is_followed() -> None:
    async def check(browser: Browser, origin: Origin, proxy: ScriptedProxy) -> None:
        proxy.refuse(FIRST, 403, retry_after="0")
        target = origin.url(FIRST, "/story")
        page = await browser.open(origin.refer(REFERRER, target))
        assert await page.prefetched(target) == FAILED
        assert FIRST not in origin.names
        assert await page.follow(target) == FAILED
        assert await page.run("document.body.innerText") == "/story"
        assert origin.paths(FIRST) == ["/story"]
        assert "sec-purpose" not in origin.asked[-1].fields

    browse(check)


@pytest.mark.parametrize("status", [403, 407, 429, 502, 504])
def test_a_refusal_with_no_time_to_wait_spoils_no_other_origin(status: int) -> None:
    async def check(browser: Browser, origin: Origin, proxy: ScriptedProxy) -> None:
        proxy.refuse(FIRST, status, retry_after="0")
        assert await prefetch(browser, origin, FIRST, SECOND) == [FAILED, READY]
        assert proxy.hosts() == [FIRST, SECOND]

    browse(check)


@pytest.mark.parametrize(
    ("status", "retry_after"), [(403, None), (407, None), (502, None), (403, "Wed, 21 Oct 2015 07:28:00 GMT")]
)
def test_a_refusal_that_does_not_say_it_makes_the_browser_avoid_the_proxy(status: int, retry_after: str | None) -> None:
    async def check(browser: Browser, origin: Origin, proxy: ScriptedProxy) -> None:
        proxy.refuse(FIRST, status, retry_after=retry_after)
        assert await prefetch(browser, origin, FIRST, SECOND) == [FAILED, AVOIDED]
        assert proxy.hosts() == [FIRST]
        assert origin.paths(SECOND) == []

    browse(check)


def test_the_browser_waits_as_long_as_an_overloaded_proxy_asks_for() -> None:
    async def check(browser: Browser, origin: Origin, proxy: ScriptedProxy) -> None:
        proxy.refuse(FIRST, 503, retry_after="60")
        assert await prefetch(browser, origin, FIRST, SECOND) == [FAILED, AVOIDED]
        assert proxy.hosts() == [FIRST]

    browse(check)


def test_the_browser_comes_back_when_that_time_is_over() -> None:
    async def check(browser: Browser, origin: Origin, proxy: ScriptedProxy) -> None:
        proxy.refuse(FIRST, 503, retry_after="1")
        assert await prefetch(browser, origin, FIRST) == [FAILED]
        async with asyncio.timeout(15):
            while (outcomes := await prefetch(browser, origin, SECOND)) == [AVOIDED]:
                pass
        assert outcomes == [READY]

    browse(check)


def test_a_tunnel_that_breaks_spoils_no_other_origin() -> None:
    async def check(browser: Browser, origin: Origin, proxy: ScriptedProxy) -> None:
        proxy.answers[FIRST] = None
        assert await prefetch(browser, origin, FIRST, SECOND) == [FAILED, READY]

    browse(check)


def test_one_page_prefetches_from_several_origins_and_each_goes_its_own_way() -> None:
    async def check(browser: Browser, origin: Origin, proxy: ScriptedProxy) -> None:
        hosts = [f"{name}.example.org" for name in "abcdef"]
        proxy.refuse(hosts[1], 403, retry_after="0")
        page = await browser.open(origin.refer(REFERRER, *map(origin.url, hosts)))
        outcomes = [await page.prefetched(origin.url(host)) for host in hosts]
        assert outcomes == [READY, FAILED, READY, READY, READY, READY]
        assert sorted(proxy.hosts()) == hosts

    browse(check)


def test_addresses_need_no_port_where_the_browser_is_told_another_for_it() -> None:
    async def check() -> None:
        async with origin_running() as origin, scripted_proxy(origin) as proxy:
            resolve = f"MAP {FIRST}:443 127.0.0.1:{origin.port}, MAP * 127.0.0.1"
            async with chromium(proxy.url, resolve=resolve) as browser:
                target = f"https://{FIRST}/story"
                page = await browser.open(origin.refer(REFERRER, target))
                assert await page.prefetched(target) == READY
                assert await page.follow(target) == USED
                assert [asked.target for asked in proxy.asked] == [f"{FIRST}:443"]

    asyncio.run(check())


@pytest.mark.needs("nghttpx")
def test_the_proxy_may_speak_http_2(tmp_path: Path) -> None:
    async def check() -> None:
        async with origin_running() as origin, listening((behind := ScriptedProxy(origin.port)).talk) as port:
            issued, key, certificate = origin.authority.issue_cert("127.0.0.1"), tmp_path / "key", tmp_path / "chain"
            issued.private_key_pem.write_to_path(str(key))
            issued.cert_chain_pems[0].write_to_path(str(certificate))
            options = (f"--accesslog-file={tmp_path}/asked", "--accesslog-format=$alpn $request")
            with servers.nghttpx(tmp_path, backend=port, key=key, certificate=certificate, options=options) as front:
                async with chromium(f"https://127.0.0.1:{front.port}") as browser:
                    behind.refuse(FIRST, 403, retry_after="0")
                    assert await prefetch(browser, origin, FIRST, SECOND) == [FAILED, READY]
            assert behind.hosts() == [FIRST, SECOND]
            words = (tmp_path / "asked").read_text().split()
            assert words[:3] == ["h2", "CONNECT", f"{FIRST}:{origin.port}"]

    asyncio.run(check())


def test_rules_that_a_browser_cannot_read_are_told_of() -> None:
    async def check(browser: Browser, origin: Origin, proxy: ScriptedProxy) -> None:
        origin.answers[REFERRER, "/"] = Answer(
            200, {"Content-Type": "text/html"}, b'<script type="speculationrules">{</script>'
        )
        page = await browser.open(origin.url(REFERRER))
        with pytest.raises(AssertionError, match="Syntax error"):
            await page.prefetched(origin.url(FIRST))

    browse(check)


def test_nothing_stays_of_a_browser_however_a_test_ends() -> None:
    async def check() -> None:
        async with browsing() as (browser, origin, _):
            await browser.open(origin.url(FIRST))
            assert len(remaining(browser.folder)) > 3
            left.append(browser)
            raise EOFError

    left: list[Browser] = []
    with pytest.raises(EOFError):
        asyncio.run(check())
    assert remaining(left[0].folder) == []
    assert not left[0].folder.exists()
