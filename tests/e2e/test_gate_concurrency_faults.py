"""Permits after faults: clients that leave, reset, half-close or stall, and an origin that fails.

The gate is a process, with asyncio and with uvloop. Clients and origin choose at random, from a seed, what they do; the
requests in flight must be none afterwards, on a gate that was reloaded meanwhile and that still answers.
"""

import asyncio
import importlib.util
import random
import signal
import socket
import struct
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import pytest

from tests.e2e import programs
from tests.e2e.gateway_setup import origin_running, read_request
from tests.e2e.programs import Program

CLIENTS = 24
REQUESTS = 8
BODY = b"hello"
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
RESPONSES = [
    RESPONSE, RESPONSE, RESPONSE,
    b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n",
    b"HTTP/1.1 101 S\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\n\r\n" + RESPONSE, b"garbage\r\n\r\n", b"", b"silence",
]  # fmt: skip
HEADS = [
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 3,
    b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n" + BODY,
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel",
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nmalformed\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost",
]


async def fail_often(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random, over: asyncio.Event
) -> None:
    """Answer requests in ways chosen at random, until one ends the connection; properly when that is `over`."""
    while True:
        await read_request(reader)
        if over.is_set():
            writer.write(RESPONSE)
            continue
        await asyncio.sleep(chance.choice([0, 0, 0.01, 0.1]))
        response = chance.choice(RESPONSES)
        if response == b"silence":
            await asyncio.sleep(60)
        writer.write(response)
        if response != RESPONSE:
            return


async def misbehave(port: int, chance: random.Random) -> None:
    """Connect again and again; send a request, and leave in a way chosen at random."""
    for _ in range(REQUESTS):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with suppress(ConnectionError, TimeoutError):
            writer.write(chance.choice(HEADS))
            await leave(reader, writer, chance)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Read for a while or not, and end a connection in a way chosen at random."""
    end = chance.choice(["read", "read", "half-close", "close", "reset"])
    if end == "half-close":
        writer.write_eof()
    if end == "reset":
        sock: socket.socket = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if end in {"read", "half-close"}:
        await asyncio.wait_for(reader.read(65536), chance.choice([0.02, 0.2, 0.6]))
    else:
        await asyncio.sleep(chance.choice([0, 0.02]))


async def run_clients(gate: Program, port: int, chance: random.Random) -> None:
    """Run all clients, and reload the gate while they are at work."""
    clients = [asyncio.create_task(misbehave(port, chance)) for _ in range(CLIENTS)]
    while not all(client.done() for client in clients):
        await asyncio.sleep(0.3)
        gate.process.send_signal(signal.SIGHUP)
    await asyncio.gather(*clients)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("limit", ["2", '"learned"\nhealthy_latency = 1', '2\nabandoned = "hold"'])
def test_no_permit_is_lost(tmp_path: Path, loop: str, limit: str) -> None:
    if importlib.util.find_spec(loop) is None:
        pytest.skip(f"{loop} is not installed")
    chance = random.Random(f"{loop} {limit}")

    async def check() -> None:
        over = asyncio.Event()
        async with origin_running(lambda reader, writer: fail_often(reader, writer, chance, over)) as origin:
            settings = tmp_path / "faults.toml"
            settings.write_text(
                f'[gate]\norigin = "http://127.0.0.1:{origin.port}"\nloop = "{loop}"\n'
                "[gate.timeouts]\nresponse = 0.5\nidle = 0.5\nheader = 0.5\nresponse_body = 0.5\n"
                f"[limit.concurrency]\nmax = {limit}\nqueue = 6\n"
                f'[[domain]]\nname = "streams"\nstreams = "{"un" if loop == "uvloop" else ""}counted"\n'
            )
            with programs.gate(tmp_path, "--config", settings) as gate:
                await run_clients(gate, gate.port, chance)
                await asyncio.to_thread(gate.until, lambda: is_idle(gate), "end of all requests")
                over.set()
                answers = [await asyncio.to_thread(gate.get) for _ in range(3)]
                assert [one.status for one in answers] == [200, 200, 200]
                await asyncio.to_thread(gate.until, lambda: is_idle(gate), "end of the last request")
                assert gate.end() == 0
                assert "Traceback" not in gate.said()

    asyncio.run(check())


@pytest.mark.parametrize(
    ("field", "upload"), [(b"Content-Length: 2", b""), (b"Content-Type: text/event-stream", b""), (b"X: y", b"hello")]
)
def test_the_origin_never_has_more_requests_than_max(tmp_path: Path, field: bytes, upload: bytes) -> None:
    """Whatever they are: responses with a slow body, event streams, slow uploads."""
    seen: list[int] = []
    at_origin: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        at_origin.add(writer)
        seen.append(len(at_origin))
        if upload:
            await reader.readexactly(len(upload))
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n%b\r\n\r\n" % field)
        await asyncio.sleep(0 if upload else 0.9)
        at_origin.remove(writer)
        writer.write(b"ok")

    async def ask(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(upload))
        writer.write(upload[:1])
        await asyncio.sleep(0.9)
        writer.write(upload[1:])
        answer = await reader.read()
        writer.close()
        return answer

    async def check() -> None:
        async with origin_running(serve) as origin:
            options = "--origin", f"http://127.0.0.1:{origin.port}", "--max-in-flight", "4"
            with programs.gate(tmp_path, *options) as gate:
                answers = await asyncio.gather(*(ask(gate.port) for _ in range(12)))
        assert all(answer.startswith(b"HTTP/1.1 200") for answer in answers)
        assert (len(seen), max(seen)) == (12, 4)

    asyncio.run(check())


def at_origin(gate: Program) -> tuple[int, int]:
    """Return how many requests count as in flight, and how many others are at the origin."""
    found = gate.state()["concurrency"]
    return found["in_flight"], found["uncounted"]


def is_idle(gate: Program) -> bool:
    """Return whether no request is at the origin or waits."""
    return (*at_origin(gate), gate.state()["concurrency"]["queued"]) == (0, 0, 0)


async def ask(gate: Program, path: bytes) -> asyncio.StreamWriter:
    """Send a request, and read the beginning of an event stream."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gate.port)
    writer.write(b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % path)
    if path == b"/events":
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    return writer


async def settled(gate: Program, expected: tuple[int, int]) -> None:
    """Wait until as many requests are at the origin."""
    await asyncio.to_thread(gate.until, lambda: at_origin(gate) == expected, str(expected))


def test_uncounted_streams_and_held_permits_are_in_the_state(tmp_path: Path) -> None:
    """The limit is 1: a stream beside it, and the permit of a client that left until the origin answers, or in time."""
    answer, arrived = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if b"/events" not in head:
            arrived.set()
        if b"/slow" in head:
            await answer.wait()
        if b"/never" not in head:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
        await reader.read()

    def gate(port: int, timeout: float) -> AbstractContextManager[Program]:
        (tmp_path / "limit.toml").write_text(
            f'[gate]\norigin = "http://127.0.0.1:{port}"\ntimeouts.response = {timeout}\n'
            '[limit.concurrency]\nmax = 1\nqueue = 0\nabandoned = "hold"\n'
            '[[domain]]\nname = "events"\npath_prefix = "/events"\nstreams = "uncounted"\n'
        )
        return programs.gate(tmp_path, "--config", tmp_path / "limit.toml")

    async def check() -> None:
        async with origin_running(serve) as origin:
            with gate(origin.port, 60) as patient:
                streams = [await ask(patient, b"/events") for _ in range(3)]
                await settled(patient, (0, 3))
                for stream in streams:
                    stream.close()
                await settled(patient, (0, 0))
                client = await ask(patient, b"/slow")
                await arrived.wait()  # a request that the origin has not received holds nothing
                await settled(patient, (1, 0))
                client.close()
                await asyncio.sleep(0.3)
                assert at_origin(patient) == (1, 0)
                assert (await asyncio.to_thread(patient.get)).status == 503
                answer.set()
                await settled(patient, (0, 0))
            arrived.clear()
            with gate(origin.port, 1) as impatient:  # what is held until its timeout may end before it is seen
                client = await ask(impatient, b"/never")
                await arrived.wait()
                client.close()
                await settled(impatient, (0, 0))

    asyncio.run(check())
