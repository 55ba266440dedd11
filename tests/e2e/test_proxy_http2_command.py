"""`headgate proxy` over HTTP/2: a shutdown that loses no data, and resets that start few fetches of advice."""

import asyncio
import hashlib
import os
import signal
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import programs
from tests.e2e.http2_client import WIDEST, Http2Client, bounded, http2_at
from tests.e2e.proxy_setup import proxy
from tests.e2e.tunnels import until

LARGE = 8 << 20
WORKERS = pytest.mark.parametrize("workers", [1, 2])


def with_client(running: Any, test: Any) -> None:
    """Run a test that is given a client."""

    tls = ssl.create_default_context()  # of its own, for its ALPN
    running.origin.authority.configure_trust(tls)

    async def run() -> None:
        async with http2_at(("127.0.0.1", running.port), tls) as client:
            await test(client)

    asyncio.run(bounded(run()))


def word(fields: dict[str, str]) -> str:
    """The reason in `Proxy-Status`."""
    return fields["proxy-status"].rpartition('details="')[2].removesuffix('"')


@WORKERS
def test_bulk_in_both_directions_survives_a_drain(tmp_path: Path, workers: int) -> None:
    with proxy(tmp_path, "--workers", workers, "--drain", 60) as running:
        to = f"www.example.org:{running.origin.port}"
        payload = os.urandom(1 << 20) * (LARGE >> 20)

        async def test(client: Http2Client) -> None:
            tunnel = await client.open(to)
            putting = asyncio.create_task(client.send_data(tunnel, payload, end=True))
            await client.until(lambda: len(tunnel.received) > LARGE // 8)
            running.program.process.send_signal(signal.SIGTERM)
            await client.until(lambda: client.goaways)
            assert (client.goaways[0].last_stream_id, client.goaways[0].error_code) == (WIDEST, 0)
            refused = client.ask(to)
            assert (await client.answered(refused), word(refused.fields)) == (503, "draining")
            assert 1 <= int(refused.fields["retry-after"]) <= 60
            assert len(tunnel.received) < LARGE
            await putting
            assert hashlib.sha256(await client.ended(tunnel)).digest() == hashlib.sha256(payload).digest()
            last = await client.final_goaway()
            assert (last.last_stream_id, last.error_code) == (refused.number, 0)

        with_client(running, test)
        assert running.program.process.wait(programs.PATIENCE) == 0
        assert "cut" not in running.program.said()


def test_resets_of_streams_start_few_fetches_of_advice(tmp_path: Path) -> None:
    """A fetch counts as a tunnel of its client until it has ended, also after the reset of the stream that began it."""
    with proxy(tmp_path, "--client-tunnels", 4) as running:
        running.origin.hold = threading.Event()

        async def test(client: Http2Client) -> None:
            for number in range(4):
                asked = client.ask(f"{number}.example.org:{running.origin.port}")
                await until(lambda number=number: len(running.origin.asked) > number)  # type: ignore[misc]
                client.reset(asked)
            for _ in range(20):
                refused = client.ask(f"more.example.org:{running.origin.port}")
                assert (await client.answered(refused), word(refused.fields)) == (429, "client_tunnels")

        with_client(running, test)
        assert len(running.origin.asked) == 4
        running.origin.hold.set()
