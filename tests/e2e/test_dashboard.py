"""The dashboard in a real browser: it shows what happens, and text of clients stays text; acts need the token."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.chromium import Page, chromium
from tests.e2e import programs
from tests.e2e.programs import Program
from tests.servers import NODE_MODULES, free_port

pytestmark = [pytest.mark.needs("chromium", "node-axe-core"), pytest.mark.browser]

TOKEN = "0123456789abcdef"
EVIL = "<img/src=x/onerror=document.title='evil'>"
DOMAINS = """
[gate]
identify = "header:X-Client"
max_delay = 0
[log]
identifiers = "plain"
[[domain]]
name = "a<b>c</b>"
rules = ["1/min burst 2"]
"""


@contextmanager
def gate(folder: Path, text: str, *words: object) -> Iterator[Program]:
    file = folder / "headgate.toml"
    file.write_text(text)
    (folder / "token").write_text(TOKEN)
    with (
        programs.origin() as origin,
        programs.gate(folder, "--config", file, "--origin", origin.url, *words) as running,
    ):
        yield running


async def opened(browser, url: str) -> Page:
    """Open a dashboard; return once it has shown a second."""
    page = await browser.open("about:blank", "Network", "Runtime", "Log")
    await page.go(url)
    await page.wait_for("document.querySelector('#cards article') !== null")
    return page


async def faults(page: Page) -> list[str]:
    """Return what axe-core finds, and what the page asked of other hosts or failed at."""
    await page.run((NODE_MODULES / "axe-core" / "axe.min.js").read_text() + "; undefined")
    found = json.loads(await page.run("axe.run().then((result) => JSON.stringify(result.violations))"))
    serious = [f"{one['id']} {one['nodes'][0]['html']}" for one in found if one["impact"] in {"serious", "critical"}]
    url = await page.run("location.origin + '/'")
    return [*serious, *page.problems, *(one for one in page.requests if not one.startswith(("about:", url)))]


async def text(page: Page, selector: str) -> str:
    return await page.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")


async def press(page: Page, selector: str) -> None:
    await page.run(f"document.querySelector({json.dumps(selector)}).click()")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_gate_shows_what_happens_and_the_text_of_clients_stays_text(tmp_path, workers):
    acts = f'[admin]\ncontrol = true\ntoken = "{tmp_path}/token"\n'

    async def check(running: Program) -> None:
        async with chromium("https://127.0.0.1:9") as browser:
            page = await opened(browser, running.ready["admin"])
            assert await text(page, "#kind") == "gate"
            fields = {"X_Client": EVIL, "User_Agent": EVIL}
            for _ in range(3):
                await asyncio.to_thread(running.statuses, 4, f"/{EVIL}?secret", **fields)
                await asyncio.sleep(0.4)
            await page.wait_for("document.querySelectorAll('#refused tbody tr').length >= 3")
            refused = await text(page, "#refused tbody")
            assert f"GET /{EVIL}" in refused
            assert "secret" not in refused
            assert "a<b>c</b>" in await text(page, "#domains")
            assert "sha256:" in await text(page, "#held tbody th")
            for theme in ("light", "dark"):
                await page.run(f"document.documentElement.dataset.theme = {theme!r}; dispatchEvent(new Event('theme'))")
                assert await faults(page) == []
            assert await page.run("[document.images.length, document.querySelectorAll('td b, th b').length]") == [0, 0]
            assert await page.run("document.title.startsWith('headgate gate')")
            before = await text(page, "#domains tbody tr")
            await asyncio.to_thread(running.statuses, 5, X_Client="other")
            await page.wait_for(f"document.querySelector('#domains tbody tr').innerText !== {json.dumps(before)}")
            cells = "[...document.querySelector('#domains tbody tr').cells].slice(3, 6)"
            await page.wait_for(f"{cells}.reduce((sum, cell) => sum + Number(cell.innerText), 0) === 17")
            assert await page.run("document.querySelectorAll('#charts canvas').length") == 4
            await press(page, "#theme")
            assert await page.run("document.documentElement.dataset.theme") == "light"

            # Without the token, with a wrong one, and with the right one.
            await page.wait_for("document.querySelector('#held button') !== null")
            await press(page, "#held button")
            assert (await text(page, "#dialog-title")).startswith("Release sha256:")
            await press(page, "#dialog-ok")
            for typed, said in (("wrong", "does not accept this token"), (TOKEN, "release sha256:")):
                await page.wait_for("document.activeElement.type === 'password'")
                await page.run(f"document.activeElement.value = {typed!r}")
                await press(page, "#dialog-ok")
                await page.wait_for(f"document.querySelector('#dialog').innerText.includes({said!r})")
            await asyncio.to_thread(running.wait_for, "ctl: release sha256:")
            assert running.said().count("ctl: release sha256:") == 1
            await press(page, "#dialog button")
            await press(page, "#refused button")
            await page.wait_for("document.querySelector('#dialog dl') !== null")
            assert "held by the rule 1/min burst 2" in await text(page, "#dialog")
            page.problems.clear()  # the browser reports the refused token
            await press(page, "#dialog button")
            await press(page, "#drain")
            await press(page, "#dialog-ok")
            await page.wait_for("document.querySelector('#connection').dataset.state === 'lost'")
            assert "connection lost since" in await text(page, "#connection")

    with gate(tmp_path, acts + DOMAINS, "--workers", workers) as running:
        asyncio.run(check(running))
        assert running.process.wait(programs.PATIENCE) == 0


def test_a_page_without_a_token_explains_and_finds_a_gate_that_is_started_again(tmp_path):
    port = free_port()

    async def check() -> None:
        async with chromium("https://127.0.0.1:9") as browser:
            with gate(tmp_path, "[admin]\ncontrol = true\n" + DOMAINS, "--admin", f"127.0.0.1:{port}") as running:
                page = await opened(browser, running.ready["admin"])
                assert "set admin.token" in await text(page, "#acts-note")
                assert (
                    await page.run("[...document.querySelectorAll('main button')].some((one) => one.checkVisibility())")
                    is False
                )
                command = "fetch('/control/drain', {method: 'POST', headers: {'X-Headgate-Control': '1'}})"
                assert await page.run(f"{command}.then((answer) => answer.status)") == 403
            await page.wait_for("document.querySelector('#connection').dataset.state === 'lost'")
            with gate(tmp_path, DOMAINS, "--admin", f"127.0.0.1:{port}"):
                await page.wait_for("document.querySelector('#connection').dataset.state === 'live'")
                await page.wait_for("document.querySelector('#acts-note').innerText.startsWith('Off. With [admin]')")

    asyncio.run(check())


def at(program: Program) -> str:
    return program.ready["address"].removeprefix("tcp://")


def test_masters_routers_and_proxies_have_pages_of_their_own(tmp_path):
    options = ("--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")

    async def check(master: Program, router: Program, running: Program, proxy: Program) -> None:
        await asyncio.to_thread(running.statuses, 20)
        target = "127.0.0.1:1"
        answer = await asyncio.to_thread(programs.request, proxy.port, target, "CONNECT")
        assert answer.status == 403
        async with chromium("https://127.0.0.1:9") as browser:
            shown = {"master": (master, "#domains"), "router": (router, "#masters"), "proxy": (proxy, "#refusals")}
            for kind, (program, table) in shown.items():
                page = await opened(browser, program.ready["admin"])
                assert await text(page, "#kind") == kind
                await page.wait_for(f"document.querySelector('{table} tbody tr') !== null")
                assert await faults(page) == []
                assert "trouble" not in await text(page, "#cards")

    with (
        programs.headgate(tmp_path, "master", "--domain", "default=1/min burst 2", *options) as master,
        programs.headgate(
            tmp_path, "router", "--master", master.ready["address"].removeprefix("tcp://"), *options
        ) as router,
        programs.origin() as origin,
        programs.gate(
            tmp_path, "--origin", origin.url, "--master", router.ready["address"].removeprefix("tcp://")
        ) as running,
        programs.headgate(tmp_path, "proxy", "--plaintext", *options) as proxy,
    ):
        asyncio.run(check(master, router, running, proxy))


def test_many_domains_and_identifiers_make_no_larger_page(tmp_path):
    sections = "".join(
        f'[[domain]]\nname = "d{number:03d}"\npath_prefix = "/{number:03d}"\nrules = ["1/h burst 1"]\n'
        for number in range(1_000)
    )

    async def client(port: int, numbers: range) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in numbers:
            path, address = number % 1_000, f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
            head = f"GET /{path:03d}/ HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {address}\r\n\r\n"
            writer.write(head.encode())
            await reader.readuntil(b"\r\n\r\n")
        writer.close()

    async def check(running: Program) -> None:
        await asyncio.gather(*(client(running.port, range(start, 10_000, 8)) for start in range(8)))
        async with chromium("https://127.0.0.1:9") as browser:
            page = await opened(browser, running.ready["admin"])
            await page.wait_for("document.querySelectorAll('#held tbody tr').length === 10")
            assert await page.run("document.querySelectorAll('#domains tbody tr').length") == 50
            assert "The 50 used most of 1,000." in await text(page, "#tables")
            assert await text(page, "#cards article dl div:last-child dd") == "10,000"
            size = "performance.getEntriesByType('resource').reduce((sum, one) => sum + one.transferSize, 0)"
            assert await page.run(size) < 250_000

    file = tmp_path / "headgate.toml"
    file.write_text('[gate]\ntrusted_proxies = ["127.0.0.1"]\n' + sections)
    with programs.gate(tmp_path, "--config", file, "--origin", f"http://127.0.0.1:{free_port()}") as running:
        asyncio.run(check(running))
