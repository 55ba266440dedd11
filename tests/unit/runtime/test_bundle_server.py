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
from tests.unit.runtime import serving
from tests.unit.runtime.serving import reload, until

VECTORS = Path(__file__).parents[2] / "vectors" / "bundle"


class RecordingGateway:
    """Records what it is told."""

    addresses = (("127.0.0.1", 8080),)
    error = None

    def __init__(self):
        self.calls = []

    async def start(self, host, port):
        self.calls.append(("start", host, port))
        if self.error is not None:
            raise self.error

    async def drain(self, seconds):
        self.calls.append(("drain", seconds))


@pytest.fixture
def path(tmp_path):
    copied = tmp_path / "a site.wbn"
    shutil.copyfile(VECTORS / "small_b1.wbn", copied)
    return copied


@pytest.fixture
def gateway(monkeypatch):
    """Return what stands for the gateway of a server."""
    gateway = RecordingGateway()
    monkeypatch.setattr(bundle_server, "_new_gateway", lambda _content: gateway)
    return gateway


@pytest.fixture
def bundle(path):
    return ReloadingBundle(path)


def running(bundle):
    return serving.running(lambda: _BundleServer(bundle, Address("127.0.0.1", 0), unpack=False))


def replace(path, source):
    """Replace the file, as programs that write safely do."""
    part = path.with_suffix(".part")
    shutil.copyfile(source, part)
    part.rename(path)


@pytest.mark.parametrize(
    ("address", "url"), [(("127.0.0.1", 4321), "http://127.0.0.1:4321/"), (("::1", 4321), "http://[::1]:4321/")]
)
async def test_ready_line_has_the_url_of_the_bundle(bundle, gateway, address, url):
    gateway.addresses = [address]
    async with running(bundle) as (_, messages):
        assert gateway.calls == [("start", "127.0.0.1", 0)]
    assert messages == [f"ready {url}a%20site.wbn"]


async def test_occupied_address_is_a_configuration_error_and_closes_the_gateway(bundle, gateway):
    gateway.error = OSError(98, "Address already in use")
    with pytest.raises(ConfigurationError, match="--listen"):
        await Lifecycle(_BundleServer(bundle, Address("127.0.0.1", 0), unpack=False)).run()
    assert gateway.calls == [("start", "127.0.0.1", 0), ("drain", 0)]


@pytest.mark.usefixtures("gateway")
async def test_replaced_file_is_loaded_without_a_signal(bundle, path, monkeypatch):
    monkeypatch.setattr(bundle_server, "_CHECK_INTERVAL", 0)
    async with running(bundle):
        replace(path, VECTORS / "hello_b2.wbn")
        await until(lambda: bundle.snapshot.metadata.version == "b2")


@pytest.mark.usefixtures("gateway")
async def test_reload_loads_a_replaced_file_at_once(bundle, path):
    async with running(bundle) as (lifecycle, _):
        replace(path, VECTORS / "hello_b2.wbn")
        await reload(lifecycle)
        assert bundle.snapshot.metadata.version == "b2"


async def test_stop_drains_for_thirty_seconds_and_then_closes(bundle, gateway):
    async with running(bundle) as (lifecycle, _):
        lifecycle.stop()
        await until(lambda: lifecycle.phase is LifecyclePhase.STOPPED)
    assert gateway.calls == [("start", "127.0.0.1", 0), ("drain", 30.0), ("drain", 0)]
    assert asyncio.all_tasks() == {asyncio.current_task()}, "no task outlives the server"


@pytest.mark.parametrize(
    ("request_line", "status"),
    [(b"GET /", b"200"), (b"GET /a%20site.wbn", b"200"), (b"GET /other", b"404"), (b"POST /", b"405")],
)
async def test_gateway_answers_every_request_without_an_origin(bundle, path, request_line, status):
    gateway = bundle_server._new_gateway(BundleServer(bundle))
    await gateway.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*gateway.addresses[0])
    writer.write(request_line + b" HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    await gateway.drain(0)
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
