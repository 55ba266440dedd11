"""Files that the gateway sends itself: whole or visibly not, to agents that read fast, slowly, or not at all."""

import asyncio
import os
import shutil
import ssl
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from headgate.config.tree import Timeouts
from headgate.origin.bundle.server import BundleServer
from headgate.origin.bundle.snapshot import ReloadingBundle
from headgate.origin.gateway import ListenerSettings
from headgate.origin.gateway.responses import FileResponse
from tests import webbundles
from tests.e2e.gateway_setup import PATIENCE, agent_at, gateway_running, tls_keys, until
from tests.webbundles import BIG, HTML, PAGE

HUGE = BIG * 12


@pytest.fixture
def site(tmp_path: Path) -> Path:
    exchanges = {"url": "/", "payload": PAGE}, {"url": "/big", "payload": BIG}
    return webbundles.write(tmp_path / "site.wbn", *exchanges)


@pytest.fixture(scope="module")
def huge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle whose one response is longer than what all sockets' buffers hold."""
    folder = tmp_path_factory.mktemp("huge")
    return webbundles.write(folder / "site.wbn", {"url": "/big", "headers": HTML, "payload": HUGE})


@asynccontextmanager
async def storefront(site: Path, *, unpack: bool = True, **settings: Any) -> Any:
    front = BundleServer(ReloadingBundle(site), unpack=unpack)
    settings["local"] = lambda one: front.answer(one.method, one.host, one.target, one.fields)
    async with gateway_running(9, **settings) as gateway:
        yield gateway


def get(path: bytes = b"/big", *lines: bytes, method: bytes = b"GET") -> bytes:
    return b"%b %b HTTP/1.1\r\nHost: a\r\n%b\r\n" % (method, path, b"".join(line + b"\r\n" for line in lines))


@pytest.mark.parametrize("sendfile", ["as it is", "refused", "missing", "dribbling"])
def test_files_arrive_whole_with_and_without_sendfile(
    run: Callable, site: Path, sendfile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.sendfile

    def refuse(*_: int) -> int:
        raise OSError("not on this file system")

    def dribble(out: int, source: int, offset: int, count: int) -> int:
        return real(out, source, offset, min(count, 70_001))

    if sendfile == "missing":
        monkeypatch.delattr(os, "sendfile")
    elif sendfile != "as it is":
        monkeypatch.setattr(os, "sendfile", refuse if sendfile == "refused" else dribble)

    async def check() -> None:
        async with storefront(site) as gateway, agent_at(gateway, limit=2**16) as agent:
            for _ in range(2):
                assert (await agent.ask(get())).body == BIG

    run(check())


def test_files_over_tls(run: Callable, site: Path, tmp_path: Path) -> None:
    authority, client = trustme.CA(), ssl.create_default_context()
    listener = ListenerSettings(tls_keys(tmp_path, authority, "localhost"))
    authority.configure_trust(client)

    async def check() -> None:
        async with (
            storefront(site, listener=listener) as gateway,
            agent_at(gateway, ssl=client, server_hostname="localhost", limit=2**16) as agent,
        ):
            for _ in range(2):
                assert (await agent.ask(get())).body == BIG
                assert (await agent.ask(get(b"/"))).body == PAGE

    run(check())


def is_under_way(gateway: Any) -> bool:
    """Return whether a file is being sent to a client that reads slowly."""
    return any(isinstance(one.exchange, FileResponse) and not one._writable for one in gateway.connections)


def test_a_client_that_never_reads_is_disconnected(run: Callable, huge: Path) -> None:
    async def check() -> None:
        async with storefront(huge, timeouts=Timeouts(idle=0.2)) as gateway, agent_at(gateway, limit=1024) as agent:
            agent.writer.transport.pause_reading()
            await agent.send(get())
            await until(lambda: gateway.connections)
            await until(lambda: not gateway.connections)

    run(check())


@pytest.mark.parametrize("change", ["cut", "overwritten"])
def test_a_file_that_changes_during_a_download_ends_early(
    run: Callable, huge: Path, tmp_path: Path, change: str
) -> None:
    path = tmp_path / "site.wbn"

    async def check() -> None:
        shutil.copyfile(huge, path)
        os.utime(path, (0, 0))
        async with storefront(path) as gateway, agent_at(gateway, limit=1024) as agent:
            agent.writer.transport.pause_reading()
            await agent.send(get())
            await until(lambda: is_under_way(gateway))
            if change == "cut":
                os.truncate(path, 2_000_000)
            else:
                with path.open("r+b") as file:
                    file.write(b"x")
            agent.writer.transport.resume_reading()
            head, _, body = (await agent.rest()).partition(b"\r\n\r\n")
            assert b"content-length: %d" % len(HUGE) in head
            assert len(body) < len(HUGE)
            await until(lambda: not gateway.connections)

    run(check())


@pytest.mark.deep
def test_a_drain_waits_for_downloads_and_not_for_idle_connections(run: Callable, huge: Path) -> None:
    async def check() -> None:
        async with storefront(huge) as gateway, agent_at(gateway, limit=2**24) as agent:
            agent.writer.transport.pause_reading()
            await agent.send(get())
            await until(lambda: is_under_way(gateway))
            draining = asyncio.ensure_future(gateway.drain(10 * PATIENCE))
            await asyncio.sleep(0)
            agent.writer.transport.resume_reading()
            assert (await agent.response()).body == HUGE
            await asyncio.wait_for(draining, PATIENCE)

    run(check())
