"""Each phase of a bundle server's life, with a gateway that records its calls."""

import asyncio
import shutil
from pathlib import Path

import pytest

from headgate.config import Address
from headgate.errors import BundleError, ConfigurationError
from headgate.origin.bundle.server import BundleServer
from headgate.origin.bundle.snapshot import ReloadingBundle
from headgate.runtime import bundle_server
from headgate.runtime.bundle_server import _BundleServer, run_bundle_server
from headgate.runtime.lifecycle import Lifecycle, LifecyclePhase

VECTORS = Path(__file__).parents[2] / "vectors" / "bundle"
PATIENCE = 30


class RecordingGateway:
    """Records what it is told."""

    def __init__(self, *, address=("127.0.0.1", 8080), error=None):
        self.calls = []
        self.addresses = [address]
        self._error = error

    async def start(self, host, port):
        self.calls.append(("start", host, port))
        if self._error is not None:
            raise self._error

    async def drain(self, seconds):
        self.calls.append(("drain", seconds))


@pytest.fixture
def path(tmp_path):
    copied = tmp_path / "a site.wbn"
    shutil.copyfile(VECTORS / "small_b1.wbn", copied)
    return copied


def replace(path, source):
    """Replace the file, as programs that write safely do."""
    part = path.with_suffix(".part")
    shutil.copyfile(source, part)
    part.rename(path)


@pytest.fixture
def run(path, monkeypatch):
    """Run a server in its life-cycle, await `steps(lifecycle, gateway, bundle)`, stop it; return the gateway."""

    def run(steps, **how):
        async def main():
            gateway = RecordingGateway(**how)
            monkeypatch.setattr(bundle_server, "_new_gateway", lambda _content: gateway)
            bundle = ReloadingBundle(path)
            lifecycle = Lifecycle(_BundleServer(bundle, Address("127.0.0.1", 0), unpack=False))
            running = asyncio.ensure_future(lifecycle.run())
            try:
                async with asyncio.timeout(PATIENCE):
                    await steps(lifecycle, gateway, bundle)
                    if lifecycle.phase in {LifecyclePhase.READY, LifecyclePhase.RELOADING}:
                        lifecycle.stop()
                    await running
            finally:
                running.cancel()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            assert not others, "no task outlives the server"
            return gateway

        return asyncio.run(main())

    return run


async def until(condition):
    """Let other tasks run until the condition holds; the caller's timeout limits the wait."""
    while not condition():  # noqa: ASYNC110 - conditions of the code under test have no event
        await asyncio.sleep(0)


async def ready(lifecycle):
    await until(lambda: lifecycle.phase is not LifecyclePhase.STARTING)
    assert lifecycle.phase is LifecyclePhase.READY


@pytest.mark.parametrize(
    ("address", "url"), [(("127.0.0.1", 4321), "http://127.0.0.1:4321/"), (("::1", 4321), "http://[::1]:4321/")]
)
def test_ready_line_has_the_url_of_the_bundle(run, capsys, address, url):
    async def steps(lifecycle, gateway, bundle):
        await ready(lifecycle)

    gateway = run(steps, address=address)
    assert gateway.calls[0] == ("start", "127.0.0.1", 0)
    assert capsys.readouterr().err == f"ready {url}a%20site.wbn\n"


def test_occupied_address_is_a_configuration_error_and_closes_the_gateway(run):
    calls = []

    async def steps(lifecycle, gateway, bundle):
        calls.append(gateway.calls)
        await until(lambda: lifecycle.phase is LifecyclePhase.STOPPED)

    with pytest.raises(ConfigurationError, match="--listen"):
        run(steps, error=OSError(98, "Address already in use"))
    assert calls == [[("start", "127.0.0.1", 0), ("drain", 0)]]


def test_replaced_file_is_loaded_without_a_signal(run, path, monkeypatch):
    monkeypatch.setattr(bundle_server, "_CHECK_INTERVAL", 0)

    async def steps(lifecycle, gateway, bundle):
        await ready(lifecycle)
        replace(path, VECTORS / "hello_b2.wbn")
        await until(lambda: bundle.snapshot.metadata.version == "b2")

    run(steps)


def test_reload_loads_a_replaced_file_at_once(run, path):
    async def steps(lifecycle, gateway, bundle):
        await ready(lifecycle)
        replace(path, VECTORS / "hello_b2.wbn")
        lifecycle.reload()
        await until(lambda: lifecycle.phase is LifecyclePhase.READY)
        assert bundle.snapshot.metadata.version == "b2"

    run(steps)


def test_stop_drains_for_thirty_seconds_and_then_closes(run):
    async def steps(lifecycle, gateway, bundle):
        await ready(lifecycle)
        lifecycle.stop()

    assert run(steps).calls == [("start", "127.0.0.1", 0), ("drain", 30.0), ("drain", 0)]


@pytest.mark.parametrize(
    ("request_line", "status"),
    [(b"GET /", b"200"), (b"GET /a%20site.wbn", b"200"), (b"GET /other", b"404"), (b"POST /", b"405")],
)
def test_gateway_answers_every_request_without_an_origin(path, request_line, status):
    async def response():
        gateway = bundle_server._new_gateway(BundleServer(ReloadingBundle(path)))
        await gateway.start("127.0.0.1", 0)
        try:
            reader, writer = await asyncio.open_connection(*gateway.addresses[0])
            writer.write(request_line + b" HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
            async with asyncio.timeout(PATIENCE):
                received = await reader.read()
            writer.close()
        finally:
            await gateway.drain(0)
        return received

    head, _, body = asyncio.run(response()).partition(b"\r\n\r\n")
    assert head.split()[1] == status
    assert (body == path.read_bytes()) == (status == b"200")


@pytest.mark.parametrize(
    ("content", "error"), [(b"not a bundle", BundleError), (b"", BundleError), (None, FileNotFoundError)]
)
def test_file_that_cannot_be_served_is_an_error_before_the_start(tmp_path, content, error):
    path = tmp_path / "site.wbn"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(error):
        run_bundle_server(str(path), listen="127.0.0.1:0")


def test_profile_is_that_of_the_server(tmp_path):
    with pytest.raises(BundleError, match=r"3\.3 step 24"):
        run_bundle_server(str(VECTORS / "hello_b1.wbn"), listen="127.0.0.1:0")
    with pytest.raises(ConfigurationError):
        run_bundle_server(str(VECTORS / "hello_b1.wbn"), listen="nowhere", profile="compat")
