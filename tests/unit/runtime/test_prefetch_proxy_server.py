"""A proxy's server in this process: what it reports, its reloads and its end; and the supervisor of its workers."""

import asyncio
import gc
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trustme

from headgate.config import Address, Configuration
from headgate.config.proxy_section import Proxy
from headgate.errors import ConfigurationError
from headgate.proxy.admission.limits import TunnelSlots, create_slots
from headgate.proxy.counters import Counts
from headgate.runtime import prefetch_proxy_server as module
from headgate.runtime.prefetch_proxy_process import ProxyConfiguration, WorkerState
from headgate.runtime.prefetch_proxy_server import ProxyWorkers
from tests.unit.runtime import serving


def plain(**changes: Any) -> Proxy:
    """Return a proxy in plaintext that may connect to all ports of loopback, and needs no advice."""
    usual: dict[str, Any] = {"listen": "127.0.0.1:0", "plaintext": True, "admin": "", "unreachable": "permit"}
    return Proxy(**(usual | {"allow_addresses": ("127.0.0.0/8",), "drain": 0.0} | changes))


def run(settings: Proxy) -> list[str]:
    """Run a proxy; return the messages that it logged."""
    tree = Configuration(proxy=settings)
    try:
        return serving.run(lambda: module.ProxyServer(lambda: (tree, None)))
    finally:
        gc.unfreeze()


def test_a_self_signed_certificate_is_announced() -> None:
    messages = run(plain(plaintext=False, self_signed=True))
    assert messages[0].startswith("headgate: self-signed certificate, for trying it out")
    assert messages[-1].startswith("ready https://127.0.0.1:")


def test_plaintext_is_refused_where_others_could_read_it() -> None:
    with pytest.raises(ConfigurationError, match=r"--plaintext at 0.0.0.0:0 would show CONNECT requests to others"):
        run(plain(listen="0.0.0.0:0"))
    assert run(plain(listen="0.0.0.0:0", insecure=True))[-1].startswith("ready http://0.0.0.0:")


# The supervisor of several workers.


def workers(*, files: tuple[str, str] | None = None, **changes: Any) -> ProxyWorkers:
    """Return the workers of a proxy, none of them started; its one source of advice is never asked."""
    settings = plain(**({"workers": 2, "max_tunnels": 2} | changes))
    configuration = ProxyConfiguration(
        settings=settings,
        addresses=(Address("127.0.0.1", 1),),
        admin=(),
        files=files,
        key=b"",
        slots=create_slots(2),
        tokens=None,
    )
    return ProxyWorkers(configuration, None)  # type: ignore[arg-type]  # no advice is asked for


def ended(number: int, counts: Counts) -> Any:
    """Return a worker that has ended with this state."""
    return SimpleNamespace(number=number, last_state=WorkerState(counts, dropped=1, cut=2))


def test_each_worker_has_its_number() -> None:
    assert [workers().configuration(number).configuration.worker for number in range(2)] == [0, 1]


def test_the_totals_of_workers_that_have_ended_are_kept() -> None:
    both = workers()
    for number in range(2):
        both.on_worker_exit(ended(number, Counts(connects={"accepted": 3}, received=5, tunnels=4)))
    state = asyncio.run(both.state(whole=False))
    assert state == WorkerState(Counts(connects={"accepted": 6}, received=10), dropped=2, cut=4)


def test_the_slots_of_a_worker_that_has_ended_are_free() -> None:
    both = workers()
    slots = TunnelSlots(2, os.dup(both.configuration(0).configuration.slots), worker=1)

    async def take_all() -> list[bool]:
        return [await slots.take() for _ in range(3)]

    assert asyncio.run(take_all()) == [True, True, False]
    both.on_worker_exit(ended(1, Counts()))
    assert asyncio.run(take_all()) == [True, True, False]
    slots.close()


def test_a_reload_of_workers_checks_the_files_first(tmp_path: Path) -> None:
    issued = trustme.CA().issue_cert("localhost")
    cert, key = (str(tmp_path / name) for name in ("cert.pem", "key.pem"))
    issued.cert_chain_pems[0].write_to_path(cert)
    issued.private_key_pem.write_to_path(key)
    both = workers(files=(cert, key), plaintext=False, cert=cert, key=key)
    Path(key).write_text("not a key\n")
    with pytest.raises(ConfigurationError, match=r"key '\S+key.pem' cannot be used"):
        asyncio.run(both.reload(None))
