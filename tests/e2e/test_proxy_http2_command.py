"""`headgate proxy` over HTTP/2: the same responses as over HTTP/1.1, and a shutdown that loses no data."""

import asyncio
import hashlib
import os
import re
import signal
import ssl
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import programs
from tests.e2e.http2_client import WIDEST, Http2Client, bounded, http2_at
from tests.e2e.proxy_setup import proxy

LARGE = 32 << 20
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


def test_refusals_are_those_of_http_1(tmp_path: Path) -> None:
    with proxy(tmp_path) as running:
        port = running.origin.port
        running.origin.advise("no.example.org", {"user_agent": "*", "disallow": True})
        running.origin.answer("busy.example.org", status=503)
        authorities = {
            f"no.example.org:{port}": (403, "advice_disallowed"),
            f"busy.example.org:{port}": (403, "advice_unreachable"),
            "www.example.org:25": (403, "port"),
            f"10.1.2.3:{port}": (403, "address"),
            "www.example.org": (400, "malformed"),
        }

        async def test(client: Http2Client) -> None:
            tunnel = await client.open(f"www.example.org:{port}")
            for authority, (status, reason) in authorities.items():
                refused = client.ask(authority)
                assert (await client.answered(refused), word(refused.fields)) == (status, reason), authority
                assert refused.fields.get("retry-after") == ("0" if status == 403 else None)
                with running.client() as other:
                    answer = other.ask(authority)
                    assert (answer.status, answer.reason) == (status, reason), authority
            await client.send_data(tunnel, b"hello", end=True)
            assert await client.ended(tunnel) == b"hello"

        with_client(running, test)
        running.wait_for(tunnels=0)
        assert running.metrics()['headgate_proxy_bytes_total{direction="sent"}'] == 5


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


@WORKERS
def test_tunnels_that_outlast_the_drain_are_closed_and_counted(tmp_path: Path, workers: int) -> None:
    with proxy(tmp_path, "--workers", workers, "--drain", 0.3) as running:

        async def test(client: Http2Client) -> None:
            tunnels = [await client.open(f"www.example.org:{running.origin.port}") for _ in range(3)]
            running.program.process.send_signal(signal.SIGTERM)
            assert (await client.final_goaway()).error_code == 0
            assert {tunnel.code for tunnel in tunnels} == {8}

        with_client(running, test)
        assert running.program.process.wait(programs.PATIENCE) == 0
        assert re.search(r"^headgate: 3 tunnels had not ended and were cut$", running.program.said(), re.MULTILINE)
