"""Debian's Chromium, headless, with an empty profile, driven over the DevTools protocol: it is told a prefetch proxy,
opens pages, and tells what became of what they asked it to prefetch.

It sends no packet beyond loopback: every name is an address of this machine's to it. It is stopped by its process
group, and nothing of it stays.
"""

import asyncio
import json
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from websockets.asyncio.client import ClientConnection, connect

from tests.servers import find_program

PATIENCE = 60.0  # seconds for what takes a fraction of one; only ever reached by a failing test
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--ignore-certificate-errors",
    "--isolated-prerender-allow-all-domains",
    "--remote-debugging-port=0",
)
UNSETTLED = ("Pending", "Running")

T = TypeVar("T")


@dataclass(frozen=True)
class Outcome:
    """What became of a prefetch, in DevTools' words: a status such as "Ready", and why, "PrefetchFailedNetError"."""

    status: str
    reason: str


class Page:
    """A tab. `errors` tells what is wrong with the speculation rules of the pages it has shown.

    `requests` are the addresses that it has asked for, and `problems` the errors of scripts and of the console.
    """

    def __init__(self, browser: "Browser", session: str) -> None:
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.problems: list[str] = []
        self._browser = browser
        self._session = session
        self._outcomes: dict[tuple[str, str], Outcome] = {}  # by the id of the page that asked, and the address
        self._here = ""  # the id of the page shown
        self._loaded: set[str] = set()
        self._events: list[str] = []

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Have this tab do something, in the words of the DevTools protocol."""
        return await self._browser.call(method, self._session, **parameters)

    async def go(self, url: str) -> None:
        """Open an address as if it were typed, and return once the page is there."""
        answer = await self.call("Page.navigate", url=url)
        assert "errorText" not in answer, f"{url}: {answer}"
        await self._until(lambda: answer["loaderId"] in self._loaded, f"page at {url}")

    async def run(self, script: str) -> Any:
        """Run JavaScript in the page, as if a person had asked for it; return its value, a promise's included."""
        options = {"userGesture": True, "awaitPromise": True, "returnByValue": True}
        answer = await self.call("Runtime.evaluate", expression=script, **options)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def wait_for(self, script: str) -> Any:
        """Return the value of JavaScript in the page as soon as it is true."""
        value = None
        async with asyncio.timeout(PATIENCE):
            while not (value := await self.run(script)):  # noqa: ASYNC110  # nothing tells when it changes
                await asyncio.sleep(0.05)
        return value

    async def prefetched(self, url: str) -> Outcome:
        """Wait for what becomes of a prefetch that the page shown asks for."""
        return await self._settled(self._here, url, UNSETTLED)

    async def follow(self, url: str) -> Outcome:
        """Go on to an address from the page shown, as its link would; tell what became of its prefetch in the end."""
        before = self._here
        await self.run(f"location.href = {json.dumps(url)}; undefined")
        await self._until(lambda: self._here != before and self._here in self._loaded, f"page at {url}")
        return await self._settled(before, url, (*UNSETTLED, "Ready"))

    async def _settled(self, page: str, url: str, passing: Sequence[str]) -> Outcome:
        def outcome() -> Outcome | None:
            assert not self.errors, self.errors
            found = self._outcomes.get((page, url))
            return None if found is None or found.status in passing else found

        return await self._until(outcome, f"outcome of the prefetch of {url}")

    async def _until(self, found: Callable[[], T | None], what: str) -> T:
        try:
            return await self._browser.until(found)
        except TimeoutError as error:
            error.add_note(f"no {what}; heard: {self._events}")
            raise

    def heard(self, method: str, told: dict[str, Any]) -> None:
        """Take note of an event."""
        if method == "Preload.prefetchStatusUpdated":
            outcome = Outcome(told["status"], told["prefetchStatus"])
            self._outcomes[told["key"]["loaderId"], told["prefetchUrl"]] = outcome
            self._events.append(f"{told['prefetchUrl']} {outcome.status} {outcome.reason}")
        elif method == "Preload.ruleSetUpdated" and "errorMessage" in told["ruleSet"]:
            self.errors.append(told["ruleSet"]["errorMessage"])
        elif method == "Page.frameNavigated" and "parentId" not in told["frame"]:
            self._here = told["frame"]["loaderId"]
            self._events.append(f"shown: {told['frame']['url']}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif method == "Runtime.exceptionThrown" or told.get("entry", told).get("level", told.get("type")) == "error":
            self.problems.append(json.dumps(told))
        elif method == "Page.lifecycleEvent" and told["name"] == "load":
            self._loaded.add(told["loaderId"])


class Browser:
    """A running Chromium; all it writes is in `folder`, which goes with it."""

    def __init__(self, connection: ClientConnection, folder: Path) -> None:
        self.folder = folder
        self._connection = connection
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._pages: dict[str, Page] = {}
        self._news = asyncio.Event()

    def output(self) -> str:
        """What it has printed so far."""
        return (self.folder / "log").read_text(errors="replace")

    async def open(self, url: str, *domains: str) -> Page:
        """Open an address in a new tab; it also hears the events of these domains, such as Network."""
        target = await self.call("Target.createTarget", url="about:blank")
        attached = await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        session = attached["sessionId"]
        page = self._pages[session] = Page(self, session)
        for domain in ("Page", "Preload", *domains):
            await page.call(f"{domain}.enable")
        await page.call("Page.setLifecycleEventsEnabled", enabled=True)
        await page.go(url)
        return page

    async def call(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """Have the browser, or a tab of it, do something, in the words of the DevTools protocol."""
        number = len(self._answers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        to = {"sessionId": session} if session else {}
        await self._connection.send(json.dumps({"id": number, "method": method, "params": parameters, **to}))
        told = await asyncio.wait_for(answer, PATIENCE)
        assert "error" not in told, f"{method}: {told['error']}"
        result: dict[str, Any] = told["result"]
        return result

    async def listen(self) -> None:
        """Hear what the browser tells, until it ends."""
        async for message in self._connection:
            told = json.loads(message)
            if "id" in told:
                self._answers[told["id"]].set_result(told)
            elif (page := self._pages.get(told.get("sessionId", ""))) is not None:
                page.heard(told["method"], told["params"])
            self._news.set()

    async def until(self, found: Callable[[], T | None]) -> T:
        """Return what `found` gives as soon as that is true; it is asked again whenever the browser told something."""
        async with asyncio.timeout(PATIENCE):
            while not (value := found()):
                self._news.clear()
                await self._news.wait()
        return value


async def started(command: Sequence[str], folder: Path) -> asyncio.subprocess.Process:
    """Start a program in a process group of its own, at home in this folder and with no proxy of the machine's."""
    inherited = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    own = {"HOME": str(folder), "TMPDIR": str(folder), "DBUS_SESSION_BUS_ADDRESS": "disabled:"}
    with (folder / "log").open("wb") as log:
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=asyncio.subprocess.STDOUT,
            env=inherited | own,
            start_new_session=True,
        )


async def debugger(process: asyncio.subprocess.Process, folder: Path) -> str:
    """Address of the browser's DevTools, which it writes to a file of its profile: a port, then a path."""
    async with asyncio.timeout(PATIENCE):
        while process.returncode is None:
            with suppress(FileNotFoundError):
                port, _, path = (folder / "profile" / "DevToolsActivePort").read_text().partition("\n")
                if path:
                    return f"ws://127.0.0.1:{port}{path}"
            await asyncio.sleep(0.02)
    raise ChildProcessError(f"chromium ended with {process.returncode}: {(folder / 'log').read_text()}")


def remaining(folder: Path) -> list[int]:
    """Process ids of all that was started with this folder among its words, whoever its parent is by now."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has just ended
            if os.fsencode(folder) in file.read_bytes():
                found.append(int(file.parent.name))
    return found


async def stop(process: asyncio.subprocess.Process, folder: Path) -> None:
    """End the browser's process group, then what had left that: its crash reporters, which follow by themselves."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), PATIENCE / 3)
            break
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE / 3):
            while remaining(folder):  # noqa: ASYNC110 - nothing tells when a stranger's child ends
                await asyncio.sleep(0.02)
    for pid in remaining(folder):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@asynccontextmanager
async def chromium(
    proxy: str, *, resolve: str = "MAP * 127.0.0.1", flags: Sequence[str] = ()
) -> AsyncIterator[Browser]:
    """Run Chromium with the prefetch proxy at this address ("https://127.0.0.1:8443"), and with these flags besides.

    `resolve` says where names lead, by the first rule that matches: with "MAP *:443 127.0.0.1:8444" before the usual
    one, addresses need no port.
    """
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        own = (f"--user-data-dir={folder}/profile", f"--isolated-prerender-tunnel-proxy={proxy}")
        program = find_program("chromium") or "chromium"
        command = [program, *FLAGS, *own, f"--host-resolver-rules={resolve}", *flags, "about:blank"]
        process = await started(command, folder)
        try:
            async with connect(await debugger(process, folder), proxy=None, max_size=None) as connection:
                browser = Browser(connection, folder)
                listening = asyncio.create_task(browser.listen())
                try:
                    yield browser
                finally:
                    listening.cancel()
        finally:
            await stop(process, folder)
